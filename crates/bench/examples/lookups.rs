//! One lookup between two system calls, for `cargo x disasm` to step through.
#![forbid(unsafe_code)]

use rcuwalk::{Cred, Errno, Task, Vfs, WalkMode, uapi::*};
use std::hint::black_box;
use std::io::{Read, Write};

type Lookup = fn(&Task) -> Result<u64, Errno>;

/// What is looked up, and what must come out.
const LOOKUPS: &[(&str, Lookup, Result<u64, Errno>)] = &[
    ("stat", |task| task.stat(b"/usr/include/linux/fs.h").map(|stat| stat.nlink), Ok(1)),
    ("lstat of a long name", |task| task.lstat(LONG).map(|stat| stat.nlink), Ok(1)),
    (
        "stat of a missing name",
        |task| task.stat(b"/usr/include/linux/missing.h").map(|_| 0),
        Err(Errno::ENOENT),
    ),
    ("stat below a file", |task| task.stat(b"/usr/include/linux/fs.h/x").map(|_| 0), Err(Errno::ENOTDIR)),
    ("stat in a private directory", |task| task.stat(b"/root/file").map(|_| 0), Err(Errno::EACCES)),
    (
        "stat through ..",
        |task| task.stat(b"/usr/include/../include/linux/fs.h").map(|stat| stat.nlink),
        Ok(1),
    ),
    ("stat through a group's directory", |task| task.stat(b"/srv/file").map(|stat| stat.nlink), Ok(1)),
    (
        "statx",
        |task| task.statx(AT_FDCWD, b"/usr/include/linux/fs.h", 0, STATX_BASIC_STATS).map(|x| x.nlink.into()),
        Ok(1),
    ),
    ("access", |task| task.access(b"/usr/include/linux/fs.h", R_OK).map(|()| 0), Ok(0)),
    ("access denied", |task| task.access(b"/usr/include/linux/fs.h", W_OK).map(|()| 0), Err(Errno::EACCES)),
    (
        "open of a missing name",
        |task| task.open(b"/usr/include/linux/missing.h", O_RDONLY, 0).map(|_| 0),
        Err(Errno::ENOENT),
    ),
    // Shows that the tracer sees what it looks for: a file that is opened is referred to, and the table of descriptors
    // changes.
    ("control: open", |task| task.open(b"/usr/include/linux/fs.h", O_RDONLY, 0).map(|_| 0), Ok(0)),
];

/// Stands behind a lookup that the whole-path table answers.
const AGAIN: &str = ", again";

/// Lookups whose results the table never remembers: each counts, in a word of its task, that it asked in vain.
const NEVER_REMEMBERED: [&str; 2] = ["stat below a file", "stat in a private directory"];

const LONG: &[u8] = b"/usr/include/linux/a-name-that-does-not-fit-into-a-dentry-and-lies-in-the-blob-store.h";

fn task() -> Result<Task, Errno> {
    let vfs = Vfs::new()?;
    let root = vfs.task(Cred::root());
    for (dir, mode) in [
        (&b"/usr"[..], 0o755),
        (b"/usr/include", 0o755),
        (b"/usr/include/linux", 0o755),
        (b"/root", 0o700),
        (b"/srv", 0o750),
    ] {
        root.mkdir(dir, mode)?;
    }
    root.chown(b"/srv", 0, 27)?;
    for file in [&b"/usr/include/linux/fs.h"[..], LONG, b"/root/file", b"/srv/file"] {
        root.close(root.creat(file, 0o644)?)?;
    }
    Ok(vfs.task(Cred::user(1000, 1000, &[27])))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(wanted) = std::env::args().nth(1) else {
        for (name, ..) in LOOKUPS {
            println!("{name}");
            if !NEVER_REMEMBERED.contains(name) {
                println!("{name}{AGAIN}");
            }
        }
        return Ok(());
    };
    let (name, mode) = match wanted.strip_suffix(AGAIN) {
        Some(name) => (name, WalkMode::Direct),
        None => (wanted.as_str(), WalkMode::Rcu),
    };
    let (_, lookup, expected) = LOOKUPS.iter().find(|(known, ..)| *known == name).ok_or("no such lookup")?;
    let task = task()?;
    task.vfs().set_walk_mode(mode);
    // A whole-path table that knows nothing yet is asked for one lookup in eight, and takes a path in at second sight.
    for _ in 0..32 {
        assert_eq!(lookup(&task), *expected);
    }
    println!("ready");
    std::io::stdout().flush()?;
    // The tracer attaches while this waits.
    std::io::stdin().read_exact(&mut [0])?;
    black_box(rustix::process::getppid());
    let found = black_box(lookup(black_box(&task)));
    black_box(rustix::process::getppid());
    assert_eq!(found, *expected);
    Ok(())
}
