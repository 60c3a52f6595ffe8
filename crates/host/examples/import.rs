//! Imports a directory or an archive and says how long it took.
//!
//! `cargo run --release -p rcuwalk-host --example import -- /usr [REPEAT] [--contents] [--one-file-system] [--threads N]`

use std::error::Error;
use std::path::PathBuf;

use rcuwalk::Vfs;
use rcuwalk_host::{ImportOptions, Progress, open};

fn main() -> Result<(), Box<dyn Error>> {
    let mut options = ImportOptions::default();
    let mut path = PathBuf::from("/usr");
    let mut repeat = 1;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match &*argument {
            "--contents" => options.contents = true,
            "--no-xattrs" => options.xattrs = false,
            "--inode-flags" => options.inode_flags = true,
            "--one-file-system" => options.one_file_system = true,
            "--threads" => options.threads = arguments.next().ok_or("--threads needs a number")?.parse()?,
            _ => match argument.parse() {
                Ok(times) => repeat = times,
                Err(_) => path = argument.into(),
            },
        }
    }
    for _ in 0..repeat {
        let vfs = Vfs::new()?;
        let report = open(&path)?.import(&vfs, &options, &Progress::new())?;
        let rate = report.entries() as f64 / report.elapsed.as_secs_f64();
        println!("{} entries in {:?}: {rate:.0}/s", report.entries(), report.elapsed);
        for problem in &report.problems {
            println!("  {problem}");
        }
    }
    Ok(())
}
