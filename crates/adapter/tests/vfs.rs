//! The vfs crate's own tests of a file system, and what they do not ask.
#![expect(clippy::useless_vec, reason = "in the vfs crate's macro")]

use rcuwalk::{Cred, Vfs};
use rcuwalk_vfs::RcuwalkFs;
use std::io::Write;
use std::time::{Duration, SystemTime};
use vfs::error::VfsErrorKind;
use vfs::{FileSystem, VfsPath, test_vfs};

fn root_of(tree: &Vfs) -> RcuwalkFs {
    RcuwalkFs::new(tree.fs(Cred::root()))
}

mod as_root {
    use super::*;
    test_vfs!(root_of(&Vfs::new().unwrap()));
}

/// The same, by a user who owns the root directory and nothing else.
mod as_a_user {
    use super::*;
    test_vfs!({
        let tree = Vfs::new().unwrap();
        tree.fs(Cred::root()).chown("/", Some(1000), Some(1000)).unwrap();
        RcuwalkFs::new(tree.fs(Cred::user(1000, 1000, &[])))
    });
}

#[test]
fn the_user_decides() {
    let tree = Vfs::new().unwrap();
    let root: VfsPath = root_of(&tree).into();
    let alice: VfsPath = RcuwalkFs::new(tree.fs(Cred::user(1000, 1000, &[]))).into();
    root.join("f").unwrap().create_file().unwrap().write_all(b"x").unwrap();
    assert_eq!(alice.join("f").unwrap().read_to_string().unwrap(), "x");
    for refused in [
        alice.join("f").unwrap().append_file().map(drop),
        alice.join("d").unwrap().create_dir(),
        alice.join("f").unwrap().remove_file(),
        alice.join("f").unwrap().move_file(&alice.join("g").unwrap()),
    ] {
        match refused.unwrap_err().kind() {
            VfsErrorKind::IoError(error) => assert_eq!(error.raw_os_error(), Some(13)),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_name_that_is_not_utf8_is_an_error_and_not_left_out() {
    let tree = Vfs::new().unwrap();
    tree.task(Cred::root()).mkdir(b"/\xff", 0o755).unwrap();
    let error = root_of(&tree).read_dir("").err().expect("the name is listed");
    assert!(error.to_string().contains("not UTF-8"), "{error}");
}

#[test]
fn times_before_1970_are_kept() {
    let tree = Vfs::new().unwrap();
    let path = VfsPath::from(root_of(&tree)).join("f").unwrap();
    path.create_file().unwrap();
    for before in [Duration::from_secs(1), Duration::from_nanos(1), Duration::new(86_400, 1)] {
        let time = SystemTime::UNIX_EPOCH - before;
        path.set_modification_time(time).unwrap();
        assert_eq!(path.metadata().unwrap().modified, Some(time));
    }
}
