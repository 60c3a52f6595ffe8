//! The security hook, file systems that do not opt in to the "may search" bit, and what a loader says of security late.

use rcuwalk::acl::{ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER, ACL_USER_OBJ, AclEntry, UncheckedAcl};
use rcuwalk::perm::{MAY_EXEC, MAY_READ, MAY_WRITE};
use rcuwalk::uapi::*;
use rcuwalk::userns::UserNamespace;
use rcuwalk::{Cred, Errno, NewInode, NewMount, Result, Security, SecurityInode, Task, Vfs, WalkMode};
use std::sync::{Arc, Mutex};

/// Writes down whose permission is asked for, and forbids one inode.
#[derive(Default)]
struct Log {
    asked: Mutex<Vec<(u64, u32)>>,
    forbidden: Mutex<Option<(u64, u32)>>,
}

/// The log, as a hook.
struct Hook(Arc<Log>);

impl Security for Hook {
    fn inode_permission(&self, _: &Cred, inode: &SecurityInode, mask: u32) -> Result<()> {
        let want = mask & (MAY_READ | MAY_WRITE | MAY_EXEC);
        self.0.asked.lock().unwrap().push((inode.ino, want));
        let forbidden = *self.0.forbidden.lock().unwrap();
        match forbidden {
            Some((ino, mask)) if ino == inode.ino && mask & want != 0 => Err(Errno::EPERM),
            _ => Ok(()),
        }
    }
}

const MODES: [WalkMode; 3] = [WalkMode::Direct, WalkMode::Rcu, WalkMode::RefOnly];

/// A tree `/a/b/f` under a hook, its log, a user, and the inode numbers of `/`, `/a`, `/a/b` and the file.
fn hooked() -> (Vfs, Arc<Log>, Task, [u64; 4]) {
    let log = Arc::new(Log::default());
    let vfs = Vfs::builder().security(Box::new(Hook(Arc::clone(&log)))).build().unwrap();
    let root = vfs.task(Cred::root());
    root.mkdir(b"/a", 0o755).unwrap();
    root.mkdir(b"/a/b", 0o777).unwrap();
    root.chmod(b"/a/b", 0o777).unwrap();
    root.creat(b"/a/b/f", 0o644).unwrap();
    let ino = |path: &[u8]| root.stat(path).unwrap().ino;
    let inodes = [ino(b"/"), ino(b"/a"), ino(b"/a/b"), ino(b"/a/b/f")];
    let user = vfs.task(Cred::user(1000, 1000, &[]));
    log.asked.lock().unwrap().clear();
    (vfs, log, user, inodes)
}

fn asked(log: &Log) -> Vec<(u64, u32)> {
    std::mem::take(&mut log.asked.lock().unwrap())
}

#[test]
fn every_component_is_asked_about_however_often_a_path_was_walked() {
    let (vfs, log, user, [top, a, b, f]) = hooked();
    let searched = [(top, MAY_EXEC), (a, MAY_EXEC), (b, MAY_EXEC)];
    for mode in MODES {
        vfs.set_walk_mode(mode);
        for count in [false, true] {
            vfs.set_count_searches(count);
            for _ in 0..5 {
                user.stat(b"/a/b/f").unwrap();
                assert_eq!(asked(&log), searched, "{mode:?}");
            }
            user.access(b"/a/b/f", R_OK).unwrap();
            assert_eq!(asked(&log), [&searched[..], &[(f, MAY_READ)]].concat(), "{mode:?}");
            let fd = user.open(b"/a/b/f", O_RDONLY, 0).unwrap();
            user.close(fd).unwrap();
            assert_eq!(asked(&log), [&searched[..], &[(f, MAY_READ)]].concat(), "{mode:?}");
        }
    }
}

#[test]
fn it_forbids_what_bits_allow_and_allows_nothing_that_they_forbid() {
    let (vfs, log, user, [_, a, b, f]) = hooked();
    let set = |what| *log.forbidden.lock().unwrap() = what;
    for mode in MODES {
        vfs.set_walk_mode(mode);
        user.stat(b"/a/b/f").unwrap();
        user.stat(b"/a/b/f").unwrap();
        set(Some((a, MAY_EXEC)));
        assert_eq!(user.stat(b"/a/b/f"), Err(Errno::EPERM), "{mode:?}: known before");
        assert_eq!(user.stat(b"/a/b/none"), Err(Errno::EPERM));
        assert!(user.stat(b"/a").is_ok(), "not searched");
        set(Some((f, MAY_READ)));
        assert_eq!(user.access(b"/a/b/f", R_OK), Err(Errno::EPERM));
        assert_eq!(user.open(b"/a/b/f", O_RDONLY, 0), Err(Errno::EPERM));
        assert!(user.stat(b"/a/b/f").is_ok());
        set(Some((b, MAY_WRITE)));
        assert_eq!(user.mkdir(b"/a/b/new", 0o755), Err(Errno::EPERM));
        assert_eq!(user.unlink(b"/a/b/f"), Err(Errno::EPERM));
        set(Some((b, MAY_EXEC)));
        assert_eq!(user.chdir(b"/a/b"), Err(Errno::EPERM));
        set(None);
        assert_eq!(user.open(b"/a/b/f", O_WRONLY, 0), Err(Errno::EACCES), "the bits");
        assert_eq!(user.mkdir(b"/a/new", 0o755), Err(Errno::EACCES));
        assert!(user.chdir(b"/a/b").is_ok());
        assert!(user.chdir(b"/").is_ok());
    }
}

#[test]
fn it_is_asked_about_touching_on_the_strength_of_write_permission() {
    let (vfs, log, user, [top, a, b, f]) = hooked();
    let root = vfs.task(Cred::root());
    root.chmod(b"/a/b/f", 0o666).unwrap();
    let searched = [(top, MAY_EXEC), (a, MAY_EXEC), (b, MAY_EXEC)];
    asked(&log);
    root.utimensat(AT_FDCWD, Some(b"/a/b/f"), None, 0).unwrap();
    assert_eq!(asked(&log), searched, "an owner needs no permission");
    user.utimensat(AT_FDCWD, Some(b"/a/b/f"), None, 0).unwrap();
    assert_eq!(asked(&log), [&searched[..], &[(f, MAY_WRITE)]].concat());
    *log.forbidden.lock().unwrap() = Some((f, MAY_WRITE));
    assert_eq!(user.utimensat(AT_FDCWD, Some(b"/a/b/f"), None, 0), Err(Errno::EPERM));
    assert_eq!(user.truncate(b"/a/b/f", 0), Err(Errno::EPERM));
    assert_eq!(user.setxattr(b"/a/b/f", b"user.x", b"1", 0), Err(Errno::EPERM));
    assert_eq!(user.open(b"/a/b/f", O_WRONLY, 0), Err(Errno::EPERM));
    asked(&log);
    assert_eq!(root.chmod(b"/a/b/f", 0o644), Ok(()), "only the owner matters for attributes");
    assert_eq!(asked(&log), searched);
}

#[test]
fn mounts_made_later_are_hooked_too() {
    let (vfs, log, user, [top, ..]) = hooked();
    let root = vfs.task(Cred::root());
    root.mkdir(b"/m", 0o755).unwrap();
    root.mount(b"none", b"/m", b"tmpfs", 0, b"").unwrap();
    root.mkdir(b"/m/d", 0o755).unwrap();
    let (m, d) = (root.stat(b"/m").unwrap().ino, root.stat(b"/m/d").unwrap().ino);
    asked(&log);
    user.access(b"/m/d", X_OK).unwrap();
    assert_eq!(asked(&log), [(top, MAY_EXEC), (m, MAY_EXEC), (d, MAY_EXEC)]);
}

#[test]
fn without_the_bit_every_directory_is_checked_and_answers_are_the_same() {
    for (fastperm, spared, checked) in [(true, 3, 0), (false, 0, 3)] {
        let vfs = Vfs::builder().fastperm(fastperm).build().unwrap();
        let root = vfs.task(Cred::root());
        root.mkdir(b"/a", 0o755).unwrap();
        root.mkdir(b"/a/b", 0o700).unwrap();
        root.creat(b"/a/b/f", 0o644).unwrap();
        let user = vfs.task(Cred::user(1000, 1000, &[]));
        for mode in MODES {
            vfs.set_walk_mode(mode);
            for _ in 0..3 {
                assert_eq!(user.stat(b"/a/b/f"), Err(Errno::EACCES), "{fastperm} {mode:?}");
                assert!(root.stat(b"/a/b/f").is_ok());
            }
        }
        root.chmod(b"/a/b", 0o755).unwrap();
        vfs.set_walk_mode(WalkMode::Rcu);
        vfs.set_count_searches(true);
        let before = vfs.stats();
        assert!(user.stat(b"/a/b/f").is_ok());
        let after = vfs.stats();
        let counts = (
            after.searches_spared - before.searches_spared,
            after.searches_checked - before.searches_checked,
        );
        assert_eq!(counts, (spared, checked), "{fastperm}");
    }
}

#[test]
fn each_file_system_opts_in_for_itself() {
    for (of_root, given, of_mount) in
        [(true, Some(false), false), (true, None, true), (false, Some(true), true), (false, None, false)]
    {
        let vfs = Vfs::builder().fastperm(of_root).build().unwrap();
        let dir = NewInode::new(S_IFDIR | 0o755);
        {
            let mut loader = vfs.loader();
            let a = loader.add(loader.root(), b"a", &dir).unwrap();
            let at = loader.add(a, b"at", &dir).unwrap();
            let over = NewMount::new(dir).with_fastperm(given);
            let (_, top) = loader.mount(loader.root_mount(), at, &over).unwrap();
            loader.add(top, b"d", &dir).unwrap();
        }
        let (root, user) = (vfs.task(Cred::root()), vfs.task(Cred::user(1000, 1000, &[])));
        // What is made later is as its file system is.
        for dir in [&b"/a/own"[..], b"/a/at/d/own"] {
            root.mkdir(dir, 0o700).unwrap();
            root.chmod(dir, 0o755).unwrap();
        }
        vfs.set_count_searches(true);
        let searches = |path: &[u8]| {
            let before = vfs.stats();
            assert_eq!(user.stat(path).map(|_| ()), Err(Errno::ENOENT));
            let after = vfs.stats();
            (after.searches_spared - before.searches_spared, after.searches_checked - before.searches_checked)
        };
        for mode in [WalkMode::Rcu, WalkMode::RefOnly] {
            vfs.set_walk_mode(mode);
            // The root, "a" and "own" of one; the mount's root, "d" and "own" of the other.
            let count = |opted_in, n| if opted_in { (n, 0) } else { (0, n) };
            let expected = count(of_root, 3);
            assert_eq!(searches(b"/a/own/none"), expected, "{of_root} {given:?} {mode:?}");
            let (on_the_way, below) = (count(of_root, 2), count(of_mount, 3));
            let expected = (on_the_way.0 + below.0, on_the_way.1 + below.1);
            assert_eq!(searches(b"/a/at/d/own/none"), expected, "{of_root} {given:?} {mode:?}");
        }
    }
}

#[test]
fn directories_whose_attributes_a_loader_tells_late_keep_the_bit() {
    let vfs = Vfs::new().unwrap();
    {
        let mut loader = vfs.loader();
        let with = |mode| NewInode::new(S_IFDIR | mode);
        loader.set_root(&with(0o755)).unwrap();
        for (name, mode) in [(b"a", 0o700), (b"b", 0o755)] {
            let dir = loader.add(loader.root(), name, &with(mode ^ 0o055)).unwrap();
            loader.dir_meta(dir, &with(mode)).unwrap();
            loader.add(dir, b"f", &NewInode::new(S_IFREG | 0o644)).unwrap();
        }
    }
    vfs.set_walk_mode(WalkMode::Rcu);
    vfs.set_count_searches(true);
    let user = vfs.task(Cred::user(1000, 1000, &[]));
    assert!(user.stat(b"/b/f").is_ok());
    assert_eq!((vfs.stats().searches_spared, vfs.stats().searches_checked), (2, 0));
    assert_eq!(user.stat(b"/a/f"), Err(Errno::EACCES));
    assert_eq!((vfs.stats().searches_spared, vfs.stats().searches_checked), (3, 1));
}

/// An ACL as the value of an attribute: of the owner, user 1000, the group, the mask and others.
fn acl(perms: [u16; 5]) -> Vec<u8> {
    let [owner, user, group, mask, other] = perms;
    let entries = [
        AclEntry::new(ACL_USER_OBJ, owner),
        AclEntry::user(1000, user),
        AclEntry::new(ACL_GROUP_OBJ, group),
        AclEntry::new(ACL_MASK, mask),
        AclEntry::new(ACL_OTHER, other),
    ];
    UncheckedAcl::new(entries).validate(&UserNamespace::init()).unwrap().to_xattr(|uid| uid, |gid| gid)
}

/// A loader that is told of an ACL late makes the same of it as setxattr(2) does.
#[test]
fn an_acl_that_comes_late_is_as_one_that_was_set() {
    const ACCESS: &[u8] = b"system.posix_acl_access";
    const DEFAULT: &[u8] = b"system.posix_acl_default";
    let vfs = Vfs::new().unwrap();
    let (root, user) = (vfs.task(Cred::root()), vfs.task(Cred::user(1000, 1000, &[])));
    {
        let mut loader = vfs.loader();
        let top = loader.root();
        let dir = loader.add(top, b"dir", &NewInode::new(S_IFDIR | 0o2700)).unwrap();
        let file = loader.add(top, b"file", &NewInode::new(S_IFREG | 0o600)).unwrap();
        loader.set_acl(dir, ACCESS, &acl([7, 5, 0, 5, 0])).unwrap();
        loader.set_acl(dir, DEFAULT, &acl([6, 4, 0, 4, 0])).unwrap();
        loader.set_acl(file, ACCESS, &acl([6, 6, 0, 4, 0])).unwrap();
        // What is refused changes nothing.
        assert_eq!(loader.set_acl(file, ACCESS, &acl([6, 6, 0, 4, 0])[..9]), Err(Errno::EINVAL));
        assert_eq!(loader.set_acl(file, DEFAULT, &acl([6, 4, 0, 4, 0])), Err(Errno::EINVAL));
        assert_eq!(loader.set_acl(file, b"user.acl", &acl([6, 4, 0, 4, 0])), Err(Errno::EOPNOTSUPP));
    }
    // A minimal one says what the mode is, and nothing more.
    {
        let mut loader = vfs.loader();
        let (top, new) = (loader.root(), NewInode::new(S_IFREG | 0o4640));
        let plain = loader.add(top, b"plain", &new).unwrap();
        let entries = [(ACL_USER_OBJ, 6), (ACL_GROUP_OBJ, 0), (ACL_OTHER, 4)];
        let entries = entries.map(|(tag, perm)| AclEntry::new(tag, perm));
        let minimal = UncheckedAcl::new(entries).validate(&UserNamespace::init()).unwrap();
        loader.set_acl(plain, ACCESS, &minimal.to_xattr(|uid| uid, |gid| gid)).unwrap();
    }
    assert_eq!(root.stat(b"/plain").unwrap().mode, S_IFREG | 0o4604);
    assert_eq!(root.getxattr(b"/plain", ACCESS), Err(Errno::ENODATA));
    // The mask stands for the group's bits, and set-id bits stay.
    assert_eq!(root.stat(b"/dir").unwrap().mode, S_IFDIR | 0o2750);
    assert_eq!(root.stat(b"/file").unwrap().mode, S_IFREG | 0o640);
    assert_eq!((user.access(b"/file", R_OK), user.access(b"/file", W_OK)), (Ok(()), Err(Errno::EACCES)));
    assert_eq!((user.access(b"/dir", R_OK), user.access(b"/dir", W_OK)), (Ok(()), Err(Errno::EACCES)));
    root.mkdir(b"/set", 0o700).unwrap();
    root.chmod(b"/set", 0o2700).unwrap();
    for (name, perms) in [(ACCESS, [7, 5, 0, 5, 0]), (DEFAULT, [6, 4, 0, 4, 0])] {
        root.setxattr(b"/set", name, &acl(perms), 0).unwrap();
        assert_eq!(root.getxattr(b"/dir", name), root.getxattr(b"/set", name));
    }
    assert_eq!(root.stat(b"/dir").unwrap().mode, root.stat(b"/set").unwrap().mode);
    // The default ACL is passed on, and then the user may read.
    root.creat(b"/dir/new", 0o666).unwrap();
    assert_eq!(root.stat(b"/dir/new").unwrap().mode, S_IFREG | 0o640);
    assert_eq!(user.access(b"/dir/new", R_OK), Ok(()));
}
