//! Trees made, changed and looked at through the public calls.

use rcuwalk::uapi::*;
use rcuwalk::{Cred, Errno, Task, Vfs, WalkMode};

/// Runs a test in both walk modes.
fn both(test: impl Fn(&Vfs, &Task)) {
    for mode in [WalkMode::Direct, WalkMode::Rcu, WalkMode::RefOnly] {
        let vfs = Vfs::new().unwrap();
        vfs.set_walk_mode(mode);
        test(&vfs, &vfs.task(Cred::root()));
    }
}

#[test]
fn search_permission_decides_on_the_way() {
    both(|vfs, root| {
        root.mkdir(b"/a", 0o711).unwrap();
        root.mkdir(b"/a/b", 0o700).unwrap();
        root.creat(b"/a/b/f", 0o644).unwrap();
        let user = vfs.task(Cred::user(1000, 1000, &[]));
        assert_eq!(user.stat(b"/a/b/f"), Err(Errno::EACCES));
        assert_eq!(user.stat(b"/a/b").unwrap().mode, S_IFDIR | 0o700);
        assert_eq!(user.stat(b"/a/b/."), Err(Errno::EACCES));
        root.chmod(b"/a/b", 0o755).unwrap();
        assert_eq!(user.stat(b"/a/b/f").unwrap().mode, S_IFREG | 0o644);
        root.chmod(b"/a/b", 0o750).unwrap();
        assert_eq!(user.access(b"/a/b/f", F_OK), Err(Errno::EACCES));
        root.chown(b"/a/b", 0, 1000).unwrap();
        assert_eq!(user.access(b"/a/b/f", R_OK), Ok(()));
    });
}

#[test]
fn links_are_followed_forty_times() {
    both(|_, root| {
        root.mkdir(b"/d", 0o755).unwrap();
        root.creat(b"/d/f", 0o644).unwrap();
        root.symlink(b"f", b"/d/l1").unwrap();
        for i in 2..=41 {
            root.symlink(format!("l{}", i - 1).as_bytes(), format!("/d/l{i}").as_bytes()).unwrap();
        }
        let ino = root.stat(b"/d/f").unwrap().ino;
        assert_eq!(root.stat(b"/d/l40").unwrap().ino, ino);
        assert_eq!(root.stat(b"/d/l41"), Err(Errno::ELOOP));
        assert_eq!(root.lstat(b"/d/l41").unwrap().mode, S_IFLNK | 0o777);
        root.symlink(b"/d/", b"/abs").unwrap();
        assert_eq!(root.stat(b"/abs/f").unwrap().ino, ino);
        assert_eq!(root.stat(b"/abs/../abs/./l1").unwrap().ino, ino);
        assert_eq!(root.stat(b"/d/l1/"), Err(Errno::ENOTDIR));
        assert_eq!(root.readlink(b"/d/l2").unwrap(), b"l1");
    });
}

#[test]
fn long_names_and_paths_have_the_kernels_limits() {
    both(|_, root| {
        let name = |n: usize| [b"/".as_slice(), &vec![b'n'; n]].concat();
        for n in [1, 7, 8, 9, 39, 40, 41, 48, 64, 255] {
            root.creat(&name(n), 0o600).unwrap();
            assert!(root.stat(&name(n)).is_ok(), "{n}");
        }
        assert_eq!(root.stat(&name(254)), Err(Errno::ENOENT));
        assert_eq!(root.stat(&name(256)), Err(Errno::ENAMETOOLONG));
        let long = [b"./".repeat(2047).as_slice(), b"/"].concat();
        assert_eq!(long.len(), 4095);
        assert!(root.stat(&long).is_ok());
        assert_eq!(root.stat(&[&long[..], b"/"].concat()), Err(Errno::ENAMETOOLONG));
        assert_eq!(root.stat(b""), Err(Errno::ENOENT));
    });
}

#[test]
fn rename_moves_a_tree_and_frees_what_it_replaces() {
    both(|vfs, root| {
        let before = vfs.stats().entries;
        for path in ["/a", "/a/b", "/a/b/c", "/x", "/x/y"] {
            root.mkdir(path.as_bytes(), 0o755).unwrap();
        }
        root.creat(b"/a/b/c/f", 0o644).unwrap();
        assert_eq!(root.rename(b"/a", b"/a/b/z"), Err(Errno::EINVAL));
        assert_eq!(root.rename(b"/a/b", b"/x"), Err(Errno::ENOTEMPTY));
        root.rename(b"/a/b", b"/x/y").unwrap();
        assert!(root.stat(b"/x/y/c/f").is_ok());
        assert_eq!(root.stat(b"/a/b"), Err(Errno::ENOENT));
        let nlink = |path: &[u8]| root.stat(path).unwrap().nlink;
        assert_eq!([nlink(b"/a"), nlink(b"/x"), nlink(b"/x/y"), nlink(b"/")], [2, 3, 3, 4]);
        root.renameat2(AT_FDCWD, b"/x/y", AT_FDCWD, b"/a", RENAME_EXCHANGE).unwrap();
        assert!(root.stat(b"/a/c/f").is_ok());
        assert_eq!([nlink(b"/a"), nlink(b"/x"), nlink(b"/x/y")], [3, 3, 2]);
        for path in ["/a/c/f", "/a/c", "/a", "/x/y", "/x"] {
            match root.rmdir(path.as_bytes()) {
                Err(Errno::ENOTDIR) => root.unlink(path.as_bytes()).unwrap(),
                other => other.unwrap(),
            }
        }
        for fd in 0..1 {
            root.close(fd).unwrap();
        }
        assert_eq!(vfs.stats().entries, before, "every slot came back");
    });
}

/// Two tasks that each put a directory below the other's: one of them is told that it is not there.
#[test]
fn directories_do_not_move_below_each_other() {
    both(|vfs, root| {
        ["/a", "/b", "/a/c", "/a/c/d"].iter().for_each(|path| root.mkdir(path.as_bytes(), 0o755).unwrap());
        assert_eq!(root.rename(b"/a", b"/a/c/d/a"), Err(Errno::EINVAL));
        assert_eq!(root.rename(b"/a/c/d", b"/a"), Err(Errno::ENOTEMPTY));
        assert_eq!(root.renameat2(AT_FDCWD, b"/a/c/d", AT_FDCWD, b"/a", RENAME_EXCHANGE), Err(Errno::EINVAL));
        let swings = |there: &'static [u8], back: &'static [u8]| {
            let task = vfs.task(Cred::root());
            move || {
                let mut moved = 0;
                while moved < 2_000 {
                    match task.rename(there, back) {
                        Ok(()) => moved += 1,
                        Err(errno) => {
                            // The walk came too late, or the rename did.
                            assert!([Errno::ENOENT, Errno::EINVAL].contains(&errno), "{errno}");
                            continue;
                        }
                    }
                    task.rename(back, there).expect("nobody can move that below it meanwhile");
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(swings(b"/a", b"/b/a"));
            scope.spawn(swings(b"/b", b"/a/c/d/b"));
        });
        assert!(root.stat(b"/a/c/d").is_ok() && root.stat(b"/b").is_ok());
    });
}

#[test]
fn hard_links_share_the_inode_and_outlive_each_other() {
    both(|vfs, root| {
        let before = vfs.stats().entries;
        let fd = root.creat(b"/one", 0o644).unwrap();
        root.link(b"/one", b"/two").unwrap();
        assert_eq!(root.stat(b"/two").unwrap().nlink, 2);
        root.unlink(b"/one").unwrap();
        root.creat(b"/one", 0o644).and_then(|fd| root.close(fd)).unwrap();
        assert_ne!(root.stat(b"/one").unwrap().ino, root.stat(b"/two").unwrap().ino);
        root.write(fd, b"still here").unwrap();
        assert_eq!(root.stat(b"/two").unwrap().size, 10);
        root.unlink(b"/two").unwrap();
        assert_eq!(root.fstat(fd).unwrap().nlink, 0);
        root.close(fd).unwrap();
        root.unlink(b"/one").unwrap();
        assert_eq!(vfs.stats().entries, before);
    });
}

#[test]
fn contents_are_read_back_sparse() {
    both(|_, root| {
        let fd = root.open(b"/f", O_RDWR | O_CREAT, 0o644).unwrap();
        assert_eq!(root.pwrite(fd, b"tail", 100_000), Ok(4));
        assert_eq!(root.fstat(fd).unwrap().size, 100_004);
        assert_eq!(root.fstat(fd).unwrap().blocks, 8);
        let mut buf = [1; 8];
        assert_eq!(root.pread(fd, &mut buf, 99_998), Ok(6));
        assert_eq!(&buf[..6], b"\0\0tail");
        assert_eq!(root.lseek(fd, 0, SEEK_DATA), Ok(98_304));
        assert_eq!(root.lseek(fd, 0, SEEK_HOLE), Ok(0));
        root.ftruncate(fd, 10).unwrap();
        assert_eq!(root.lseek(fd, 0, SEEK_END), Ok(10));
        assert_eq!(root.lseek(fd, 0, SEEK_DATA), Err(Errno::ENXIO));
        root.truncate(b"/f", 0).unwrap();
        assert_eq!(root.stat(b"/f").unwrap().blocks, 0);
    });
}

#[test]
fn readdir_survives_change() {
    both(|_, root| {
        root.mkdir(b"/d", 0o755).unwrap();
        for i in 0..100 {
            root.mkdir(format!("/d/{i}").as_bytes(), 0o755).unwrap();
        }
        let fd = root.open(b"/d", O_RDONLY | O_DIRECTORY, 0).unwrap();
        let mut seen = Vec::new();
        while root.getdents(fd, &mut seen, 7).unwrap() != 0 {
            let last = String::from_utf8(seen.last().unwrap().name.clone()).unwrap();
            let _ = root.rmdir(format!("/d/{last}").as_bytes());
        }
        let names: std::collections::BTreeSet<_> = seen.iter().map(|e| e.name.clone()).collect();
        assert_eq!((seen.len(), names.len()), (102, 102), "each once, with . and ..");
        assert_eq!(root.lseek(fd, 0, SEEK_SET), Ok(0));
        seen.clear();
        while root.getdents(fd, &mut seen, 1000).unwrap() != 0 {}
        assert_eq!(seen.len() as u64, root.stat(b"/d").unwrap().nlink);
    });
}

#[test]
fn many_threads_look_up_while_others_rename() {
    let vfs = Vfs::new().unwrap();
    let root = vfs.task(Cred::root());
    root.mkdir(b"/a", 0o755).unwrap();
    root.mkdir(b"/b", 0o755).unwrap();
    root.creat(b"/a/f", 0o644).unwrap();
    root.creat(b"/a/stays", 0o644).unwrap();
    let (ino, stays) = (root.stat(b"/a/f").unwrap().ino, root.stat(b"/a/stays").unwrap().ino);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let task = vfs.task(Cred::user(1000, 1000, &[]));
                let mut found = 0;
                for _ in 0..200_000 {
                    assert_eq!(task.stat(b"/a/stays").unwrap().ino, stays);
                    match [task.stat(b"/a/f"), task.stat(b"/b/g")].map(|r| r.map(|s| s.ino)) {
                        [Err(Errno::ENOENT), Err(Errno::ENOENT)] => {}
                        [a, b] => {
                            for r in [a, b] {
                                assert!(r == Ok(ino) || r == Err(Errno::ENOENT), "{r:?}");
                            }
                            found += 1;
                        }
                    }
                }
                assert!(found > 0);
            });
        }
        scope.spawn(|| {
            let task = vfs.task(Cred::root());
            for i in 0..50_000 {
                task.rename(b"/a/f", b"/b/g").unwrap();
                task.creat(format!("/b/new{}", i % 100).as_bytes(), 0o644)
                    .and_then(|fd| task.close(fd))
                    .unwrap();
                task.rename(b"/b/g", b"/a/f").unwrap();
                task.unlink(format!("/b/new{}", i % 100).as_bytes()).unwrap();
            }
        });
    });
}

/// A small file system, so full that a long name finds no memory.
fn without_room_for_long_names() -> (Vfs, Task) {
    let vfs = Vfs::builder().capacity(1 << 14).inode_limit(10_000).memory_limit(1 << 20).build().unwrap();
    let root = vfs.task(Cred::root());
    root.creat(b"/f", 0o644).unwrap();
    root.mkdir(b"/d", 0o755).unwrap();
    root.creat(&[b"/".as_slice(), &[b't'; 250]].concat(), 0o644).unwrap();
    let short = |n: u32| format!("/l{n}").into_bytes();
    let full = (0..10_000).find(|&n| root.symlink(&[b'x'; 250], &short(n)).is_err());
    assert!(full.is_some_and(|n| n > 1000), "{full:?}");
    // Names alone, where there is no memory for another link.
    let long = |n: u32| format!("/{n:0>250}").into_bytes();
    let full = (0..1000).find(|&n| root.rename(&short(n), &long(n)).is_err());
    assert!(full.is_some(), "all of them find room");
    (vfs, root)
}

#[test]
fn what_finds_no_room_for_its_name_changes_nothing() {
    let (vfs, root) = without_room_for_long_names();
    let [taken, long] = [b't', b'n'].map(|byte| [b"/".as_slice(), &[byte; 250]].concat());
    let state = || (vfs.stats().entries, root.statfs(b"/").unwrap().ffree, root.stat(b"/").unwrap().nlink);
    let before = state();
    assert_eq!(root.mkdir(&long, 0o755), Err(Errno::ENOMEM));
    assert_eq!(root.creat(&long, 0o644), Err(Errno::ENOMEM));
    assert_eq!(root.link(b"/f", &long), Err(Errno::ENOMEM));
    assert_eq!(root.rename(b"/f", &long), Err(Errno::ENOMEM));
    assert_eq!(root.rename(b"/d", &long), Err(Errno::ENOMEM));
    let files = [root.stat(b"/f").unwrap().ino, root.stat(&taken).unwrap().ino];
    assert_eq!(root.renameat2(AT_FDCWD, b"/f", AT_FDCWD, &taken, RENAME_EXCHANGE), Err(Errno::ENOMEM));
    assert_eq!(root.renameat2(AT_FDCWD, b"/d", AT_FDCWD, &taken, RENAME_EXCHANGE), Err(Errno::ENOMEM));
    assert_eq!([root.stat(b"/f").unwrap().ino, root.stat(&taken).unwrap().ino], files);
    assert_eq!((root.stat(&long), state()), (Err(Errno::ENOENT), before));
}

#[test]
fn a_rename_that_fails_gives_back_what_its_whiteout_took() {
    let (vfs, root) = without_room_for_long_names();
    let long = [b"/".as_slice(), &[b'n'; 250]].concat();
    let free = root.statfs(b"/").unwrap().ffree;
    let entries = vfs.stats().entries;
    for _ in 0..2 * free {
        assert_eq!(root.renameat2(AT_FDCWD, b"/f", AT_FDCWD, &long, RENAME_WHITEOUT), Err(Errno::ENOMEM));
    }
    assert_eq!((root.statfs(b"/").unwrap().ffree, vfs.stats().entries), (free, entries));
    assert_eq!(root.stat(b"/f").unwrap().mode & S_IFMT, S_IFREG);
}
