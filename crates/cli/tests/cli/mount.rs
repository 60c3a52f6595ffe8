//! `rcuwalk mount`, in the background, in the foreground and as mount(8)'s helper. Without root or /dev/fuse only what is refused.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
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

/// Unmounts, and asks again while it is busy: see [`rcuwalk_umount`].
pub(crate) fn umount(point: &Path) {
    wait_until("unmounted", || {
        let said = Command::new("umount").arg(point).output().unwrap();
        assert!(said.status.success() || stderr(&said).contains("busy"), "{}", stderr(&said));
        said.status.success()
    });
}

/// What `rcuwalk umount` says. A process that another test has just forked has this one's files open until it runs its program:
/// while that keeps the tree busy, it is asked again.
pub(crate) fn rcuwalk_umount(point: &Path) -> Output {
    let mut output = None;
    wait_until("not busy", || {
        let said = rcuwalk(["umount"]).arg(point).output().unwrap();
        let busy = stderr(&said).contains("(os error 16)");
        output = Some(said);
        !busy
    });
    output.unwrap()
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
fn umount_waits_for_the_server_and_says_what_is_wrong() {
    if !possible() {
        return;
    }
    let (bin, point) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (point, other) = (point.path(), bin.path().join("other"));
    let _unmounts = Unmounts(point);
    let umount = |args: &[&str]| {
        let output = rcuwalk(["umount"]).args(args).arg(point).output().unwrap();
        (output.status.code(), stderr(&output))
    };
    let (code, text) = umount(&[]);
    assert!(code == Some(2) && text.contains("no tree of rcuwalk is mounted there"), "{text}");
    for mode in ["--as-seen", "--engine"] {
        let mut server: Child = rcuwalk(["mount", "-f", mode]).arg(point).spawn().unwrap();
        wait_until("mounted", || is_mounted(point));
        let busy = fs::File::create(point.join("f")).unwrap();
        let (code, text) = umount(&[]);
        assert!(code == Some(2) && text.contains("still mounted") && is_mounted(point), "{text}");
        drop(busy);
        assert_eq!(umount(&[]), (Some(0), String::new()));
        // It has ended: nothing is left to wait for, though it is not reaped yet.
        let state = fs::read_to_string(format!("/proc/{}/stat", server.id())).unwrap();
        assert!(state.contains(") Z "), "{state}");
        assert_eq!(server.wait().unwrap().code(), Some(0));
    }
    // As umount(8) calls it. A second place where the same tree is seen is told of.
    let helper = bin.path().join("umount.fuse.rcuwalk");
    symlink(env!("CARGO_BIN_EXE_rcuwalk"), &helper).unwrap();
    fs::create_dir(&other).unwrap();
    assert!(rcuwalk(["mount"]).arg(point).status().unwrap().success());
    assert!(Command::new("mount").arg("--bind").arg(point).arg(&other).status().unwrap().success());
    let first = Command::new(&helper).arg(point).args(["-n", "-t", "fuse.rcuwalk"]).output().unwrap();
    let second = Command::new(&helper).arg(&other).output().unwrap();
    assert!(
        first.status.success() && stderr(&first).contains("the same tree is mounted on"),
        "{}",
        stderr(&first)
    );
    assert!(second.status.success() && stderr(&second).is_empty(), "{}", stderr(&second));
    // A server that is killed loses what was not committed.
    let mut server: Child = rcuwalk(["mount", "-f"]).arg(point).spawn().unwrap();
    wait_until("mounted", || is_mounted(point));
    server.kill().unwrap();
    server.wait().unwrap();
    let (code, text) = umount(&[]);
    assert!(code == Some(2) && text.contains("its server was gone") && !is_mounted(point), "{text}");
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

/// The process that serves what is mounted at `point`, as the tree tells.
fn server_of(point: &Path) -> String {
    let mut about = [0; 256];
    let len = rustix::fs::getxattr(point, rcuwalk_fuse::ABOUT, &mut about).unwrap();
    std::str::from_utf8(&about[..len]).unwrap().split(' ').next().unwrap().to_owned()
}

#[test]
fn a_daemon_is_named_after_what_it_serves() {
    if !possible() {
        return;
    }
    let point = tempfile::tempdir().unwrap();
    let _unmounts = Unmounts(point.path());
    let output = rcuwalk(["mount", "--limit", "1M", "-o", "noexec"]).arg(point.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let proc = Path::new("/proc").join(server_of(point.path()));
    assert_eq!(fs::read_to_string(proc.join("comm")).unwrap(), "rcuwalk\n");
    let arguments = fs::read_to_string(proc.join("cmdline")).unwrap().replace('\0', " ");
    let expected = format!("rcuwalk mount --limit 1M -o noexec {} --daemon ", point.path().display());
    assert_eq!(arguments, expected);
    umount(point.path());
}

/// KiB of memory that a process has of its own.
fn resident(pid: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn memory_of_what_was_removed_goes_back() {
    const FILES: u64 = 20_000;
    if !possible() {
        return;
    }
    for mode in ["--as-seen", "--engine"] {
        let point = tempfile::tempdir().unwrap();
        let _unmounts = Unmounts(point.path());
        let output = rcuwalk(["mount", "--limit", "1G", mode]).arg(point.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let server = server_of(point.path());
        let fill = |dir: &str, files: u64| {
            fs::create_dir(point.path().join(dir)).unwrap();
            (0..files).for_each(|n| fs::write(point.path().join(dir).join(n.to_string()), "x").unwrap());
        };
        fill("kept", 10);
        let before = resident(&server);
        fill("removed", FILES);
        let full = resident(&server);
        assert!(full > before + 4 * FILES, "each file takes a page: {before}, {full} KiB");
        fill("kept too", 10);
        fs::remove_dir_all(point.path().join("removed")).unwrap();
        // What stays are buckets of the hash table, and memory for the next names.
        let most = before + (full - before) / 10;
        wait_until(
            &format!("{mode}: at {before} KiB before, {full} KiB full, and at most {most} KiB after"),
            || resident(&server) <= most,
        );
        let survivor = fs::read_to_string(point.path().join("kept too/9")).unwrap();
        assert_eq!(survivor, "x");
        umount(point.path());
    }
}

#[test]
fn a_daemon_ends_when_nobody_can_reach_its_tree() {
    if !possible() {
        return;
    }
    let (dir, point) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let image = dir.path().join("tree.image");
    let script = r#""$1" mount --image "$2" "$3" && echo kept >"$3/f" && getfattr --only-values -n system.rcuwalk "$3""#;
    let output = Command::new("unshare")
        .args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            script,
            "sh",
            env!("CARGO_BIN_EXE_rcuwalk"),
        ])
        .args([&image, point.path()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let server = String::from_utf8(output.stdout).unwrap();
    let server = Path::new("/proc").join(server.split(' ').next().unwrap());
    // It may wait for its parent, which is whatever process takes in orphans.
    let is_zombie = |stat: String| stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('Z'));
    wait_until("the server has ended", || fs::read_to_string(server.join("stat")).map_or(true, is_zombie));
    let listed = rcuwalk(["image", "check"]).arg(&image).output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains(": whole, 2 entries\n"), "{}", stderr(&listed));
}

#[test]
fn what_cannot_be_had_is_refused() {
    if !possible() {
        return;
    }
    let (_top, copy, point) = for_a_user();
    for options in ["suid", "dev", "suid,dev"] {
        let refused = Command::new(&copy)
            .args(["mount", "-o", options])
            .arg(&point)
            .uid(1000)
            .gid(1000)
            .output()
            .unwrap();
        assert_eq!(refused.status.code(), Some(2), "{options}");
        assert!(stderr(&refused).contains("for root alone"), "{}", stderr(&refused));
    }
    let mut inside = Command::new("unshare");
    let refused = inside
        .args(["-Um", "--map-root-user"])
        .arg(&copy)
        .args(["mount", "-o", "dev"])
        .arg(&point)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("opens no devices"), "{}", stderr(&refused));
}

#[test]
fn ten_problems_of_a_source_are_named_and_all_are_counted() {
    if !possible() {
        return;
    }
    let (dir, point) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let _unmounts = Unmounts(point.path());
    let archive = dir.path().join("hostile.tar");
    let mut tar = tar::Builder::new(fs::File::create(&archive).unwrap());
    for n in 0..25 {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Link);
        header.set_size(0);
        header.set_mode(0o644);
        tar.append_link(&mut header, format!("link{n}"), format!("missing{n}")).unwrap();
    }
    tar.finish().unwrap();
    let output = rcuwalk(["mount"]).arg(&archive).arg(point.path()).output().unwrap();
    let text = stderr(&output);
    assert!(text.contains("note: 25 entries are not as in the source; the first:\n"), "{text}");
    assert_eq!(text.matches("\n  ").count(), 10, "{text}");
    assert!(text.contains("link0") && text.contains("link9") && !text.contains("link10"), "{text}");
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
