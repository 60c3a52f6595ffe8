//! Real mounts, used as programs use them. Without root or /dev/fuse the tests say so and pass.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rcuwalk::{Cred, Vfs, uapi};
use rcuwalk_fuse::{Mode, Mount, MountError, Options};
use rustix::fs::{AtFlags, CWD, FallocateFlags, IFlags, OFlags, RenameFlags, XattrFlags, fallocate};
use rustix::io::Errno;
use tempfile::TempDir;

/// A mounted tree; unmounted before its directory goes.
struct Mounted {
    mount: Option<Mount>,
    mode: Mode,
    vfs: Vfs,
    dir: TempDir,
}

impl Mounted {
    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(mount) = self.mount.take() {
            mount.unmount().expect("it can be unmounted");
        }
    }
}

/// Whether trees can be mounted here; says why not.
fn possible() -> bool {
    let why = if !rustix::process::geteuid().is_root() {
        "mounts and other users need root"
    } else if OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
        "/dev/fuse cannot be opened"
    } else {
        return true;
    };
    eprintln!("skipped: {why}");
    false
}

fn mounted_with(vfs: Vfs, options: &Options) -> Option<Mounted> {
    if !possible() {
        return None;
    }
    let dir = tempfile::tempdir().expect("a directory");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("its mode");
    let mount = Mount::new(&vfs, dir.path(), options).unwrap_or_else(|e| panic!("{e}"));
    Some(Mounted { mount: Some(mount), mode: options.mode, vfs, dir })
}

fn vfs() -> Vfs {
    Vfs::new().expect("an empty tree")
}

fn options(mode: Mode) -> Options {
    Options { mode, nosuid: false, nodev: false, ..Options::default() }
}

/// Runs a test in both modes.
fn in_both_modes(test: impl Fn(&Mounted)) {
    for mode in [Mode::AsSeen, Mode::Engine] {
        if let Some(m) = mounted_with(vfs(), &options(mode)) {
            test(&m);
        }
    }
}

/// A shell command as user 1000 with group 1000 and these groups.
fn as_user(groups: &str, script: &str) -> Output {
    let groups = if groups.is_empty() { "--clear-groups".to_owned() } else { format!("--groups={groups}") };
    Command::new("setpriv")
        .args(["--reuid=1000", "--regid=1000", &groups, "--", "sh", "-c", script])
        .output()
        .expect("setpriv runs")
}

fn succeeds(output: &Output) -> bool {
    output.status.success()
}

fn wait_until(done: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !done() {
        assert!(std::time::Instant::now() < deadline, "it does not come about");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

#[test]
fn files_and_directories() {
    in_both_modes(|m| {
        fs::create_dir(m.at("d")).expect("mkdir");
        fs::write(m.at("d/f"), "hello").expect("write");
        fs::hard_link(m.at("d/f"), m.at("g")).expect("link");
        symlink("d/f", m.at("l")).expect("symlink");
        assert_eq!(fs::read_to_string(m.at("l")).expect("read"), "hello");
        let (f, g) = (fs::metadata(m.at("d/f")).expect("stat"), fs::metadata(m.at("g")).expect("stat"));
        assert_eq!((f.ino(), f.nlink(), f.len()), (g.ino(), 2, 5));
        assert_eq!(fs::metadata(m.at("")).expect("stat").nlink(), 3);

        fs::rename(m.at("d/f"), m.at("d/h")).expect("rename");
        assert_eq!(errno(fs::metadata(m.at("d/f"))), Some(Errno::NOENT.raw_os_error()));
        fs::remove_file(m.at("g")).expect("unlink");
        assert_eq!(fs::metadata(m.at("d/h")).expect("stat").nlink(), 1);
        assert_eq!(errno(fs::remove_dir(m.at("d"))), Some(Errno::NOTEMPTY.raw_os_error()));
        fs::remove_file(m.at("d/h")).expect("unlink");
        fs::remove_dir(m.at("d")).expect("rmdir");
        assert_eq!(errno(fs::read_to_string(m.at("l"))), Some(Errno::NOENT.raw_os_error()));
    });
}

#[test]
fn the_engine_and_the_mount_are_one_tree() {
    in_both_modes(|m| {
        let root = m.vfs.task(Cred::root());
        fs::write(m.at("f"), "from outside").expect("write");
        assert_eq!(root.stat(b"/f").expect("it is there").size, 12);
        root.mkdir(b"/inside", 0o711).expect("mkdir");
        assert_eq!(fs::metadata(m.at("inside")).expect("stat").mode() & 0o7777, 0o711);
    });
}

#[test]
fn a_name_that_was_missing_can_appear() {
    in_both_modes(|m| {
        for _ in 0..2 {
            assert!(!m.at("new").exists());
        }
        fs::write(m.at("new"), "").expect("write");
        assert!(m.at("new").exists());
        fs::remove_file(m.at("new")).expect("unlink");
        assert!(!m.at("new").exists());
    });
}

#[test]
fn large_directories_are_listed_once() {
    in_both_modes(|m| {
        let names: Vec<String> = (0..3000).map(|i| format!("file-with-a-name-{i:05}")).collect();
        names.iter().for_each(|name| drop(File::create(m.at(name)).expect("create")));
        for _ in 0..2 {
            let mut seen: Vec<String> = fs::read_dir(m.at(""))
                .expect("opendir")
                .map(|e| e.expect("readdir"))
                .inspect(|e| assert!(e.metadata().expect("lstat").is_file()))
                .map(|e| e.file_name().into_string().expect("UTF-8"))
                .collect();
            seen.sort_unstable();
            assert_eq!(seen, names);
        }
    });
}

#[test]
fn an_unlinked_file_lives_while_it_is_open() {
    in_both_modes(|m| {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(m.at("f"))
            .expect("open");
        file.write_all(b"still here").expect("write");
        fs::remove_file(m.at("f")).expect("unlink");
        assert_eq!(file.metadata().expect("fstat").nlink(), 0);
        file.seek(SeekFrom::Start(0)).expect("seek");
        let mut text = String::new();
        file.read_to_string(&mut text).expect("read");
        assert_eq!(text, "still here");
    });
}

#[test]
fn nameless_files_can_be_named_once() {
    in_both_modes(|m| {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let open = |flags| rustix::fs::open(m.at(""), flags, rustix::fs::Mode::from(0o640)).map(File::from);
        let file = open(flags).expect("O_TMPFILE");
        file.write_all_at(b"no name", 0).expect("write");
        assert_eq!(file.metadata().expect("fstat").nlink(), 0);
        let link = |file: &File, name| rustix::fs::linkat(file, "", CWD, m.at(name), AtFlags::EMPTY_PATH);
        assert_eq!(link(&file, "named"), Ok(()));
        assert_eq!(link(&file, "named"), Err(Errno::EXIST));
        assert_eq!(fs::read_to_string(m.at("named")).expect("read"), "no name");
        assert_eq!(link(&open(flags | OFlags::EXCL).expect("O_TMPFILE"), "never"), Err(Errno::NOENT));
        drop(file);
        fs::remove_file(m.at("named")).expect("unlink");
    });
}

#[test]
fn times_of_birth() {
    in_both_modes(|m| {
        let before = std::time::SystemTime::now() - std::time::Duration::from_secs(1);
        fs::write(m.at("f"), "").expect("write");
        fs::set_permissions(m.at("f"), Permissions::from_mode(0o600)).expect("chmod");
        let meta = fs::metadata(m.at("f")).expect("statx");
        let born = meta.created().expect("a time of birth");
        assert!(before < born && born <= meta.modified().expect("mtime"), "{before:?} {born:?}");
    });
}

#[test]
fn access_times_are_left_alone_on_request() {
    for mode in [Mode::AsSeen, Mode::Engine] {
        for noatime in [false, true] {
            let Some(m) = mounted_with(vfs(), &Options { noatime, ..options(mode) }) else { return };
            let (f, d) = (m.at("f"), m.at("d"));
            fs::write(&f, "text").expect("write");
            fs::create_dir(&d).expect("mkdir");
            let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000);
            let read_with = |flags: OFlags| {
                let file = File::from(rustix::fs::open(&f, flags, rustix::fs::Mode::empty()).expect("open"));
                file.set_times(std::fs::FileTimes::new().set_accessed(old)).expect("futimens");
                // Nothing of it is in the kernel's cache.
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("fadvise");
                file.read_exact_at(&mut [0; 4], 0).expect("read");
                drop(file);
                fs::metadata(&f).expect("stat").accessed().expect("atime") == old
            };
            assert!(read_with(OFlags::RDONLY | OFlags::NOATIME), "{mode:?}: O_NOATIME");
            assert_eq!(read_with(OFlags::RDONLY), noatime, "{mode:?}: read");
            let dir = File::open(&d).expect("open");
            dir.set_times(std::fs::FileTimes::new().set_accessed(old)).expect("futimens");
            assert_eq!(fs::read_dir(&d).expect("opendir").count(), 0);
            let atime = fs::metadata(&d).expect("stat").accessed().expect("atime");
            assert_eq!(atime == old, noatime, "{mode:?}: readdir");
        }
    }
}

#[test]
fn sparse_files() {
    in_both_modes(|m| {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(m.at("f")).expect("open");
        file.write_all_at(b"end", 1 << 20).expect("write");
        let at = |from| rustix::fs::seek(&file, from);
        assert_eq!(at(rustix::fs::SeekFrom::Data(0)), Ok(1 << 20));
        assert_eq!(at(rustix::fs::SeekFrom::Hole(0)), Ok(0));
        fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 65536).expect("fallocate");
        assert_eq!(file.metadata().expect("fstat").blocks(), 128 + 8);
        fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 1 << 20, 4096)
            .expect("punch");
        let mut byte = [1];
        file.read_exact_at(&mut byte, 1 << 20).expect("read");
        assert_eq!(byte, [0]);
        file.set_len(7).expect("ftruncate");
        assert_eq!(file.metadata().expect("fstat").len(), 7);
    });
}

#[test]
fn copies_within_the_mount() {
    in_both_modes(|m| {
        let data: Vec<u8> = (0..300_000_u32).map(|i| i as u8).collect();
        fs::write(m.at("a"), &data).expect("write");
        let (from, to) = (File::open(m.at("a")).expect("open"), File::create(m.at("b")).expect("create"));
        let mut copied = 0;
        while copied < data.len() {
            copied += rustix::fs::copy_file_range(&from, None, &to, None, data.len() - copied).expect("copy");
        }
        assert_eq!(fs::read(m.at("b")).expect("read"), data);
    });
}

#[test]
fn shared_mappings_are_written_back() {
    in_both_modes(|m| {
        let script = format!(
            "import mmap,os\nf=os.open({:?},os.O_RDWR|os.O_CREAT,0o644)\nos.ftruncate(f,8192)\nm=mmap.mmap(f,8192)\nm[4095:4100]=b'paged'\nm.flush()\n",
            m.at("f")
        );
        match Command::new("python3").args(["-c", &script]).status() {
            Ok(status) => assert!(status.success()),
            Err(e) => return eprintln!("skipped: python3: {e}"),
        }
        let root = m.vfs.task(Cred::root());
        let fd = root.open(b"/f", uapi::O_RDONLY, 0).expect("open");
        let mut text = [0; 5];
        assert_eq!(root.pread(fd, &mut text, 4095), Ok(5));
        assert_eq!(&text, b"paged");
    });
}

#[test]
fn rename_flags() {
    in_both_modes(|m| {
        fs::write(m.at("a"), "a").expect("write");
        fs::write(m.at("b"), "b").expect("write");
        let dir = File::open(m.at("")).expect("open");
        let rename = |flags| rustix::fs::renameat_with(&dir, "a", &dir, "b", flags);
        assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
        assert_eq!(rename(RenameFlags::EXCHANGE), Ok(()));
        assert_eq!(fs::read_to_string(m.at("a")).expect("read"), "b");
        assert_eq!(rename(RenameFlags::WHITEOUT), Ok(()));
        assert!(fs::symlink_metadata(m.at("a")).expect("lstat").file_type().is_char_device());
        assert_eq!(fs::read_to_string(m.at("b")).expect("read"), "b");
    });
}

#[test]
fn extended_attributes_and_inode_flags() {
    in_both_modes(|m| {
        fs::write(m.at("f"), "").expect("write");
        let path = m.at("f");
        rustix::fs::setxattr(&path, "user.a", b"value", XattrFlags::CREATE).expect("setxattr");
        rustix::fs::setxattr(&path, "trusted.b", b"2", XattrFlags::empty()).expect("setxattr");
        assert_eq!(rustix::fs::setxattr(&path, "user.a", b"", XattrFlags::CREATE), Err(Errno::EXIST));
        let mut value = [0; 3];
        assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut value), Err(Errno::RANGE));
        let mut list = [0; 64];
        let n = rustix::fs::listxattr(&path, &mut list).expect("listxattr");
        assert_eq!(&list[..n], b"user.a\0trusted.b\0");
        let seen = as_user(
            "",
            &format!("python3 -c 'import os;print(os.listxattr({:?}))'", path).replace('"', "\\\""),
        );
        if succeeds(&seen) {
            assert_eq!(String::from_utf8_lossy(&seen.stdout).trim(), "['user.a']");
        }
        rustix::fs::removexattr(&path, "user.a").expect("removexattr");

        let file = File::open(&path).expect("open");
        rustix::fs::ioctl_setflags(&file, IFlags::IMMUTABLE).expect("FS_IOC_SETFLAGS");
        assert_eq!(rustix::fs::ioctl_getflags(&file), Ok(IFlags::IMMUTABLE));
        assert_eq!(errno(fs::remove_file(&path)), Some(Errno::PERM.raw_os_error()));
        rustix::fs::ioctl_setflags(&file, IFlags::empty()).expect("FS_IOC_SETFLAGS");
        fs::remove_file(&path).expect("unlink");
    });
}

#[test]
fn special_files() {
    in_both_modes(|m| {
        let made = Command::new("mknod").arg(m.at("c")).args(["c", "1", "3"]).status().expect("mknod runs");
        assert!(made.success());
        assert_eq!(fs::metadata(m.at("c")).expect("stat").rdev(), uapi::makedev(1, 3));
        fs::write(m.at("c"), "into the void").expect("it is /dev/null");
        let made = Command::new("mkfifo").arg(m.at("p")).status().expect("mkfifo runs");
        assert!(made.success() && fs::metadata(m.at("p")).expect("stat").file_type().is_fifo());
    });
}

#[test]
fn locks_are_the_kernels() {
    in_both_modes(|m| {
        let (a, b) = (File::create(m.at("f")).expect("create"), File::open(m.at("f")).expect("open"));
        a.lock().expect("flock");
        assert!(b.try_lock().is_err());
        a.unlock().expect("flock");
        b.try_lock().expect("flock");
    });
}

#[test]
fn permissions_are_those_of_the_caller() {
    in_both_modes(|m| {
        fs::create_dir(m.at("d")).expect("mkdir");
        fs::write(m.at("d/f"), "x").expect("write");
        std::os::unix::fs::chown(m.at("d"), Some(0), Some(50)).expect("chown");
        fs::set_permissions(m.at("d"), Permissions::from_mode(0o750)).expect("chmod");
        let read = format!("cat {:?}", m.at("d/f"));
        assert!(!succeeds(&as_user("", &read)));
        assert!(succeeds(&as_user("50", &read)), "a supplementary group counts");
        assert!(!succeeds(&as_user("50", &format!("touch {:?}", m.at("d/g")))));
    });
}

#[test]
fn tightening_is_seen_at_once() {
    in_both_modes(|m| {
        fs::create_dir_all(m.at("a/b")).expect("mkdir");
        fs::write(m.at("a/b/f"), "x").expect("write");
        let stat = format!("stat {:?}", m.at("a/b/f"));
        // Whatever there is to cache is cached, for root as well as for the user.
        assert!(succeeds(&as_user("", &stat)) && m.at("a/b/f").exists());
        fs::set_permissions(m.at("a"), Permissions::from_mode(0o700)).expect("chmod");
        assert!(!succeeds(&as_user("", &stat)));
        fs::set_permissions(m.at("a"), Permissions::from_mode(0o755)).expect("chmod");
        assert!(succeeds(&as_user("", &stat)));
    });
}

#[test]
fn moving_into_a_closed_directory_is_seen_at_once() {
    in_both_modes(|m| {
        fs::create_dir_all(m.at("open")).expect("mkdir");
        fs::create_dir_all(m.at("shut")).expect("mkdir");
        fs::set_permissions(m.at("shut"), Permissions::from_mode(0o700)).expect("chmod");
        fs::write(m.at("open/f"), "x").expect("write");
        assert!(succeeds(&as_user("", &format!("cat {:?}", m.at("open/f")))));
        fs::rename(m.at("open/f"), m.at("shut/f")).expect("rename");
        assert!(m.at("shut/f").exists());
        assert!(!succeeds(&as_user("", &format!("cat {:?}", m.at("shut/f")))));
    });
}

#[test]
fn tightening_unmounts_nothing_within() {
    in_both_modes(|m| {
        ["on", "a", "shut"].iter().for_each(|name| fs::create_dir(m.at(name)).expect("mkdir"));
        ["a/f", "g"].iter().for_each(|name| fs::write(m.at(name), "x").expect("write"));
        fs::set_permissions(m.at("shut"), Permissions::from_mode(0o700)).expect("chmod");
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("within", m.at("on"), "tmpfs", flags, None).expect("a tmpfs is mounted");
        fs::write(m.at("on/inside"), "x").expect("write");
        let stat = |name: &str| succeeds(&as_user("", &format!("stat {:?}", m.at(name))));
        let before = stat("a/f") && stat("g");
        fs::set_permissions(m.at("a"), Permissions::from_mode(0o700)).expect("chmod");
        fs::rename(m.at("g"), m.at("shut/g")).expect("rename");
        let there = m.at("on/inside").exists();
        wait_until(|| !stat("a/f") && !stat("shut/g"));
        let there = there && m.at("on/inside").exists();
        let _ = rustix::mount::unmount(m.at("on"), rustix::mount::UnmountFlags::DETACH);
        assert!(before && there);
    });
}

/// What docs/mount.md says of a user who may not search a directory: the kernel takes a name that is refused for one that is gone, and
/// unmounts what lies there. Where the kernel decides itself, it does not ask.
#[test]
fn a_refused_user_unmounts_with_the_engine_alone() {
    in_both_modes(|m| {
        fs::create_dir_all(m.at("shut/on")).expect("mkdir");
        fs::set_permissions(m.at("shut"), Permissions::from_mode(0o700)).expect("chmod");
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("within", m.at("shut/on"), "tmpfs", flags, None).expect("a tmpfs is mounted");
        fs::write(m.at("shut/on/inside"), "x").expect("write");
        let stat = as_user("", &format!("stat {:?}", m.at("shut/on/inside")));
        let there = m.at("shut/on/inside").exists();
        let _ = rustix::mount::unmount(m.at("shut/on"), rustix::mount::UnmountFlags::DETACH);
        assert!(!succeeds(&stat));
        assert_eq!(there, m.mode == Mode::AsSeen, "{:?}", m.mode);
    });
}

#[test]
fn new_files_belong_to_who_makes_them() {
    in_both_modes(|m| {
        fs::create_dir(m.at("d")).expect("mkdir");
        std::os::unix::fs::chown(m.at("d"), Some(0), Some(50)).expect("chown");
        fs::set_permissions(m.at("d"), Permissions::from_mode(0o2777)).expect("chmod");
        let d = m.at("d");
        let made = as_user("", &format!("umask 027; cd {d:?} && echo x > f && mkdir s && ln -s f l"));
        assert!(succeeds(&made), "{made:?}");
        let [f, s] = ["d/f", "d/s"].map(|name| fs::metadata(m.at(name)).expect("stat"));
        assert_eq!((f.uid(), f.gid(), f.mode() & 0o7777), (1000, 50, 0o640));
        assert_eq!((s.uid(), s.gid(), s.mode() & 0o7777), (1000, 50, 0o2750));
    });
}

#[test]
fn writing_takes_set_id_bits_away() {
    in_both_modes(|m| {
        let f = m.at("f");
        let set = |mode| fs::set_permissions(&f, Permissions::from_mode(mode)).expect("chmod");
        let mode = || fs::metadata(&f).expect("stat").mode() & 0o7777;
        fs::write(&f, "x").expect("write");
        set(0o6777);
        OpenOptions::new().append(true).open(&f).expect("open").write_all(b"y").expect("write");
        assert_eq!(mode(), 0o6777, "root has CAP_FSETID");
        for change in ["echo y >>", "truncate -s 0"] {
            set(0o6777);
            assert!(succeeds(&as_user("", &format!("{change} {f:?}"))));
            assert_eq!(mode(), 0o777, "{change}");
        }
        set(0o6777);
        std::os::unix::fs::chown(&f, None, None).expect("chown");
        assert_eq!(mode(), 0o777, "a chown that changes nothing");
        set(0o6755);
        std::os::unix::fs::chown(&f, Some(5), Some(5)).expect("chown");
        assert_eq!(mode(), 0o755);
    });
}

/// An overlay whose layers all lie in a mounted tree; unmounted before the tree.
struct Overlay {
    dir: TempDir,
}

impl Overlay {
    fn over(m: &Mounted) -> Overlay {
        ["upper", "work"].iter().for_each(|name| fs::create_dir(m.at(name)).expect("mkdir"));
        let dir = tempfile::tempdir().expect("a directory");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("its mode");
        let [lower, upper, work] = ["lower", "upper", "work"].map(|name| m.at(name).display().to_string());
        let data = format!("lowerdir={lower},upperdir={upper},workdir={work}\0");
        let data = std::ffi::CStr::from_bytes_with_nul(data.as_bytes()).expect("no zero within");
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("overlay", dir.path(), "overlay", flags, data).expect("an overlay is mounted");
        Overlay { dir }
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let flags = rustix::mount::UnmountFlags::empty();
        rustix::mount::unmount(self.dir.path(), flags).expect("the overlay can be unmounted");
    }
}

#[test]
fn an_overlay_copies_privileges_up() {
    let caps = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    in_both_modes(|m| {
        fs::create_dir(m.at("lower")).expect("mkdir");
        let modes = [0o6755, 0o4711, 0o2755, 0o2644, 0o755];
        for (owner, mode) in [0, 1000, 5].iter().flat_map(|owner| modes.map(|mode| (*owner, mode))) {
            let f = m.at(&format!("lower/{owner}-{mode:o}"));
            fs::write(&f, "x").expect("write");
            std::os::unix::fs::chown(&f, Some(owner), Some(owner)).expect("chown");
            fs::set_permissions(&f, Permissions::from_mode(mode)).expect("chmod");
            rustix::fs::setxattr(&f, "security.capability", &caps, XattrFlags::CREATE).expect("setxattr");
        }
        let overlay = Overlay::over(m);
        let names: Vec<_> =
            fs::read_dir(m.at("lower")).expect("opendir").map(|e| e.expect("an entry")).collect();
        assert_eq!(names.len(), 15);
        for name in names.iter().map(|entry| entry.file_name().into_string().expect("UTF-8")) {
            let (owner, mode) = name.split_once('-').expect("as it was named");
            let (merged, upper) = (overlay.dir.path().join(&name), m.at("upper").join(&name));
            if owner == "1000" {
                assert!(succeeds(&as_user("", &format!("touch {merged:?}"))), "its owner copies {name} up");
            } else {
                let now = fs::FileTimes::new().set_modified(std::time::SystemTime::now());
                File::open(&merged).expect("open").set_times(now).expect("futimens");
            }
            for file in [&merged, &upper] {
                let meta = fs::metadata(file).expect("it was copied up");
                let found =
                    (format!("{:o}", meta.mode() & 0o7777), meta.uid().to_string(), meta.gid().to_string());
                assert_eq!(found, (mode.to_owned(), owner.to_owned(), owner.to_owned()), "{name}");
                let mut kept = [0; 20];
                assert_eq!(rustix::fs::getxattr(file, "security.capability", &mut kept), Ok(20), "{name}");
                assert_eq!(kept, caps, "{name}");
            }
            // What chown(2) takes away is gone below, too.
            std::os::unix::fs::chown(&merged, Some(7), Some(7)).expect("chown");
            let kept = if name.ends_with("2644") { 0o2000 } else { 0 };
            assert_eq!(fs::metadata(&upper).expect("stat").mode() & 0o6000, kept, "{name}");
            let mut gone = [0; 20];
            assert_eq!(rustix::fs::getxattr(&upper, "security.capability", &mut gone), Err(Errno::NODATA));
        }
    });
}

#[test]
fn a_chown_of_its_own_copies_up_and_takes_set_id_bits_away() {
    in_both_modes(|m| {
        fs::create_dir(m.at("lower")).expect("mkdir");
        fs::write(m.at("lower/f"), "x").expect("write");
        fs::set_permissions(m.at("lower/f"), Permissions::from_mode(0o6755)).expect("chmod");
        let overlay = Overlay::over(m);
        std::os::unix::fs::chown(overlay.dir.path().join("f"), Some(5), None).expect("chown");
        assert_eq!(fs::metadata(m.at("upper/f")).expect("stat").mode() & 0o7777, 0o755);
    });
}

#[test]
fn attributes_of_a_user_in_a_namespace_of_their_own() {
    in_both_modes(|m| {
        fs::create_dir(m.at("d")).expect("mkdir");
        fs::write(m.at("d/theirs"), "x").expect("write");
        fs::write(m.at("d/others"), "x").expect("write");
        std::os::unix::fs::chown(m.at("d/theirs"), Some(1005), Some(1005)).expect("chown");
        std::os::unix::fs::chown(m.at("d"), Some(1000), Some(1000)).expect("chown");
        // Root there is 1000 here, and has the users from 1001 on; what others own is none of theirs.
        let script = r#"cd "$1/d" || exit 9
            [ "$(stat -c %u theirs)" = 5 ] || exit 8
            chmod 0600 theirs || exit 7
            setfattr -n user.a -v 1 theirs || exit 1
            [ "$(getfattr --only-values -n user.a theirs)" = 1 ] || exit 2
            setfacl -m u:3:r theirs || exit 3
            getfacl -n theirs | grep -qx user:3:r-- || exit 4
            setfattr -x user.a theirs || exit 5
            ! setfattr -n user.a -v 1 others || exit 6
            ! setfacl -m u:3:r others || exit 10
            ! setfattr -n trusted.a -v 1 theirs || exit 11"#;
        let outer = format!(
            r#"setpriv --reuid=1000 --regid=1000 --clear-groups unshare -U sleep 30 & p=$!
            until [ "$(readlink /proc/$p/ns/user)" != "$(readlink /proc/self/ns/user)" ]; do sleep 0.01; done
            echo "0 1000 10" >/proc/$p/uid_map && echo "0 1000 10" >/proc/$p/gid_map || exit 77
            nsenter -t $p -U --setuid 0 --setgid 0 sh -c '{script}' sh "$1"; code=$?
            kill $p; exit $code"#
        );
        let done = Command::new("sh").args(["-c", &outer, "sh"]).arg(m.at("")).output().expect("sh runs");
        assert!(succeeds(&done), "{done:?}");
        let acl = Command::new("getfacl").arg("-cn").arg(m.at("d/theirs")).output().expect("getfacl runs");
        assert!(String::from_utf8_lossy(&acl.stdout).contains("user:1003:r--"), "{acl:?}");
    });
}

#[test]
fn a_full_file_system_says_so() {
    for mode in [Mode::AsSeen, Mode::Engine] {
        let vfs = Vfs::builder().size_limit(1 << 20).capacity(64).build().expect("a small tree");
        let Some(m) = mounted_with(vfs, &options(mode)) else { return };
        let space = rustix::fs::statvfs(m.at("")).expect("statvfs");
        assert_eq!((space.f_frsize * space.f_blocks, space.f_bfree), (1 << 20, 256));
        let no_room = Some(Errno::NOSPC.raw_os_error());
        assert_eq!(errno(fs::write(m.at("big"), vec![1; 2 << 20])), no_room);
        assert_eq!(rustix::fs::statvfs(m.at("")).expect("statvfs").f_bfree, 0);
        fs::remove_file(m.at("big")).expect("unlink");
        // The kernel lets go of the file a moment later.
        wait_until(|| rustix::fs::statvfs(m.at("")).expect("statvfs").f_bfree == 256);
        assert_eq!((0..20_000).find_map(|i| errno(File::create(m.at(&i.to_string())))), no_room);
    }
}

#[test]
fn mount_options_are_the_kernels() {
    let strict = Options { read_only: true, noexec: true, source: "a tree".into(), ..Options::default() };
    let tree = vfs();
    tree.task(Cred::root()).mkdir(b"/d", 0o755).expect("mkdir");
    let Some(m) = mounted_with(tree, &strict) else { return };
    let read_only = Some(Errno::ROFS.raw_os_error());
    assert_eq!(errno(File::create(m.at("f"))), read_only);
    assert_eq!(errno(fs::remove_dir(m.at("d"))), read_only);
    let table = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    let point = m.dir.path().canonicalize().expect("the mount point");
    let line = table.lines().find(|line| line.contains(&*point.to_string_lossy())).expect("it is mounted");
    assert!(line.contains(" ro,nosuid,nodev,noexec,"), "{line}");
    assert!(line.contains(" - fuse.rcuwalk a\\040tree "), "{line}");
}

#[test]
fn a_busy_tree_goes_out_of_sight() {
    let Some(mut m) = mounted_with(vfs(), &options(Mode::AsSeen)) else { return };
    let file = File::create(m.at("f")).expect("create");
    let mount = m.mount.take().expect("mounted");
    mount.unmount().expect("it can be unmounted");
    assert!(!m.at("f").exists());
    file.write_all_at(b"still served", 0).expect("write");
    drop(file);
}

#[test]
fn bad_mount_points_are_named() {
    if !possible() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    fs::write(&file, "").expect("write");
    let try_at = |point: &Path| match Mount::new(&vfs(), point, &Options::default()) {
        Err(e @ MountError::Point { .. }) => e.to_string(),
        other => panic!("{other:?}"),
    };
    let missing = try_at(&dir.path().join("missing"));
    assert!(missing.contains("missing: No such file") && missing.contains("mkdir -p"), "{missing}");
    assert!(try_at(&file).contains("not a directory"));
}

#[test]
fn unmounting_from_outside_ends_it() {
    let Some(m) = mounted_with(vfs(), &options(Mode::AsSeen)) else { return };
    let mount = m.mount.as_ref().expect("mounted");
    assert!(!mount.is_over());
    rustix::mount::unmount(mount.point(), rustix::mount::UnmountFlags::empty()).expect("umount");
    wait_until(|| mount.is_over());
}

#[test]
fn writeback_keeps_every_byte() {
    let written = Options { writeback: true, ..options(Mode::AsSeen) };
    let Some(m) = mounted_with(vfs(), &written) else { return };
    let mut file = File::create(m.at("f")).expect("create");
    (0..5000_u32).for_each(|i| file.write_all(&i.to_ne_bytes()).expect("write"));
    file.sync_all().expect("fsync");
    let root = m.vfs.task(Cred::root());
    let fd = root.open(b"/f", uapi::O_RDONLY, 0).expect("open");
    let mut bytes = vec![0; 20_000];
    assert_eq!(root.pread(fd, &mut bytes, 0), Ok(20_000));
    assert!(
        bytes.as_chunks::<4>().0.iter().enumerate().all(|(i, word)| u32::from_ne_bytes(*word) == i as u32)
    );
}
