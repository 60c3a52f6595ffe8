//! `rcuwalk mount`, in the background, in the foreground and as mount(8)'s helper. Without root or /dev/fuse only what is refused.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::common::{rcuwalk, sample, stderr};

pub(crate) fn possible() -> bool {
    let possible = rustix::process::geteuid().is_root()
        && fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !possible {
        eprintln!("skipped: mounting needs root and /dev/fuse");
    }
    possible
}

pub(crate) fn is_mounted(point: &Path) -> bool {
    let point = point.canonicalize().unwrap();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == point.to_str())
}

pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn umount(point: &Path) {
    assert!(Command::new("umount").arg(point).status().unwrap().success());
}

/// Unmounts whatever becomes of a test.
pub(crate) struct Unmounts<'a>(pub(crate) &'a Path);

impl Drop for Unmounts<'_> {
    fn drop(&mut self) {
        if is_mounted(self.0) {
            let _ = Command::new("umount").arg("-l").arg(self.0).status();
        }
    }
}

#[test]
fn a_directory_in_the_background() {
    if !possible() {
        return;
    }
    let (source, point) = (sample(), tempfile::tempdir().unwrap());
    let _unmounts = Unmounts(point.path());
    for mode in ["--as-seen", "--engine"] {
        let output = rcuwalk(["mount", mode]).arg(source.path()).arg(point.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        // It is there when the command returns, and is a copy.
        assert_eq!(fs::read_to_string(point.path().join("etc/link")).unwrap(), "hello");
        fs::write(point.path().join("etc/open"), "changed").unwrap();
        assert_eq!(fs::read_to_string(source.path().join("etc/open")).unwrap(), "hello");
        umount(point.path());
    }
}

#[test]
fn signals_unmount() {
    if !possible() {
        return;
    }
    let point = tempfile::tempdir().unwrap();
    let _unmounts = Unmounts(point.path());
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let mut server: Child = rcuwalk(["mount", "-f"]).arg(point.path()).spawn().unwrap();
        wait_until("mounted", || is_mounted(point.path()));
        fs::write(point.path().join("f"), "x").unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_child(&server), signal).unwrap();
        assert_eq!(server.wait().unwrap().code(), Some(0));
        assert!(!is_mounted(point.path()) && !point.path().join("f").exists());
    }
}

#[test]
fn the_helper_of_mount() {
    if !possible() {
        return;
    }
    let (bin, point) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let _unmounts = Unmounts(point.path());
    let helper = bin.path().join("mount.rcuwalk");
    symlink(env!("CARGO_BIN_EXE_rcuwalk"), &helper).unwrap();
    let output = Command::new(&helper)
        .arg("none")
        .arg(point.path())
        .args(["-n", "-o", "rw,noexec,limit=1M,x-systemd.automount,engine"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let space = rustix::fs::statvfs(point.path()).unwrap();
    assert_eq!(space.f_blocks * space.f_frsize, 1 << 20);
    assert!(fs::write(point.path().join("big"), vec![0; 2 << 20]).is_err());
    umount(point.path());
}

#[test]
fn a_tree_that_does_not_fit_is_not_mounted() {
    if !possible() {
        return;
    }
    let (source, point) = (sample(), tempfile::tempdir().unwrap());
    fs::write(source.path().join("big"), vec![1; 1 << 20]).unwrap();
    let output = rcuwalk(["mount", "--limit", "64K"]).arg(source.path()).arg(point.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("ENOSPC"), "{}", stderr(&output));
    assert!(!is_mounted(point.path()));
}

#[test]
fn what_is_wrong_is_said_before_the_command_returns() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let missing = dir.path().join("missing");
    let refused = |args: &[&std::ffi::OsStr], parts: &[&str]| {
        let output = rcuwalk(["mount"]).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let text = stderr(&output);
        parts.iter().for_each(|part| assert!(text.contains(part), "{part}: {text}"));
    };
    refused(&[missing.as_os_str()], &["mounting: ", "missing: ", "mkdir -p"]);
    refused(&[file.as_os_str()], &["file: not a directory"]);
    refused(&[missing.as_os_str(), dir.path().as_os_str()], &["importing: ", "missing"]);
    refused(&["-o".as_ref(), "bogus".as_ref(), dir.path().as_os_str()], &["-o bogus: no such option"]);
    refused(&["--limit".as_ref(), "much".as_ref(), dir.path().as_os_str()], &["'much' is no size"]);
    refused(
        &["a".as_ref(), "b".as_ref(), "c".as_ref()],
        &["Usage: rcuwalk mount [OPTIONS] [SOURCE] MOUNTPOINT"],
    );
}

#[test]
fn an_ordinary_user_is_told_what_to_do() {
    if !possible() {
        return;
    }
    // Somebody who owns the directory but cannot be helped by fusermount3.
    let point = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(point.path(), Some(1000), Some(1000)).unwrap();
    let bin = tempfile::tempdir().unwrap();
    fs::set_permissions(bin.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let copy = bin.path().join("rcuwalk");
    fs::copy(env!("CARGO_BIN_EXE_rcuwalk"), &copy).unwrap();
    let output = Command::new(&copy)
        .args(["mount", "-f"])
        .arg(point.path())
        .env("FUSERMOUNT_PATH", "/nonexistent/fusermount3")
        .uid(1000)
        .gid(1000)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("fusermount3") || text.contains("/dev/fuse"), "{text}");
    assert!(!is_mounted(point.path()));
}
