//! The behaviour rows as stages: in directories of mounted file systems, and of a mounted engine.

use crate::process::{self, Outcome, target_dir};
use std::process::Command;

/// A file system to run the rows on, the shell commands that put it on `$1`, in a mount namespace of its own, and options of
/// the runner.
const FILE_SYSTEMS: &[(&str, &str, &str)] = &[
    ("tmpfs", "mount -t tmpfs rows \"$1\"", ""),
    (
        "ext4",
        "truncate -s 256M \"$1.img\" && mkfs.ext4 -q -F -b 4096 \"$1.img\" && mount -o loop \"$1.img\" \"$1\"",
        "--without dir-order",
    ),
];

fn not_root() -> Option<Outcome> {
    let why = "rows on a kernel need root: they become other users";
    (!nix::unistd::geteuid().is_root()).then(|| Outcome::Skipped(why.into()))
}

/// The rows as the author of another file system runs them: in a directory of a tmpfs, and of an ext4 in a file.
pub(crate) fn dir() -> Outcome {
    if let Some(skipped) = not_root() {
        return skipped;
    }
    let mut unmounted = Vec::new();
    for (name, mount, options) in FILE_SYSTEMS {
        match rows_in(name, mount, options) {
            Outcome::Passed => {}
            Outcome::Skipped(why) => unmounted.push(why),
            failed @ Outcome::Failed(_) => return failed,
        }
    }
    if unmounted.is_empty() { Outcome::Passed } else { Outcome::Skipped(unmounted.join("; ")) }
}

/// The rows on a mounted engine, in both modes.
pub(crate) fn mount() -> Outcome {
    if let Some(skipped) = not_root() {
        return skipped;
    }
    if let Err(error) = std::fs::File::options().read(true).write(true).open("/dev/fuse") {
        return Outcome::Skipped(format!("/dev/fuse: {error}"));
    }
    let rcuwalk = match process::program("rcuwalk") {
        Ok(rcuwalk) => rcuwalk,
        Err(why) => return Outcome::Failed(why),
    };
    for mode in ["as-seen", "engine"] {
        let name = format!("mount-{mode}");
        let mount = format!("{} mount --{mode} -o suid,dev \"$1\"", rcuwalk.display());
        // Whether the kernel has an entry already may depend on what another row does at the time.
        let known =
            format!("--without cached --known-as {name} --divergences crates/fuse/tests/divergences.toml");
        match rows_in(&name, &mount, &known) {
            Outcome::Passed => {}
            failed => return failed,
        }
    }
    Outcome::Passed
}

/// `options` are further ones of the runner.
fn rows_in(name: &str, mount: &str, options: &str) -> Outcome {
    let dir = target_dir("rows-dir").join(name);
    if let Err(error) = std::fs::create_dir_all(&dir) {
        return Outcome::Failed(format!("{}: {error}", dir.display()));
    }
    let oracle = match process::program("rcuwalk-oracle") {
        Ok(oracle) => oracle,
        Err(why) => return Outcome::Failed(why),
    };
    let private = |script: &str| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]).arg(&dir);
        unshare
    };
    let outcome = if process::works(&mut private(&format!("{mount} && umount \"$1\""))) {
        let rows = format!("{} rows {options} --backend \"dir:$1\"", oracle.display());
        // Whatever rows leave behind is seen before the file system goes.
        let clean = "{ left=$(ls -A \"$1\" | grep -vx lost+found || true); [ -z \"$left\" ] || { echo \"left: $left\"; exit 1; }; }";
        // A server in the background is in this namespace, too, and would keep it.
        let all = format!(
            "{mount} && {{ {rows} && {clean}; ended=$?; umount \"$1\" || umount -l \"$1\"; exit $ended; }}"
        );
        process::run(&mut private(&all)).into()
    } else {
        Outcome::Skipped(format!("{name} cannot be mounted here (`{mount}`)"))
    };
    // The image; the directory is empty again once its mount namespace is gone.
    let _ = std::fs::remove_file(dir.with_extension("img"));
    outcome
}
