//! The whole-path table: what it answers is what the walk answers, whatever changed in between.

mod setfacl;

use rcuwalk::uapi::*;
use rcuwalk::{Cred, Errno, MountOptions, PathTableOptions, Sysctl, Task, Vfs, WalkMode};
use std::sync::atomic::{AtomicBool, Ordering};

/// Remembers at once, so that every second lookup is answered from the table.
fn eager() -> Vfs {
    eager_with(MountOptions::default(), 1 << 12)
}

fn eager_with(mount: MountOptions, entries: u32) -> Vfs {
    Vfs::builder()
        .path_table(PathTableOptions::default().with_entries(entries).with_at_first_sight(true))
        .mount_options(mount)
        .capacity(1 << 16)
        .build()
        .unwrap()
}

/// Reading a link leaves no trace there, so that what it leads to can be remembered.
fn noatime() -> Vfs {
    eager_with(MountOptions::default().with_noatime(true), 1 << 12)
}

fn touch(task: &Task, path: &str) {
    task.close(task.creat(path.as_bytes(), 0o644).unwrap()).unwrap();
}

/// Looks `path` up three times, so that it is remembered, and gives the answer, which is the walk's.
fn look(task: &Task, path: &str) -> Result<u64, Errno> {
    let path = path.as_bytes();
    let ask = || {
        let statx = |mask| task.statx(AT_FDCWD, path, 0, mask).map(|stat| stat.as_bytes().to_vec());
        let access = [R_OK, W_OK, X_OK].map(|mode| task.access(path, mode));
        (task.stat(path), statx(STATX_BASIC_STATS), statx(STATX_BASIC_STATS | STATX_BTIME), access)
    };
    let answers = [ask(), ask(), ask()];
    task.vfs().set_walk_mode(WalkMode::RefOnly);
    let walked = ask();
    task.vfs().set_walk_mode(WalkMode::Direct);
    assert!(answers.iter().all(|answer| *answer == walked), "{path:?}: {answers:?}, and walked {walked:?}");
    walked.0.map(|stat| stat.ino)
}

fn remembered(task: &Task) -> u64 {
    task.vfs().stats().paths_remembered
}

/// A tree `/a/b/c/f`, with a user who may see it.
fn tree() -> (Vfs, Task, Task) {
    let vfs = eager();
    let root = vfs.task(Cred::root());
    for dir in ["/a", "/a/b", "/a/b/c"] {
        root.mkdir(dir.as_bytes(), 0o755).unwrap();
    }
    touch(&root, "/a/b/c/f");
    let user = vfs.task(Cred::user(1000, 1000, &[]));
    (vfs, root, user)
}

#[test]
fn a_repeated_path_is_remembered_once_and_at_second_sight_unless_asked_otherwise() {
    let (_vfs, root, _) = tree();
    let before = remembered(&root);
    look(&root, "/a/b/c/f").unwrap();
    assert_eq!(remembered(&root), before + 1);

    let vfs = Vfs::new().unwrap();
    let task = vfs.task(Cred::root());
    touch(&task, "/f");
    // It asks for one path in eight until one was asked for before.
    for asked in 0..20 {
        task.stat(b"/f").unwrap();
        assert_eq!(remembered(&task), u64::from(asked >= 8));
    }
    let off = Vfs::builder()
        .path_table(PathTableOptions::default().with_entries(0).with_at_first_sight(true))
        .build()
        .unwrap();
    let task = off.task(Cred::root());
    touch(&task, "/f");
    assert!((0..4).all(|_| task.stat(b"/f").is_ok()));
    assert_eq!(remembered(&task), 0);
}

#[test]
fn a_change_of_a_directory_on_the_way_is_noticed() {
    let (_vfs, root, user) = tree();
    assert!(look(&user, "/a/b/c/f").is_ok());
    root.chmod(b"/a/b", 0o700).unwrap();
    assert_eq!(look(&user, "/a/b/c/f"), Err(Errno::EACCES));
    assert!(look(&root, "/a/b/c/f").is_ok());
    root.chown(b"/a/b", 1000, 1000).unwrap();
    assert!(look(&user, "/a/b/c/f").is_ok());
    root.chown(b"/a/b", 0, 0).unwrap();
    assert_eq!(look(&user, "/a/b/c/f"), Err(Errno::EACCES));
    root.chmod(b"/a/b", 0o755).unwrap();
    assert!(look(&user, "/a/b/c/f").is_ok());
    setfacl::keep_out(&root, b"/a/b", 1000).unwrap();
    assert_eq!(look(&user, "/a/b/c/f"), Err(Errno::EACCES));
    setfacl::clear(&root, b"/a/b").unwrap();
    assert!(look(&user, "/a/b/c/f").is_ok());
    setfacl::let_in(&root, b"/a/b", 1000).unwrap();
    assert!(look(&user, "/a/b/c/f").is_ok());
    setfacl::clear(&root, b"/a/b").unwrap();
    assert_eq!(look(&user, "/a/b/c/f"), Err(Errno::EACCES), "the mode is what the ACL left");
}

#[test]
fn a_directory_that_moves_takes_its_paths_along() {
    let (_vfs, root, _) = tree();
    let file = look(&root, "/a/b/c/f").unwrap();
    root.rename(b"/a/b", b"/a/z").unwrap();
    assert_eq!(look(&root, "/a/b/c/f"), Err(Errno::ENOENT));
    assert_eq!(look(&root, "/a/z/c/f"), Ok(file));
    root.mkdir(b"/a/b", 0o755).unwrap();
    root.mkdir(b"/a/b/c", 0o755).unwrap();
    touch(&root, "/a/b/c/f");
    let other = look(&root, "/a/b/c/f").unwrap();
    assert_ne!(file, other);
    root.renameat2(AT_FDCWD, b"/a/b", AT_FDCWD, b"/a/z", RENAME_EXCHANGE).unwrap();
    assert_eq!(look(&root, "/a/b/c/f"), Ok(file));
    assert_eq!(look(&root, "/a/z/c/f"), Ok(other));
}

#[test]
fn the_last_name_comes_and_goes() {
    let (_vfs, root, _) = tree();
    let file = look(&root, "/a/b/c/f").unwrap();
    assert_eq!(look(&root, "/a/b/c/g"), Err(Errno::ENOENT));
    root.rename(b"/a/b/c/f", b"/a/b/c/g").unwrap();
    assert_eq!(look(&root, "/a/b/c/f"), Err(Errno::ENOENT));
    assert_eq!(look(&root, "/a/b/c/g"), Ok(file));
    root.unlink(b"/a/b/c/g").unwrap();
    assert_eq!(look(&root, "/a/b/c/g"), Err(Errno::ENOENT));
    touch(&root, "/a/b/c/g");
    assert!(look(&root, "/a/b/c/g").is_ok());
    root.unlink(b"/a/b/c/g").unwrap();
    root.symlink(b"/a", b"/a/b/c/g").unwrap();
    assert_eq!(look(&root, "/a/b/c/g"), look(&root, "/a"), "a link is followed");
    assert_eq!(look(&root, "/a/b/c/missing/x"), Err(Errno::ENOENT));
    root.mkdir(b"/a/b/c/missing", 0o755).unwrap();
    assert_eq!(look(&root, "/a/b/c/missing/x"), Err(Errno::ENOENT));
    touch(&root, "/a/b/c/missing/x");
    assert!(look(&root, "/a/b/c/missing/x").is_ok());
}

/// The table answers with a copy of the inode.
#[test]
fn a_change_of_the_file_itself_is_noticed() {
    let (_vfs, root, user) = tree();
    let path = b"/a/b/c/f";
    let fd = root.open(path, O_RDWR, 0).unwrap();
    let changes: [&dyn Fn(); 14] = [
        &|| root.chmod(path, 0o600).unwrap(),
        &|| root.chown(path, 1000, 7).unwrap(),
        &|| assert_eq!(root.write(fd, b"contents"), Ok(8)),
        &|| root.truncate(path, 1 << 20).unwrap(),
        &|| root.link(path, b"/a/g").unwrap(),
        &|| {
            root.utimensat(
                AT_FDCWD,
                Some(path),
                Some([Timespec::new(0, UTIME_NOW), Timespec::new(1 << 40, 1)]),
                0,
            )
            .unwrap()
        },
        &|| root.utimensat(AT_FDCWD, Some(path), None, 0).unwrap(),
        &|| root.unlink(path).unwrap(),
        &|| root.rename(b"/a/g", path).unwrap(),
        &|| root.setxattr(path, b"security.capability", &[1; 20], 0).map_or((), drop),
        &|| root.chmod(path, 0o644).unwrap(),
        &|| root.rename(b"/a/b/c", b"/a/b/d").unwrap(),
        &|| root.rename(b"/a/b/d", b"/a/b/c").unwrap(),
        &|| root.unlink(path).unwrap(),
    ];
    for change in changes {
        let _ = (look(&root, "/a/b/c/f"), look(&user, "/a/b/c/f"), look(&user, "/a/g"));
        change();
        let _ = (look(&root, "/a/b/c/f"), look(&user, "/a/b/c/f"), look(&user, "/a/g"));
    }
    assert_eq!(look(&root, "/a/b/c/f"), Err(Errno::ENOENT));
    assert_eq!(root.fstat(fd).map(|stat| stat.nlink), Ok(0));
}

#[test]
fn a_slot_that_is_used_again_is_another_file() {
    let (_vfs, root, _) = tree();
    for round in 0..50 {
        look(&root, "/a/b/c/f").unwrap();
        assert_eq!(look(&root, "/a/b/c/d"), Err(Errno::ENOENT));
        root.unlink(b"/a/b/c/f").unwrap();
        root.rmdir(b"/a/b/c").unwrap();
        // Slots are taken last in, first out: the directory may now lie where the file was.
        touch(&root, "/a/x");
        root.mkdir(b"/a/b/c", 0o755).unwrap();
        touch(&root, "/a/b/c/f");
        touch(&root, "/a/b/c/d");
        assert!(look(&root, "/a/b/c/d").is_ok(), "round {round}");
        root.unlink(b"/a/b/c/d").unwrap();
        root.unlink(b"/a/x").unwrap();
    }
}

#[test]
fn mounts_turn_paths_aside() {
    let (_vfs, root, _) = tree();
    let file = look(&root, "/a/b/c/f").unwrap();
    root.mount(b"none", b"/a/b", b"tmpfs", 0, b"").unwrap();
    assert_eq!(look(&root, "/a/b/c/f"), Err(Errno::ENOENT));
    root.mkdir(b"/a/b/c", 0o755).unwrap();
    touch(&root, "/a/b/c/f");
    assert!(look(&root, "/a/b/c/f").is_ok());
    root.umount2(b"/a/b", MNT_DETACH).unwrap();
    assert_eq!(look(&root, "/a/b/c/f"), Ok(file));
    root.mount(b"/a/b/c/f", b"/a/b/c/f", b"", MS_BIND, b"").unwrap();
    assert_eq!(look(&root, "/a/b/c/f"), Ok(file));
    root.umount2(b"/a/b/c/f", 0).unwrap();
    assert_eq!(look(&root, "/a/b/c/f"), Ok(file));
}

#[test]
fn an_identity_or_a_start_of_its_own_has_paths_of_its_own() {
    let (vfs, root, mut user) = tree();
    root.chmod(b"/a/b", 0o750).unwrap();
    assert!(look(&root, "/a/b/c/f").is_ok());
    assert_eq!(look(&user, "/a/b/c/f"), Err(Errno::EACCES));
    user.set_cred(Cred::user(1000, 0, &[]));
    assert!(look(&user, "/a/b/c/f").is_ok());
    user.set_cred(Cred::user(1000, 1000, &[]));
    assert_eq!(look(&user, "/a/b/c/f"), Err(Errno::EACCES));

    // Root becomes another user, and back: fsuid counts, and loses the capabilities.
    let mut root = vfs.task(Cred::root());
    assert!(look(&root, "/a/b/c/f").is_ok());
    root.setfsuid(1000);
    root.setfsgid(1000);
    assert_eq!(look(&root, "/a/b/c/f"), Err(Errno::EACCES));
    // access(2) asks with the real ids.
    assert_eq!(root.access(b"/a/b/c/f", R_OK), Ok(()));
    assert_eq!(look(&root, "/a/b/c/f"), Err(Errno::EACCES));
    root.setfsuid(0);
    assert!(look(&root, "/a/b/c/f").is_ok());

    let outside = look(&root, "/a").unwrap();
    root.mkdir(b"/a/b/a", 0o755).unwrap();
    let inside = look(&root, "/a/b/a").unwrap();
    root.chdir(b"/a/b").unwrap();
    assert_eq!(look(&root, "a"), Ok(inside));
    root.chdir(b"/").unwrap();
    assert_eq!(look(&root, "a"), Ok(outside));
    root.chroot(b"/a/b").unwrap();
    assert_eq!(look(&root, "/a"), Ok(inside));
    assert_eq!(look(&root, "a"), Ok(outside));
}

#[test]
fn what_is_asked_of_the_end_is_asked_of_a_remembered_end_too() {
    let (_vfs, root, _) = tree();
    for _ in 0..3 {
        assert_eq!(root.chdir(b"/a/b/c/f"), Err(Errno::ENOTDIR));
        assert_eq!(root.stat(b"/a/b/c/f/").map(|_| ()), Err(Errno::ENOTDIR));
        assert_eq!(root.stat(b"/a/b/c/f/x").map(|_| ()), Err(Errno::ENOTDIR));
        assert!(root.stat(b"/a/b/c/").is_ok());
        assert_eq!(root.openat(AT_FDCWD, b"/a/b/c/f", O_DIRECTORY, 0), Err(Errno::ENOTDIR));
        let long = format!("/a/b/{}", "n".repeat(256));
        assert_eq!(root.stat(long.as_bytes()).map(|_| ()), Err(Errno::ENAMETOOLONG));
        root.stat(b"/a/b/c/f").unwrap();
    }
}

/// Looks three paths up through `/a/link`, which the table must have learnt, and makes sure that it knows them.
fn look_through(task: &Task) -> [Result<u64, Errno>; 3] {
    ["/a/link", "/a/link/f", "/a/link/../b/c/f"].map(|path| {
        let answer = look(task, path);
        // Who does not follow links is told of the link.
        let link = task.lstat(path.as_bytes()).map(|stat| stat.ino);
        task.vfs().set_walk_mode(WalkMode::RefOnly);
        assert_eq!(link, task.lstat(path.as_bytes()).map(|stat| stat.ino));
        task.vfs().set_walk_mode(WalkMode::Direct);
        answer
    })
}

#[test]
fn links_lead_where_they_lead_now() {
    let vfs = noatime();
    let root = vfs.task(Cred::root());
    for dir in ["/a", "/a/b", "/a/b/c", "/a/d"] {
        root.mkdir(dir.as_bytes(), 0o755).unwrap();
    }
    let [file, other] = ["/a/b/c/f", "/a/d/f"].map(|path| {
        touch(&root, path);
        look(&root, path).unwrap()
    });
    let user = vfs.task(Cred::user(1000, 1000, &[]));
    let through = |ino| {
        let found = [look_through(&root), look_through(&user)];
        assert!(found.iter().all(|found| found[1] == ino), "{found:?}, not {ino:?}");
    };
    root.symlink(b"b/c", b"/a/link").unwrap();
    let before = remembered(&root);
    through(Ok(file));
    assert!(remembered(&root) >= before + 4, "two paths of two users");
    // What it leads to changes, so that the table is told anew of it.
    for mode in [0o600, 0o644] {
        root.symlink(b"b/c/f", b"/a/to_file").unwrap();
        assert_eq!(look(&root, "/a/to_file"), Ok(file));
        root.chmod(b"/a/to_file", mode).unwrap();
        assert_eq!(look(&root, "/a/to_file"), Ok(file));
        assert_ne!(root.lstat(b"/a/to_file").unwrap().ino, file, "it is a link still");
        root.unlink(b"/a/to_file").unwrap();
    }
    // The link is removed, replaced, renamed, exchanged, and leads elsewhere; what it leads to moves.
    root.unlink(b"/a/link").unwrap();
    through(Err(Errno::ENOENT));
    root.symlink(b"/a/d", b"/a/link").unwrap();
    through(Ok(other));
    root.symlink(b"link", b"/a/again").unwrap();
    assert_eq!(look(&root, "/a/again/f"), Ok(other));
    root.symlink(b"b/c", b"/a/new").unwrap();
    root.rename(b"/a/new", b"/a/link").unwrap();
    through(Ok(file));
    assert_eq!(look(&root, "/a/again/f"), Ok(file));
    root.renameat2(AT_FDCWD, b"/a/link", AT_FDCWD, b"/a/d", RENAME_EXCHANGE).unwrap();
    through(Ok(other));
    root.renameat2(AT_FDCWD, b"/a/link", AT_FDCWD, b"/a/d", RENAME_EXCHANGE).unwrap();
    through(Ok(file));
    root.rename(b"/a/b", b"/a/e").unwrap();
    through(Err(Errno::ENOENT));
    root.rename(b"/a/e", b"/a/b").unwrap();
    root.chmod(b"/a/b", 0o700).unwrap();
    assert_eq!(look_through(&user)[1], Err(Errno::EACCES));
    root.chmod(b"/a/b", 0o755).unwrap();
    through(Ok(file));
    // Links that may be traps, and mounts that follow none.
    root.chmod(b"/a", 0o1777).unwrap();
    vfs.set_sysctl(Sysctl::ProtectedSymlinks, 1).unwrap();
    root.lchown(b"/a/link", 7, 7).unwrap();
    assert_eq!(look_through(&user)[0], Err(Errno::EACCES));
    root.lchown(b"/a/link", 1000, 7).unwrap();
    through(Ok(file));
    root.chmod(b"/a", 0o755).unwrap();
    for (flags, ino) in [(MS_NOSYMFOLLOW | MS_NOATIME, Err(Errno::ELOOP)), (MS_NOATIME, Ok(file))] {
        root.mount(b"", b"/", b"", MS_REMOUNT | MS_BIND | flags, b"").unwrap();
        through(ino);
    }
    // The root of a task that has another root.
    root.symlink(b"/b/c/f", b"/a/absolute").unwrap();
    assert_eq!(look(&root, "/a/absolute"), Err(Errno::ENOENT));
    root.chdir(b"/a").unwrap();
    assert_eq!(look(&root, "absolute"), Err(Errno::ENOENT));
    root.chroot(b"/a").unwrap();
    assert_eq!(look(&root, "absolute"), Ok(file));
    assert_eq!(look(&root, "/absolute"), Ok(file));
}

#[test]
fn a_link_that_is_read_is_stamped() {
    let vfs = noatime();
    let root = vfs.task(Cred::root());
    touch(&root, "/f");
    root.symlink(b"f", b"/l").unwrap();
    let atime = || root.lstat(b"/l").map(|stat| stat.atime).unwrap();
    root.utimensat(AT_FDCWD, Some(b"/l"), Some([Timespec::new(1, 0); 2]), AT_SYMLINK_NOFOLLOW).unwrap();
    look(&root, "/l").unwrap();
    assert_eq!(atime(), Timespec::new(1, 0));
    root.mount(b"", b"/", b"", MS_REMOUNT | MS_BIND | MS_RELATIME, b"").unwrap();
    root.stat(b"/l").unwrap();
    assert!(atime() > Timespec::new(1, 0), "it was remembered as one whose reading leaves no trace");
}

#[test]
fn mounts_on_the_way_are_crossed() {
    let (_vfs, root, user) = tree();
    root.mount(b"none", b"/a/b", b"tmpfs", 0, b"").unwrap();
    root.mkdir(b"/a/b/c", 0o755).unwrap();
    touch(&root, "/a/b/c/f");
    let before = remembered(&root);
    let covered = look(&root, "/a/b/c/f").unwrap();
    assert_eq!(look(&user, "/a/b/c/f"), Ok(covered));
    assert_eq!(remembered(&root), before + 2);
    root.rename(b"/a", b"/z").unwrap();
    assert_eq!(look(&user, "/a/b/c/f"), Err(Errno::ENOENT));
    root.rename(b"/z", b"/a").unwrap();
    assert_eq!(look(&user, "/a/b/c/f"), Ok(covered));
    // What covers a file goes along when the file gets another name, in another namespace.
    root.mount(b"/a/b/c/f", b"/a/b/c/f", b"", MS_BIND, b"").unwrap();
    assert_eq!(look(&user, "/a/b/c/f"), Ok(covered));
    root.umount2(b"/a/b", MNT_DETACH).unwrap();
    assert_ne!(look(&user, "/a/b/c/f"), Ok(covered));
}

/// Looks `path` up, which the table must know then, and makes sure that it does: it learns nothing from a further lookup.
fn look_known(task: &Task, path: &str) -> Result<u64, Errno> {
    let before = remembered(task);
    let answer = look(task, path);
    assert!(remembered(task) > before, "{path} was not learnt");
    let known = remembered(task);
    assert_eq!(look(task, path), answer);
    assert_eq!(remembered(task), known, "{path} was not known");
    answer
}

#[test]
fn paths_that_go_up_again_are_remembered() {
    let (vfs, root, user) = tree();
    root.mkdir(b"/a/x", 0o755).unwrap();
    root.mkdir(b"/a/x/y", 0o755).unwrap();
    let file = look(&root, "/a/b/c/f").unwrap();
    let up = ["/a/x/../b/c/f", "/a/x/y/../../b/c/f", "/../a/b/../b/c/../c/f", "/a/b/c/../../x/y/../../b/c/f"];
    let through = |ino: Result<u64, Errno>| {
        let found = up.map(|path| [look(&root, path), look(&user, path)]);
        assert!(found[..2].iter().all(|found| *found == [ino; 2]), "{found:?}, not {ino:?}");
    };
    assert!(up.iter().all(|path| look_known(&root, path) == Ok(file) && look_known(&user, path) == Ok(file)));
    assert_eq!(look_known(&root, "/a/b/.."), look(&root, "/a"));
    assert_eq!(look_known(&root, "/a/x/../b/c/none"), Err(Errno::ENOENT));
    assert_eq!(look_known(&root, "/a/none/../b/c/f"), Err(Errno::ENOENT));
    touch(&root, "/a/b/c/none");
    assert!(look(&root, "/a/x/../b/c/none").is_ok());
    // What was left goes away, or becomes something else, or is forbidden; the file stays where it is.
    root.rmdir(b"/a/x/y").unwrap();
    assert_eq!(look(&root, up[1]), Err(Errno::ENOENT));
    assert_eq!(look(&root, up[0]), Ok(file));
    root.rmdir(b"/a/x").unwrap();
    through(Err(Errno::ENOENT));
    touch(&root, "/a/x");
    through(Err(Errno::ENOTDIR));
    root.unlink(b"/a/x").unwrap();
    root.mkdir(b"/a/x", 0o755).unwrap();
    root.mkdir(b"/a/x/y", 0o755).unwrap();
    through(Ok(file));
    root.mkdir(b"/z", 0o755).unwrap();
    root.rename(b"/z", b"/a/x/y").unwrap();
    through(Ok(file));
    root.chmod(b"/a/x", 0o600).unwrap();
    assert_eq!([up[0], up[1]].map(|path| look(&user, path)), [Err(Errno::EACCES); 2]);
    root.chmod(b"/a/x", 0o755).unwrap();
    root.rename(b"/a/x", b"/x").unwrap();
    through(Err(Errno::ENOENT));
    root.symlink(b"/x", b"/a/x").unwrap();
    assert_eq!(look(&root, up[0]), Err(Errno::ENOENT), "up from where the link leads");
    root.unlink(b"/a/x").unwrap();
    root.rename(b"/x", b"/a/x").unwrap();
    through(Ok(file));
    // Up from the root of a mount, to what it covers.
    root.mount(b"none", b"/a/x/y", b"tmpfs", 0, b"").unwrap();
    through(Ok(file));
    root.mkdir(b"/a/x/y/in", 0o755).unwrap();
    let inside = look_known(&user, "/a/x/y/in/../..").unwrap();
    assert_eq!(Ok(inside), look(&root, "/a/x"));
    root.umount2(b"/a/x/y", 0).unwrap();
    assert_eq!(look(&user, "/a/x/y/in/../.."), Err(Errno::ENOENT));
    through(Ok(file));
    // Who has another root is held by it.
    let inner = vfs.task(Cred::root());
    inner.chdir(b"/a/b").unwrap();
    assert_eq!(look(&inner, "../b/c/f"), Ok(file));
    inner.chroot(b"/a/b").unwrap();
    assert_eq!(look(&inner, "../b/c/f"), Err(Errno::ENOENT));
    assert_eq!(look_known(&inner, "/../../c/f"), Ok(file));
}

#[test]
fn a_directory_that_is_missing_on_the_way_is_remembered() {
    let (_vfs, root, user) = tree();
    for path in ["/a/none/f", "/a/none/../b/c/f", "/a/none/"] {
        assert_eq!(look_known(&user, path), Err(Errno::ENOENT), "{path}");
    }
    root.mkdir(b"/a/none", 0o700).unwrap();
    touch(&root, "/a/none/f");
    assert_eq!(look(&user, "/a/none/f"), Err(Errno::EACCES));
    assert!(look(&root, "/a/none/f").is_ok());
    assert!(look(&user, "/a/none/").is_ok());
    assert_eq!(look(&user, "/a/none/../b/c/f"), Err(Errno::EACCES));
    root.chmod(b"/a/none", 0o755).unwrap();
    assert!(look(&user, "/a/none/../b/c/f").is_ok());
    // A link that leads nowhere is there for a call that does not follow it.
    root.symlink(b"nowhere", b"/a/dangling").unwrap();
    assert_eq!(look(&user, "/a/dangling"), Err(Errno::ENOENT));
    assert!(user.lstat(b"/a/dangling").is_ok());
    touch(&root, "/a/nowhere");
    assert_eq!(look(&user, "/a/dangling"), look(&user, "/a/nowhere"));
}

#[test]
fn names_that_are_missing_behind_a_mount_are_remembered() {
    let (_vfs, root, user) = tree();
    root.mount(b"none", b"/a/b", b"tmpfs", 0, b"mode=0755").unwrap();
    for path in ["/a/b/none", "/a/b/c/f"] {
        assert_eq!(look_known(&user, path), Err(Errno::ENOENT), "{path}");
    }
    // What is remembered is no use of the mount, but walks before it is remembered anew are.
    assert_eq!(root.umount2(b"/a/b", MNT_EXPIRE), Err(Errno::EAGAIN));
    assert_eq!(look(&user, "/a/b/none"), Err(Errno::ENOENT));
    assert_eq!(root.umount2(b"/a/b", MNT_EXPIRE), Err(Errno::EAGAIN));
    assert_eq!(look(&user, "/a/b/none"), Err(Errno::ENOENT));
    touch(&root, "/a/b/none");
    assert!(look(&user, "/a/b/none").is_ok());
    root.umount2(b"/a/b", 0).unwrap();
    assert!(look(&user, "/a/b/c/f").is_ok());
}

#[test]
fn a_name_that_is_missing_below_one_root_may_be_below_another() {
    let vfs = noatime();
    let root = vfs.task(Cred::root());
    for dir in ["/w", "/t", "/r", "/r/t"] {
        root.mkdir(dir.as_bytes(), 0o755).unwrap();
    }
    touch(&root, "/r/t/f");
    root.symlink(b"/t", b"/w/to_root").unwrap();
    root.chdir(b"/w").unwrap();
    let jailed = root.fork();
    jailed.chroot(b"/r").unwrap();
    assert_eq!(look(&root, "to_root/f"), Err(Errno::ENOENT));
    assert!(look(&jailed, "to_root/f").is_ok());
}

/// More paths than there is room for, so that entries change hands while they are read.
#[test]
fn an_entry_that_is_replaced_is_not_believed() {
    let vfs = eager_with(MountOptions::default(), 8);
    let root = vfs.task(Cred::root());
    let files: Vec<(String, u64)> = (0..24)
        .map(|i| {
            let path = format!("/{i}");
            touch(&root, &path);
            let ino = look(&root, &path).unwrap();
            (path, ino)
        })
        .collect();
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (task, files) = (root.thread(), &files);
            scope.spawn(move || {
                for i in 0..30_000 {
                    let (path, ino) = &files[(i * (seed + 5) + i / 7) % files.len()];
                    assert_eq!(task.stat(path.as_bytes()).map(|stat| stat.ino), Ok(*ino));
                    if i % 16 == 0 {
                        let fd = task.open(path.as_bytes(), O_RDONLY, 0).unwrap();
                        assert_eq!(task.fstat(fd).map(|stat| stat.ino), Ok(*ino));
                        task.close(fd).unwrap();
                    }
                }
            });
        }
    });
}

/// Every answer of the table against the walk, while everything that counts changes at random.
#[test]
fn random_changes_never_leave_a_wrong_answer() {
    for seed in 0..6u64 {
        random_changes(seed);
    }
}

fn random_changes(seed: u64) {
    let vfs = if seed.is_multiple_of(2) { eager() } else { noatime() };
    let root = vfs.task(Cred::root());
    let mut tasks =
        vec![vfs.task(Cred::user(1, 1, &[])), vfs.task(Cred::user(2, 1, &[])), vfs.task(Cred::root())];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as usize % below
    };
    let names = ["a", "b", "c"];
    let (mut answers, mut denied) = (0, 0);
    for _ in 0..4000 {
        let mut path = || {
            let depth = 1 + random(3);
            (0..depth).map(|_| format!("/{}", names[random(3)])).collect::<String>()
        };
        let (one, two) = (path(), path());
        let mut winding = || {
            let depth = 1 + random(4);
            (0..depth).map(|_| format!("/{}", ["a", "b", "c", ".."][random(4)])).collect::<String>()
        };
        let asked = [winding(), winding(), winding()];
        let (one, two) = (one.as_bytes(), two.as_bytes());
        // Most fail, which is fine: what is asked is whether table and walk agree.
        let _ = match random(17) {
            0..=2 => root.mkdir(one, [0o700, 0o755, 0o711][random(3)]),
            3 | 4 => root.creat(one, 0o644).and_then(|fd| root.close(fd)),
            5 | 6 => root.chmod(one, [0o700, 0o755, 0o070, 0o007][random(4)]),
            7 => root.chown(one, random(3) as u32, random(3) as u32),
            8 => root.rename(one, two),
            9 => root.renameat2(AT_FDCWD, one, AT_FDCWD, two, RENAME_EXCHANGE),
            10 => root.unlink(one).or_else(|_| root.rmdir(one)),
            11 => root.symlink(two, one),
            12 => root.mount(two, one, b"", MS_BIND, b""),
            13 => setfacl::keep_out(&root, one, 1 + random(2) as u32),
            14 => setfacl::let_in(&root, one, 1 + random(2) as u32),
            15 => setfacl::clear(&root, one),
            _ => root.umount2(one, MNT_DETACH),
        };
        if random(50) == 0 {
            tasks[0].set_cred(Cred::user(1 + random(2) as u32, random(3) as u32, &[]));
        }
        for path in &asked {
            for task in &tasks {
                match look(task, path) {
                    Ok(_) => answers += 1,
                    Err(Errno::EACCES) => denied += 1,
                    Err(_) => {}
                }
            }
        }
    }
    assert!(answers > 1000 && denied > 200, "the world is not all errors: {answers} found, {denied} denied");
    let remembered = vfs.stats().paths_remembered;
    assert!(remembered > 500, "{remembered} remembered");
}

/// Ends the noise, also when the test panics.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A reader of a remembered path, while the directory on its way is closed and opened by mode and by ACL, and moved away and back: after
/// each change the reader, told of it, must not see the state before.
#[test]
fn what_was_changed_before_is_seen_after() {
    let (_vfs, root, user) = tree();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let noise = root.thread();
        let stop = &stop;
        let _ending = Ending(stop);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let _ = noise.stat(b"/a/b/c/f");
                let _ = noise.stat(b"/a/b/c/g");
            }
        });
        for _ in 0..2000 {
            root.chmod(b"/a/b", 0o700).unwrap();
            assert_eq!(user.stat(b"/a/b/c/f").map(|_| ()), Err(Errno::EACCES));
            root.chmod(b"/a/b", 0o755).unwrap();
            assert!((0..3).all(|_| user.stat(b"/a/b/c/f").is_ok()));
            setfacl::keep_out(&root, b"/a/b", 1000).unwrap();
            assert_eq!(user.stat(b"/a/b/c/f").map(|_| ()), Err(Errno::EACCES));
            setfacl::clear(&root, b"/a/b").unwrap();
            assert!((0..3).all(|_| user.stat(b"/a/b/c/f").is_ok()));
            root.rename(b"/a/b", b"/a/away").unwrap();
            assert_eq!(user.stat(b"/a/b/c/f").map(|_| ()), Err(Errno::ENOENT));
            root.rename(b"/a/away", b"/a/b").unwrap();
            assert!((0..2).all(|_| user.stat(b"/a/b/c/g") == Err(Errno::ENOENT)));
            touch(&root, "/a/b/c/g");
            assert!(user.stat(b"/a/b/c/g").is_ok());
            root.unlink(b"/a/b/c/g").unwrap();
        }
    });
}

#[test]
fn changed_mount_options_hold_for_paths_that_are_known() {
    let vfs = noatime();
    let root = vfs.task(Cred::root());
    root.mkdir(b"/d", 0o755).unwrap();
    touch(&root, "/d/f");
    root.symlink(b"d", b"/l").unwrap();
    let found = look(&root, "/l/f");
    assert!(found.is_ok());
    let noatime = MountOptions::default().with_noatime(true);
    vfs.set_mount_options(noatime.with_nosymfollow(true));
    assert_eq!(look(&root, "/l/f"), Err(Errno::ELOOP));
    vfs.set_mount_options(noatime);
    assert_eq!(look(&root, "/l/f"), found);
}
