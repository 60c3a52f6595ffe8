//! What several tests need.

use rustix::mount::{MountPropagationFlags, mount_change};

/// Runs `test` in a thread with its own mounts, or says why it can't. Threads it starts share the mounts.
pub(crate) fn with_own_mounts(test: impl FnOnce() + Send + 'static) {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: mounting needs root");
        return;
    }
    let checked = std::thread::spawn(|| {
        if let Err(e) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS) {
            println!("skipped: no mount namespace of its own: {e}");
            return;
        }
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        test();
    });
    checked.join().unwrap();
}
