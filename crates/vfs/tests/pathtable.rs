//! The whole-path table: what it answers is what the walk answers, whatever changed in between.

use rcuwalk::uapi::*;
use rcuwalk::{Cred, Errno, PathTableOptions, Task, Vfs, WalkMode};
use std::sync::atomic::{AtomicBool, Ordering};

/// Remembers at once, so that every second lookup is answered from the table.
fn eager() -> Vfs {
    Vfs::builder()
        .path_table(PathTableOptions { entries: 1 << 12, at_first_sight: true })
        .capacity(1 << 16)
        .build()
        .unwrap()
}

fn touch(task: &Task, path: &str) {
    task.close(task.creat(path.as_bytes(), 0o644).unwrap()).unwrap();
}

/// Looks `path` up three times, so that it is remembered, and gives the answer, which is the walk's.
fn look(task: &Task, path: &str) -> Result<u64, Errno> {
    let answers: Vec<_> = (0..3).map(|_| task.stat(path.as_bytes()).map(|stat| stat.ino)).collect();
    task.vfs().set_walk_mode(WalkMode::RefOnly);
    let walked = task.stat(path.as_bytes()).map(|stat| stat.ino);
    task.vfs().set_walk_mode(WalkMode::Direct);
    assert!(answers.iter().all(|answer| *answer == walked), "{path}: {answers:?}, and walked {walked:?}");
    walked
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
    for expected in [0, 1, 1] {
        task.stat(b"/f").unwrap();
        assert_eq!(remembered(&task), expected);
    }
    let off =
        Vfs::builder().path_table(PathTableOptions { entries: 0, at_first_sight: true }).build().unwrap();
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
    // An ACL that keeps the user out: user::rwx, user:1000:---, group::r-x, mask::r-x, other::r-x.
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in
        [(1u16, 7u16, u32::MAX), (2, 0, 1000), (4, 5, u32::MAX), (16, 5, u32::MAX), (32, 5, u32::MAX)]
    {
        acl.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        acl.extend(id.to_le_bytes());
    }
    root.setxattr(b"/a/b", b"system.posix_acl_access", &acl, 0).unwrap();
    assert_eq!(look(&user, "/a/b/c/f"), Err(Errno::EACCES));
    root.removexattr(b"/a/b", b"system.posix_acl_access").unwrap();
    assert!(look(&user, "/a/b/c/f").is_ok());
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

    // Root becomes somebody else, and back: fsuid counts, and loses the capabilities.
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

/// Every answer of the table against the walk, while everything that counts changes at random.
#[test]
fn random_changes_never_leave_a_wrong_answer() {
    for seed in 0..6u64 {
        random_changes(seed);
    }
}

fn random_changes(seed: u64) {
    let vfs = eager();
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
        let (one, two, asked) = (path(), path(), [path(), path(), path()]);
        let (one, two) = (one.as_bytes(), two.as_bytes());
        // Most fail, which is fine: what is asked is whether table and walk agree.
        let _ = match random(14) {
            0..=2 => root.mkdir(one, [0o700, 0o755, 0o711][random(3)]),
            3 | 4 => root.creat(one, 0o644).and_then(|fd| root.close(fd)),
            5 | 6 => root.chmod(one, [0o700, 0o755, 0o070, 0o007][random(4)]),
            7 => root.chown(one, random(3) as u32, random(3) as u32),
            8 => root.rename(one, two),
            9 => root.renameat2(AT_FDCWD, one, AT_FDCWD, two, RENAME_EXCHANGE),
            10 => root.unlink(one).or_else(|_| root.rmdir(one)),
            11 => root.symlink(two, one),
            12 => root.mount(two, one, b"", MS_BIND, b""),
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

/// A reader of a remembered path, while the directory on its way is closed and opened, and moved away and back: after
/// each change the reader, told of it, must not see the state before.
#[test]
fn what_was_changed_before_is_seen_after() {
    let (_vfs, root, user) = tree();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let noise = root.thread();
        let stop = &stop;
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
            root.rename(b"/a/b", b"/a/away").unwrap();
            assert_eq!(user.stat(b"/a/b/c/f").map(|_| ()), Err(Errno::ENOENT));
            root.rename(b"/a/away", b"/a/b").unwrap();
            assert!((0..2).all(|_| user.stat(b"/a/b/c/g") == Err(Errno::ENOENT)));
            touch(&root, "/a/b/c/g");
            assert!(user.stat(b"/a/b/c/g").is_ok());
            root.unlink(b"/a/b/c/g").unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
}
