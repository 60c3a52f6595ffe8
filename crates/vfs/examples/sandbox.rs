//! Opens what an untrusted program names, and nothing outside of its directory: `cargo run -p rcuwalk --example sandbox`.

use rcuwalk::fs::{File, Fs};
use rcuwalk::uapi::*;
use rcuwalk::{Cred, OpenHow, Vfs};
use std::io::{self, Read};

/// Opens `name` below the directory `dir` for reading. The walk itself makes sure that it does not leave.
fn open_beneath(fs: &Fs, dir: &File, name: &[u8]) -> io::Result<File> {
    let how = OpenHow::new(O_RDONLY | O_CLOEXEC).with_resolve(RESOLVE_BENEATH);
    let fd = fs.task().openat2(dir.fd(), name, &how)?;
    Ok(File::from_fd(fs, fd))
}

fn main() -> io::Result<()> {
    let fs = Vfs::new()?.fs(Cred::root());
    fs.create_dir_all("/box/data")?;
    fs.write("/box/data/own", "inside")?;
    fs.write("/secret", "outside")?;
    fs.symlink("data/own", "/box/link")?;
    fs.symlink("../secret", "/box/escape")?;

    let dir = fs.open("/box")?;
    for name in ["data/own", "link", "data/../data/own"] {
        let mut text = String::new();
        open_beneath(&fs, &dir, name.as_bytes())?.read_to_string(&mut text)?;
        assert_eq!(text, "inside", "{name}");
    }
    for name in ["escape", "../secret", "/secret", "data/../../secret"] {
        let refused = open_beneath(&fs, &dir, name.as_bytes()).expect_err(name);
        assert_eq!(refused.raw_os_error(), Some(rcuwalk::Errno::EXDEV.raw()), "{name}");
        println!("{name}: {refused}");
    }
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
