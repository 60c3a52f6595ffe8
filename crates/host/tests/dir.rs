//! Directory trees of the machine that runs the tests, imported and compared with what its kernel says.

mod common;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rcuwalk::cred::Cred;
use rcuwalk::errno::Errno;
use rcuwalk::uapi::*;
use rcuwalk::{Task, Vfs};
use rcuwalk_host::{ImportError, ImportOptions, Progress, Report, import_dir};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags, XattrFlags, mkdirat, mknodat, openat,
};
use tempfile::TempDir;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A mode 0755 directory, so that another user can get in.
fn temp_dir() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

fn import(dir: &Path, options: &ImportOptions) -> (Task, Report) {
    let vfs = Vfs::new().unwrap();
    let report = import_dir(&vfs, dir, options, &Progress::new()).unwrap();
    (vfs.task(Cred::root()), report)
}

/// A process that runs one test, as another user if this one is root.
struct Child(String, Command);

fn child(test: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(MARK, "1").current_dir("/");
    if is_root() {
        command.uid(65534).gid(65534);
    }
    Child(test.to_owned(), command)
}

impl Child {
    fn env(mut self, name: &str, value: &Path) -> Child {
        self.1.env(name, value);
        self
    }

    fn run(mut self) {
        match self.1.status() {
            Ok(status) => assert!(status.success(), "{} failed in its own process", self.0),
            Err(e) => println!("{}: skipped, user 65534 cannot start the test program: {e}", self.0),
        }
    }
}

const MARK: &str = "RCUWALK_HOST_TEST_CHILD";

/// Runs the rest of a test in a process of its own, as another user if this one is root: `true` there.
fn in_child(test: &str) -> bool {
    let here = std::env::var_os(MARK).is_some();
    if !here {
        child(test).run();
    }
    here
}

/// Every path below `dir`, and "" for itself, each with its attributes before anybody reads it.
fn paths(dir: &Path) -> Vec<(PathBuf, Statx)> {
    let stat = |path: &Path| {
        // A path that ends in "" would follow a link.
        let host = if path.as_os_str().is_empty() { dir.to_path_buf() } else { dir.join(path) };
        rustix::fs::statx(CWD, host, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
            .unwrap()
    };
    let mut found = vec![(PathBuf::new(), stat(Path::new("")))];
    let mut at = 0;
    while at < found.len() {
        let path = found[at].0.clone();
        if s_isdir(found[at].1.stx_mode.into()) {
            for entry in fs::read_dir(dir.join(&path)).unwrap() {
                let path = path.join(entry.unwrap().file_name());
                let stat = stat(&path);
                found.push((path, stat));
            }
        }
        at += 1;
    }
    found
}

/// Compares what the engine and the kernel say about every path, and whether they list the same names and attributes.
fn compare(dir: &Path, task: &Task) -> usize {
    let all = paths(dir);
    for (path, host) in &all {
        let host_path = dir.join(path);
        let at = [b"/", path.as_os_str().as_bytes()].concat();
        let ours = task.statx(AT_FDCWD, &at, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME).unwrap();
        let time = |t: rustix::fs::StatxTimestamp| (t.tv_sec, t.tv_nsec);
        let show = path.display();
        assert_eq!(ours.mode, host.stx_mode, "mode of {show}");
        assert_eq!(ours.nlink, host.stx_nlink, "nlink of {show}");
        assert_eq!((ours.uid, ours.gid), (host.stx_uid, host.stx_gid), "ids of {show}");
        assert_eq!(ours.ino, host.stx_ino, "ino of {show}");
        assert_eq!(ours.size, host.stx_size, "size of {show}");
        assert_eq!(ours.blocks, host.stx_blocks, "blocks of {show}");
        assert_eq!(
            (ours.rdev_major, ours.rdev_minor),
            (host.stx_rdev_major, host.stx_rdev_minor),
            "rdev of {show}"
        );
        assert_eq!((ours.atime.sec, ours.atime.nsec), time(host.stx_atime), "atime of {show}");
        assert_eq!((ours.mtime.sec, ours.mtime.nsec), time(host.stx_mtime), "mtime of {show}");
        assert_eq!((ours.ctime.sec, ours.ctime.nsec), time(host.stx_ctime), "ctime of {show}");
        assert_eq!((ours.btime.sec, ours.btime.nsec), time(host.stx_btime), "btime of {show}");
        if host.stx_mode & 0o170000 == 0o120000 {
            assert_eq!(
                task.readlink(&at).unwrap(),
                fs::read_link(&host_path).unwrap().as_os_str().as_bytes()
            );
        }
        compare_xattrs(&host_path, &at, task);
    }
    let listed: usize = all
        .iter()
        .filter_map(|(path, _)| {
            let at = [b"/", path.as_os_str().as_bytes()].concat();
            s_isdir(task.lstat(&at).unwrap().mode).then(|| names(task, &at).len())
        })
        .sum();
    assert_eq!(listed + 1, all.len(), "the engine lists the names that the kernel lists");
    all.len()
}

fn names(task: &Task, dir: &[u8]) -> Vec<Vec<u8>> {
    let entries = task.readdir(dir).unwrap().into_iter().map(|entry| entry.name);
    entries.filter(|name| name != b"." && name != b"..").collect()
}

fn compare_xattrs(host: &Path, at: &[u8], task: &Task) {
    let mut list = vec![0; 65536];
    let length = rustix::fs::llistxattr(host, &mut list[..]).unwrap_or(0);
    let sorted = |list: &[u8]| {
        let mut names: Vec<_> =
            list.split(|&b| b == 0).filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect();
        names.sort();
        names
    };
    let expected = sorted(&list[..length]);
    assert_eq!(sorted(&task.llistxattr(at).unwrap()), expected, "attributes of {}", host.display());
    for name in expected {
        let mut value = vec![0; 65536];
        let length = rustix::fs::lgetxattr(host, &name, &mut value[..]).unwrap();
        assert_eq!(task.lgetxattr(at, &name).unwrap(), &value[..length], "{}", name.escape_ascii());
    }
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) -> bool {
    match rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()) {
        Ok(()) => true,
        Err(e) => {
            println!("skipped: cannot set {name} on {}: {e}", path.display());
            false
        }
    }
}

/// `user::rw- user:1234:r-- group::r-- mask::r-- other::---`.
const ACL: &[u8] =
    b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x04\0\xd2\x04\0\0\x04\0\x04\0\xff\xff\xff\xff\
    \x10\0\x04\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";

/// Something of every kind.
fn build(dir: &Path) {
    let at = |name: &[u8]| dir.join(OsStr::from_bytes(name));
    fs::create_dir_all(at(b"sub/deeper/deepest")).unwrap();
    fs::write(at(b"file"), b"contents").unwrap();
    fs::write(at(b"empty"), b"").unwrap();
    fs::write(at(b"sub/script"), b"#!/bin/sh\n").unwrap();
    fs::set_permissions(at(b"sub/script"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(at(b"sub/deeper"), fs::Permissions::from_mode(0o1777)).unwrap();
    for name in [&b"-rf"[..], b" ", b"\n", b"\xff\xfe", b"a\x01b", "ä€".as_bytes(), b"...", &[b'n'; 255]] {
        fs::write(at(name), name).unwrap();
    }
    fs::hard_link(at(b"file"), at(b"sub/same")).unwrap();
    fs::hard_link(at(b"file"), at(b"sub/deeper/same")).unwrap();
    symlink("sub/script", at(b"link")).unwrap();
    symlink("/nowhere/\u{fffd}", at(b"sub/dangling")).unwrap();
    symlink(OsStr::from_bytes(&[b'x'; 4000]), at(b"long link")).unwrap();
    fs::hard_link(at(b"link"), at(b"sub/same link")).unwrap();
    mknodat(CWD, at(b"fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    drop(UnixListener::bind(at(b"socket")).unwrap());
    set_xattr(&at(b"file"), "user.colour", b"green\0\n");
    set_xattr(&at(b"sub"), "user.empty", b"");
    set_xattr(&at(b"empty"), "system.posix_acl_access", ACL);
    set_xattr(&at(b"sub/deeper"), "system.posix_acl_default", ACL);
    if is_root() {
        mknodat(
            CWD,
            at(b"null"),
            FileType::CharacterDevice,
            Mode::from_raw_mode(0o666),
            rustix::fs::makedev(1, 3),
        )
        .unwrap();
        mknodat(
            CWD,
            at(b"disk"),
            FileType::BlockDevice,
            Mode::from_raw_mode(0o660),
            rustix::fs::makedev(259, 70000),
        )
        .unwrap();
        std::os::unix::fs::lchown(at(b"link"), Some(12), Some(34)).unwrap();
        std::os::unix::fs::chown(at(b"empty"), Some(4_000_000_000), Some(7)).unwrap();
        set_xattr(
            &at(b"sub/script"),
            "security.capability",
            b"\x01\0\0\x02\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        );
        set_xattr(&at(b"fifo"), "trusted.note", b"for root's eyes");
    } else {
        println!("not root: no devices, foreign owners, capabilities, trusted attributes");
    }
    // The kernel stamps accesses with a clock of some milliseconds, changes with a finer one. While an access is not seen
    // to be later than the change, every further one moves the access time again.
    std::thread::sleep(std::time::Duration::from_millis(30));
}

#[test]
fn a_tree_of_everything_is_as_the_kernel_says() {
    let dir = temp_dir();
    build(dir.path());
    for threads in [1, 2, 9] {
        let (task, report) = import(dir.path(), &ImportOptions { threads, ..ImportOptions::default() });
        assert_eq!(compare(dir.path(), &task) as u64, report.entries());
        assert_eq!(report.hard_links, 3);
        assert_eq!(report.problems, []);
        assert_eq!(report.vanished, 0);
        assert_eq!(report.dirs, 4);
    }
}

#[test]
fn a_real_tree_is_as_the_kernel_says() {
    let dir = Path::new("/usr/include");
    if !dir.is_dir() {
        println!("skipped: there is no /usr/include");
        return;
    }
    let (task, report) = import(dir, &ImportOptions::default());
    assert_eq!(compare(dir, &task) as u64, report.entries());
}

#[test]
fn an_empty_directory_is_a_root() {
    let dir = temp_dir();
    set_xattr(dir.path(), "user.root", b"yes");
    let (task, report) = import(dir.path(), &ImportOptions::default());
    assert_eq!(compare(dir.path(), &task), 1);
    assert_eq!(report.entries(), 1);
}

#[test]
fn attributes_can_be_left_out() {
    let dir = temp_dir();
    fs::write(dir.path().join("f"), b"").unwrap();
    if !set_xattr(&dir.path().join("f"), "user.x", b"1") {
        return;
    }
    let (task, report) = import(dir.path(), &ImportOptions { xattrs: false, ..ImportOptions::default() });
    assert_eq!(task.llistxattr(b"/f"), Ok(Vec::new()));
    assert_eq!(report.xattrs, 0);
}

#[test]
fn a_file_with_a_name_outside_keeps_its_link_count() {
    let dir = temp_dir();
    fs::create_dir(dir.path().join("in")).unwrap();
    fs::write(dir.path().join("out"), b"x").unwrap();
    fs::hard_link(dir.path().join("out"), dir.path().join("in/f")).unwrap();
    let (task, _) = import(&dir.path().join("in"), &ImportOptions::default());
    assert_eq!(task.stat(b"/f").unwrap().nlink, 2);
}

fn read(task: &Task, path: &[u8]) -> Vec<u8> {
    let fd = task.open(path, O_RDONLY, 0).unwrap();
    let mut data = vec![0; task.fstat(fd).unwrap().size as usize];
    let mut at = 0;
    while at < data.len() {
        let n = task.pread(fd, &mut data[at..], at as i64).unwrap();
        assert_ne!(n, 0, "the file ends early");
        at += n;
    }
    task.close(fd).unwrap();
    data
}

#[test]
fn contents_are_kept_with_their_holes() {
    let dir = temp_dir();
    let sparse = File::create(dir.path().join("sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    sparse.write_all_at(b"middle", 300 << 20).unwrap();
    sparse.write_all_at(b"end", (1 << 30) - 3).unwrap();
    File::create(dir.path().join("hole")).unwrap().set_len(100_000).unwrap();
    let big: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
    fs::write(dir.path().join("big"), &big).unwrap();
    fs::hard_link(dir.path().join("big"), dir.path().join("big too")).unwrap();
    for n in 0..300 {
        fs::write(dir.path().join(format!("small{n}")), format!("number {n}")).unwrap();
    }
    let options = ImportOptions { contents: true, ..ImportOptions::default() };
    let (task, report) = import(dir.path(), &options);
    compare(dir.path(), &task);
    assert!(read(&task, b"/big") == big);
    assert!(read(&task, b"/big too") == big);
    assert_eq!(read(&task, b"/hole"), vec![0; 100_000]);
    for n in 0..300 {
        assert_eq!(read(&task, format!("/small{n}").as_bytes()), format!("number {n}").as_bytes());
    }
    let fd = task.open(b"/sparse", O_RDONLY, 0).unwrap();
    let mut piece = [0; 8];
    task.pread(fd, &mut piece, (300 << 20) - 1).unwrap();
    assert_eq!(&piece, b"\0middle\0");
    task.pread(fd, &mut piece[..3], (1 << 30) - 3).unwrap();
    assert_eq!(&piece[..3], b"end");
    assert!(task.lseek(fd, 0, SEEK_DATA).unwrap() > 0, "it begins with a hole");
    assert!(report.content_bytes < 20 << 20, "holes are not kept: {}", report.content_bytes);
}

#[test]
fn special_files_are_not_opened_for_contents() {
    let dir = temp_dir();
    mknodat(CWD, dir.path().join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let options = ImportOptions { contents: true, inode_flags: true, ..ImportOptions::default() };
    let (_, report) = import(dir.path(), &options);
    assert_eq!(report.specials, 1);
}

#[test]
fn inode_flags_are_kept() {
    let dir = temp_dir();
    let path = dir.path().join("f");
    let file = File::create(&path).unwrap();
    let flags = rustix::fs::IFlags::NOATIME | rustix::fs::IFlags::IMMUTABLE;
    if let Err(e) = rustix::fs::ioctl_setflags(&file, flags) {
        println!("skipped: cannot set inode flags: {e}");
        return;
    }
    let (task, _) = import(dir.path(), &ImportOptions { inode_flags: true, ..ImportOptions::default() });
    rustix::fs::ioctl_setflags(&file, rustix::fs::IFlags::empty()).unwrap();
    let stat = task.statx(AT_FDCWD, b"/f", 0, STATX_BASIC_STATS).unwrap();
    assert_ne!(stat.attributes & STATX_ATTR_IMMUTABLE, 0);
    assert_eq!(task.open(b"/f", O_WRONLY, 0), Err(Errno::EPERM));
}

#[test]
fn unreadable_directories_are_reported_and_empty() {
    if !in_child("unreadable_directories_are_reported_and_empty") {
        return;
    }
    let dir = temp_dir();
    for (name, mode) in [("listable", 0o400), ("searchable", 0o100), ("closed", 0o000)] {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("inside"), b"").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(dir.path().join("secret"), b"x").unwrap();
    fs::set_permissions(dir.path().join("secret"), fs::Permissions::from_mode(0o000)).unwrap();
    let options = ImportOptions { contents: true, ..ImportOptions::default() };
    let (task, report) = import(dir.path(), &options);
    for name in ["listable", "searchable", "closed"] {
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(names(&task, format!("/{name}").as_bytes()), Vec::<Vec<u8>>::new());
    }
    assert_eq!(report.problem_count, 4);
    let mut problems: Vec<_> = report.problems.iter().map(|p| p.to_string()).collect();
    problems.sort();
    let at = dir.path().display();
    assert_eq!(
        problems,
        [
            format!("{at}/closed: open directory: EACCES: Permission denied"),
            format!("{at}/listable: search directory: EACCES: Permission denied"),
            format!("{at}/searchable: open directory: EACCES: Permission denied"),
            format!("{at}/secret: open file: EACCES: Permission denied"),
        ]
    );
    assert_eq!(task.lstat(b"/secret").unwrap().size, 1);

    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o300)).unwrap();
    let vfs = Vfs::new().unwrap();
    let error = import_dir(&vfs, dir.path(), &options, &Progress::new()).unwrap_err();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    assert!(error.to_string().contains("Permission denied"), "{error}");
}

#[test]
fn access_times_of_a_foreign_tree_are_those_after_the_scan() {
    const TREE: &str = "RCUWALK_HOST_TEST_TREE";
    let name = "access_times_of_a_foreign_tree_are_those_after_the_scan";
    if !is_root() && std::env::var_os(TREE).is_none() {
        println!("skipped: only root can make a tree that another user owns");
        return;
    }
    let dir = temp_dir();
    if is_root() {
        for path in ["", "d", "d/e"] {
            let path = dir.path().join(path);
            fs::create_dir_all(&path).unwrap();
            symlink("target", path.join("link")).unwrap();
            fs::write(path.join("file"), b"contents").unwrap();
        }
        // Older than the modification: the next read moves it, and O_NOATIME is for the owner.
        let old = fs::FileTimes::new().set_accessed(std::time::UNIX_EPOCH);
        for (path, _) in paths(dir.path()).into_iter().rev() {
            let path = dir.path().join(path);
            if !path.is_symlink() {
                File::open(&path).unwrap().set_times(old).unwrap();
            }
        }
        child(name).env(TREE, dir.path()).run();
        return;
    }
    let dir = PathBuf::from(std::env::var_os(TREE).unwrap());
    let (task, report) = import(&dir, &ImportOptions { contents: true, ..ImportOptions::default() });
    assert_eq!(report.problems, []);
    assert_eq!(compare(&dir, &task), 9);
}

/// Makes a chain of directories that is `levels` deep, each beside a directory `side`.
fn make_deep(dir: &Path, name: &[u8], levels: usize) {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let mut at = openat(CWD, dir, flags, Mode::empty()).unwrap();
    for _ in 0..levels {
        mkdirat(&at, name, Mode::from_raw_mode(0o755)).unwrap();
        mkdirat(&at, c"side", Mode::from_raw_mode(0o700)).unwrap();
        at = openat(&at, name, flags, Mode::empty()).unwrap();
    }
}

#[test]
fn a_tree_deeper_than_path_max_needs_few_descriptors() {
    if !in_child("a_tree_deeper_than_path_max_needs_few_descriptors") {
        return;
    }
    let dir = temp_dir();
    make_deep(dir.path(), &[b'd'; 200], 300);
    let (soft, hard) = (Some(40), rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum);
    rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit { current: soft, maximum: hard },
    )
    .unwrap();
    let (task, report) = import(dir.path(), &ImportOptions { threads: 2, ..ImportOptions::default() });
    assert_eq!(report.problems, []);
    assert_eq!(report.dirs, 601);
    for _ in 0..300 {
        assert_eq!(task.lstat(b"side").unwrap().mode, S_IFDIR | 0o700);
        task.chdir(&[b'd'; 200]).unwrap();
    }
}

#[test]
fn a_large_directory_comes_in_whole() {
    let dir = temp_dir();
    for n in 0..20_000 {
        File::create(dir.path().join(n.to_string())).unwrap();
    }
    let (task, report) = import(dir.path(), &ImportOptions::default());
    assert_eq!(report.files, 20_000);
    assert_eq!(names(&task, b"/").len(), 20_000);
}

/// Ends the other thread of a test, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn nothing_that_is_swapped_in_leads_out_of_the_tree() {
    let dir = temp_dir();
    let outside = dir.path().join("outside");
    let tree = dir.path().join("tree");
    fs::create_dir_all(outside.join("deeper")).unwrap();
    fs::write(outside.join("secret"), b"").unwrap();
    fs::write(outside.join("deeper/secret"), b"").unwrap();
    for n in 0..40 {
        fs::create_dir_all(tree.join(format!("d{n}/deeper"))).unwrap();
        fs::write(tree.join(format!("d{n}/deeper/f")), b"").unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            let parked = dir.path().join("parked");
            for n in (0..40).cycle() {
                let at = tree.join(format!("d{n}"));
                fs::rename(&at, &parked).unwrap();
                symlink(&outside, &at).unwrap();
                fs::remove_file(&at).unwrap();
                fs::rename(&parked, &at).unwrap();
                File::create(tree.join("passing")).unwrap();
                fs::remove_file(tree.join("passing")).unwrap();
                if stop.load(Relaxed) {
                    break;
                }
            }
        });
        let mut vanished = 0;
        for _ in 0..200 {
            let (task, report) = import(&tree, &ImportOptions::default());
            vanished += report.vanished;
            // A name that is moved away and back may be listed twice; else what goes away is no problem.
            assert!(report.problems.iter().all(|p| p.errno == Errno::EEXIST), "{:?}", report.problems);
            for name in names(&task, b"/") {
                let path = [b"/", &name[..]].concat();
                if s_isdir(task.lstat(&path).unwrap().mode) {
                    assert!(!names(&task, &path).contains(&b"secret".to_vec()));
                }
            }
        }
        println!("{vanished} names vanished");
    });
}

#[test]
fn mount_points_are_crossed_or_kept_empty() {
    common::with_own_mounts(|| {
        use rustix::mount::{MountFlags, mount, mount_bind};
        let dir = temp_dir();
        let at = |name: &str| dir.path().join(name);
        for name in ["tmpfs", "bind", "plain"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("plain/f"), b"").unwrap();
        mount("none", at("tmpfs"), "tmpfs", MountFlags::empty(), None::<&std::ffi::CStr>).unwrap();
        fs::write(at("tmpfs/f"), b"").unwrap();
        mount_bind(at("plain"), at("bind")).unwrap();

        let (task, report) = import(dir.path(), &ImportOptions::default());
        assert_eq!(compare(dir.path(), &task), 7);
        assert_eq!(report.mount_points, 0);

        let (task, report) =
            import(dir.path(), &ImportOptions { one_file_system: true, ..ImportOptions::default() });
        assert_eq!(report.mount_points, 2);
        assert_eq!(task.lstat(b"/plain/f").unwrap().nlink, 1);
        assert_eq!(task.lstat(b"/tmpfs/f").unwrap_err(), Errno::ENOENT);
        assert_eq!(task.lstat(b"/bind/f").unwrap_err(), Errno::ENOENT);
        assert_eq!(task.lstat(b"/tmpfs").unwrap().mode, S_IFDIR | 0o1777, "the root of what is mounted");
    });
}

#[test]
fn what_is_no_directory_is_an_error_that_says_so() {
    let dir = temp_dir();
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    let import = |path: &Path| {
        import_dir(&Vfs::new().unwrap(), path, &ImportOptions::default(), &Progress::new()).unwrap_err()
    };
    assert!(matches!(import(&file), ImportError::NotADirectory { path } if path == file));
    let missing = import(&dir.path().join("missing"));
    assert!(matches!(missing, ImportError::Open { .. }));
    assert!(missing.to_string().contains("missing: No such file or directory"), "{missing}");
    assert!(matches!(import(&file.join("x")), ImportError::Open { .. }));
}

#[test]
fn a_full_engine_is_an_error() {
    let dir = temp_dir();
    for n in 0..3000 {
        File::create(dir.path().join(n.to_string())).unwrap();
    }
    let vfs = Vfs::builder().capacity(1000).build().unwrap();
    let error = import_dir(&vfs, dir.path(), &ImportOptions::default(), &Progress::new()).unwrap_err();
    assert!(matches!(error, ImportError::Insert { errno: Errno::ENOSPC, .. }), "{error}");
}

#[test]
fn a_cancelled_import_ends() {
    let progress = Progress::new();
    progress.cancel();
    let vfs = Vfs::new().unwrap();
    let error = import_dir(&vfs, Path::new("/usr"), &ImportOptions::default(), &progress).unwrap_err();
    assert!(matches!(error, ImportError::Cancelled));
    let keeps = ImportOptions { keep_partial: true, ..ImportOptions::default() };
    let vfs = Vfs::new().unwrap();
    let report = import_dir(&vfs, Path::new("/usr"), &keeps, &progress).unwrap();
    assert!(report.partial && report.entries() < 10_000, "{report:?}");
    assert!(vfs.task(rcuwalk::Cred::root()).stat(b"/").is_ok(), "what is there can be used");

    let progress = Progress::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while progress.entries() < 500 {
                std::thread::yield_now();
            }
            progress.cancel();
        });
        let vfs = Vfs::new().unwrap();
        match import_dir(&vfs, Path::new("/usr"), &ImportOptions::default(), &progress) {
            Err(ImportError::Cancelled) => {}
            Err(e) => panic!("{e}"),
            Ok(report) => assert!(report.entries() < 10_000, "a small /usr may be done before"),
        }
    });
}

#[test]
fn a_link_to_a_directory_is_a_root() {
    let dir = temp_dir();
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("d/f"), b"").unwrap();
    symlink("d", dir.path().join("l")).unwrap();
    let (task, _) = import(&dir.path().join("l"), &ImportOptions::default());
    assert_eq!(compare(&dir.path().join("d"), &task), 2);
}
