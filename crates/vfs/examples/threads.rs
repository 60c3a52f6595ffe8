//! One tree, many threads, each as a user of its own: `cargo run -p rcuwalk --example threads`.

use rcuwalk::fs::Permissions;
use rcuwalk::{Cred, Vfs};
use std::io;
use std::thread;

fn main() -> io::Result<()> {
    const THREADS: u32 = 8;
    const FILES: u32 = 100;
    let vfs = Vfs::new()?;
    let root = vfs.fs(Cred::root());
    root.create_dir("/tmp")?;
    root.set_permissions("/tmp", Permissions::from_mode(0o1777))?;

    let workers: Vec<_> = (0..THREADS)
        .map(|n| {
            let fs = vfs.fs(Cred::user(1000 + n, 1000 + n, &[]));
            thread::spawn(move || -> io::Result<()> {
                for i in 0..FILES {
                    fs.write(format!("/tmp/{n}-{i}"), n.to_string())?;
                }
                Ok(())
            })
        })
        .collect();
    for worker in workers {
        worker.join().expect("no thread panics")?;
    }

    let mut files = 0;
    for entry in root.read_dir("/tmp")? {
        let entry = entry?;
        let owner = entry.metadata()?.uid() - 1000;
        assert_eq!(root.read_to_string(entry.path())?, owner.to_string());
        files += 1;
    }
    assert_eq!(files, THREADS * FILES);
    println!("{THREADS} users made {files} files, and each owns its own");
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
