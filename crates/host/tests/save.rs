//! What is saved comes back.

use rcuwalk::uapi::*;
use rcuwalk::{Cred, Statx, Task, Timespec, Vfs};
use rcuwalk_host::{ArchiveOptions, Progress, Saved, import_tar, save_tar};

fn vfs() -> Vfs {
    Vfs::builder().capacity(1 << 12).build().expect("a file system")
}

fn copy(vfs_: &Vfs) -> (Vfs, Saved) {
    let mut archive = Vec::new();
    let saved = save_tar(vfs_, &mut archive).expect("memory takes everything");
    assert_eq!(archive.len() % 512, 0);
    let copy = vfs();
    let options = ArchiveOptions { contents: true, ..ArchiveOptions::default() };
    let report = import_tar(&copy, &archive[..], &options, &Progress::new()).expect("it can be read");
    assert_eq!(report.problem_count, 0, "{:?}", report.problems);
    (copy, saved)
}

/// Root, who leaves no trace by reading.
fn reader(vfs: &Vfs) -> Task {
    let task = vfs.task(Cred::root());
    task.mount(b"", b"/", b"", MS_REMOUNT | MS_BIND | MS_NOATIME, b"").expect("remounted");
    task
}

/// What an archive keeps of an inode, and whether two names are one file.
fn same(path: &[u8], a: &Statx, b: &Statx) {
    let shown = path.escape_ascii();
    assert_eq!((a.mode, a.uid, a.gid, a.nlink), (b.mode, b.uid, b.gid, b.nlink), "{shown}");
    assert_eq!([a.mtime, a.atime, a.ctime, a.btime], [b.mtime, b.atime, b.ctime, b.btime], "{shown}");
    assert_eq!(
        (a.rdev_major, a.rdev_minor, a.attributes),
        (b.rdev_major, b.rdev_minor, b.attributes),
        "{shown}"
    );
    if !s_isdir(u32::from(a.mode)) {
        assert_eq!((a.size, a.blocks), (b.size, b.blocks), "{shown}");
    }
}

/// Everything below `path` in both; how many names there are.
fn compare(a: &Task, b: &Task, path: &[u8]) -> u64 {
    let stat = |task: &Task| {
        task.statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME).expect("it is there")
    };
    let (x, y) = (stat(a), stat(b));
    same(path, &x, &y);
    let list = a.llistxattr(path).expect("listed");
    assert_eq!(list, b.llistxattr(path).expect("listed"), "{}", path.escape_ascii());
    for name in list.split(|&b| b == 0).filter(|name| !name.is_empty()) {
        assert_eq!(a.lgetxattr(path, name), b.lgetxattr(path, name), "{}", path.escape_ascii());
    }
    match u32::from(x.mode) & S_IFMT {
        S_IFLNK => assert_eq!(a.readlink(path), b.readlink(path)),
        S_IFREG => assert_eq!(read(a, path), read(b, path)),
        S_IFDIR => {
            let names = |task: &Task| {
                let mut names: Vec<_> =
                    task.readdir(path).expect("listed").into_iter().map(|entry| entry.name).collect();
                names.sort();
                names
            };
            assert_eq!(names(a), names(b));
            let top: &[u8] = if path == b"/" { b"" } else { path };
            return 1 + names(a).iter().map(|name| compare(a, b, &[top, b"/", name].concat())).sum::<u64>();
        }
        _ => {}
    }
    1
}

/// The beginning of the contents; holes may be long.
fn read(task: &Task, path: &[u8]) -> Vec<u8> {
    let fd = task.open(path, O_RDONLY | O_NOATIME, 0).expect("opened");
    let mut bytes = vec![0; 1 << 16];
    let n = task.read(fd, &mut bytes).expect("read");
    task.close(fd).expect("open");
    bytes.truncate(n);
    bytes
}

fn write(task: &Task, path: &[u8], at: i64, data: &[u8]) {
    let fd = task.open(path, O_CREAT | O_RDWR, 0o640).expect("made");
    task.pwrite(fd, data, at).expect("written");
    task.close(fd).expect("open");
}

/// A tree with everything that an archive can hold.
fn populate(root: &Task) {
    let long = [b'n'; 255];
    root.mkdir(b"/dir", 0o1777).expect("made");
    root.mkdir(&[b"/dir/", &long[..]].concat(), 0o2750).expect("made");
    write(root, &[b"/dir/", &long[..], b"/", &long[..]].concat(), 0, b"long names");
    write(root, b"/empty", 0, b"");
    write(root, b"/plain", 0, &[7; 70_000]);
    write(root, b"/sparse", 1 << 20, b"far out");
    write(root, b"/sparse", 5000, b"near");
    write(root, b"/hole", 0, b"");
    root.truncate(b"/hole", 12_345_678).expect("grown");
    root.link(b"/plain", b"/dir/second").expect("linked");
    root.symlink(b"../plain", b"/dir/link").expect("made");
    root.symlink(&[b'x'; 4000], b"/far").expect("made");
    root.link(b"/far", b"/far-too").expect("linked");
    root.mknod(b"/fifo", S_IFIFO | 0o622, 0).expect("made");
    root.mknod(b"/null", S_IFCHR | 0o666, makedev(1, 3)).expect("made");
    root.mknod(b"/disk", S_IFBLK | 0o660, makedev(259, 70_000)).expect("made");
    root.chown(b"/plain", 3_000_000_000, 4_000_000_000).expect("owned");
    root.lchown(b"/far", 1, 2).expect("owned");
    root.chmod(b"/empty", 0o6711).expect("changed");
    root.setxattr(b"/empty", b"user.text", b"a\nb\0c=d", 0).expect("set");
    root.setxattr(b"/empty", b"user.odd=name", &[0, 1, 254, 255], 0).expect("set");
    root.setxattr(b"/dir", b"trusted.t", b"", 0).expect("set");
    let caps = [&0x0200_0001_u32.to_le_bytes()[..], &[0, 4, 0, 0], &[0; 12]].concat();
    root.setxattr(b"/plain", b"security.capability", &caps, 0).expect("set");
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (2, 6, 1000), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)];
    let acl: Vec<u8> = entries.iter().fold(2_u32.to_le_bytes().to_vec(), |mut bytes, (tag, perm, id)| {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&perm.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
        bytes
    });
    root.setxattr(b"/dir", b"system.posix_acl_default", &acl, 0).expect("set");
    root.setxattr(b"/empty", b"system.posix_acl_access", &acl, 0).expect("set");
    let times = |sec, nsec| Some([Timespec::new(sec, nsec), Timespec::new(sec + 5, 1)]);
    root.utimensat(AT_FDCWD, Some(b"/sparse"), times(-3, 999_999_999), 0).expect("set");
    root.utimensat(AT_FDCWD, Some(b"/dir"), times(1 << 33, 7), 0).expect("set");
    for (path, flags) in [(&b"/empty"[..], FS_IMMUTABLE_FL), (b"/hole", FS_APPEND_FL)] {
        let fd = root.open(path, O_RDONLY | O_NOATIME, 0).expect("opened");
        root.setflags(fd, flags).expect("set");
        root.close(fd).expect("open");
    }
}

#[test]
fn a_tree_comes_back_as_it_was() {
    let original = vfs();
    let root = original.task(Cred::root());
    populate(&root);
    let (copied, saved) = copy(&original);
    assert_eq!(saved.problem_count, 0, "{:?}", saved.problems);
    assert_eq!(saved.hard_links, 2);
    assert!(saved.content_bytes < 100_000, "holes are left out: {}", saved.content_bytes);
    let names = compare(&reader(&original), &reader(&copied), b"/");
    assert_eq!(names, saved.members);
    let ino = |path: &[u8]| copied.task(Cred::root()).lstat(path).expect("it is there").ino;
    assert_eq!((ino(b"/plain"), ino(b"/far")), (ino(b"/dir/second"), ino(b"/far-too")));
}

#[test]
fn what_an_archive_cannot_hold_is_told() {
    let original = vfs();
    let root = original.task(Cred::root());
    root.mknod(b"/socket", S_IFSOCK | 0o666, 0).expect("made");
    let mut loader = original.loader();
    let top = loader.root();
    let unread = rcuwalk::NewInode::new(S_IFREG | 0o644).with_size(4096);
    loader.add(top, b"unread", &unread).expect("added");
    drop(loader);
    let (copied, saved) = copy(&original);
    let told: Vec<_> = saved.problems.iter().map(|p| (p.path.display().to_string(), p.errno)).collect();
    let wanted = [("socket", rcuwalk::Errno::EOPNOTSUPP), ("unread", rcuwalk::Errno::ENODATA)];
    assert_eq!(told, wanted.map(|(path, errno)| (path.to_owned(), errno)));
    let seen = copied.task(Cred::root());
    assert!(seen.lstat(b"/socket").is_err());
    assert_eq!(seen.stat(b"/unread").map(|stat| stat.size), Ok(4096));
}

#[test]
fn a_full_disk_is_an_error() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let original = vfs();
    populate(&original.task(Cred::root()));
    for room in [0, 600, 5000, 50_000] {
        let error = save_tar(&original, Full(room)).expect_err("no room");
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }
}
