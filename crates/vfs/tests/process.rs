//! Who a task is, and how it changes that.

use rcuwalk::cred::CapSet;
use rcuwalk::uapi::*;
use rcuwalk::userns::IdExtent;
use rcuwalk::{CapData, Cred, Errno, Task, Timespec, Vfs, WalkMode};

const KEEP: u32 = u32::MAX;

/// Runs a test in both walk modes.
fn both(test: impl Fn(&Vfs, &Task)) {
    for mode in [WalkMode::Direct, WalkMode::Rcu, WalkMode::RefOnly] {
        let vfs = Vfs::new().unwrap();
        vfs.set_walk_mode(mode);
        test(&vfs, &vfs.task(Cred::root()));
    }
}

fn touch(task: &Task, path: &[u8], mode: u32) {
    task.open(path, O_CREAT | O_EXCL | O_WRONLY, mode).and_then(|fd| task.close(fd)).unwrap();
}

fn opens(task: &Task, path: &[u8]) -> Result<(), Errno> {
    task.open(path, O_RDONLY, 0).and_then(|fd| task.close(fd))
}

/// k01, k02, k05, k15: access(2) asks with the real ids, everything else with the effective ones.
#[test]
fn access_asks_as_the_real_user() {
    both(|vfs, root| {
        root.mkdir(b"/d", 0o700).unwrap();
        touch(root, b"/d/f", 0o600);
        touch(root, b"/none", 0);
        let mut suid_root = vfs.task(Cred::root());
        suid_root.setreuid(1000, 0).unwrap();
        assert_eq!(suid_root.getresuid(), [1000, 0, 0]);
        assert_eq!(suid_root.access(b"/d/f", F_OK), Err(Errno::EACCES));
        assert_eq!(suid_root.faccessat2(AT_FDCWD, b"/d/f", R_OK, AT_EACCESS), Ok(()));
        assert_eq!(opens(&suid_root, b"/d/f"), Ok(()));

        let mut switched = vfs.task(Cred::root());
        switched.setresuid(0, 1000, 0).unwrap();
        assert_eq!(switched.access(b"/none", R_OK | W_OK), Ok(()));
        assert_eq!(switched.faccessat2(AT_FDCWD, b"/none", R_OK | W_OK, AT_EACCESS), Err(Errno::EACCES));
        assert_eq!(opens(&switched, b"/none"), Err(Errno::EACCES));

        let mut dropped = vfs.task(Cred::root());
        dropped.capset(CapData { effective: CapSet::EMPTY, ..dropped.capget() }).unwrap();
        assert_eq!(opens(&dropped, b"/none"), Err(Errno::EACCES));
        assert_eq!(dropped.access(b"/none", R_OK), Ok(()), "access makes the permitted ones effective");
        assert_eq!(dropped.faccessat2(AT_FDCWD, b"/none", R_OK, AT_EACCESS), Err(Errno::EACCES));
    });
}

/// k03, k04.
#[test]
fn access_ignores_capabilities_of_users_unless_told_not_to() {
    both(|vfs, root| {
        touch(root, b"/f", 0o600);
        let caps = CapSet::of(&[CAP_DAC_OVERRIDE, CAP_SETPCAP]);
        let cred = Cred::user(1000, 1000, &[]).to_builder().permitted(caps).effective(caps).build().unwrap();
        let mut user = vfs.task(cred);
        assert_eq!(opens(&user, b"/f"), Ok(()));
        assert_eq!(user.access(b"/f", R_OK), Err(Errno::EACCES));
        assert_eq!(user.faccessat2(AT_FDCWD, b"/f", R_OK, AT_EACCESS), Ok(()));
        user.set_securebits(SECBIT_NO_SETUID_FIXUP).unwrap();
        assert_eq!(user.access(b"/f", R_OK), Ok(()));
        assert_eq!(user.get_securebits(), SECBIT_NO_SETUID_FIXUP);
    });
}

/// k09, k10, k12.
#[test]
fn set_id_calls_commit_what_the_rules_allow() {
    let vfs = Vfs::new().unwrap();
    let mut user = vfs.task(Cred::user(1000, 1000, &[]));
    assert_eq!(user.setuid(0), Err(Errno::EPERM));
    assert_eq!(user.setuid(1000), Ok(()));
    assert_eq!(user.setreuid(KEEP, 1001), Err(Errno::EPERM));
    assert_eq!(user.setresuid(KEEP, KEEP, 1000), Ok(()));
    assert_eq!(user.setgid(5), Err(Errno::EPERM));
    assert_eq!(user.setgroups(&[]), Err(Errno::EPERM));
    assert_eq!(user.setresuid(KEEP, KEEP, KEEP), Ok(()));
    assert_eq!([user.getuid(), user.geteuid(), user.getgid(), user.getegid()], [1000; 4]);

    let mut root = vfs.task(Cred::root());
    assert_eq!(root.setuid(KEEP), Err(Errno::EINVAL));
    assert_eq!(root.setfsuid(1000), 0);
    assert_eq!(root.setfsuid(KEEP), 1000, "what an invalid id asks");
    root.setresuid(KEEP, 0, KEEP).unwrap();
    assert_eq!(root.cred().fsuid(), 0, "follows the effective id");
    root.setreuid(KEEP, 1000).unwrap();
    assert_eq!(root.getresuid(), [0, 1000, 1000]);

    let mut groups = vfs.task(Cred::root());
    groups.setgroups(&[30, 10, 20]).unwrap();
    groups.setregid(7, 8).unwrap();
    assert_eq!((groups.getgroups(), groups.getresgid()), (vec![10, 20, 30], [7, 8, 8]));
    groups.setresgid(1, 2, 3).unwrap();
    assert_eq!((groups.setfsgid(9), groups.cred().fsgid()), (2, 9));
    groups.setgid(4).unwrap();
    assert_eq!((groups.getresgid(), groups.cred().fsgid()), ([4; 3], 4));
}

/// k13, k16.
#[test]
fn the_filesystem_ids_decide() {
    both(|vfs, root| {
        touch(root, b"/f", 0o040);
        root.chown(b"/f", 0, 555).unwrap();
        let mut task = vfs.task(Cred::root());
        task.setfsgid(555);
        task.setfsuid(1000);
        assert_eq!(opens(&task, b"/f"), Ok(()));
        let egid_only = Cred::user(1000, 1000, &[]).to_builder().gids(1000, 555, 555, 1000).build().unwrap();
        assert_eq!(opens(&vfs.task(egid_only), b"/f"), Err(Errno::EACCES));

        touch(root, b"/readable", 0o644);
        touch(root, b"/mine", 0o600);
        root.chown(b"/mine", 1000, 1000).unwrap();
        let user = Cred::user(1000, 1000, &[]);
        let noatime = |cred: &Cred, path: &[u8]| {
            let task = vfs.task(cred.clone());
            task.open(path, O_RDONLY | O_NOATIME, 0).map(drop)
        };
        assert_eq!(noatime(&user, b"/mine"), Ok(()));
        assert_eq!(noatime(&user, b"/readable"), Err(Errno::EPERM));
        assert_eq!(noatime(&user, b"/f"), Err(Errno::EACCES));
        let fowner = CapSet::of(&[CAP_FOWNER]);
        let capable = user.to_builder().permitted(fowner).effective(fowner).build().unwrap();
        assert_eq!(noatime(&capable, b"/readable"), Ok(()));
    });
}

/// y10.
#[test]
fn leaving_root_takes_the_capabilities() {
    both(|vfs, root| {
        root.mkdir(b"/t", 0o777).unwrap();
        root.chmod(b"/t", 0o777).unwrap();
        touch(root, b"/t/f", 0o644);
        let mut task = vfs.task(Cred::root());
        task.set_keepcaps(true).unwrap();
        assert!(task.get_keepcaps());
        task.setuid(1000).unwrap();
        let device = || (b"/t/dev".as_slice(), S_IFCHR | 0o600, makedev(1, 3));
        let mknod = |task: &Task| task.mknod(device().0, device().1, device().2);
        assert_eq!(mknod(&task), Err(Errno::EPERM));
        assert_eq!(task.chroot(b"/t"), Err(Errno::EPERM));
        assert_eq!(task.chown(b"/t/f", 1000, 1000), Err(Errno::EPERM));
        task.capset(CapData { effective: task.capget().permitted, ..task.capget() }).unwrap();
        assert_eq!(mknod(&task), Ok(()));
    });
}

/// y20: linkat with `AT_EMPTY_PATH` wants the very credential that opened the descriptor.
#[test]
fn a_committed_change_is_a_new_credential() {
    both(|vfs, root| {
        root.mkdir(b"/t", 0o777).unwrap();
        root.chmod(b"/t", 0o777).unwrap();
        let mut task = vfs.task(Cred::user(1000, 1000, &[]));
        let fd = task.open(b"/t/f", O_CREAT | O_RDWR, 0o644).unwrap();
        let link = |task: &Task, name: &[u8]| task.linkat(fd, b"", AT_FDCWD, name, AT_EMPTY_PATH);
        assert_eq!(link(&task, b"/t/same"), Ok(()));
        assert_eq!(link(&task.thread(), b"/t/thread"), Ok(()));
        assert_eq!(link(&task.fork(), b"/t/fork"), Err(Errno::ENOENT));
        task.setresuid(KEEP, KEEP, KEEP).unwrap();
        task.setresgid(1000, 1000, 1000).unwrap();
        assert_eq!((task.setfsuid(1000), task.setfsgid(5)), (1000, 1000));
        assert_eq!(link(&task, b"/t/unchanged"), Ok(()));
        for (name, change) in changes() {
            let fd = task.open(b"/t/f", O_RDWR, 0).unwrap();
            change(&mut task);
            let linked = task.linkat(fd, b"", AT_FDCWD, b"/t/new", AT_EMPTY_PATH);
            assert_eq!(linked, Err(Errno::ENOENT), "{name}");
        }
    });
}

type Change = fn(&mut Task);

/// Calls that succeed for anybody, change no value and commit all the same.
fn changes() -> [(&'static str, Change); 7] {
    [
        ("setuid", |task| task.setuid(1000).unwrap()),
        ("setgid", |task| task.setgid(1000).unwrap()),
        ("setreuid", |task| task.setreuid(KEEP, KEEP).unwrap()),
        ("setregid", |task| task.setregid(KEEP, KEEP).unwrap()),
        ("capset", |task| task.capset(task.capget()).unwrap()),
        ("keepcaps", |task| task.set_keepcaps(false).unwrap()),
        ("ambient", Task::cap_ambient_clear_all),
    ]
}

#[test]
fn bounding_and_ambient_sets_answer_as_prctl_does() {
    let vfs = Vfs::new().unwrap();
    let mut root = vfs.task(Cred::root());
    assert_eq!(root.capbset_read(CAP_CHOWN), Ok(true));
    root.capbset_drop(CAP_CHOWN).unwrap();
    assert_eq!(root.capbset_read(CAP_CHOWN), Ok(false));
    assert_eq!(root.capbset_read(CAP_LAST_CAP + 1), Err(Errno::EINVAL));
    assert_eq!(root.cap_ambient_raise(CAP_MKNOD), Err(Errno::EPERM), "not inheritable");
    root.capset(CapData { inheritable: CapSet::of(&[CAP_MKNOD, CAP_FOWNER]), ..root.capget() }).unwrap();
    root.cap_ambient_raise(CAP_MKNOD).unwrap();
    root.cap_ambient_raise(CAP_FOWNER).unwrap();
    root.cap_ambient_lower(CAP_FOWNER).unwrap();
    let set = [CAP_MKNOD, CAP_FOWNER, CAP_LAST_CAP + 1].map(|cap| root.cap_ambient_is_set(cap));
    assert_eq!(set, [Ok(true), Ok(false), Err(Errno::EINVAL)]);
    root.cap_ambient_clear_all();
    assert_eq!(root.cap_ambient_is_set(CAP_MKNOD), Ok(false));
    assert!(!root.no_new_privs());
    root.set_no_new_privs();
    assert!(root.no_new_privs() && root.fork().no_new_privs() && root.thread().no_new_privs());
}

/// u01, u07: before its maps are written a namespace numbers nobody, but ownership stays what it was.
#[test]
fn a_new_user_namespace_numbers_nobody() {
    both(|vfs, root| {
        root.mkdir(b"/t", 0o777).unwrap();
        root.chmod(b"/t", 0o777).unwrap();
        let mut task = vfs.task(Cred::user(1000, 1000, &[]));
        task.open(b"/t/f", O_CREAT | O_WRONLY, 0o600).unwrap();
        task.unshare(CLONE_NEWUSER).unwrap();
        assert_eq!((task.getuid(), task.getgid(), task.stat(b"/t/f").unwrap().uid), (65534, 65534, 65534));
        assert_eq!(opens(&task, b"/t/f"), Ok(()));
        assert_eq!(task.chown(b"/t/f", 0, 0), Err(Errno::EINVAL));
        assert_eq!(task.unshare(CLONE_NEWUSER), Err(Errno::EPERM), "ids without a number");
        let map = [IdExtent { first: 0, lower: 1000, count: 1 }];
        task.cred().user_ns().set_uid_map(&map).unwrap();
        task.cred().user_ns().set_gid_map(&map).unwrap();
        assert_eq!((task.getuid(), task.stat(b"/t/f").unwrap().uid), (0, 0));
        let mut outside = vfs.task(Cred::root());
        outside.enter_user_ns(&task.cred().user_ns().clone()).unwrap();
        assert_eq!(outside.getuid(), 65534);
        let mut chrooted = vfs.task(Cred::root());
        chrooted.chroot(b"/t").unwrap();
        assert_eq!(chrooted.unshare(CLONE_NEWUSER), Err(Errno::EPERM));
    });
}

#[test]
fn inode_flags_are_for_the_owner_and_the_privileged() {
    both(|vfs, root| {
        let fd = root.creat(b"/f", 0o666).unwrap();
        root.chown(b"/f", 1000, 1000).unwrap();
        let user = vfs.task(Cred::user(1000, 1000, &[]));
        let own = user.open(b"/f", O_RDONLY, 0).unwrap();
        let before = root.fstat(fd).unwrap();
        user.setflags(own, FS_NODUMP_FL | FS_NOATIME_FL).unwrap();
        assert_eq!(root.getflags(fd), Ok(FS_NODUMP_FL | FS_NOATIME_FL));
        let after = root.statx(fd, b"", AT_EMPTY_PATH, STATX_BASIC_STATS).unwrap();
        assert_eq!(after.attributes, STATX_ATTR_NODUMP);
        assert!(Timespec::from(after.ctime) > before.ctime && u32::from(after.mode) == before.mode);
        assert_eq!(user.setflags(own, FS_NODUMP_FL | FS_APPEND_FL), Err(Errno::EPERM));
        assert_eq!(user.setflags(own, 8 | FS_APPEND_FL), Err(Errno::EPERM), "before the flags are looked at");
        assert_eq!(user.setflags(own, 8), Err(Errno::EOPNOTSUPP));
        let stranger = vfs.task(Cred::user(1001, 1001, &[]));
        let other = stranger.open(b"/f", O_RDONLY, 0).unwrap();
        assert_eq!(stranger.setflags(other, 0), Err(Errno::EPERM));

        root.setflags(fd, FS_APPEND_FL).unwrap();
        assert_eq!(
            user.setflags(own, FS_APPEND_FL | FS_NODUMP_FL),
            Ok(()),
            "no change of the privileged ones"
        );
        assert_eq!(root.open(b"/f", O_WRONLY, 0), Err(Errno::EPERM));
        assert!(root.open(b"/f", O_WRONLY | O_APPEND, 0).is_ok());
        root.setflags(fd, FS_IMMUTABLE_FL).unwrap();
        assert_eq!(root.chmod(b"/f", 0o600), Err(Errno::EPERM));
        assert_eq!(root.access(b"/f", W_OK), Err(Errno::EPERM));
        assert_eq!(root.write(fd, b"x"), Ok(1), "opened before");

        root.mkdir(b"/d", 0o755).unwrap();
        let dir = root.open(b"/d", O_RDONLY, 0).unwrap();
        root.setflags(dir, FS_IMMUTABLE_FL).unwrap();
        assert_eq!(root.mkdir(b"/d/x", 0o755), Err(Errno::EPERM));
        root.setflags(dir, 0).unwrap();
        assert_eq!(root.mkdir(b"/d/x", 0o755), Ok(()));
        root.mknod(b"/fifo", S_IFIFO | 0o666, 0).unwrap();
        let fifo = root.open(b"/fifo", O_RDWR, 0).unwrap();
        assert_eq!((root.setflags(fifo, 8), root.getflags(fifo)), (Err(Errno::ENOTTY), Err(Errno::ENOTTY)));
        let path = root.open(b"/f", O_PATH, 0).unwrap();
        assert_eq!((root.setflags(path, 0), root.getflags(-1)), (Err(Errno::EBADF), Err(Errno::EBADF)));
        vfs.set_read_only(true);
        assert_eq!([root.setflags(fifo, 0), stranger.setflags(other, 0)], [Err(Errno::EROFS); 2]);
    });
}

#[test]
fn an_end_of_a_fifo_that_would_wait_for_the_other_is_told_to_try_again() {
    both(|_, root| {
        root.mknod(b"/p", S_IFIFO | 0o666, 0).unwrap();
        assert_eq!(root.open(b"/p", O_WRONLY, 0), Err(Errno::EAGAIN));
        assert_eq!(root.open(b"/p", O_WRONLY | O_NONBLOCK, 0), Err(Errno::ENXIO));
        assert_eq!(root.open(b"/p", O_RDONLY, 0), Err(Errno::EAGAIN));
        let reader = root.open(b"/p", O_RDONLY | O_NONBLOCK, 0).unwrap();
        assert_eq!(root.open(b"/p", O_RDONLY, 0), Err(Errno::EAGAIN), "a reader is no writer");
        let writer = root.open(b"/p", O_WRONLY, 0).unwrap();
        assert!(root.open(b"/p", O_RDONLY, 0).is_ok());
        root.close(reader).unwrap();
        root.close(writer).unwrap();
    });
}

#[test]
fn no_name_and_no_body_of_a_link_has_a_nul_in_it() {
    both(|vfs, root| {
        root.creat(b"/f", 0o644).unwrap();
        let before = vfs.stats().entries;
        assert_eq!(root.symlink(b"a\0b", b"/l"), Err(Errno::EINVAL));
        assert_eq!(root.symlink(b"a", b"/l\0"), Err(Errno::EINVAL));
        assert_eq!(root.mkdir(b"/d\0", 0o755), Err(Errno::EINVAL));
        assert_eq!(root.creat(b"/c\0", 0o755), Err(Errno::EINVAL));
        assert_eq!(root.link(b"/f", b"/g\0"), Err(Errno::EINVAL));
        assert_eq!(root.rename(b"/f", b"/g\0"), Err(Errno::EINVAL));
        assert_eq!(vfs.stats().entries, before);
    });
}
