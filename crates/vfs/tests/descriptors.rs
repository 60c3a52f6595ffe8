//! Descriptor tables that threads share.
#![cfg(not(shuttle))]

use rcuwalk::uapi::*;
use rcuwalk::{Cred, Errno, Sysctl, Vfs};

const THREADS: i32 = 4;
const ROUNDS: usize = 2_000;

#[test]
fn threads_that_open_at_once_get_the_lowest_numbers() {
    let root = Vfs::new().unwrap().task(Cred::root());
    root.close(root.creat(b"/f", 0o644).unwrap()).unwrap();
    for first in [0, 1, 5] {
        let before: Vec<i32> = (0..first).map(|_| root.open(b"/f", O_RDONLY, 0).unwrap()).collect();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for round in 0..ROUNDS {
                        // No more than the other threads' are taken meanwhile.
                        let fd = root.open(b"/f", O_RDONLY, 0).unwrap();
                        assert!((first..first + 2 * THREADS).contains(&fd), "{fd}");
                        let copy = root.fcntl(fd, F_DUPFD_CLOEXEC, 0).unwrap();
                        assert!((first..first + 2 * THREADS).contains(&copy), "{copy}");
                        assert_eq!(root.fcntl(fd, F_GETFD, 0), Ok(0));
                        assert_eq!(root.fcntl(copy, F_GETFD, 0), Ok(FD_CLOEXEC));
                        let [fd, copy] = if round % 2 == 0 { [fd, copy] } else { [copy, fd] };
                        root.close(fd).unwrap();
                        assert_eq!(root.fstat(copy).unwrap().mode, S_IFREG | 0o644);
                        root.close(copy).unwrap();
                    }
                });
            }
        });
        assert_eq!(root.open(b"/f", O_RDONLY, 0), Ok(first));
        before.into_iter().chain([first]).for_each(|fd| root.close(fd).unwrap());
    }
    assert_eq!(root.close(0), Err(Errno::EBADF));
}

#[test]
fn one_thread_alone_closes_what_many_want_to_close() {
    let root = Vfs::new().unwrap().task(Cred::root());
    root.close(root.creat(b"/f", 0o644).unwrap()).unwrap();
    for _ in 0..200 {
        let fd = root.open(b"/f", O_RDONLY, 0).unwrap();
        let closed: usize = std::thread::scope(|scope| {
            let all: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| root.close(fd).is_ok())).collect();
            all.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum()
        });
        assert_eq!(closed, 1);
    }
}

#[test]
fn numbers_are_given_up_to_the_limit_and_again_from_below() {
    let root = Vfs::new().unwrap().task(Cred::root());
    root.mkdir(b"/d", 0o755).unwrap();
    root.set_nofile_limit(40);
    for fd in 0..40 {
        assert_eq!(root.open(b"/d", O_RDONLY, 0), Ok(fd));
    }
    assert_eq!(root.open(b"/missing", O_RDONLY, 0), Err(Errno::EMFILE));
    assert_eq!(root.dup(0), Err(Errno::EMFILE));
    for fd in [33, 1, 2, 7] {
        root.close(fd).unwrap();
    }
    assert_eq!(root.fcntl(0, F_DUPFD, 3), Ok(7));
    for fd in [1, 2, 33] {
        assert_eq!(root.open(b"/d", O_RDONLY, 0), Ok(fd));
    }
    let child = root.fork();
    root.close(1).unwrap();
    assert_eq!(child.open(b"/d", O_RDONLY, 0), Err(Errno::EMFILE));
    assert_eq!(child.dup2(0, 39), Ok(39));
}

#[test]
fn a_place_that_cannot_be_opened_is_not_changed() {
    let vfs = Vfs::new().unwrap();
    let root = vfs.task(Cred::root());
    let file = root.creat(b"/f", 0o666).unwrap();
    root.write(file, b"abc").unwrap();
    root.fchmod(file, 0o666).unwrap();
    let user = vfs.task(Cred::user(1000, 1000, &[]));
    let place = user.open(b"/f", O_PATH, 0).unwrap();
    for flags in [O_CREAT, O_TMPFILE] {
        assert_eq!(user.dentry_open(place, O_RDWR | O_TRUNC | flags), Err(Errno::EINVAL));
    }
    user.set_nofile_limit(1);
    assert_eq!(user.dentry_open(place, O_RDWR | O_TRUNC), Err(Errno::EMFILE));
    user.set_nofile_limit(2);
    vfs.set_sysctl(Sysctl::FileMax, 1).unwrap();
    assert_eq!(user.dentry_open(place, O_RDWR | O_TRUNC), Err(Errno::ENFILE));
    assert_eq!(root.fstat(file).unwrap().size, 3);
    vfs.set_sysctl(Sysctl::FileMax, 3).unwrap();
    assert_eq!(user.dentry_open(place, O_RDWR | O_TRUNC), Ok(1));
    assert_eq!(root.fstat(file).unwrap().size, 0);
}

/// Room is given back for the numbers beyond the last one in use; those that are left stay what they are.
#[test]
fn a_table_that_has_shrunk_gives_the_lowest_number() {
    let vfs = Vfs::new().unwrap();
    let task = vfs.task(Cred::root());
    task.set_nofile_limit(100_000);
    let open = || task.open(b"/", O_PATH | O_DIRECTORY, 0).unwrap();
    let first = open();
    for left in [40, 5000, 19_999] {
        let all: Vec<i32> = (0..20_000).map(|_| open()).collect();
        assert!(all.iter().copied().eq(first + 1..=first + 20_000));
        all.iter().filter(|fd| **fd != left).for_each(|fd| task.close(*fd).unwrap());
        assert_eq!(task.fstat(left).map(|st| st.mode & S_IFMT), Ok(S_IFDIR));
        assert_eq!(task.fstat(20_000), Err(Errno::EBADF));
        assert_eq!((open(), task.dup2(left, 30_000)), (first + 1, Ok(30_000)));
        [first + 1, left, 30_000].iter().for_each(|fd| task.close(*fd).unwrap());
    }
}
