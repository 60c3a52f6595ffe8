//! What was there comes back, all of it.

mod common;

use common::{Random, assert_same, call, snapshot};
use rcuwalk::uapi::*;
use rcuwalk::{Cred, Errno, Vfs};
use rcuwalk_image::{Contents, Error, Live, Options, check, load, save};
use std::path::PathBuf;
use std::time::Duration;

struct Place {
    _dir: tempfile::TempDir,
    file: PathBuf,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    Place { file: dir.path().join("tree.image"), _dir: dir }
}

/// Nothing is committed but on request.
fn quiet() -> Options {
    Options { interval: Duration::from_secs(3600), ..Options::default() }
}

#[test]
fn random_trees_come_back_after_any_number_of_commits() {
    for seed in 1..=10 {
        let place = place();
        let mut random = Random(seed * 0x9e37_79b9_7f4a);
        let vfs = Vfs::new().unwrap();
        let task = vfs.task(Cred::root());
        for _ in 0..random.below(200) {
            let _ = call(&task, &mut random);
        }
        let mut live = Live::create(&place.file, &vfs, &quiet()).unwrap();
        let mut now = vfs;
        for _ in 0..6 {
            let task = now.task(Cred::root());
            for _ in 0..random.below(4) {
                for _ in 0..random.below(80) {
                    let _ = call(&task, &mut random);
                }
                task.sync();
            }
            live.close().unwrap();
            let before = snapshot(&now);
            now = Vfs::new().unwrap();
            live = Live::open(&place.file, &now, &quiet()).unwrap();
            let looked = Vfs::new().unwrap();
            live.close().unwrap();
            assert_same(&before, &snapshot(&now));
            let (summary, _) = load(&place.file, &looked, Contents::Keep).unwrap();
            assert_same(&before, &snapshot(&looked));
            assert_eq!(summary.names, before.len() as u64 - 1);
            now = Vfs::new().unwrap();
            live = Live::open(&place.file, &now, &quiet()).unwrap();
        }
    }
}

#[test]
fn everything_an_inode_has_comes_back() {
    let place = place();
    let vfs = Vfs::new().unwrap();
    let task = vfs.task(Cred::root());
    task.mkdir(b"/dir", 0o2750).unwrap();
    task.chown(b"/dir", 1000, 0xffff_fffe).unwrap();
    // u::rwx,u:1001:rwx,g::r-x,m::rwx,o::---
    let entries =
        [(1_u16, 7_u16, u32::MAX), (2, 7, 1001), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)];
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        acl.extend([&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat());
    }
    for name in [&b"system.posix_acl_default"[..], b"system.posix_acl_access"] {
        task.setxattr(b"/dir", name, &acl, 0).unwrap();
    }
    let fd = task.open(b"/dir/sparse", O_CREAT | O_RDWR, 0o6711).unwrap();
    task.pwrite(fd, b"end", 1 << 40).unwrap();
    task.fallocate(fd, FALLOC_FL_KEEP_SIZE, 1 << 41, 8192).unwrap();
    task.setflags(fd, FS_NODUMP_FL | FS_NOATIME_FL | FS_IMMUTABLE_FL).unwrap();
    task.link(b"/dir", b"/no").unwrap_err();
    task.symlink(&[b'l'; 4095], b"/long").unwrap();
    task.symlink(b"short", b"/short").unwrap();
    task.mknod(b"/null", S_IFCHR | 0o666, makedev(1, 3)).unwrap();
    for i in 0..300 {
        task.link(b"/short", format!("/short{i}").as_bytes()).unwrap();
    }
    let name = [b'n'; 255];
    task.close(task.creat(&[b"/dir/", &name[..]].concat(), 0).unwrap()).unwrap();
    task.setxattr(b"/dir", b"user.large", &[9; 65536], 0).unwrap();
    save(&vfs, &place.file).unwrap();
    let copy = Vfs::new().unwrap();
    load(&place.file, &copy, Contents::Keep).unwrap();
    assert_same(&snapshot(&vfs), &snapshot(&copy));
    let again = copy.task(Cred::root());
    let fd = again.open(b"/dir/sparse", O_RDONLY, 0).unwrap();
    assert_eq!(again.getflags(fd), Ok(FS_NODUMP_FL | FS_NOATIME_FL | FS_IMMUTABLE_FL));
    assert_eq!(again.lseek(fd, 0, SEEK_DATA), Ok(1 << 40));
    // No number is given twice.
    again.mkdir(b"/new", 0o700).unwrap();
    let new = again.stat(b"/new").unwrap().ino;
    let taken = ["/", "/dir", "/dir/sparse", "/long", "/short", "/null"];
    assert!(taken.iter().all(|path| again.lstat(path.as_bytes()).unwrap().ino != new));
}

#[test]
fn a_file_without_a_name_is_not_kept() {
    let place = place();
    let vfs = Vfs::new().unwrap();
    let live = Live::create(&place.file, &vfs, &quiet()).unwrap();
    let task = vfs.task(Cred::root());
    let fd = task.open(b"/gone", O_CREAT | O_RDWR, 0o600).unwrap();
    let bare = task.open(b"/", O_TMPFILE | O_RDWR, 0o600).unwrap();
    task.write(fd, &[1; 100_000]).unwrap();
    task.fsync(fd).unwrap();
    task.unlink(b"/gone").unwrap();
    task.write(bare, &[1; 100_000]).unwrap();
    task.fsync(bare).unwrap();
    let summary = live.summary().unwrap();
    assert_eq!((summary.nodes, summary.names, summary.chunks), (1, 0, 0));
    // With a name it is.
    task.linkat(bare, b"", AT_FDCWD, b"/kept", AT_EMPTY_PATH).unwrap();
    task.fsync(bare).unwrap();
    assert_eq!(live.summary().unwrap().chunks, 100_000_u64.div_ceil(7 * 4096));
    live.close().unwrap();
    let again = Vfs::new().unwrap();
    load(&place.file, &again, Contents::Keep).unwrap();
    assert_eq!(again.task(Cred::root()).stat(b"/kept").unwrap().size, 100_000);
}

#[test]
fn what_nobody_syncs_follows_by_itself() {
    let place = place();
    let vfs = Vfs::new().unwrap();
    let options = Options { interval: Duration::from_millis(20), unsaved_bytes: 1 << 20 };
    let live = Live::create(&place.file, &vfs, &options).unwrap();
    let first = live.summary().unwrap().commits;
    let task = vfs.task(Cred::root());
    task.mkdir(b"/d", 0o755).unwrap();
    let fd = task.open(b"/f", O_CREAT | O_RDWR, 0o600).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while live.summary().unwrap().names < 2 {
        assert!(std::time::Instant::now() < deadline, "the thread never came");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(live.summary().unwrap().commits > first);
    live.close().unwrap();

    // Too much at once does not wait for the thread.
    let live = Live::create(
        &place.file.with_extension("2"),
        &vfs,
        &Options { interval: quiet().interval, ..options },
    );
    let live = live.unwrap();
    for _ in 0..12 {
        task.write(fd, &[5; 256 << 10]).unwrap();
    }
    assert!(live.summary().unwrap().commits >= 3, "2 MiB of 3 were committed on the way");
    // O_DSYNC waits.
    let before = live.summary().unwrap().commits;
    let fd = task.open(b"/f", O_RDWR | O_DSYNC, 0).unwrap();
    task.write(fd, b"x").unwrap();
    assert_eq!(live.summary().unwrap().commits, before + 1);
}

#[test]
fn one_file_system_has_one_image() {
    let place = place();
    let vfs = Vfs::new().unwrap();
    let live = Live::create(&place.file, &vfs, &quiet()).unwrap();
    let other = place.file.with_extension("other");
    let busy = Live::create(&other, &vfs, &quiet()).unwrap_err();
    assert_eq!(busy.errno(), Errno::EBUSY, "{busy}");
    assert!(!other.exists(), "nothing is left of it");
    assert!(matches!(Live::create(&place.file, &Vfs::new().unwrap(), &quiet()), Err(Error::Io { .. })));
    let (summary, _) = check(&place.file).unwrap();
    assert!(summary.in_use && !summary.closed);
    assert_eq!(summary.commits, live.summary().unwrap().commits);
    let looked = Vfs::new().unwrap();
    assert!(matches!(load(&place.file, &looked, Contents::Keep), Err(Error::Busy { .. })));
    live.close().unwrap();
    let (summary, _) = check(&place.file).unwrap();
    assert!(!summary.in_use && summary.closed && summary.nodes == 1);
    assert!(save(&vfs, &place.file).is_ok(), "replaces it");
    let small = Vfs::builder().size_limit(0).build().unwrap();
    let task = vfs.task(Cred::root());
    task.write(task.creat(b"/f", 0o600).unwrap(), b"x").unwrap();
    save(&vfs, &place.file).unwrap();
    assert_eq!(load(&place.file, &small, Contents::Keep).unwrap_err().errno(), Errno::ENOSPC);
}
