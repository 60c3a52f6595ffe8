//! `rcuwalk save`, `rcuwalk image`, `rcuwalk mount --image`, and images as sources.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use crate::common::{rcuwalk, sample, stderr, stdout};
use crate::mount::{Unmounts, is_mounted, possible, rcuwalk_umount, umount, wait_until};

#[test]
fn a_saved_tree_is_a_source() {
    let (source, dir) = (sample(), tempfile::tempdir().unwrap());
    let image = dir.path().join("tree.image");
    let output = rcuwalk(["save"]).arg(source.path()).arg(&image).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).starts_with("8 entries in "), "{}", stdout(&output));
    for args in [&["ls", "IMAGE", "/etc"][..], &["tree", "IMAGE"], &["stat", "IMAGE", "/run"]] {
        let of = |place: &Path| {
            let args = args.iter().map(|arg| if *arg == "IMAGE" { place.as_os_str() } else { arg.as_ref() });
            rcuwalk(args).output().unwrap()
        };
        let (there, here) = (of(&image), of(source.path()));
        assert!(there.status.success(), "{}", stderr(&there));
        assert_eq!(stdout(&there), stdout(&here), "{args:?}");
    }
    let refused = rcuwalk(["access", "-r", "--as", "1000"]).arg(&image).arg("/shut/in").output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    // A copy of a copy, and in place of what was there.
    assert!(rcuwalk(["save"]).arg(&image).arg(&image).output().unwrap().status.success());
    let info = rcuwalk(["image", "info", "--json"]).arg(&image).output().unwrap();
    let facts: serde_json::Value = serde_json::from_str(&stdout(&info)).unwrap();
    assert_eq!((facts["entries"].as_u64(), facts["size_bytes"].as_u64()), (Some(8), Some(7)));
    assert!(stdout(&rcuwalk(["image", "info"]).arg(&image).output().unwrap()).contains("version 1"));
}

#[test]
fn what_is_damaged_or_none_is_named() {
    let (source, dir) = (sample(), tempfile::tempdir().unwrap());
    let image = dir.path().join("tree.image");
    assert!(rcuwalk(["save"]).arg(source.path()).arg(&image).output().unwrap().status.success());
    let check = |file: &Path| rcuwalk(["image", "check"]).arg(file).output().unwrap();
    assert_eq!(stdout(&check(&image)), format!("{}: whole, 8 entries\n", image.display()));
    let len = fs::metadata(&image).unwrap().len();
    for at in (4096..len).step_by(512) {
        File::options().write(true).open(&image).unwrap().write_all_at(&[0xa5; 8], at).unwrap();
    }
    let before = fs::read(&image).unwrap();
    for command in [&["image", "check"][..], &["image", "info"], &["ls"]] {
        let output = rcuwalk(command).arg(&image).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("is damaged"), "{}", stderr(&output));
        assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    }
    assert!(fs::read(&image).unwrap() == before, "it is looked at, and no more");
    fs::write(&image, "hello").unwrap();
    let output = check(&image);
    assert!(stderr(&output).contains("no tree image"), "{}", stderr(&output));
    assert_eq!(check(&dir.path().join("missing")).status.code(), Some(2));
}

/// A server in the foreground, once it serves.
fn serve(image: &Path, point: &Path, more: &[&str]) -> Child {
    let server = rcuwalk(["mount", "-f", "--image"]).arg(image).args(more).arg(point).spawn().unwrap();
    wait_until("mounted", || is_mounted(point));
    server
}

/// Contents that follow from a name.
fn contents(name: &str) -> Vec<u8> {
    let len = name.bytes().fold(7_usize, |sum, byte| (sum * 31 + usize::from(byte)) % 40_000);
    name.bytes().cycle().take(len + 1).collect()
}

#[test]
fn a_mount_in_an_image_comes_back() {
    if !possible() {
        return;
    }
    let (source, dir, point) = (sample(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (image, point) = (dir.path().join("tree.image"), point.path());
    let _unmounts = Unmounts(point);
    for (round, mode) in ["--as-seen", "--engine", "--as-seen"].into_iter().enumerate() {
        let mut command = rcuwalk(["mount", mode, "--image"]);
        command.arg(&image);
        if round == 0 {
            command.arg(source.path());
        }
        let output = command.arg(point).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        if round > 0 {
            assert_eq!(fs::read_to_string(point.join("new")).unwrap(), format!("round {}", round - 1));
            assert_eq!(
                fs::metadata(point.join("hard")).unwrap().permissions(),
                fs::metadata(source.path().join("run")).unwrap().permissions()
            );
        } else {
            fs::hard_link(point.join("run"), point.join("hard")).unwrap();
        }
        fs::write(point.join("new"), format!("round {round}")).unwrap();
        let busy = rcuwalk(["image", "check"]).arg(&image).output().unwrap();
        assert_eq!(busy.status.code(), Some(3), "{}", stderr(&busy));
        assert!(stdout(&busy).contains(": in use, as of commit "), "{}", stdout(&busy));
        assert!(!stdout(&busy).contains("whole"), "{}", stdout(&busy));
        let output = rcuwalk_umount(point);
        assert!(output.status.success(), "{}", stderr(&output));
        // It has waited: the image is closed.
        let check = rcuwalk(["image", "check"]).arg(&image).output().unwrap();
        assert!(stdout(&check).contains(": whole, 10 entries\n"), "{}", stdout(&check));
    }
    let again = rcuwalk(["mount", "--image"]).arg(&image).arg(source.path()).arg(point).output().unwrap();
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr(&again).contains("has a tree already"), "{}", stderr(&again));
}

#[test]
fn a_copy_of_an_image_in_use_says_so() {
    if !possible() {
        return;
    }
    let (dir, point) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (image, copy, point) = (dir.path().join("tree.image"), dir.path().join("copy"), point.path());
    let _unmounts = Unmounts(point);
    assert!(rcuwalk(["mount", "--image"]).arg(&image).arg(point).status().unwrap().success());
    let check = |image: &Path| rcuwalk(["image", "check"]).arg(image).output().unwrap();
    let commit = |text: &str| -> u64 {
        let number = text.split("as of commit ").nth(1).expect("a number").split(':').next().unwrap();
        number.parse().expect("a number")
    };
    let first = commit(&stdout(&check(&image)));
    fs::write(point.join("f"), "x").unwrap();
    File::open(point.join("f")).unwrap().sync_all().unwrap();
    let synced = check(&image);
    assert!(
        commit(&stdout(&synced)) > first && stdout(&synced).contains(": 2 entries"),
        "{}",
        stdout(&synced)
    );
    fs::copy(&image, &copy).unwrap();
    let copied = check(&copy);
    assert_eq!(copied.status.code(), Some(0), "{}", stderr(&copied));
    assert!(stdout(&copied).contains("it was not closed"), "{}", stdout(&copied));
    assert_eq!(commit(&stdout(&copied)), commit(&stdout(&synced)));
    let info = rcuwalk(["image", "info", "--json"]).arg(&image).output().unwrap();
    let facts: serde_json::Value = serde_json::from_str(&stdout(&info)).unwrap();
    assert_eq!((facts["in_use"].as_bool(), facts["closed"].as_bool()), (Some(true), Some(false)));
    assert!(rcuwalk_umount(point).status.success());
    assert!(!stdout(&check(&image)).contains("not closed"));
}

/// A small tmpfs, with an image in it and a tree mounted beside.
struct Full {
    dir: tempfile::TempDir,
}

impl Full {
    fn new() -> Full {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=8m,noswap", "full"])
            .arg(dir.path())
            .status()
            .unwrap();
        assert!(mounted.success());
        Full { dir }
    }

    fn fill(&self) {
        let mut other = File::create(self.dir.path().join("other")).unwrap();
        for size in [65536, 4096, 1] {
            while other.write_all(&vec![1; size]).is_ok() {}
        }
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        // A process that another test has just forked has the image open until it runs its program.
        let umount = || Command::new("umount").arg(self.dir.path()).status().unwrap();
        wait_until("the full file system is not busy", || umount().success());
    }
}

#[test]
fn umount_tells_how_the_last_commit_went() {
    if !possible() {
        return;
    }
    let (full, points) = (Full::new(), tempfile::tempdir().unwrap());
    let (image, point) = (full.dir.path().join("tree.image"), points.path());
    let _unmounts = Unmounts(point);
    let umount = |more: &[&str]| {
        let output = rcuwalk(["umount"]).args(more).arg(point).output().unwrap();
        (output.status.code(), stderr(&output))
    };
    // As in a file system where no room can be kept: what fills it afterwards makes the commit fail.
    let bound = points.path().with_extension("bound");
    fs::write(&bound, "").unwrap();
    assert!(rcuwalk(["save"]).arg(sample().path()).arg(&image).output().unwrap().status.success());
    assert!(Command::new("mount").arg("--bind").arg(&image).arg(&bound).status().unwrap().success());
    let mounted = rcuwalk(["mount", "--image"]).arg(&bound).arg(point).status().unwrap();
    let written = fs::write(point.join("new"), vec![7; 1 << 20]);
    full.fill();
    let refused = umount(&[]);
    let still = is_mounted(point);
    fs::remove_file(full.dir.path().join("other")).unwrap();
    let done = umount(&[]);
    crate::mount::umount(&bound);
    fs::remove_file(&bound).unwrap();
    assert!(mounted.success() && written.is_ok());
    assert_eq!(refused.0, Some(2), "{}", refused.1);
    assert!(refused.1.contains("it is still mounted") && still, "{}", refused.1);
    assert_eq!(done, (Some(0), String::new()));
    let listed = rcuwalk(["ls"]).arg(&image).output().unwrap();
    assert!(stdout(&listed).contains("new"), "{}", stderr(&listed));
}

/// The server is killed while files are written, synced and renamed: all that was synced is there, and nothing is broken.
#[test]
fn a_killed_server_loses_nothing_that_was_synced() {
    if !possible() {
        return;
    }
    let rounds = std::env::var("RCUWALK_CRASH_ROUNDS").map_or(8, |rounds| rounds.parse().unwrap());
    let (dir, point) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (image, point) = (dir.path().join("tree.image"), point.path());
    let _unmounts = Unmounts(point);
    let mut durable = BTreeMap::new();
    let mut synced = 0;
    for round in 0..rounds {
        let mut server = serve(&image, point, &[]);
        for (name, bytes) in &durable {
            assert!(fs::read(point.join(name)).unwrap() == *bytes, "round {round}: {name}");
        }
        // What is there beside was not synced, and is whole or short.
        for entry in fs::read_dir(point).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let (found, whole) = (fs::read(&path).unwrap(), contents(name.trim_end_matches(".new")));
            assert!(
                whole.starts_with(&found) || found.iter().all(|&byte| byte == 0),
                "round {round}: {name}"
            );
            if !durable.contains_key(&name) {
                fs::remove_file(path).unwrap();
            }
        }
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(15 + (round * 37) % 120));
            server.kill().unwrap();
            server.wait().unwrap();
        });
        for i in 0.. {
            // Few names, so that files are replaced, too.
            let name = format!("{}", (round * 7 + i) % 40);
            match write_synced(point, &name) {
                Ok(()) => drop(durable.insert(name.clone(), contents(&name))),
                Err(_) => break,
            }
            synced += 1;
        }
        killer.join().unwrap();
        assert!(Command::new("umount").arg("-l").arg(point).status().unwrap().success());
    }
    let output = rcuwalk(["image", "check"]).arg(&image).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    println!("{rounds} kills, {synced} files synced");
    assert!(synced > rounds, "there is something to lose");
}

/// Replaces a file as careful programs do.
fn write_synced(dir: &Path, name: &str) -> std::io::Result<()> {
    let new = dir.join(format!("{name}.new"));
    let mut file = File::create(&new)?;
    file.write_all(&contents(name))?;
    file.sync_all()?;
    fs::rename(&new, dir.join(name))?;
    File::open(dir)?.sync_all()
}

/// The disk under the image is full: that is told, nothing is lost, and once there is room it goes on by itself.
#[test]
fn a_full_disk_is_told_of() {
    if !possible() {
        return;
    }
    let (disk, point) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (disk, point) = (disk.path(), point.path());
    let small = Command::new("mount").args(["-t", "tmpfs", "-o", "size=6m", "none"]).arg(disk).status();
    assert!(small.unwrap().success());
    let _disk = Unmounts(disk);
    let _unmounts = Unmounts(point);
    let (image, filler) = (disk.join("tree.image"), disk.join("filler"));
    fs::write(&filler, vec![7; 4 << 20]).unwrap();
    let mut server = serve(&image, point, &["--limit", "64M"]);
    write_synced(point, "first").unwrap();
    let mut file = File::create(point.join("large")).unwrap();
    let mut written = 0;
    let full = loop {
        if let Err(e) = file.write_all(&[7; 1 << 18]) {
            break e;
        }
        written += 1 << 18;
        if let Err(e) = file.sync_all() {
            break e;
        }
        assert!(written < 32 << 20, "it never fills");
    };
    assert_eq!(full.raw_os_error(), Some(28), "ENOSPC");
    assert!(written > 0 && fs::read(point.join("first")).unwrap() == contents("first"));
    fs::remove_file(filler).unwrap();
    wait_until("there is room again", || write_synced(point, "second").is_ok());
    drop(file);
    umount(point);
    assert!(server.wait().unwrap().success());
    let mut server = serve(&image, point, &[]);
    for name in ["first", "second"] {
        assert_eq!(fs::read(point.join(name)).unwrap(), contents(name));
    }
    assert!(fs::read(point.join("large")).unwrap() == vec![7; written], "all that was accepted");
    umount(point);
    assert!(server.wait().unwrap().success());
}

/// The server must ask nothing of the mount that waits for it.
#[test]
fn an_image_may_lie_below_its_own_mount_point() {
    if !possible() {
        return;
    }
    let point = tempfile::tempdir().unwrap();
    let (image, f) = (point.path().join("t.image"), point.path().join("f"));
    let _unmounts = Unmounts(point.path());
    for text in ["one", "two"] {
        let output = rcuwalk(["mount", "--image"]).arg(&image).arg(point.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        fs::write(&f, text).unwrap();
        // A file system that hangs does so for ever.
        let synced = Command::new("timeout").args(["-k", "1", "20", "sync"]).arg(&f).status().unwrap();
        assert!(synced.success(), "{synced}");
        umount(point.path());
        let kept = rcuwalk(["ls"]).arg(&image).output().unwrap();
        assert!(stdout(&kept).contains('f'), "{}", stderr(&kept));
    }
}

#[test]
fn a_mount_that_fails_leaves_no_image_behind() {
    let dir = tempfile::tempdir().unwrap();
    let (image, file) = (dir.path().join("new.image"), dir.path().join("file"));
    fs::write(&file, "").unwrap();
    for point in [&file, &dir.path().join("missing")] {
        let output = rcuwalk(["mount", "--image"]).arg(&image).arg(point).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("mounting: "), "{}", stderr(&output));
        assert!(!image.exists(), "{}", stderr(&output));
    }
}

/// Room for changes is kept beside the image, and here that is another file system.
#[test]
fn a_mount_says_when_no_room_is_kept() {
    if !possible() {
        return;
    }
    let (dir, point, disk) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let image = dir.path().join("tree.image");
    assert!(rcuwalk(["save"]).arg(disk.path()).arg(&image).status().unwrap().success());
    let mount = |args: &[&str], source: &Path, point: &Path| {
        Command::new("mount").args(args).arg(source).arg(point).status().unwrap().success()
    };
    if !mount(&["-t", "tmpfs"], Path::new("none"), disk.path()) {
        eprintln!("skipped: a tmpfs cannot be mounted here");
        return;
    }
    let _unmounts = [Unmounts(disk.path()), Unmounts(point.path())];
    let bound = disk.path().join("bound.image");
    File::create(&bound).unwrap();
    assert!(mount(&["--bind"], &image, &bound));
    let _unmounts_image = Unmounts(&bound);
    for (image, is_noted) in [(&image, false), (&bound, true)] {
        let output = rcuwalk(["mount", "--image"]).arg(image).arg(point.path()).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(stderr(&output).contains("note: no room is kept for changes of"), is_noted, "{output:?}");
        umount(point.path());
    }
}

/// A daemon has no terminal. The script has a `/dev` of its own, in which the test is the system's log.
#[test]
fn a_commit_that_fails_is_told_of_on_the_terminal_or_in_the_log() {
    if !possible() {
        return;
    }
    // No room is kept for an image that is mounted beside another file system; so others can take it.
    let script = r#"
        cd "$1" && mkdir point disk other
        cp -a /dev/null /dev/zero /dev/fuse dev/ && mount --bind dev /dev || exit 1
        mount -t tmpfs -o size=8m none disk && mount -t tmpfs none other || exit 1
        mv kept disk/tree.image && touch other/tree.image && mount --bind disk/tree.image other/tree.image || exit 1
        "$0" mount $2 --image other/tree.image point &
        for i in $(seq 200); do mountpoint -q point && break; sleep 0.1; done
        head -c 1000000 /dev/zero > point/file
        head -c 9000000 /dev/zero > disk/filler
        sync point/file && exit 1
        sleep 1
        umount point || exit 1
        wait
    "#;
    for how in ["", "--foreground"] {
        let dir = tempfile::tempdir().unwrap();
        let dev = dir.path().join("dev");
        fs::create_dir(&dev).unwrap();
        let log = UnixDatagram::bind(dev.join("log")).unwrap();
        log.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert!(rcuwalk(["save"]).arg(&dev).arg(dir.path().join("kept")).status().unwrap().success());
        let output = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script, env!("CARGO_BIN_EXE_rcuwalk")])
            .arg(dir.path())
            .arg(how)
            .output()
            .unwrap();
        let terminal = stderr(&output);
        assert!(output.status.success(), "{terminal}");
        let expected = [
            "image: a commit failed, and is tried again: ",
            "image: closing; what was not committed is lost: ",
        ];
        for expected in expected {
            let mut message = [0; 1000];
            let said = if how.is_empty() {
                let len = log.recv(&mut message).expect("the log hears of it");
                String::from_utf8_lossy(&message[..len])
            } else {
                terminal.lines().find(|line| line.contains(expected)).unwrap_or(&terminal).into()
            };
            assert!(said.contains(expected) && said.contains("No space left on device"), "{how}: {said}");
        }
    }
}
