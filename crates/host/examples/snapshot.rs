//! Takes a snapshot of a directory of this machine and asks it as other users: `cargo run -p rcuwalk-host --example snapshot -- /etc`.
//!
//! The snapshot is the program's own. What it changes there changes nothing on the machine.

use rcuwalk::fs::Permissions;
use rcuwalk::{Cred, Vfs};
use rcuwalk_host::{ImportOptions, Progress, open};
use std::error::Error;
use std::path::{Path, PathBuf};

/// The regular files at the top of the tree that `cred` may read.
fn readable(vfs: &Vfs, cred: Cred) -> std::io::Result<usize> {
    let fs = vfs.fs(cred);
    let files = fs
        .read_dir("/")?
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()) && fs.open(entry.path()).is_ok());
    Ok(files.count())
}

fn snapshot(top: &Path) -> Result<(), Box<dyn Error>> {
    let vfs = Vfs::new()?;
    let report = open(top)?.import(&vfs, &ImportOptions::default(), &Progress::new())?;
    for problem in &report.problems {
        eprintln!("{problem}");
    }
    let (root, stranger) = (Cred::root(), || Cred::user(65534, 65534, &[]));
    let (all, some) = (readable(&vfs, root)?, readable(&vfs, stranger())?);
    assert!(some <= all, "root may read what a stranger may");
    println!(
        "{} entries of {}: root may open {all} files at the top, a stranger {some}",
        report.entries(),
        top.display()
    );

    // What if only its owner could search it?
    vfs.fs(Cred::root()).set_permissions("/", Permissions::from_mode(0o700))?;
    let refused = vfs.fs(stranger()).read_dir("/").err().ok_or("a stranger still lists the directory")?;
    println!("with mode 0700 on {}, the stranger gets: {refused}", top.display());
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    snapshot(&std::env::args_os().nth(1).map_or_else(|| PathBuf::from("/etc"), PathBuf::from))
}

#[test]
fn runs() {
    snapshot(Path::new("src")).unwrap();
}
