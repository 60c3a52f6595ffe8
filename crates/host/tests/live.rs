//! Directories imported where they are.

mod common;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rcuwalk::uapi::{F_OK, R_OK, W_OK, X_OK};
use rcuwalk::{Cred, Errno, Vfs};
use rcuwalk_host::{ImportOptions, Live, Progress, import_live};

fn live(dir: &Path) -> (Vfs, Live) {
    let vfs = Vfs::new().unwrap();
    let live = import_live(&vfs, dir, &ImportOptions::default(), &Progress::new()).unwrap();
    (vfs, live)
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn directories_above_count() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("closed/inner");
    fs::create_dir_all(&inner).unwrap();
    fs::write(inner.join("f"), b"").unwrap();
    fs::write(dir.path().join("aside"), b"").unwrap();
    for path in [&inner, &inner.join("f")] {
        chmod(path, 0o755);
    }
    chmod(dir.path(), 0o755);
    chmod(&dir.path().join("closed"), 0o700);
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("closed/inner", &link).unwrap();

    let (vfs, live) = live(&link);
    assert_eq!(live.path, inner.canonicalize().unwrap(), "links are followed on the way to it");
    let file = live.path.join("f");
    let file = file.as_os_str().as_bytes();
    let stranger = vfs.task(Cred::user(54321, 54321, &[]));
    assert_eq!(vfs.task(Cred::root()).access(file, R_OK), Ok(()));
    assert_eq!(stranger.access(file, F_OK), Err(Errno::EACCES));
    let aside = dir.path().canonicalize().unwrap().join("aside");
    let gone = vfs.task(Cred::root()).access(aside.as_os_str().as_bytes(), F_OK);
    assert_eq!(gone, Err(Errno::ENOENT), "nothing else of what lies above");
    assert_eq!(live.report.entries(), 2);
}

#[test]
fn mounts_forbid_what_they_forbid() {
    common::with_own_mounts(|| {
        use rustix::mount::{MountFlags, mount, mount_remount};
        let dir = tempfile::tempdir().unwrap();
        let tmpfs = |name: &str| {
            let at = dir.path().join(name);
            fs::create_dir_all(&at).unwrap();
            mount("none", &at, "tmpfs", MountFlags::empty(), None::<&std::ffi::CStr>).unwrap();
            fs::write(at.join("f"), b"").unwrap();
            chmod(&at.join("f"), 0o777);
            at
        };
        let restrict = |name: &str, flags| {
            mount_remount(dir.path().join(name), MountFlags::BIND | flags, "").unwrap();
        };
        tmpfs("ro space");
        tmpfs("ro space/rw");
        tmpfs("ro space/rw/noexec");
        tmpfs("plain");
        let proc = dir.path().join("proc");
        fs::create_dir(&proc).unwrap();
        mount("none", &proc, "proc", MountFlags::empty(), None::<&std::ffi::CStr>).unwrap();
        restrict("ro space", MountFlags::RDONLY);
        restrict("ro space/rw/noexec", MountFlags::NOEXEC | MountFlags::NOSUID);

        let (vfs, whole) = live(dir.path());
        let proc = proc.canonicalize().unwrap();
        assert_eq!(whole.left_out, std::slice::from_ref(&proc), "procfs has rules of its own");
        let inside = proc.join("self");
        assert_eq!(vfs.task(Cred::root()).access(inside.as_os_str().as_bytes(), F_OK), Err(Errno::ENOENT));

        let compare = |top: &Path| {
            let (vfs, live) = live(top);
            assert_eq!(live.report.problems, []);
            let task = vfs.task(Cred::root());
            let files = ["ro space/f", "ro space/rw/f", "ro space/rw/noexec/f", "plain/f"];
            for file in files.map(|file| dir.path().canonicalize().unwrap().join(file)) {
                for (mode, access) in
                    [(W_OK, rustix::fs::Access::WRITE_OK), (X_OK, rustix::fs::Access::EXEC_OK)]
                {
                    let host = rustix::fs::access(&file, access).map_err(|e| e.raw_os_error());
                    let engine = task.access(file.as_os_str().as_bytes(), mode).map_err(Errno::raw);
                    if file.starts_with(&live.path) {
                        assert_eq!(engine, host, "{file:?} {mode}");
                    }
                }
            }
        };
        for top in ["", "ro space", "ro space/rw", "ro space/rw/noexec", "plain"] {
            compare(&dir.path().join(top));
        }
    });
}
