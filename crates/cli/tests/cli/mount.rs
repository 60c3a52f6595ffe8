//! `rcuwalk mount`, in the background, in the foreground and as mount(8)'s helper. Without root or /dev/fuse only what is refused.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
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
fn a_dead_mount_point_is_said_to_be_one() {
    if !possible() {
        return;
    }
    let point = tempfile::tempdir().unwrap();
    let _unmounts = Unmounts(point.path());
    let mut server: Child = rcuwalk(["mount", "-f"]).arg(point.path()).spawn().unwrap();
    wait_until("mounted", || is_mounted(point.path()));
    server.kill().unwrap();
    server.wait().unwrap();
    let output = rcuwalk(["mount"]).arg(point.path()).output().unwrap();
    assert!(stderr(&output).contains("ENOTCONN"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("not a directory"), "{}", stderr(&output));
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

/// A copy of the program where every user can run it, and a directory of user 1000's.
fn for_a_user() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let top = tempfile::tempdir().unwrap();
    fs::set_permissions(top.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (copy, point) = (top.path().join("rcuwalk"), top.path().join("point"));
    fs::copy(env!("CARGO_BIN_EXE_rcuwalk"), &copy).unwrap();
    fs::create_dir(&point).unwrap();
    std::os::unix::fs::chown(&point, Some(1000), Some(1000)).unwrap();
    (top, copy, point)
}

#[test]
fn an_ordinary_user_mounts_with_fusermount3() {
    if !possible() {
        return;
    }
    if Command::new("fusermount3").arg("--version").output().is_err() {
        return eprintln!("skipped: fusermount3 is not installed (package fuse3)");
    }
    let (top, rcuwalk, point) = for_a_user();
    // Everybody may open this device, whatever becomes of the machine's own: in a mount namespace that ends with the test.
    let device = top.path().join("fuse");
    let script = r#"mknod "$1" c 10 229 && chmod 666 "$1" && mount --bind "$1" /dev/fuse || exit 77
        exec setpriv --reuid=1000 --regid=1000 --clear-groups sh -euc '
            [ -w /dev/fuse ] || exit 77
            for mode in as-seen engine; do
                "$1" mount -o "threads=2,fsname=a b,$mode" "$2"
                echo hello > "$2/f"; ln "$2/f" "$2/g"
                [ "$(stat -c "%u %h" "$2/g")" = "1000 2" ]
                grep "$2 .* - fuse.rcuwalk a.040b .*user_id=1000" /proc/self/mountinfo
                fusermount3 -u "$2"
                ! [ -e "$2/f" ]
            done
            # A signal unmounts, although something is in use.
            "$1" mount -f "$2" & server=$!
            until grep -q "$2 " /proc/self/mountinfo; do sleep 0.05; done
            exec 3> "$2/busy"
            kill $server; wait $server
            ! grep "$2 " /proc/self/mountinfo
        ' sh "$2" "$3""#;
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
        .args([&device, &rcuwalk, &point])
        .output()
        .unwrap();
    if output.status.code() == Some(77) {
        return eprintln!("skipped: a device for everybody cannot be made here: {}", stderr(&output));
    }
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{out}\n{}", output.status, stderr(&output));
}

#[test]
fn an_ordinary_user_is_told_what_to_do() {
    if !possible() {
        return;
    }
    let (_top, copy, point) = for_a_user();
    let output = Command::new(&copy)
        .args(["mount", "-f"])
        .arg(&point)
        .env("FUSERMOUNT_PATH", "/nonexistent/fusermount3")
        .uid(1000)
        .gid(1000)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("fusermount3") && text.contains("package fuse3"), "{text}");
    assert!(!is_mounted(&point));
}
