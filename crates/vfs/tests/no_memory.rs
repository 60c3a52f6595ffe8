//! What is asked for when there is no memory for it: an error, and no end of the process.
//!
//! One test, since the limit is that of the whole process.

use cap::Cap;
use rcuwalk::acl::{ACL_USER, posix_acl_from_xattr};
use rcuwalk::{Cred, Errno, Vfs};
use std::alloc::System;

#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// What `act` answers when it can allocate no more than so many bytes.
fn within<R>(bytes: usize, act: impl FnOnce() -> R) -> R {
    MEMORY.set_limit(MEMORY.allocated() + bytes).expect("no less than there is");
    let answer = act();
    MEMORY.set_limit(usize::MAX).expect("as it was");
    answer
}

#[test]
fn is_an_error() {
    // The value of an ACL.
    let entry = [&ACL_USER.to_le_bytes()[..], &[4, 0], &[0; 4]].concat();
    let value = [&[2, 0, 0, 0], &entry.repeat(1000)[..]].concat();
    let parse = || posix_acl_from_xattr(&value, |id| id, |id| id).map(|acl| acl.is_some());
    assert_eq!((within(1024, parse), parse()), (Err(Errno::ENOMEM), Ok(true)));

    // A long link, and a short one with a long path behind it.
    let vfs = Vfs::new().unwrap();
    let root = vfs.task(Cred::root());
    root.mkdir(b"/d", 0o755).unwrap();
    root.close(root.creat(b"/d/f", 0o644).unwrap()).unwrap();
    root.symlink(&[&b"./".repeat(1500)[..], b"d"].concat(), b"/long").unwrap();
    root.symlink(b"d", b"/short").unwrap();
    for path in [b"/long/f".to_vec(), [b"/short", &b"/.".repeat(1500)[..], b"/f"].concat()] {
        let stat = || root.stat(&path).map(|stat| stat.nlink);
        assert_eq!((within(1024, stat), stat()), (Err(Errno::ENOMEM), Ok(1)), "{}", path.escape_ascii());
    }
}
