//! `rcuwalk::fs` answers as `std::fs` does on the host, call by call; and what only the engine can show: users, and descriptors
//! that are all closed.

use rcuwalk::fs::{DirEntry, File, Fs, Metadata, OpenOptions, Permissions, ReadDir};
use rcuwalk::uapi::*;
use rcuwalk::{Cred, Errno, Vfs};
use std::fmt::Debug;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// An answer: what it was, or how it failed.
#[derive(Debug)]
struct Answer(std::result::Result<String, (ErrorKind, Option<i32>)>);

fn answer<T: Debug>(result: io::Result<T>) -> Answer {
    Answer(result.map(|value| format!("{value:?}")).map_err(|error| (error.kind(), error.raw_os_error())))
}

/// The directory of the host that stands for the root directory.
struct Host(PathBuf);

impl Host {
    fn new() -> Host {
        let base = std::env::temp_dir().join(format!("rcuwalk-fs-{}", std::process::id()));
        std::fs::create_dir(&base).unwrap();
        Host(base.canonicalize().unwrap())
    }

    /// What this process takes from the modes of what it makes.
    fn umask(&self) -> u32 {
        use std::os::unix::fs::MetadataExt;
        !std::fs::metadata(&self.0).unwrap().mode() & 0o777
    }

    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        // Trailing slashes count, so this is not `join`.
        let mut at = self.0.clone().into_os_string();
        at.push(path);
        if path.as_os_str().is_empty() { PathBuf::new() } else { at.into() }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// The functions of `std::fs` as methods, below the directory.
macro_rules! host {
    ($($name:ident($($path:ident),+ $(; $arg:ident: $ty:ty)?) -> $ret:ty = $call:path;)*) => {
        impl Host {
            $(fn $name(&self, $($path: impl AsRef<Path>,)+ $($arg: $ty)?) -> io::Result<$ret> {
                $call($(self.at($path),)+ $($arg)?)
            })*
        }
    };
}

host! {
    open(path) -> std::fs::File = std::fs::File::open;
    create(path) -> std::fs::File = std::fs::File::create;
    create_new(path) -> std::fs::File = std::fs::File::create_new;
    metadata(path) -> std::fs::Metadata = std::fs::metadata;
    symlink_metadata(path) -> std::fs::Metadata = std::fs::symlink_metadata;
    exists(path) -> bool = std::fs::exists;
    read(path) -> Vec<u8> = std::fs::read;
    read_to_string(path) -> String = std::fs::read_to_string;
    write(path; contents: &[u8]) -> () = std::fs::write;
    copy(from, to) -> u64 = std::fs::copy;
    create_dir(path) -> () = std::fs::create_dir;
    create_dir_all(path) -> () = std::fs::create_dir_all;
    remove_file(path) -> () = std::fs::remove_file;
    remove_dir(path) -> () = std::fs::remove_dir;
    remove_dir_all(path) -> () = std::fs::remove_dir_all;
    rename(from, to) -> () = std::fs::rename;
    hard_link(original, link) -> () = std::fs::hard_link;
    read_link(path) -> PathBuf = std::fs::read_link;
    set_permissions(path; permissions: std::fs::Permissions) -> () = std::fs::set_permissions;
    read_dir(path) -> std::fs::ReadDir = std::fs::read_dir;
}

impl Host {
    fn open_with(&self, path: impl AsRef<Path>, options: &std::fs::OpenOptions) -> io::Result<std::fs::File> {
        options.open(self.at(path))
    }

    /// The body stays as it is said: relative bodies only.
    fn symlink(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
        std::os::unix::fs::symlink(original, self.at(link))
    }

    fn canonicalize(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let path = std::fs::canonicalize(self.at(path))?;
        Ok(Path::new("/").join(path.strip_prefix(&self.0).unwrap()))
    }
}

/// The same calls on both: `m` is the module, `$fs` the file system, and `$say` takes each answer.
macro_rules! script {
    ($fs:ident, $say:ident) => {
        let type_of = |t: m::FileType| (t.is_dir(), t.is_file(), t.is_symlink(), t.is_fifo(), t.is_socket());
        let entries = |path: &str| {
            let entries = $fs.read_dir(path).and_then(|entries| {
                let mut all = Vec::new();
                for entry in entries {
                    let entry = entry?;
                    let metadata = entry.metadata()?;
                    assert_eq!(entry.ino(), metadata.ino());
                    assert!(entry.path().ends_with(entry.file_name()));
                    all.push((entry.file_name(), type_of(entry.file_type()?), metadata.mode()));
                }
                all.sort();
                Ok(all)
            });
            answer(entries)
        };
        $say(entries("/"));
        $say(entries("/missing"));
        $say(answer($fs.create_dir_all("/a/b/c")));
        $say(answer($fs.create_dir_all("/a/b/c/")));
        $say(answer($fs.create_dir_all("")));
        $say(answer($fs.create_dir("/a")));
        $say(answer($fs.create_dir("/x/y")));
        $say(answer($fs.write("/a/f", b"hello")));
        $say(answer($fs.write("/a", b"hello")));
        $say(answer($fs.write("/a/f/g", b"hello")));
        $say(answer($fs.write("/a/n\0ul", b"hello")));
        $say(answer($fs.create_dir_all("/a/f")));
        $say(answer($fs.create_dir_all("/a/f/g/h")));
        $say(answer($fs.create_dir_all("/a/n\0ul")));
        $say(answer($fs.read("/a/f")));
        $say(answer($fs.read("/a")));
        $say(answer($fs.read_to_string("/a/f/")));
        $say(answer($fs.write("/a/bad", b"\xff\xfe")));
        $say(answer($fs.read_to_string("/a/bad")));
        for (body, link) in
            [("f", "/a/link"), ("b/..", "/a/dir"), ("loop", "/a/loop"), ("none", "/a/dangling")]
        {
            $say(answer($fs.symlink(body, link)));
        }
        $say(entries("/a"));
        $say(entries("/a/dir"));
        $say(entries("/a/f"));
        for path in [
            "",
            "/",
            "/a",
            "/a/f",
            "/a/link",
            "/a/dir",
            "/a/loop",
            "/a/dangling",
            "/a/f/",
            "/q",
            "/a/f/q",
            "/a\0",
        ] {
            $say(answer($fs.exists(path)));
            $say(answer($fs.read_link(path)));
            $say(answer($fs.canonicalize(path)));
            for metadata in [$fs.metadata(path), $fs.symlink_metadata(path)] {
                $say(answer(metadata.map(|m| {
                    assert_eq!(m.permissions().mode(), m.mode());
                    let len = if m.is_dir() { 0 } else { m.len() };
                    (type_of(m.file_type()), m.is_dir(), m.is_file(), m.is_symlink(), m.mode(), len)
                })));
            }
        }
        $say(answer($fs.canonicalize("/a/./b/../dir/./b//c/")));
        $say(answer($fs.hard_link("/a/f", "/a/hard")));
        $say(answer($fs.hard_link("/a/link", "/a/hardlink")));
        $say(answer($fs.hard_link("/a/b", "/a/dirlink")));
        $say(answer($fs.hard_link("/a/f", "/a/hard")));
        $say(answer($fs.metadata("/a/hard").map(|m| m.nlink())));
        $say(answer($fs.symlink_metadata("/a/hardlink").map(|m| m.is_symlink())));
        for mode in [0o640, 0o4711, 0] {
            $say(answer($fs.set_permissions("/a/link", m::Permissions::from_mode(mode))));
            $say(answer($fs.metadata("/a/f").map(|m| (m.mode(), m.permissions().readonly()))));
        }
        let mut permissions = m::Permissions::from_mode(0o444);
        #[allow(
            clippy::permissions_set_readonly_false,
            reason = "that it sets all three write bits is compared"
        )]
        permissions.set_readonly(false);
        $say(answer($fs.set_permissions("/a/f", permissions)));
        $say(answer($fs.metadata("/a/f").map(|m| m.mode())));
        $say(answer($fs.set_permissions("/a/loop", m::Permissions::from_mode(0o600))));
        $say(answer($fs.set_permissions("/a/f", m::Permissions::from_mode(0o751))));
        for (from, to) in [
            ("/a/f", "/a/copy"),
            ("/a/link", "/a/copy"),
            ("/a", "/a/copy"),
            ("/q", "/a/copy"),
            ("/a/f", "/a/b"),
            ("/a/bad", "/a/f/x"),
            ("/a/bad", "/a/dangling"),
        ] {
            $say(answer($fs.copy(from, to)));
        }
        $say(answer($fs.metadata("/a/copy").map(|m| (m.mode(), m.len()))));
        $say(answer($fs.metadata("/a/none").map(|m| (m.mode(), m.len()))));
        $say(answer($fs.copy("/a/none", "/a/none")));
        $say(answer($fs.read("/a/none")));

        // Every combination of options, on a file that is there and on one that is not.
        for bits in 0..1 << 6 {
            let has = |bit: u32| bits & 1 << bit != 0;
            let mut options = m::OpenOptions::new();
            options
                .read(has(0))
                .write(has(1))
                .append(has(2))
                .truncate(has(3))
                .create(has(4))
                .create_new(has(5));
            for path in ["/a/there", "/a/new"] {
                $say(answer($fs.write("/a/there", b"12345")));
                let opened = $fs.open_with(path, options.mode(0o600));
                $say(answer(opened.as_ref().map(|_| ()).map_err(|e| match e.raw_os_error() {
                    Some(raw) => io::Error::from_raw_os_error(raw),
                    None => e.kind().into(),
                })));
                if let Ok(mut file) = opened {
                    let mut buf = [0; 3];
                    $say(answer(file.read(&mut buf)));
                    $say(answer(file.write(b"ab")));
                    $say(answer(file.stream_position()));
                    $say(answer($fs.read(path)));
                    $say(answer(file.metadata().map(|m| m.mode())));
                }
                $say(answer($fs.remove_file("/a/new")));
            }
        }
        for flags in [O_DIRECTORY, O_NOFOLLOW, O_PATH, O_WRONLY | O_TRUNC] {
            for path in ["/a/f", "/a/link", "/a"] {
                let opened = $fs.open_with(path, m::OpenOptions::new().read(true).custom_flags(flags));
                $say(answer(opened.map(|_| ())));
            }
        }

        $say(answer($fs.create_new("/a/f").map(|_| ())));
        let mut file = $fs.create_new("/a/io").unwrap();
        $say(answer(file.write_all(b"0123456789")));
        $say(answer(file.flush()));
        for to in [
            SeekFrom::Start(3),
            SeekFrom::Current(-1),
            SeekFrom::End(-4),
            SeekFrom::End(5),
            SeekFrom::Current(-100),
            SeekFrom::Start(u64::MAX),
            SeekFrom::Start(8),
        ] {
            $say(answer(file.seek(to)));
        }
        let twin = file.try_clone().unwrap();
        $say(answer((&twin).write(b"AB")));
        $say(answer(file.stream_position()));
        $say(answer(file.write_at(b"xy", 1)));
        let mut buf = [0; 4];
        $say(answer(file.read_at(&mut buf, 0).map(|n| (n, buf))));
        $say(answer(file.read_at(&mut buf, u64::MAX).map(|n| (n, buf))));
        $say(answer(file.write_at(b"xy", u64::MAX)));
        $say(answer(file.set_len(4)));
        $say(answer(file.set_len(u64::MAX)));
        $say(answer(file.set_permissions(m::Permissions::from_mode(0o604))));
        $say(answer(file.metadata().map(|m| (m.len(), m.mode()))));
        $say(answer((&file).seek(SeekFrom::Start(0))));
        let mut text = String::new();
        $say(answer((&file).read_to_string(&mut text)));
        $say(answer(Ok(text)));
        $say(answer(file.sync_all()));
        $say(answer(file.sync_data()));
        $say(answer($fs.open("/a/f").unwrap().set_len(0)));
        $say(answer($fs.create("/a/io").unwrap().metadata().map(|m| m.len())));
        let times = file.metadata().unwrap();
        assert!(times.modified().unwrap() >= times.created().unwrap());
        assert!(times.accessed().unwrap() >= times.created().unwrap());

        for (from, to) in
            [("/a/io", "/a/moved"), ("/q", "/a/x"), ("/a/b", "/a/b/c/d"), ("/a/f", "/a/b"), ("/a/b", "/a/f")]
        {
            $say(answer($fs.rename(from, to)));
        }
        for path in ["/a", "/a/b", "/q", "/a/f/", "/a/hard"] {
            $say(answer($fs.remove_file(path)));
        }
        for path in ["/a", "/a/f", "/a/link", "/a/b/c", "/q"] {
            $say(answer($fs.remove_dir(path)));
        }
        $say(answer($fs.create_dir_all("/r/1/2/3")));
        $say(answer($fs.write("/r/1/2/f", b"")));
        $say(answer($fs.symlink("../../a", "/r/1/out")));
        $say(answer($fs.symlink("r", "/r-link")));
        for path in ["/r/1/out", "/r-link", "/r/1/2/f", "/r", "/r", "/q/r", "", "/a\0"] {
            $say(answer($fs.remove_dir_all(path)));
        }
        $say(entries("/a"));
        $say(entries("/"));
    };
}

#[test]
fn the_answers_are_those_of_std() {
    let host = Host::new();
    let vfs = Vfs::new().unwrap();
    let fs = vfs.fs(Cred::root());
    fs.task().umask(host.umask());
    fs.set_permissions("/", Permissions::from_mode(0o777 & !host.umask())).unwrap();
    let mut wanted = Vec::new();
    {
        use std::fs as m;
        use std::os::unix::fs::{
            DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt,
        };
        let mut say = |answer| wanted.push(answer);
        script!(host, say);
    }
    let mut given = Vec::new();
    {
        use rcuwalk::fs as m;
        let mut say = |answer| given.push(answer);
        script!(fs, say);
    }
    assert!(given.len() > 500, "the script ran: {}", given.len());
    assert_eq!(given.len(), wanted.len());
    for (n, (given, wanted)) in given.iter().zip(&wanted).enumerate() {
        let same = match (&given.0, &wanted.0) {
            (Err((kind, _)), Err((expected, None))) => kind == expected,
            (given, wanted) => given == wanted,
        };
        assert!(same, "answer {n}: {given:?}, and std's was {wanted:?}");
    }
    assert_eq!(fs.task().open(b"/", O_RDONLY, 0), Ok(0), "each descriptor was closed");
}

/// What reads and writes files can be anything that takes those of `std`.
#[test]
fn files_go_where_files_of_std_go() {
    fn anywhere<T: Send + Sync + 'static>() {}
    anywhere::<(Fs, File, ReadDir, DirEntry, Metadata, OpenOptions, Permissions)>();

    let fs = Vfs::new().unwrap().fs(Cred::root());
    let mut out = io::BufWriter::new(fs.create("/lines").unwrap());
    writeln!(out, "one\ntwo").unwrap();
    drop(out);
    let file = fs.open("/lines").unwrap();
    // The file keeps its task, which keeps the tree.
    drop(fs);
    let lines: Vec<String> = std::thread::spawn(move || io::read_to_string(file))
        .join()
        .unwrap()
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    assert_eq!(lines, ["one", "two"]);
}

#[test]
fn descriptors_are_closed_once_and_by_who_has_them() {
    let fs = Vfs::new().unwrap().fs(Cred::root());
    let task = fs.task();
    let fd = fs.create("/f").unwrap().into_fd();
    assert_eq!(task.write(fd, b"hello"), Ok(5), "it is open still");
    let file = File::from_fd(&fs, fd);
    assert_eq!(file.fd(), fd);
    drop(file);
    assert_eq!(task.close(fd), Err(Errno::EBADF));
    let copy = fs.open("/f").unwrap();
    assert_eq!(task.fcntl(copy.fd(), F_GETFD, 0), Ok(FD_CLOEXEC));
    assert_eq!(task.fcntl(copy.try_clone().unwrap().fd(), F_GETFD, 0), Ok(FD_CLOEXEC));
    for failing in [fs.remove_dir_all("/f"), fs.read_dir("/f").map(drop), fs.copy("/", "/g").map(drop)] {
        assert!(failing.is_err());
    }
    assert_eq!(task.open(b"/", O_RDONLY, 0), Ok(copy.fd() + 1), "what failed left nothing open");
}

#[test]
fn users_are_told_apart() {
    let vfs = Vfs::new().unwrap();
    let (root, alice) = (vfs.fs(Cred::root()), vfs.fs(Cred::user(1000, 1000, &[])));
    root.create_dir("/home").unwrap();
    root.chown("/home", Some(1000), Some(1000)).unwrap();
    alice.write("/home/own", "hers").unwrap();
    root.write("/home/other", "not hers").unwrap();
    root.symlink("other", "/home/link").unwrap();
    root.chown("/home/link", None, Some(7)).unwrap();
    root.lchown("/home/link", Some(5), None).unwrap();
    let ids = |m: Metadata| (m.uid(), m.gid());
    assert_eq!(root.metadata("/home/other").map(ids).unwrap(), (0, 7), "chown followed the link");
    assert_eq!(root.symlink_metadata("/home/link").map(ids).unwrap(), (5, 0), "lchown did not");
    let denied = |result: io::Result<()>| result.unwrap_err().raw_os_error();
    assert_eq!(denied(alice.write("/home/other", "")), Some(13));
    assert_eq!(denied(alice.chown("/home/own", Some(0), None)), Some(1));
    assert_eq!(denied(alice.set_permissions("/home/other", Permissions::from_mode(0o777))), Some(1));
    root.set_permissions("/home/other", Permissions::from_mode(0o600)).unwrap();
    assert_eq!(alice.read("/home/other").unwrap_err().kind(), ErrorKind::PermissionDenied);

    // Not hers to empty: she may not read it, and is told so.
    root.create_dir_all("/home/deep/er").unwrap();
    root.set_permissions("/home/deep", Permissions::from_mode(0o700)).unwrap();
    assert_eq!(denied(alice.remove_dir_all("/home/deep")), Some(13));
    assert!(root.exists("/home/deep/er").unwrap());
    assert_eq!(alice.exists("/home/deep/er").unwrap_err().kind(), ErrorKind::PermissionDenied);
}

#[test]
fn relative_paths_start_at_the_current_directory() {
    let fs = Vfs::new().unwrap().fs(Cred::root());
    fs.create_dir_all("/jail/in/deeper").unwrap();
    fs.task().chdir(b"/jail/in").unwrap();
    assert_eq!(fs.canonicalize("deeper/..").unwrap(), Path::new("/jail/in"));
    assert_eq!(fs.canonicalize("../../../..").unwrap(), Path::new("/"));
    fs.symlink("/jail", "abs").unwrap();
    assert_eq!(fs.canonicalize("abs/in").unwrap(), Path::new("/jail/in"));
    fs.task().chroot(b"deeper").unwrap();
    assert_eq!(fs.canonicalize(".").unwrap_err().raw_os_error(), Some(2), "outside of the root directory");
    assert_eq!(fs.canonicalize("/").unwrap(), Path::new("/"));
}

#[test]
fn many_threads_make_one_tree() {
    let fs = Vfs::new().unwrap().fs(Cred::root());
    let deep = format!("/{}", "d/".repeat(50));
    for _ in 0..20 {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| fs.create_dir_all(&deep).unwrap());
            }
        });
        assert!(fs.metadata(&deep).unwrap().is_dir());
        fs.remove_dir_all("/d").unwrap();
    }
}

/// While a directory below turns into a link and back, what the link leads to is never touched.
#[test]
fn removing_a_tree_follows_no_link_that_appears_meanwhile() {
    let fs = Vfs::new().unwrap().fs(Cred::root());
    fs.create_dir("/keep").unwrap();
    fs.write("/keep/file", "").unwrap();
    for _ in 0..300 {
        fs.create_dir_all("/t/dir").unwrap();
        fs.symlink("/keep", "/t/link").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20 {
                    let _ = fs.task().renameat2(AT_FDCWD, b"/t/dir", AT_FDCWD, b"/t/link", RENAME_EXCHANGE);
                }
            });
            // A name that changes at the wrong moment makes an error, as it does with `std`.
            let _ = fs.remove_dir_all("/t");
        });
        if fs.exists("/t").unwrap() {
            fs.remove_dir_all("/t").unwrap();
        }
        assert!(fs.exists("/keep/file").unwrap());
    }
}

#[test]
fn trees_as_deep_as_there_are_descriptors_are_removed() {
    let fs = Vfs::new().unwrap().fs(Cred::root());
    let deep = "/d".repeat(500);
    fs.create_dir_all(&deep).unwrap();
    fs.task().set_nofile_limit(400);
    assert_eq!(fs.remove_dir_all("/d").unwrap_err().raw_os_error(), Some(24));
    assert!(fs.exists(&deep).unwrap());
    fs.task().set_nofile_limit(501);
    fs.remove_dir_all("/d").unwrap();
    assert!(!fs.exists("/d").unwrap());
}

#[test]
fn times_before_1970_are_told() {
    let fs = Vfs::new().unwrap().fs(Cred::root());
    fs.write("/f", "").unwrap();
    let early = rcuwalk::Timespec::new(-2, 500_000_000);
    fs.task().utimensat(AT_FDCWD, Some(b"/f"), Some([early, early]), 0).unwrap();
    let before =
        std::time::UNIX_EPOCH.duration_since(fs.metadata("/f").unwrap().modified().unwrap()).unwrap();
    assert_eq!(before, std::time::Duration::from_millis(1500));
}
