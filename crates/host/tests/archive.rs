//! Tar archives: made here, made by the machine's tar, and made to do harm.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

use rcuwalk::cred::Cred;
use rcuwalk::errno::Errno;
use rcuwalk::uapi::*;
use rcuwalk::{Task, Vfs};
use rcuwalk_host::{
    ArchiveOptions, ImportError, ImportOptions, Limits, Progress, Report, Source, import_dir, import_tar,
    open,
};
use tar::Header;

/// A tar stream under construction; unlike `tar::Builder` it writes whatever it is told.
#[derive(Clone, Default)]
struct Tar(Vec<u8>);

impl Tar {
    fn raw(&mut self, header: &mut Header, data: &[u8]) -> &mut Tar {
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn member(&mut self, kind: u8, name: &[u8], link: &[u8], data: &[u8]) -> &mut Tar {
        let mut header = Header::new_ustar();
        header.set_mode(0o640);
        header.set_uid(1000);
        header.set_gid(100);
        header.set_mtime(1_700_000_000);
        header.set_size(data.len() as u64);
        let old = header.as_old_mut();
        old.linkflag = [kind];
        old.name[..name.len()].copy_from_slice(name);
        old.linkname[..link.len()].copy_from_slice(link);
        self.raw(&mut header, data)
    }

    fn file(&mut self, name: &[u8], data: &[u8]) -> &mut Tar {
        self.member(b'0', name, b"", data)
    }

    fn dir(&mut self, name: &[u8]) -> &mut Tar {
        self.member(b'5', name, b"", b"")
    }

    fn symlink(&mut self, name: &[u8], body: &[u8]) -> &mut Tar {
        self.member(b'2', name, body, b"")
    }

    fn hard_link(&mut self, name: &[u8], target: &[u8]) -> &mut Tar {
        self.member(b'1', name, target, b"")
    }

    fn pax(&mut self, records: &[(&str, &[u8])]) -> &mut Tar {
        self.pax_of_kind(b'x', records)
    }

    fn pax_of_kind(&mut self, kind: u8, records: &[(&str, &[u8])]) -> &mut Tar {
        let mut data = Vec::new();
        for (key, value) in records {
            let body = key.len() + value.len() + 3;
            let digits = (1..).find(|d| (body + d).to_string().len() == *d).unwrap();
            write!(data, "{} {key}=", body + digits).unwrap();
            data.extend_from_slice(value);
            data.push(b'\n');
        }
        self.member(kind, b"pax", b"", &data)
    }

    fn end(&mut self) -> Vec<u8> {
        let mut bytes = self.0.clone();
        bytes.resize(bytes.len() + 1024, 0);
        bytes
    }
}

fn try_import(archive: &[u8], options: &ArchiveOptions) -> Result<(Task, Report), ImportError> {
    let vfs = Vfs::new().unwrap();
    let report = import_tar(&vfs, archive, options, &Progress::new())?;
    Ok((vfs.task(Cred::root()), report))
}

fn import(tar: &mut Tar) -> (Task, Report) {
    try_import(&tar.end(), &ArchiveOptions { contents: true, ..ArchiveOptions::default() }).unwrap()
}

fn read(task: &Task, path: &[u8]) -> Vec<u8> {
    let fd = task.open(path, O_RDONLY, 0).unwrap();
    let mut data = vec![0; task.fstat(fd).unwrap().size as usize];
    let got = task.read(fd, &mut data).unwrap();
    assert_eq!(got, data.len());
    task.close(fd).unwrap();
    data
}

fn problems(report: &Report) -> Vec<String> {
    report.problems.iter().map(ToString::to_string).collect()
}

#[test]
fn a_plain_archive_becomes_a_tree() {
    let (task, report) = import(
        Tar::default()
            .dir(b"./")
            .dir(b"./etc/")
            .file(b"./etc/passwd", b"root:x:0:0\n")
            .symlink(b"sh", b"/bin/dash")
            .hard_link(b"etc/passwd-", b"./etc/passwd")
            .file(b"usr/lib/implied", b"")
            .member(b'6', b"fifo", b"", b""),
    );
    assert_eq!(report.problems, []);
    assert_eq!(
        (report.dirs, report.files, report.symlinks, report.specials, report.hard_links),
        (4, 2, 1, 1, 1)
    );
    let stat = task.lstat(b"/etc/passwd").unwrap();
    assert_eq!((stat.mode, stat.uid, stat.gid, stat.nlink), (S_IFREG | 0o640, 1000, 100, 2));
    assert_eq!(
        (stat.mtime.sec, stat.atime.sec, stat.ctime.sec),
        (1_700_000_000, 1_700_000_000, 1_700_000_000)
    );
    assert_eq!(read(&task, b"/etc/passwd-"), b"root:x:0:0\n");
    assert_eq!(task.readlink(b"/sh").unwrap(), b"/bin/dash");
    assert_eq!(task.lstat(b"/sh").unwrap().mode, S_IFLNK | 0o777);
    let implied = task.lstat(b"/usr/lib").unwrap();
    assert_eq!((implied.mode, implied.uid, implied.mtime.sec), (S_IFDIR | 0o755, 0, 0));
    assert_eq!(task.lstat(b"/").unwrap().uid, 1000, "the archive describes its root");
    assert_eq!(task.lstat(b"/fifo").unwrap().mode, S_IFIFO | 0o640);
}

#[test]
fn devices_long_names_and_binary_numbers_are_read() {
    let mut tar = Tar::default();
    let mut header = Header::new_gnu();
    header.set_path("zero").unwrap();
    header.set_entry_type(tar::EntryType::Char);
    header.set_mode(0o666);
    header.set_uid(4_000_000_000);
    header.set_gid(0);
    header.set_mtime(-5i64 as u64);
    header.as_old_mut().mtime[..4].fill(0xff);
    header.set_size(0);
    header.set_device_major(1).unwrap();
    header.set_device_minor(70_000).unwrap();
    tar.raw(&mut header, b"");
    let name = [&b"d/".repeat(120)[..], &[b'n'; 255]].concat();
    tar.member(b'L', b"././@LongLink", b"", &[&name[..], b"\0"].concat());
    tar.member(b'K', b"././@LongLink", b"", &[&[b'b'; 3000][..], b"\0"].concat());
    tar.symlink(b"cut off", b"cut off");
    let (task, report) = import(&mut tar);
    assert_eq!(report.problems, []);
    let zero = task.lstat(b"/zero").unwrap();
    assert_eq!((zero.mode, zero.uid, zero.mtime.sec), (S_IFCHR | 0o666, 4_000_000_000, -5));
    assert_eq!(zero.rdev, rustix::fs::makedev(1, 70_000));
    assert_eq!(task.readlink(&[b"/", &name[..]].concat()).unwrap(), [b'b'; 3000]);
}

/// `user::rwx group::r-x mask::r-x other::--- user:1234:rw-`, in stored order.
const ACL: &[u8] =
    b"\x02\0\0\0\x01\0\x07\0\xff\xff\xff\xff\x02\0\x06\0\xd2\x04\0\0\x04\0\x05\0\xff\xff\xff\xff\
    \x10\0\x05\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";

#[test]
fn pax_headers_are_applied() {
    let capability = b"\x01\0\0\x02\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut tar = Tar::default();
    tar.pax_of_kind(b'g', &[("uid", b"7"), ("comment", b"for all that follow")]);
    tar.pax(&[
        ("path", b"bin/\xff\nodd"),
        ("mtime", b"1.25"),
        ("atime", b"2.000000001"),
        ("ctime", b"-3.5"),
        ("LIBARCHIVE.creationtime", b"4"),
        ("gid", b"3000000000"),
        ("SCHILY.xattr.security.capability", capability),
        ("SCHILY.xattr.system.posix_acl_access", ACL),
        ("SCHILY.xattr.user.note", b"=\n="),
        ("SCHILY.xattr.notes", b"in no namespace"),
    ])
    .file(b"replaced", b"data");
    tar.pax(&[("SCHILY.acl.default", b"user::rwx,user:joe:r--:55,group::---,mask::r--,other::---")])
        .dir(b"acl");
    tar.pax(&[("SCHILY.acl.access", b"user::rwx,user:joe:r--,group::---,mask::r--,other::---")])
        .dir(b"named");
    tar.pax(&[("SCHILY.fflags", b"schg,nodump")]).file(b"fixed", b"");
    let (task, report) = import(&mut tar);

    let path = b"/bin/\xff\nodd";
    let stat = task.statx(AT_FDCWD, path, 0, STATX_BASIC_STATS | STATX_BTIME).unwrap();
    assert_eq!((stat.uid, stat.gid), (7, 3_000_000_000));
    assert_eq!((stat.mtime.sec, stat.mtime.nsec), (1, 250_000_000));
    assert_eq!((stat.atime.sec, stat.atime.nsec), (2, 1));
    assert_eq!((stat.ctime.sec, stat.ctime.nsec), (-4, 500_000_000));
    assert_eq!((stat.btime.sec, stat.btime.nsec), (4, 0));
    assert_eq!(u32::from(stat.mode), S_IFREG | 0o750, "as the ACL says");
    assert_eq!(task.getxattr(path, b"security.capability").unwrap(), capability);
    assert_eq!(task.getxattr(path, b"system.posix_acl_access").unwrap(), ACL);
    assert_eq!(task.getxattr(path, b"user.note").unwrap(), b"=\n=");
    assert_eq!(task.lstat(b"/fixed").unwrap().uid, 7, "global records last");
    assert!(task.getxattr(b"/acl", b"system.posix_acl_default").unwrap().len() > 4);
    assert_eq!(task.open(b"/fixed", O_WRONLY, 0), Err(Errno::EPERM), "immutable");
    assert_eq!(
        problems(&report),
        [
            "bin/\u{fffd}\nodd: extended attribute: EOPNOTSUPP: Operation not supported",
            "named: ACL as text, with a name that the tree's /etc/passwd and /etc/group do not have: EINVAL: Invalid argument",
        ]
    );
}

#[test]
fn attributes_can_be_left_out() {
    let mut tar = Tar::default();
    tar.pax(&[("SCHILY.xattr.user.a", b"1")]).file(b"f", b"data");
    let options = ArchiveOptions { xattrs: false, ..ArchiveOptions::default() };
    let (task, report) = try_import(&tar.end(), &options).unwrap();
    assert_eq!(task.listxattr(b"/f"), Ok(Vec::new()));
    assert_eq!((report.xattrs, report.content_bytes), (0, 0));
    assert_eq!(task.stat(b"/f").unwrap().size, 4);
}

#[test]
fn later_members_win() {
    let (task, report) = import(
        Tar::default()
            .file(b"a", b"first")
            .file(b"a", b"second")
            .dir(b"d")
            .file(b"d/kept", b"")
            .dir(b"d/")
            .symlink(b"l", b"d")
            .dir(b"l")
            .file(b"l/inside", b"")
            .dir(b"gone")
            .file(b"gone/x", b"")
            .file(b"gone", b"")
            .dir(b"gone")
            .hard_link(b"a", b"d/kept")
            .hard_link(b"a", b"a"),
    );
    assert_eq!(report.problems, []);
    assert_eq!(task.stat(b"/a").unwrap().size, 0);
    assert_eq!(task.stat(b"/d/kept").unwrap().nlink, 2);
    assert_eq!(task.lstat(b"/l").unwrap().mode & S_IFMT, S_IFDIR);
    assert_eq!(task.lstat(b"/l/inside").unwrap().size, 0);
    assert_eq!(task.lstat(b"/d/inside").unwrap_err(), Errno::ENOENT);
    assert_eq!(task.lstat(b"/gone/x").unwrap_err(), Errno::ENOENT);
}

#[test]
fn nothing_leads_out_of_the_tree() {
    let long = [b'n'; 256];
    let (task, report) = import(
        Tar::default()
            .file(b"/abs/olute", b"")
            .file(b"../up", b"")
            .file(b"a/../../up", b"")
            .symlink(b"out", b"/etc")
            .file(b"out/passwd", b"")
            .dir(b"out/d/e")
            .hard_link(b"h1", b"../../etc/passwd")
            .hard_link(b"h2", b"/etc/passwd")
            .hard_link(b"h3", b"out/passwd")
            .hard_link(b"h4", b"abs")
            .hard_link(b"abs", b"abs/olute")
            .file(b"abs/olute/below", b"")
            .file(b".", b"")
            .hard_link(b"/", b"abs/olute")
            .file(b"", b"")
            .pax(&[("path", &long)])
            .file(b"x", b"")
            .pax(&[("path", &b"p/".repeat(2048))])
            .file(b"x", b"")
            .pax(&[("path", b"nul\0inside")])
            .file(b"x", b"")
            .member(b'M', b"continued", b"", b"")
            .pax(&[("uid", b"4294967295")])
            .file(b"nobody", b""),
    );
    assert_eq!(task.lstat(b"/abs/olute").unwrap().mode, S_IFREG | 0o640);
    let expected = [
        ("../up", "name with \"..\": EXDEV"),
        ("a/../../up", "name with \"..\": EXDEV"),
        ("out/passwd", "name below something that is no directory: ENOTDIR"),
        ("out/d/e", "name below something that is no directory: ENOTDIR"),
        ("h1", "name with \"..\": EXDEV"),
        ("h2", "hard link to a missing member: ENOENT"),
        ("h3", "hard link to a missing member: ENOENT"),
        ("h4", "hard link to a directory: EPERM"),
        ("abs", "hard link in the place of its target's directory: EISDIR"),
        ("abs/olute/below", "name below something that is no directory: ENOTDIR"),
        (".", "name of the root: EEXIST"),
        ("/", "name of the root: EEXIST"),
        ("", "name of the root: EEXIST"),
        ("nnn", "insert: ENAMETOOLONG"),
        ("p/p", "name: ENAMETOOLONG"),
        ("nul\0", "insert: EINVAL"),
        ("continued", "member type: EOPNOTSUPP"),
        ("nobody", "owner: EINVAL"),
    ];
    let problems = problems(&report);
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (problem, (name, what)) in problems.iter().zip(expected) {
        assert!(problem.starts_with(name) && problem.contains(what), "{problem}: not {name}, {what}");
    }
    let names: Vec<_> = task.readdir(b"/").unwrap().into_iter().map(|e| e.name).collect();
    let mut names: Vec<_> =
        names.iter().map(|n| n.escape_ascii().to_string()).filter(|n| !n.starts_with('.')).collect();
    names.sort();
    assert_eq!(names, ["abs", "out"]);
}

/// GNU tar's `--acls` writes names; whom they mean, the tree's own databases say, wherever they stand.
#[test]
fn names_in_acls_are_those_of_the_tree() {
    let mut tar = Tar::default();
    let acl = |user: &str| {
        format!("user::rw-\nuser:{user}:rw-\ngroup::r--\ngroup:staff:r--\nmask::rw-\nother::---\n")
    };
    let access = |tar: &mut Tar, user: &str, name: &[u8]| {
        tar.pax(&[("SCHILY.acl.access", acl(user).as_bytes())]).file(name, b"");
    };
    access(&mut tar, "alice", b"file");
    access(&mut tar, "alice", b"gone");
    tar.file(b"gone", b"without");
    access(&mut tar, "alice", b"first");
    tar.hard_link(b"second", b"first");
    tar.file(b"first", b"another one");
    tar.pax(&[("SCHILY.acl.default", b"user::rwx,user:alice:rwx,group::---,mask::rwx,other::---")])
        .dir(b"dir");
    tar.file(b"etc/passwd", b"root:x:0:0::/:/bin/sh\nalice:x:4001:4001::/:/bin/sh\n");
    tar.file(b"etc/group", b"staff:x:50:\n");
    access(&mut tar, "bob", b"unknown");
    let (task, report) = import(&mut tar);
    let of = |uid: u32| {
        let entries: [(u16, u16, u32); 6] = [
            (1, 6, u32::MAX),
            (2, 6, uid),
            (4, 4, u32::MAX),
            (8, 4, 50),
            (16, 6, u32::MAX),
            (32, 0, u32::MAX),
        ];
        entries.iter().fold(2_u32.to_le_bytes().to_vec(), |mut bytes, (tag, perm, id)| {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(perm.to_le_bytes());
            bytes.extend(id.to_le_bytes());
            bytes
        })
    };
    for path in [&b"/file"[..], b"/second"] {
        assert_eq!(task.getxattr(path, b"system.posix_acl_access").unwrap(), of(4001));
        assert_eq!(task.stat(path).unwrap().mode & 0o777, 0o660);
    }
    assert!(task.getxattr(b"/dir", b"system.posix_acl_default").unwrap().len() > 4);
    for path in [&b"/gone"[..], b"/first", b"/unknown"] {
        assert_eq!(task.getxattr(path, b"system.posix_acl_access"), Err(Errno::ENODATA));
    }
    assert_eq!(report.problem_count, 1);
    assert!(problems(&report)[0].starts_with("unknown: ACL as text, with a name"), "{:?}", report.problems);
}

#[test]
fn bad_acls_are_left_out_and_reported() {
    let mut tar = Tar::default();
    for cut in 0..ACL.len() {
        tar.pax(&[("SCHILY.xattr.system.posix_acl_access", &ACL[..cut])])
            .file(format!("f{cut}").as_bytes(), b"");
    }
    let mut swapped = ACL.to_vec();
    swapped.copy_within(4..12, 12);
    tar.pax(&[("SCHILY.xattr.system.posix_acl_access", &swapped)]).file(b"swapped", b"");
    let (task, report) = import(&mut tar);
    assert_eq!(report.files, ACL.len() as u64 + 1);
    assert!(report.problem_count >= 40, "{}", report.problem_count);
    assert_eq!(task.stat(b"/swapped").unwrap().mode, S_IFREG | 0o640);
    assert_eq!(task.getxattr(b"/swapped", b"system.posix_acl_access"), Err(Errno::ENODATA));
}

#[test]
fn gnu_sparse_files_keep_their_holes() {
    let mut tar = Tar::default();
    let mut header = Header::new_gnu();
    header.set_path("sparse").unwrap();
    header.set_mode(0o600);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_entry_type(tar::EntryType::GNUSparse);
    header.set_size(6 * 512);
    let gnu = header.as_gnu_mut().unwrap();
    gnu.set_real_size(1 << 30);
    for (n, entry) in gnu.sparse.iter_mut().enumerate() {
        entry.set_offset((n as u64) << 20);
        entry.set_length(512);
    }
    gnu.set_is_extended(true);
    header.set_cksum();
    tar.0.extend_from_slice(header.as_bytes());
    let mut more = tar::GnuExtSparseHeader::new();
    for n in 0..2 {
        more.sparse_mut()[n].set_offset(((n + 4) as u64) << 20);
        more.sparse_mut()[n].set_length(512);
    }
    tar.0.extend_from_slice(more.as_bytes());
    for n in 0..6u8 {
        tar.0.extend_from_slice(&[b'0' + n; 512]);
    }
    tar.file(b"after", b"in step");
    let (task, report) = import(&mut tar);
    assert_eq!(report.problems, []);
    assert_eq!(task.stat(b"/sparse").unwrap().size, 1 << 30);
    assert_eq!(report.content_bytes, 6 * 512 + 7);
    let fd = task.open(b"/sparse", O_RDONLY, 0).unwrap();
    for n in 0..6u8 {
        let mut piece = [0; 514];
        task.pread(fd, &mut piece, (i64::from(n) << 20) - if n == 0 { 0 } else { 1 }).unwrap();
        assert_eq!(piece[1], b'0' + n);
        assert_eq!(piece[513], 0);
    }
    assert_eq!(read(&task, b"/after"), b"in step");
}

#[test]
fn pax_sparse_files_of_all_versions_keep_their_holes() {
    let mut map = b"2\n1000\n3\n5000\n2\n".to_vec();
    map.resize(512, 0);
    let mut tar = Tar::default();
    tar.pax(&[
        ("GNU.sparse.size", b"9000"),
        ("GNU.sparse.numblocks", b"2"),
        ("GNU.sparse.offset", b"1000"),
        ("GNU.sparse.numbytes", b"3"),
        ("GNU.sparse.offset", b"5000"),
        ("GNU.sparse.numbytes", b"2"),
    ])
    .file(b"v00", b"abcde");
    tar.pax(&[
        ("GNU.sparse.size", b"9000"),
        ("GNU.sparse.map", b"1000,3,5000,2"),
        ("GNU.sparse.name", b"v01"),
    ])
    .file(b"GNUSparseFile.0/v01", b"abcde");
    tar.pax(&[
        ("GNU.sparse.major", b"1"),
        ("GNU.sparse.minor", b"0"),
        ("GNU.sparse.realsize", b"9000"),
        ("GNU.sparse.name", b"v10"),
    ])
    .file(b"GNUSparseFile.0/v10", &[&map[..], b"abcde"].concat());
    tar.pax(&[("GNU.sparse.size", b"9000"), ("GNU.sparse.map", b"5000,3,1000,2")])
        .file(b"disordered", b"abcde");
    tar.pax(&[("GNU.sparse.size", b"10"), ("GNU.sparse.map", b"0,3,9,2")]).file(b"beyond", b"abcde");
    tar.file(b"after", b"in step");
    let (task, report) = import(&mut tar);
    let mut expected = vec![0; 9000];
    expected[1000..1003].copy_from_slice(b"abc");
    expected[5000..5002].copy_from_slice(b"de");
    for name in [b"/v00", b"/v01", b"/v10"] {
        assert!(read(&task, name) == expected, "{}", name.escape_ascii());
    }
    assert_eq!(read(&task, b"/after"), b"in step");
    assert_eq!(
        problems(&report),
        [
            "disordered: map of a sparse file: EINVAL: Invalid argument",
            "beyond: map of a sparse file: EINVAL: Invalid argument",
        ]
    );
}

#[test]
fn limits_stop_bombs() {
    let limited = |tar: &mut Tar, limits: Limits| {
        let options = ArchiveOptions { contents: true, limits, ..ArchiveOptions::default() };
        match try_import(&tar.end(), &options) {
            Err(ImportError::Limit { what, .. }) => what,
            Err(e) => panic!("{e}"),
            Ok((_, report)) => panic!("{report:?}"),
        }
    };
    let deep = b"d/".repeat(45);
    let what = limited(Tar::default().file(&deep, b""), Limits { entries: 44, ..Limits::default() });
    assert_eq!(what, "entries");
    let what = limited(Tar::default().file(b"f", &[0; 9000]), Limits { bytes: 9000, ..Limits::default() });
    assert_eq!(what, "bytes of unpacked data");
    let what = limited(
        Tar::default().member(b'L', b"", b"", &[b'x'; 5000]).file(b"f", b""),
        Limits { header_bytes: 4999, ..Limits::default() },
    );
    assert_eq!(what, "bytes of extension headers");

    // A few kilobytes that claim to be a name of a terabyte.
    let mut header = Header::new_gnu();
    header.set_size(1 << 40);
    header.set_entry_type(tar::EntryType::GNULongName);
    assert_eq!(
        limited(Tar::default().raw(&mut header, b""), Limits::default()),
        "bytes of extension headers"
    );

    // A gigabyte of zeros in a megabyte.
    let mut header = Header::new_gnu();
    header.set_path("zeros").unwrap();
    header.set_mode(0o600);
    header.set_size(1 << 30);
    header.set_cksum();
    let zeros = std::io::repeat(0).take(1 << 30);
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    bomb.write_all(header.as_bytes()).unwrap();
    std::io::copy(&mut { zeros }, &mut bomb).unwrap();
    let bomb = bomb.finish().unwrap();
    let limits = Limits { bytes: 64 << 20, ..Limits::default() };
    let error = try_import(&bomb, &ArchiveOptions { limits, ..ArchiveOptions::default() }).unwrap_err();
    assert!(
        matches!(error, ImportError::Limit { what: "bytes of unpacked data", limit: 67_108_864 }),
        "{error}"
    );
}

#[test]
fn a_full_engine_is_an_error() {
    let mut tar = Tar::default();
    for n in 0..2000 {
        tar.file(format!("f{n}").as_bytes(), b"");
    }
    let vfs = Vfs::builder().capacity(1000).build().unwrap();
    let error = import_tar(&vfs, &tar.end()[..], &ArchiveOptions::default(), &Progress::new()).unwrap_err();
    assert!(matches!(error, ImportError::Insert { errno: Errno::ENOSPC, .. }), "{error}");
}

/// An archive with a bit of everything, whole and compressed.
fn mixture() -> Vec<u8> {
    let mut map = b"1\n4\n4\n".to_vec();
    map.resize(512, 0);
    Tar::default()
        .pax_of_kind(b'g', &[("gname", b"staff")])
        .dir(b"d")
        .file(b"d/f", &[b'x'; 1300])
        .hard_link(b"d/g", b"d/f")
        .member(b'L', b"././@LongLink", b"", &[&b"n/".repeat(100)[..], b"long"].concat())
        .symlink(b"l", b"d/f")
        .pax(&[("SCHILY.xattr.system.posix_acl_access", ACL), ("mtime", b"1.5")])
        .file(b"acl", b"")
        .pax(&[("GNU.sparse.major", b"1"), ("GNU.sparse.realsize", b"9000")])
        .file(b"sparse", &[&map[..], b"data"].concat())
        .end()
}

#[test]
fn a_truncated_archive_is_an_error_at_every_block() {
    let whole = mixture();
    let options = ArchiveOptions { contents: true, ..ArchiveOptions::default() };
    let (_, report) = try_import(&whole, &options).unwrap();
    assert_eq!(report.problems, []);
    let mut readable = 0;
    // One of the two blocks at the end is enough.
    for cut in 0..=whole.len() - 512 {
        if cut % 512 > 2 && cut % 512 < 510 {
            continue;
        }
        match try_import(&whole[..cut], &options) {
            // Between two members nothing shows that one is missing.
            Ok((_, cut_report)) => {
                assert_eq!(cut % 512, 0, "cut at {cut}");
                assert!(cut_report.entries() <= report.entries());
                readable += 1;
            }
            Err(ImportError::Archive { offset, reason }) => {
                assert!(offset <= cut as u64 && !reason.is_empty(), "{offset} {reason}");
            }
            Err(e) => panic!("cut at {cut}: {e}"),
        }
    }
    // Behind the global header, behind each of the six members, and within the end.
    assert_eq!(readable, 8);
}

#[test]
fn flipped_bits_never_do_harm() {
    let whole = mixture();
    let compressed = {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&whole).unwrap();
        gz.finish().unwrap()
    };
    let zstd = ruzstd::encoding::compress_to_vec(&whole[..], ruzstd::encoding::CompressionLevel::Fastest);
    let options = ArchiveOptions {
        contents: true,
        limits: Limits { entries: 10_000, bytes: 1 << 20, header_bytes: 1 << 16 },
        ..ArchiveOptions::default()
    };
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for original in [&whole, &compressed, &zstd] {
        for _ in 0..1500 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let mut bytes = original.clone();
            let at = (random >> 20) as usize % bytes.len();
            bytes[at] ^= 1 << (random >> 60 & 7);
            if original.len() == whole.len() {
                // Nobody who means harm forgets the checksum.
                fix_checksum(&mut bytes, at / 512 * 512);
            }
            // Whatever comes of it, it is an answer: no panic, no hang, no more than the limits.
            if let Ok((task, _)) = try_import(&bytes, &options) {
                assert!(task.lstat(b"/").is_ok());
            }
        }
    }
}

fn fix_checksum(archive: &mut [u8], block: usize) {
    let Some(block) = archive.get_mut(block..block + 512) else {
        return;
    };
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&b| u32::from(b)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

#[test]
fn compressed_archives_are_known_by_their_magic() {
    let dir = tempfile::tempdir().unwrap();
    let whole = mixture();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&whole).unwrap();
    let gz = gz.finish().unwrap();
    let zstd = ruzstd::encoding::compress_to_vec(&whole[..], ruzstd::encoding::CompressionLevel::Fastest);
    let (_, plain) = try_import(&whole, &ArchiveOptions::default()).unwrap();
    for (name, bytes) in [("plain", &whole), ("gz", &gz), ("zst", &zstd)] {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        let source = open(&path).unwrap();
        assert_eq!(source, Source::Archive(path));
        let vfs = Vfs::new().unwrap();
        let report = source.import(&vfs, &ImportOptions::default(), &Progress::new()).unwrap();
        assert_eq!(report.entries(), plain.entries());
        assert_eq!(vfs.task(Cred::root()).stat(b"/d/f").unwrap().size, 1300);
    }
    // A damaged last byte of the gzip stream is found although the archive ends before.
    let mut damaged = gz.clone();
    *damaged.last_mut().unwrap() ^= 1;
    assert!(matches!(try_import(&damaged, &ArchiveOptions::default()), Err(ImportError::Archive { .. })));
}

#[test]
fn what_is_no_archive_is_an_error_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let error = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        open(&path).unwrap_err().to_string()
    };
    assert!(error("text", b"hello").contains("text is a file, but no tar archive; name a directory, "));
    assert!(error("empty", b"").contains("is empty"));
    assert!(error("xz", b"\xfd7zXZ\0\0\0").contains("xz, which must be unpacked first"));
    assert!(open(Path::new("/dev/null")).unwrap_err().to_string().contains("is a device"));
    assert!(open(&dir.path().join("missing")).unwrap_err().to_string().contains("No such file"));
    let fifo = dir.path().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(open(&fifo).unwrap_err().to_string().contains("is a FIFO"));
    assert_eq!(open(dir.path()).unwrap(), Source::Dir(dir.path().to_path_buf()));

    let options = ArchiveOptions::default();
    let from_bytes = |bytes: &[u8]| try_import(bytes, &options).unwrap_err().to_string();
    assert!(from_bytes(b"").contains("it is empty"));
    assert!(from_bytes(&[b'x'; 600]).contains("it is a file, but no tar archive"));
    let (_, nothing) = try_import(&[0; 1024], &options).unwrap();
    assert_eq!(nothing.entries(), 1, "an empty archive is one");
}

#[test]
fn archives_of_the_machines_tar_are_read_like_the_directory_itself() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("a/file"), vec![7; 70_000]).unwrap();
    fs::hard_link(tree.join("a/file"), tree.join("a/b/same")).unwrap();
    fs::write(tree.join("a/b").join("n".repeat(200)), b"long name").unwrap();
    std::os::unix::fs::symlink("../file", tree.join("a/b/link")).unwrap();
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    sparse.set_len(10 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"middle", 5 << 20).unwrap();
    let _ = rustix::fs::setxattr(tree.join("a/file"), "user.k", b"v\n", rustix::fs::XattrFlags::empty());
    let options = ImportOptions { contents: true, ..ImportOptions::default() };
    for arguments in [
        &["--format=gnu", "--sparse"][..],
        &["--format=pax", "--sparse", "--xattrs"],
        &["--format=pax", "--sparse", "--sparse-version=0.0"],
        &["--format=pax", "--sparse", "--sparse-version=0.1", "-z"],
    ] {
        let archive = dir.path().join("archive");
        let made = Command::new("tar")
            .args(arguments)
            .arg("-cf")
            .arg(&archive)
            .arg("-C")
            .arg(&tree)
            .arg(".")
            .status();
        if !made.is_ok_and(|status| status.success()) {
            println!("skipped: the machine's tar does not do {arguments:?}");
            continue;
        }
        let (a, b) = (Vfs::new().unwrap(), Vfs::new().unwrap());
        let from_dir = import_dir(&a, &tree, &options, &Progress::new()).unwrap();
        let from_tar = open(&archive).unwrap().import(&b, &options, &Progress::new()).unwrap();
        assert_eq!(from_tar.problems, [], "{arguments:?}");
        assert_eq!(from_tar.entries(), from_dir.entries(), "{arguments:?}");
        let (a, b) = (a.task(Cred::root()), b.task(Cred::root()));
        for path in ["/", "/a", "/a/b", "/a/file", "/a/b/same", "/a/b/link", "/sparse"] {
            let (x, y) = (a.lstat(path.as_bytes()).unwrap(), b.lstat(path.as_bytes()).unwrap());
            assert_eq!(
                (x.mode, x.uid, x.gid, x.nlink, x.mtime.sec),
                (y.mode, y.uid, y.gid, y.nlink, y.mtime.sec)
            );
            assert!(s_isdir(x.mode) || x.size == y.size, "{path} {arguments:?}");
        }
        let long = format!("/a/b/{}", "n".repeat(200));
        for path in ["/a/b/same", "/sparse", &long] {
            assert!(read(&a, path.as_bytes()) == read(&b, path.as_bytes()), "{path} {arguments:?}");
        }
        if arguments.contains(&"--xattrs") {
            assert_eq!(a.listxattr(b"/a/file"), b.listxattr(b"/a/file"));
        }
    }
}

#[test]
fn a_hundred_thousand_names_in_one_directory_are_no_problem() {
    let mut tar = Tar::default();
    for n in 0..100_000 {
        tar.file(format!("d/{n}").as_bytes(), b"");
    }
    let (task, report) = import(&mut tar);
    assert_eq!(report.files, 100_000);
    assert_eq!(task.lstat(b"/d/99999").unwrap().uid, 1000);
}

#[test]
fn a_cancelled_import_ends() {
    let progress = Progress::new();
    progress.cancel();
    let vfs = Vfs::new().unwrap();
    let error = import_tar(&vfs, &mixture()[..], &ArchiveOptions::default(), &progress).unwrap_err();
    assert!(matches!(error, ImportError::Cancelled));
}
