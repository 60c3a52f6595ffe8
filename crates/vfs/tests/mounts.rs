//! Mounts, mount namespaces and idmapped mounts through the public calls.

use rcuwalk::uapi::*;
use rcuwalk::userns::{IdExtent, Ucount, UserNamespace};
use rcuwalk::{
    CloneFlags, Cred, Errno, MountAttr, MountOptions, NewInode, NewMount, OpenHow, ProcFile, Sysctl, Task,
    Vfs, WalkMode,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Runs a test in both walk modes, and looks whether everything that it made is gone with its tasks.
fn both(test: impl Fn(&Vfs, &Task)) {
    for mode in [WalkMode::Direct, WalkMode::Rcu, WalkMode::RefOnly] {
        let vfs = Vfs::new().unwrap();
        vfs.set_walk_mode(mode);
        test(&vfs, &vfs.task(Cred::root()));
    }
}

fn mkdirs(task: &Task, paths: &[&str]) {
    for path in paths {
        task.mkdir(path.as_bytes(), 0o755).unwrap();
    }
}

fn touch(task: &Task, path: &[u8]) {
    task.close(task.creat(path, 0o644).unwrap()).unwrap();
}

fn bind(task: &Task, source: &[u8], target: &[u8]) {
    task.mount(source, target, b"", MS_BIND, b"").unwrap();
}

fn tmpfs(task: &Task, target: &[u8]) {
    task.mount(b"none", target, b"tmpfs", 0, b"mode=0755").unwrap();
}

fn ino(task: &Task, path: &[u8]) -> (u64, u64) {
    let stat = task.stat(path).unwrap();
    (stat.dev, stat.ino)
}

#[test]
fn a_walk_crosses_into_a_mount_and_back() {
    both(|_, root| {
        mkdirs(root, &["/src", "/src/d", "/m", "/m/under"]);
        touch(root, b"/src/d/f");
        bind(root, b"/src", b"/m");
        assert_eq!(ino(root, b"/m/d/f"), ino(root, b"/src/d/f"));
        assert_eq!(ino(root, b"/m/d/../d/f"), ino(root, b"/src/d/f"));
        assert_eq!(ino(root, b"/m/.."), ino(root, b"/"));
        assert_eq!(root.stat(b"/m/under"), Err(Errno::ENOENT));
        let attributes = |path: &[u8]| root.statx(AT_FDCWD, path, 0, STATX_BASIC_STATS).unwrap().attributes;
        assert_ne!(attributes(b"/m") & STATX_ATTR_MOUNT_ROOT, 0);
        assert_eq!(attributes(b"/m/d") & STATX_ATTR_MOUNT_ROOT, 0);
        root.chdir(b"/m/d").unwrap();
        assert_eq!(root.getcwd().unwrap(), b"/m/d");
        assert_eq!(root.umount2(b"/m", 0), Err(Errno::EBUSY));
        root.chdir(b"/").unwrap();
        root.umount2(b"/m", 0).unwrap();
        assert!(root.stat(b"/m/under").is_ok());
    });
}

#[test]
fn the_topmost_of_a_stack_is_seen() {
    both(|vfs, root| {
        let before = vfs.stats().entries;
        mkdirs(root, &["/m"]);
        for name in ["/m/1", "/m/2", "/m/3"] {
            tmpfs(root, b"/m");
            touch(root, name.as_bytes());
        }
        assert!(root.stat(b"/m/3").is_ok() && root.stat(b"/m/2").is_err());
        assert_eq!(ino(root, b"/m/.."), ino(root, b"/"));
        root.umount2(b"/m", 0).unwrap();
        assert!(root.stat(b"/m/2").is_ok() && root.stat(b"/m/3").is_err());
        root.umount2(b"/m/", 0).unwrap();
        root.umount2(b"/m/.", 0).unwrap();
        assert_eq!(root.umount2(b"/m", 0), Err(Errno::EINVAL));
        root.rmdir(b"/m").unwrap();
        assert_eq!(vfs.stats().entries, before, "the file systems went with their mounts");
    });
}

#[test]
fn mountpoints_are_busy_and_mounts_are_borders() {
    both(|_, root| {
        mkdirs(root, &["/src", "/m", "/d", "/e"]);
        touch(root, b"/src/f");
        touch(root, b"/g");
        touch(root, b"/h");
        bind(root, b"/src", b"/m");
        bind(root, b"/g", b"/h");
        assert_eq!(root.rmdir(b"/m"), Err(Errno::EBUSY));
        assert_eq!(root.unlink(b"/h"), Err(Errno::EBUSY));
        assert_eq!(root.rename(b"/m", b"/x"), Err(Errno::EBUSY));
        assert_eq!(root.rename(b"/d", b"/m"), Err(Errno::EBUSY));
        assert_eq!(root.renameat2(AT_FDCWD, b"/d", AT_FDCWD, b"/m", RENAME_EXCHANGE), Err(Errno::EBUSY));
        assert_eq!(root.rename(b"/m/f", b"/f"), Err(Errno::EXDEV));
        assert_eq!(root.link(b"/m/f", b"/src/g"), Err(Errno::EXDEV));
        assert_eq!(root.open(b"/h", O_CREAT | O_EXCL, 0o600), Err(Errno::EEXIST));
        assert_eq!(root.open(b"/m", O_CREAT, 0o600), Err(Errno::EISDIR));
        root.rename(b"/src/f", b"/src/k").unwrap();
        assert!(root.stat(b"/m/k").is_ok());
        let open = |dir: &[u8], path: &[u8], resolve: u64| {
            let dirfd = root.open(dir, O_PATH | O_DIRECTORY, 0).unwrap();
            let how = OpenHow::new(O_PATH).with_resolve(resolve);
            let fd = root.openat2(dirfd, path, &how);
            root.close(dirfd).unwrap();
            fd.map(|fd| root.close(fd).unwrap())
        };
        root.symlink(b"/g", b"/src/abs").unwrap();
        assert_eq!(open(b"/", b"m", RESOLVE_NO_XDEV), Err(Errno::EXDEV));
        assert_eq!(open(b"/", b"m/k", RESOLVE_NO_XDEV), Err(Errno::EXDEV));
        assert_eq!(open(b"/m", b"..", RESOLVE_NO_XDEV), Err(Errno::EXDEV));
        assert_eq!(open(b"/m", b"abs", RESOLVE_NO_XDEV), Err(Errno::EXDEV));
        assert_eq!(open(b"/m", b"k", RESOLVE_NO_XDEV), Ok(()));
        assert_eq!(open(b"/", b"m/../m/k", RESOLVE_BENEATH), Ok(()));
        assert_eq!(open(b"/m", b"../g", RESOLVE_BENEATH), Err(Errno::EXDEV));
        assert_eq!(open(b"/m", b"../../k", RESOLVE_IN_ROOT), Ok(()));
    });
}

#[test]
fn dotdot_does_not_leave_the_tree_that_is_bound() {
    both(|_, root| {
        mkdirs(root, &["/a", "/a/b", "/a/b/c", "/out", "/m"]);
        bind(root, b"/a/b", b"/m");
        root.chdir(b"/m/c").unwrap();
        root.rename(b"/a/b/c", b"/out/c").unwrap();
        assert_eq!(root.stat(b".."), Err(Errno::ENOENT));
        assert_eq!(root.stat(b"../c"), Err(Errno::ENOENT));
        assert!(root.getcwd().unwrap().starts_with(b"(unreachable)"));
    });
}

#[test]
fn what_a_mount_forbids_is_its_own() {
    both(|vfs, root| {
        mkdirs(root, &["/src", "/m"]);
        touch(root, b"/src/f");
        root.symlink(b"f", b"/src/l").unwrap();
        bind(root, b"/src", b"/m");
        let remount = |flags: u64| root.mount(b"", b"/m", b"", MS_REMOUNT | MS_BIND | flags, b"");
        let fd = root.open(b"/m/f", O_WRONLY, 0).unwrap();
        assert_eq!(remount(MS_RDONLY), Err(Errno::EBUSY));
        root.close(fd).unwrap();
        remount(MS_RDONLY).unwrap();
        assert_eq!(root.open(b"/m/f", O_WRONLY, 0), Err(Errno::EROFS));
        assert_eq!(root.unlink(b"/m/missing"), Err(Errno::EROFS));
        assert_eq!(root.chmod(b"/m/f", 0o600), Err(Errno::EROFS));
        root.chmod(b"/src/f", 0o755).unwrap();
        remount(MS_NOEXEC | MS_NOSYMFOLLOW).unwrap();
        assert_eq!(root.access(b"/m/f", X_OK), Err(Errno::EACCES));
        assert_eq!(root.stat(b"/m/l"), Err(Errno::ELOOP));
        assert_eq!(root.access(b"/src/l", X_OK), Ok(()));
        root.mount(b"", b"/", b"", MS_REMOUNT | MS_RDONLY, b"").unwrap();
        assert_eq!(root.creat(b"/m/new", 0o600), Err(Errno::EROFS), "the superblock is read-only");
        let user = vfs.task(Cred::user(1000, 1000, &[]));
        assert_eq!(user.mount(b"", b"/m", b"", MS_REMOUNT | MS_BIND, b""), Err(Errno::EPERM));
        assert_eq!(user.mount(b"", b"/missing", b"", MS_BIND, b""), Err(Errno::ENOENT));
        assert_eq!(user.umount2(b"/m", 0), Err(Errno::EPERM));
    });
}

#[test]
fn a_lazily_unmounted_tree_lives_on_for_its_users() {
    both(|vfs, root| {
        let before = vfs.stats().entries;
        mkdirs(root, &["/m"]);
        tmpfs(root, b"/m");
        mkdirs(root, &["/m/d"]);
        root.chdir(b"/m/d").unwrap();
        root.umount2(b"/m", MNT_DETACH).unwrap();
        touch(root, b"f");
        assert_eq!(ino(root, b"../.."), ino(root, b".."));
        assert_eq!(root.getcwd().unwrap(), b"(unreachable)/d");
        assert_eq!(root.stat(b"/m/d"), Err(Errno::ENOENT));
        root.chdir(b"/").unwrap();
        root.rmdir(b"/m").unwrap();
        assert_eq!(vfs.stats().entries, before);
    });
}

#[test]
fn an_unused_mount_expires_at_the_second_call() {
    both(|_, root| {
        mkdirs(root, &["/m"]);
        tmpfs(root, b"/m");
        assert_eq!(root.umount2(b"/m", MNT_EXPIRE | MNT_DETACH), Err(Errno::EINVAL));
        assert_eq!(root.umount2(b"/m", MNT_EXPIRE), Err(Errno::EAGAIN));
        root.chdir(b"/m").unwrap();
        assert_eq!(root.umount2(b"/m", MNT_EXPIRE), Err(Errno::EBUSY));
        root.chdir(b"/").unwrap();
        assert_eq!(root.umount2(b"/m", MNT_EXPIRE), Err(Errno::EAGAIN), "it was used meanwhile");
        root.umount2(b"/m", MNT_EXPIRE).unwrap();
    });
}

#[test]
fn what_is_mounted_on_nothing_cannot_be_moved() {
    both(|vfs, _| {
        let root = &mut vfs.task(Cred::root());
        let namespace = root.open_proc(root, ProcFile::MntNs).unwrap();
        root.umount2(b"/", MNT_DETACH).unwrap();
        root.setns(namespace, 0).unwrap();
        mkdirs(root, &["/d"]);
        assert_eq!(root.mount(b"/", b"/d", b"", MS_MOVE, b""), Err(Errno::EINVAL));
        assert_eq!(root.umount2(b"/", MNT_DETACH), Err(Errno::EINVAL));
    });
}

#[test]
fn each_of_many_mounts_is_found_where_it_is() {
    both(|_, root| {
        mkdirs(root, &["/m"]);
        let places: Vec<String> = (0..400).map(|n| format!("/m/{n}")).collect();
        mkdirs(root, &places.iter().map(String::as_str).collect::<Vec<_>>());
        for place in &places {
            tmpfs(root, place.as_bytes());
            touch(root, format!("{place}/in").as_bytes());
        }
        let devices: BTreeSet<u64> =
            places.iter().map(|place| ino(root, format!("{place}/in").as_bytes()).0).collect();
        assert_eq!(devices.len(), places.len());
    });
}

#[test]
fn a_copy_of_locked_mounts_that_finds_no_room_is_taken_back_whole() {
    both(|vfs, root| {
        mkdirs(root, &["/m", "/n"]);
        let before = vfs.stats().entries;
        tmpfs(root, b"/m");
        mkdirs(root, &["/m/d"]);
        tmpfs(root, b"/m/d");
        let mut user = vfs.task(Cred::root());
        user.unshare(CLONE_NEWUSER | CLONE_NEWNS).unwrap();
        vfs.set_sysctl(Sysctl::MountMax, 5).unwrap();
        assert_eq!(user.mount(b"/", b"/n", b"", MS_BIND | MS_REC, b""), Err(Errno::ENOSPC));
        drop(user);
        root.umount2(b"/m/d", 0).unwrap();
        root.umount2(b"/m", 0).unwrap();
        assert_eq!(vfs.stats().entries, before);
    });
}

#[test]
fn a_new_namespace_has_its_own_tree() {
    both(|vfs, root| {
        let before = vfs.stats().entries;
        mkdirs(root, &["/m", "/d", "/d/e"]);
        let mut child = root.fork();
        child.chdir(b"/d").unwrap();
        child.unshare(CLONE_NEWNS).unwrap();
        tmpfs(&child, b"/m");
        tmpfs(&child, b"e");
        touch(&child, b"e/x");
        assert_eq!(child.getcwd().unwrap(), b"/d");
        assert!(child.stat(b"/d/e/x").is_ok() && root.stat(b"/d/e/x").is_err());
        assert_eq!(child.rmdir(b"/m"), Err(Errno::EBUSY));
        root.rmdir(b"/m").unwrap();
        assert_eq!(
            child.stat(b"/m"),
            Err(Errno::ENOENT),
            "a mountpoint of others goes with what is mounted there"
        );
        drop(child);
        root.rmdir(b"/d/e").unwrap();
        root.rmdir(b"/d").unwrap();
        assert_eq!(vfs.stats().entries, before);
    });
}

#[test]
fn shared_mounts_tell_their_peers_and_slaves() {
    both(|_, root| {
        mkdirs(root, &["/a", "/a/x", "/a/y", "/b", "/c"]);
        bind(root, b"/a", b"/a");
        assert_eq!(root.mount(b"", b"/a/x", b"", MS_SHARED, b""), Err(Errno::EINVAL));
        assert_eq!(root.mount(b"", b"/a", b"", MS_SHARED | MS_PRIVATE, b""), Err(Errno::EINVAL));
        root.mount(b"", b"/a", b"", MS_SHARED, b"").unwrap();
        bind(root, b"/a", b"/b");
        bind(root, b"/a", b"/c");
        root.mount(b"", b"/c", b"", MS_SLAVE, b"").unwrap();
        tmpfs(root, b"/a/x");
        touch(root, b"/a/x/f");
        assert!(root.stat(b"/b/x/f").is_ok() && root.stat(b"/c/x/f").is_ok());
        tmpfs(root, b"/c/y");
        touch(root, b"/c/y/f");
        assert!(root.stat(b"/a/y/f").is_err(), "a slave tells nobody");
        root.umount2(b"/b/x", 0).unwrap();
        assert!(root.stat(b"/a/x/f").is_err() && root.stat(b"/c/x/f").is_err());
        root.mount(b"", b"/a", b"", MS_UNBINDABLE, b"").unwrap();
        assert_eq!(root.mount(b"/a", b"/b", b"", MS_BIND, b""), Err(Errno::EINVAL));
        mkdirs(root, &["/to"]);
        root.mount(b"/c", b"/to", b"", MS_MOVE, b"").unwrap();
        assert!(root.stat(b"/to/y/f").is_ok() && root.stat(b"/c/y").is_err());
        assert_eq!(root.mount(b"/to", b"/to/x", b"", MS_MOVE, b""), Err(Errno::ELOOP));
    });
}

/// A user namespace with one line of both maps.
fn userns(first: u32, lower: u32, count: u32) -> Arc<UserNamespace> {
    let ns = UserNamespace::new_child(&UserNamespace::init(), 0, 0, true).unwrap();
    let map = [IdExtent { first, lower, count }];
    ns.set_uid_map(&map).unwrap();
    ns.set_gid_map(&map).unwrap();
    ns
}

#[test]
fn ids_look_different_through_an_idmapped_mount() {
    both(|vfs, root| {
        mkdirs(root, &["/src", "/m"]);
        for (name, uid) in [("/src/a", 0), ("/src/b", 1000), ("/src/c", 5000)] {
            touch(root, name.as_bytes());
            root.chown(name.as_bytes(), uid, uid).unwrap();
        }
        root.chmod(b"/src", 0o777).unwrap();
        let tree = root.open_tree(AT_FDCWD, b"/src", OPEN_TREE_CLONE).unwrap();
        let idmap = MountAttr::default().with_set(MOUNT_ATTR_IDMAP).with_userns(Ok(userns(0, 10_000, 2000)));
        assert_eq!(root.mount_setattr(AT_FDCWD, b"/", 0, &idmap), Err(Errno::EINVAL));
        let closed = idmap.clone().with_userns(Err(Errno::EBADF));
        assert_eq!(root.mount_setattr(tree, b"", AT_EMPTY_PATH, &closed), Err(Errno::EBADF));
        root.mount_setattr(tree, b"", AT_EMPTY_PATH, &idmap).unwrap();
        assert_eq!(root.mount_setattr(tree, b"", AT_EMPTY_PATH, &idmap), Err(Errno::EPERM));
        root.move_mount(tree, b"", AT_FDCWD, b"/m", MOVE_MOUNT_F_EMPTY_PATH).unwrap();
        root.close(tree).unwrap();
        let owner = |path: &[u8]| {
            let stat = root.stat(path).unwrap();
            (stat.uid, stat.gid)
        };
        let seen = [b"/m/a", b"/m/b", b"/m/c"].map(|path| owner(path));
        assert_eq!(seen, [(10_000, 10_000), (11_000, 11_000), (65534, 65534)]);
        // The root outside is nobody inside.
        assert_eq!(root.mkdir(b"/m/d", 0o755), Err(Errno::EOVERFLOW));
        assert_eq!(root.open(b"/m", O_TMPFILE | O_RDWR, 0o600), Err(Errno::EOVERFLOW));
        assert_eq!(root.chmod(b"/m/c", 0o600), Err(Errno::EOVERFLOW));
        assert_eq!(root.unlink(b"/m/c"), Err(Errno::EOVERFLOW));
        assert_eq!(root.truncate(b"/m/c", 0), Err(Errno::EACCES));
        assert_eq!(root.setxattr(b"/m/c", b"user.x", b"", 0), Err(Errno::EPERM));
        assert_eq!(root.chown(b"/m/c", 10_001, u32::MAX), Err(Errno::EOVERFLOW));
        root.chown(b"/m/c", 10_001, 10_001).unwrap();
        assert_eq!(owner(b"/src/c"), (1, 1));
        let user = vfs.task(Cred::user(11_000, 11_000, &[]));
        touch(&user, b"/m/new");
        assert_eq!(owner(b"/src/new"), (1000, 1000));
        root.chmod(b"/src/b", 0o600).unwrap();
        assert_eq!(user.access(b"/m/b", R_OK | W_OK), Ok(()));
        assert_eq!(vfs.task(Cred::user(1000, 1000, &[])).access(b"/m/b", R_OK), Err(Errno::EACCES));
        let acl = |id: u32| {
            let entries =
                [(1u16, 6u16, u32::MAX), (2, 6, id), (4, 0, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)];
            let mut value = vec![2, 0, 0, 0];
            for (tag, perm, id) in entries {
                value.extend(tag.to_le_bytes().into_iter().chain(perm.to_le_bytes()).chain(id.to_le_bytes()));
            }
            value
        };
        let name = b"system.posix_acl_access";
        root.setxattr(b"/m/a", name, &acl(10_003), 0).unwrap();
        assert_eq!(root.getxattr(b"/src/a", name).unwrap(), acl(3));
        assert_eq!(root.getxattr(b"/m/a", name).unwrap(), acl(10_003));
        assert_eq!(root.setxattr(b"/m/a", name, &acl(3), 0), Err(Errno::EINVAL));
        let named = vfs.task(Cred::user(10_003, 10_003, &[]));
        assert_eq!(named.access(b"/m/a", R_OK | W_OK), Ok(()));
        assert_eq!(named.access(b"/src/a", R_OK | W_OK), Err(Errno::EACCES));
    });
}

#[test]
fn a_directory_of_mapped_ids_is_searched_by_their_owner() {
    both(|vfs, root| {
        mkdirs(root, &["/src", "/src/home", "/m"]);
        touch(root, b"/src/home/f");
        root.chmod(b"/src/home", 0o700).unwrap();
        root.chown(b"/src/home", 1000, 1000).unwrap();
        let tree = root.open_tree(AT_FDCWD, b"/src", OPEN_TREE_CLONE).unwrap();
        let userns = Ok(userns(0, 10_000, 2000));
        let idmap = MountAttr::default().with_set(MOUNT_ATTR_IDMAP).with_userns(userns);
        root.mount_setattr(tree, b"", AT_EMPTY_PATH, &idmap).unwrap();
        root.move_mount(tree, b"", AT_FDCWD, b"/m", MOVE_MOUNT_F_EMPTY_PATH).unwrap();
        let [mapped, plain] = [11_000, 1000].map(|id| vfs.task(Cred::user(id, id, &[])));
        assert!(mapped.stat(b"/m/home/f").is_ok() && plain.stat(b"/src/home/f").is_ok());
        assert_eq!(mapped.stat(b"/src/home/f"), Err(Errno::EACCES));
        assert_eq!(plain.stat(b"/m/home/f"), Err(Errno::EACCES));
    });
}

#[test]
fn attributes_are_set_and_cleared() {
    both(|_, root| {
        mkdirs(root, &["/src", "/m", "/m2"]);
        touch(root, b"/src/f");
        bind(root, b"/src", b"/m");
        let setattr = |path: &[u8], set: u64, clr: u64, propagation: u64| {
            let attr = MountAttr::default().with_set(set).with_clr(clr).with_propagation(propagation);
            root.mount_setattr(AT_FDCWD, path, 0, &attr)
        };
        setattr(b"/m", MOUNT_ATTR_NOSUID | MOUNT_ATTR_RDONLY, 0, 0).unwrap();
        assert_eq!(root.open(b"/m/f", O_WRONLY, 0), Err(Errno::EROFS));
        setattr(b"/m", 0, MOUNT_ATTR_RDONLY, 0).unwrap();
        let fd = root.open(b"/m/f", O_WRONLY, 0).unwrap();
        assert_eq!(setattr(b"/m", MOUNT_ATTR_RDONLY, 0, 0), Err(Errno::EBUSY));
        root.close(fd).unwrap();
        assert_eq!(setattr(b"/m", MOUNT_ATTR_NOATIME, 0, 0), Err(Errno::EINVAL));
        assert_eq!(setattr(b"/m", 0, MOUNT_ATTR_NOATIME, 0), Err(Errno::EINVAL));
        assert_eq!(setattr(b"/m", 0x4000_0000, 0, 0), Err(Errno::EINVAL));
        assert_eq!(setattr(b"/m", 0, 0, MS_SHARED | MS_SLAVE), Err(Errno::EINVAL));
        assert_eq!(setattr(b"/m2", MOUNT_ATTR_RDONLY, 0, 0), Err(Errno::EINVAL));
        setattr(b"/missing", 0, 0, 0).unwrap();
    });
}

#[test]
fn a_user_namespace_cannot_lift_what_it_inherited() {
    both(|vfs, root| {
        mkdirs(root, &["/ro", "/m"]);
        tmpfs(root, b"/ro");
        root.mount(b"", b"/ro", b"", MS_REMOUNT | MS_BIND | MS_RDONLY, b"").unwrap();
        let mut user = vfs.task(Cred::user(1000, 1000, &[]));
        assert_eq!(user.unshare(CLONE_NEWNS), Err(Errno::EPERM));
        user.unshare(CLONE_NEWUSER | CLONE_NEWNS).unwrap();
        assert_eq!(user.umount2(b"/ro", 0), Err(Errno::EINVAL), "locked");
        assert_eq!(user.mount(b"", b"/ro", b"", MS_REMOUNT | MS_BIND, b""), Err(Errno::EPERM));
        let map = [IdExtent { first: 0, lower: 1000, count: 1 }];
        user.cred().user_ns().set_uid_map(&map).unwrap();
        user.cred().user_ns().set_gid_map(&map).unwrap();
        tmpfs(&user, b"/m");
        touch(&user, b"/m/f");
        assert_eq!(user.stat(b"/m/f").unwrap().uid, 0);
        assert_eq!(user.stat(b"/ro").unwrap().uid, 65534);
        assert_eq!(root.stat(b"/m/f"), Err(Errno::ENOENT));
        let mut chrooted = root.fork();
        chrooted.chroot(b"/m").unwrap();
        assert_eq!(chrooted.unshare(CLONE_NEWUSER), Err(Errno::EPERM));
    });
}

/// Threads walk through a mountpoint, open what is there and stand in it, while it is mounted over and uncovered.
#[test]
fn walkers_see_one_tree_or_the_other() {
    for mode in [WalkMode::Direct, WalkMode::Rcu, WalkMode::RefOnly] {
        let vfs = Vfs::builder().capacity(1 << 16).build().unwrap();
        vfs.set_walk_mode(mode);
        let root = vfs.task(Cred::root());
        let before = vfs.stats().entries;
        mkdirs(&root, &["/low", "/low/d", "/m", "/m/d", "/m/d/e"]);
        mkdirs(&root, &["/low/d/e"]);
        touch(&root, b"/m/d/e/f");
        touch(&root, b"/low/d/e/f");
        let inos = [b"/m/d/e/f".as_slice(), b"/low/d/e/f"].map(|path| root.stat(path).unwrap().ino);
        let stop = AtomicBool::new(false);
        let seen: [[AtomicU32; 2]; 3] = Default::default();
        let enough = || seen.iter().flatten().all(|seen| seen.load(Ordering::Relaxed) > 50);
        std::thread::scope(|scope| {
            for (i, seen) in seen.iter().enumerate() {
                let (task, stop) = (root.fork(), &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let ino = match i {
                            0 => task.stat(b"/m/d/e/f").unwrap().ino,
                            1 => match task.stat(b"/m/d/../d/e/../../../m/d/e/f") {
                                Ok(stat) => stat.ino,
                                // The mount was detached while the walk stood in it: `..` stays at its root, where there
                                // is no `m`. The kernel's reference walk comes to the same end.
                                Err(errno) => {
                                    assert_eq!(errno, Errno::ENOENT);
                                    continue;
                                }
                            },
                            _ => {
                                let fd = task.open(b"/m/d/e/f", O_RDWR, 0).unwrap();
                                let ino = task.fstat(fd).unwrap().ino;
                                task.close(fd).unwrap();
                                ino
                            }
                        };
                        let which = inos.iter().position(|&known| known == ino);
                        seen[which.expect("one of the two")].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..1_000_000 {
                bind(&root, b"/low", b"/m");
                root.umount2(b"/m", MNT_DETACH).unwrap();
                if enough() {
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(enough(), "each walker must have come through both trees: {seen:?}");
        for path in ["/m/d/e/f", "/low/d/e/f"] {
            root.unlink(path.as_bytes()).unwrap();
        }
        for path in ["/low/d/e", "/low/d", "/low", "/m/d/e", "/m/d", "/m"] {
            root.rmdir(path.as_bytes()).unwrap();
        }
        assert_eq!(vfs.stats().entries, before, "every reference was given back");
    }
}

#[test]
fn what_a_loader_adds_is_of_the_file_system_it_is_added_to() {
    let vfs = Vfs::new().unwrap();
    let mut loader = vfs.loader();
    let [dir, file] = [S_IFDIR | 0o755, S_IFREG | 0o644].map(NewInode::new);
    let at = loader.add(loader.root(), b"m", &dir).unwrap();
    let of_root = loader.add(loader.root(), b"f", &file).unwrap();
    let over = NewMount::new(dir);
    let (_, top) = loader.mount(loader.root_mount(), at, &over).unwrap();
    let sub = loader.add(top, b"sub", &dir).unwrap();
    let of_mount = loader.add(sub, b"f", &file).unwrap();
    assert_eq!((loader.parent(of_mount), loader.parent(sub), loader.parent(top)), (sub, top, top));
    assert_eq!((loader.lookup(top, b"sub"), loader.children(sub)), (Some(sub), vec![of_mount]));
    assert_eq!(loader.link(sub, b"g", of_root), Err(Errno::EXDEV));
    assert_eq!(loader.link(loader.root(), b"g", of_mount), Err(Errno::EXDEV));
    loader.link(top, b"g", of_mount).unwrap();
    assert_eq!([loader.remove(loader.root()), loader.remove(top)], [Err(Errno::EBUSY); 2]);
    drop(loader);
    // Each file system numbers its own, from its root on.
    let root = vfs.task(Cred::root());
    let ino = |path: &[u8]| root.stat(path).unwrap().ino;
    assert_eq!([ino(b"/m"), ino(b"/m/sub"), ino(b"/m/g")], [1, 2, 3]);
    root.mkdir(b"/m/made", 0o755).unwrap();
    assert_eq!(ino(b"/m/made"), 4);
    assert_eq!(ino(b"/f"), ino(b"/") + 2);
}

/// Mounts, each on the one before, as deep as the task likes; the task stands in the last one.
fn nest(task: &Task, depth: usize) {
    for _ in 0..depth {
        task.mkdir(b"d", 0o755).unwrap();
        tmpfs(task, b"d");
        task.chdir(b"d").unwrap();
    }
}

#[test]
fn mounts_that_are_locked_to_each_other_go_together_however_deep() {
    let vfs = Vfs::new().unwrap();
    let root = vfs.task(Cred::root());
    nest(&root, 6000);
    let before = vfs.stats().entries;
    let mut user = root.fork();
    user.unshare(CLONE_NEWUSER | CLONE_NEWNS).unwrap();
    // Its mounts are held by each other alone now. Their end must not take room on the stack for each.
    drop(user);
    assert_eq!(vfs.stats().entries, before);
    root.chdir(b"/").unwrap();
    root.umount2(b"/d", MNT_DETACH).unwrap();
    assert!(root.stat(b"/d/d").is_err());
}

#[test]
fn slaves_of_masters_that_end_together_receive_from_the_first_that_stays() {
    let vfs = Vfs::new().unwrap();
    let root = vfs.task(Cred::root());
    mkdirs(&root, &["/a", "/chain", "/end"]);
    tmpfs(&root, b"/a");
    mkdirs(&root, &["/a/m"]);
    root.mount(b"", b"/a", b"", MS_SHARED, b"").unwrap();
    tmpfs(&root, b"/chain");
    let mut from = b"/a".to_vec();
    for link in 0..100 {
        let to = format!("/chain/{link}").into_bytes();
        root.mkdir(&to, 0o755).unwrap();
        bind(&root, &from, &to);
        root.mount(b"", &to, b"", MS_SLAVE, b"").unwrap();
        root.mount(b"", &to, b"", MS_SHARED, b"").unwrap();
        from = to;
    }
    bind(&root, &from, b"/end");
    root.mount(b"", b"/end", b"", MS_SLAVE, b"").unwrap();
    root.umount2(b"/chain", MNT_DETACH).unwrap();
    tmpfs(&root, b"/a/m");
    touch(&root, b"/a/m/f");
    assert!(root.stat(b"/end/m/f").is_ok());
}

/// What is made in a user namespace counts for its owner, at each level; what goes, or fails, counts no more.
#[test]
fn namespaces_count_for_each_owner_above() {
    let vfs = Vfs::new().unwrap();
    vfs.set_sysctl(Sysctl::MaxMntNamespaces, 3).unwrap();
    vfs.set_sysctl(Sysctl::MaxUserNamespaces, 2).unwrap();
    let mut tenant = vfs.task(Cred::user(1000, 1000, &[]));
    tenant.unshare(CLONE_NEWUSER | CLONE_NEWNS).unwrap();
    let ns = Arc::clone(tenant.cred().user_ns());
    let extent = |first, lower| IdExtent { first, lower, count: 1 };
    ns.set_uid_map(&[extent(0, 1000), extent(1, 1001)]).unwrap();
    ns.set_gid_map(&[extent(0, 1000), extent(1, 1001)]).unwrap();
    // Another user inside counts for the owner, but has a count of his own in the namespace.
    ns.set_ucount_max(Ucount::MntNamespaces, 1).unwrap();
    let copy = |task: &Task| task.clone_with(CloneFlags::default().with_new_ns(true));
    assert_eq!(copy(&tenant).map(drop), Err(Errno::ENOSPC), "one for each user of the namespace");
    let mut other = vfs.task(tenant.cred().to_builder().uids(1001, 1001, 1001, 1001).build().unwrap());
    other.unshare(CLONE_NEWNS).unwrap();
    assert_eq!(copy(&other).map(drop), Err(Errno::ENOSPC));
    ns.set_ucount_max(Ucount::MntNamespaces, 9).unwrap();
    let third = copy(&other).unwrap();
    assert_eq!(copy(&tenant).map(drop), Err(Errno::ENOSPC), "three of user 1000's, above");
    drop(third);
    // A refusal at one level is none at those below.
    for _ in 0..5 {
        copy(&tenant).unwrap();
    }
    vfs.set_sysctl(Sysctl::MaxMntNamespaces, 2).unwrap();
    let user = |task: &Task| task.clone_with(CloneFlags::default().with_new_user(true).with_new_ns(true));
    assert_eq!(user(&tenant).map(drop), Err(Errno::ENOSPC), "of mount namespaces");
    vfs.set_sysctl(Sysctl::MaxMntNamespaces, 3).unwrap();
    let below = user(&tenant).unwrap();
    assert_eq!(user(&tenant).map(drop), Err(Errno::ENOSPC), "of user namespaces");
    drop((tenant, other, ns));
    let outside = vfs.task(Cred::user(1000, 1000, &[]));
    let one = user(&outside).map(drop);
    assert_eq!(one, Err(Errno::ENOSPC), "the one below holds the one above");
    drop(below);
    drop(user(&outside).unwrap());
    assert_eq!(vfs.set_sysctl(Sysctl::MaxMntNamespaces, 1 << 31), Err(Errno::EINVAL));
    assert_eq!(UserNamespace::init().set_ucount_max(Ucount::MntNamespaces, 1), Err(Errno::EPERM));
}

const MANY: usize = 1500;

/// Mounts at `/t/c` with many mounts below them, and the same at `/u`, a peer of `/t`.
fn many_mounts(vfs: &Vfs) -> Task {
    let root = vfs.task(Cred::root());
    mkdirs(&root, &["/t", "/u", "/x", "/o"]);
    touch(&root, b"/x/f");
    root.mount(b"none", b"/t", b"tmpfs", 0, b"").unwrap();
    root.mount(b"", b"/t", b"", MS_SHARED, b"").unwrap();
    bind(&root, b"/t", b"/u");
    mkdirs(&root, &["/t/c", "/t/d"]);
    (0..MANY).for_each(|i| root.mkdir(format!("/t/c/{i}").as_bytes(), 0o755).unwrap());
    bind(&root, b"/t/c", b"/t/c");
    (0..MANY).for_each(|i| bind(&root, b"/x", format!("/t/c/{i}").as_bytes()));
    root
}

/// Has `change` run while another task makes directories, and each of `lookers` asks for the file on each of the mounts below a
/// directory: once one is not as before, all have to be so. Gives how many directories were made since it began.
fn seen_at_once(vfs: &Vfs, lookers: &[(Task, &str)], change: impl FnOnce() + Send) -> u32 {
    let seen = |(task, dir): &(Task, &str), i: usize| task.stat(format!("{dir}/{i}/f").as_bytes()).is_ok();
    let before = seen(&lookers[0], 0);
    let (began, over, other) = (AtomicBool::new(false), AtomicBool::new(false), vfs.task(Cred::root()));
    std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            let mut made = 0;
            while !over.load(Ordering::Relaxed) {
                other.mkdir(b"/o/d", 0o755).unwrap();
                other.rmdir(b"/o/d").unwrap();
                made += u32::from(began.load(Ordering::Relaxed));
            }
            made
        });
        scope.spawn(|| {
            began.store(true, Ordering::Relaxed);
            change();
            over.store(true, Ordering::Relaxed);
        });
        for i in (0..MANY).cycle().step_by(377) {
            let over = over.load(Ordering::Relaxed);
            if lookers.iter().any(|looker| seen(looker, i) != before) || over {
                let changed = |i| lookers.iter().all(|looker| seen(looker, i) != before);
                assert!((0..MANY).all(changed), "a mount is not as another one is");
                break;
            }
        }
        made.join().unwrap()
    })
}

/// A tree of mounts and its copies go, and come, at once for all walks. Nobody who changes a name waits for the whole of it.
#[test]
fn many_mounts_come_and_go_at_once() {
    let round = |mode| {
        // What is detached goes from the peer that it was copied from, too.
        let vfs = Vfs::new().unwrap();
        vfs.set_walk_mode(mode);
        let root = many_mounts(&vfs);
        let from_top = |dir| (vfs.task(Cred::root()), dir);
        // What is mounted on the directory that they stand in goes.
        let from_within = |dir: &str| {
            let task = vfs.task(Cred::root());
            task.chdir(dir.as_bytes()).unwrap();
            (task, ".")
        };
        let bound = || root.mount(b"/t/c", b"/t/d", b"", MS_BIND | MS_REC, b"").unwrap();
        let detached = || root.umount2(b"/t/d", MNT_DETACH).unwrap();
        let made = seen_at_once(&vfs, &["/t/d", "/u/d"].map(from_top), bound);
        made.min(seen_at_once(&vfs, &["/t/d", "/u/d"].map(from_within), detached))
    };
    for mode in [WalkMode::Rcu, WalkMode::RefOnly] {
        // A busy machine may let the other one have no turn at all.
        assert!(
            (0..20).any(|_| round(mode) > 10),
            "nobody makes directories while {MANY} mounts come or go twice"
        );
    }
}

/// A user namespace lives no longer than what was mounted from within it, and an idmap no longer than its mounts.
#[test]
fn ways_to_see_ids_go_with_their_mounts() {
    let vfs = Vfs::builder().memory_limit(64 << 20).build().unwrap();
    let root = vfs.task(Cred::root());
    mkdirs(&root, &["/d", "/m"]);
    touch(&root, b"/d/f");
    root.mount(b"none", b"/m", b"tmpfs", 0, b"").unwrap();
    root.umount2(b"/m", 0).unwrap();
    let before = vfs.stats().memory;
    for _ in 0..100 {
        let mut tenant = root.fork();
        tenant.unshare(CLONE_NEWUSER | CLONE_NEWNS).unwrap();
        let ns = Arc::downgrade(tenant.cred().user_ns());
        tenant.mount(b"none", b"/m", b"tmpfs", 0, b"").unwrap();
        assert!(ns.upgrade().is_some() && vfs.stats().memory > before);
        drop(tenant);
        assert!(ns.upgrade().is_none(), "nothing of it is left");
        assert_eq!(vfs.stats().memory, before);
    }
    // Each of many at once has its own, and so has each of those that come in their place.
    for round in 0..2 {
        // Its table goes with it.
        let holder = root.fork();
        let trees: Vec<(i32, u32)> = (0..900)
            .map(|i| {
                let uid = 10_000 + 1_000 * round + i / 2;
                let idmap =
                    MountAttr::default().with_set(MOUNT_ATTR_IDMAP).with_userns(Ok(userns(0, uid, 1)));
                let tree = holder.open_tree(AT_FDCWD, b"/d", OPEN_TREE_CLONE).unwrap();
                holder.mount_setattr(tree, b"", AT_EMPTY_PATH, &idmap).unwrap();
                (tree, uid)
            })
            .collect();
        for &(tree, uid) in &trees {
            assert_eq!(holder.newfstatat(tree, b"f", 0).unwrap().uid, uid);
        }
        drop(holder);
        // A chunk of mounts or two may be kept for later.
        let left = vfs.stats().memory - before;
        assert!(left <= 2 * 64 * 1024 && left.is_multiple_of(64 * 1024), "{left} bytes are left");
    }
}

/// Of a recursive change that finds no memory for an idmap, nothing is done.
#[test]
fn an_idmap_without_memory_changes_nothing() {
    let vfs = Vfs::builder().memory_limit(4 << 20).build().unwrap();
    let root = vfs.task(Cred::root());
    mkdirs(&root, &["/d"]);
    let extents: Vec<IdExtent> =
        (0..300).map(|i| IdExtent { first: 2 * i, lower: 2 * i, count: 1 }).collect();
    let mut full = None;
    for i in 0..10_000 {
        let ns = UserNamespace::new_child(&UserNamespace::init(), 0, 0, true).unwrap();
        let mut extents = extents.clone();
        extents[0].lower = 10_000 + i;
        ns.set_uid_map(&extents).unwrap();
        ns.set_gid_map(&extents).unwrap();
        let idmap = MountAttr::default().with_set(MOUNT_ATTR_IDMAP).with_userns(Ok(ns));
        let tree = root.open_tree(AT_FDCWD, b"/d", OPEN_TREE_CLONE).unwrap();
        if let Err(errno) = root.mount_setattr(tree, b"", AT_EMPTY_PATH, &idmap) {
            assert_eq!((errno, root.newfstatat(tree, b"", AT_EMPTY_PATH).unwrap().uid), (Errno::ENOMEM, 0));
            full = Some((i, tree, idmap));
            break;
        }
    }
    let (made, tree, idmap) = full.expect("idmaps count");
    assert!((50..400).contains(&made), "{made} idmaps of 22 KiB in 4 MiB");
    assert_eq!(root.mount_setattr(tree, b"", AT_EMPTY_PATH, &idmap), Err(Errno::ENOMEM));
    root.close(tree - 1).unwrap();
    root.mount_setattr(tree, b"", AT_EMPTY_PATH, &idmap).unwrap();
}

/// Walks through an idmapped mount see its ids, whatever idmaps come and go beside it.
#[test]
fn walks_see_their_own_idmap_while_others_go() {
    let vfs = Vfs::new().unwrap();
    let root = vfs.task(Cred::root());
    mkdirs(&root, &["/d", "/d/e", "/m"]);
    touch(&root, b"/d/e/f");
    root.chmod(b"/d/e", 0o700).unwrap();
    let idmapped = |uid| {
        let idmap = MountAttr::default().with_set(MOUNT_ATTR_IDMAP).with_userns(Ok(userns(0, uid, 1)));
        let tree = root.open_tree(AT_FDCWD, b"/d", OPEN_TREE_CLONE).unwrap();
        root.mount_setattr(tree, b"", AT_EMPTY_PATH, &idmap).unwrap();
        tree
    };
    root.move_mount(idmapped(1000), b"", AT_FDCWD, b"/m", MOVE_MOUNT_F_EMPTY_PATH).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for mode in [WalkMode::Rcu, WalkMode::RefOnly] {
            let (vfs, done) = (&vfs, &done);
            scope.spawn(move || {
                vfs.set_walk_mode(mode);
                let user = vfs.task(Cred::user(1000, 1000, &[]));
                let other = vfs.task(Cred::user(1001, 1001, &[]));
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(user.stat(b"/m/e/f").map(|stat| stat.uid), Ok(1000));
                    assert_eq!(other.stat(b"/m/e/f").map(|stat| stat.uid), Err(Errno::EACCES));
                }
            });
        }
        for i in 0..20_000 {
            root.close(idmapped(1001 + i % 7)).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// The embedding program makes file systems and mounts read-only without asking whether they are written to.
#[test]
fn what_is_read_only_already_becomes_so_again_although_files_are_open_for_writing() {
    both(|vfs, root| {
        root.open(b"/f", O_CREAT | O_RDWR, 0o644).unwrap();
        let remount = |flags| root.mount(b"", b"/", b"", MS_REMOUNT | MS_RDONLY | flags, b"");
        assert_eq!([remount(0), remount(MS_BIND)], [Err(Errno::EBUSY); 2]);
        vfs.set_mount_options(MountOptions::default().with_read_only(true));
        assert_eq!([remount(MS_BIND), remount(0)], [Ok(()), Err(Errno::EBUSY)]);
        vfs.set_read_only(true);
        assert_eq!(remount(0), Ok(()));
    });
}

#[test]
fn a_file_system_without_room_for_its_root_leaves_nothing() {
    let vfs = Vfs::builder().capacity(1000).build().unwrap();
    let root = vfs.task(Cred::root());
    mkdirs(&root, &["/m"]);
    let name = |i: u32| format!("/{i}").into_bytes();
    let made = (0..).find(|&i| root.mkdir(&name(i), 0o755).is_err()).expect("there is a limit");
    let before = vfs.stats();
    assert_eq!(root.mount(b"none", b"/m", b"tmpfs", 0, b""), Err(Errno::ENOSPC));
    assert_eq!((vfs.stats().entries, vfs.stats().memory), (before.entries, before.memory));
    root.rmdir(&name(made - 1)).unwrap();
    tmpfs(&root, b"/m");
    root.umount2(b"/m", 0).unwrap();
}
