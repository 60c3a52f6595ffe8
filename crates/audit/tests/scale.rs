//! A million entries, as many of them in one directory: bounded memory, and as fast as promised. `cargo test --release -p rcuwalk-audit --test scale -- --nocapture`
//! prints the figures. One test in a program of its own, because memory is measured for the whole process.

use std::io::{self, Read};
use std::ops::ControlFlow;

use rcuwalk::Vfs;
use rcuwalk_audit::{Audit, Identity, RightSet, Row};
use rcuwalk_host::{ArchiveOptions, Progress, import_tar};

/// Entries of each image: a million, or without optimisation less.
const ENTRIES: u32 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
/// The most memory that importing and auditing either may take, in KiB: 600 MB for a million.
const MOST_KIB: u64 = if cfg!(debug_assertions) { 100 * 1024 } else { 600 * 1024 };

/// A tar stream that is made as it is read.
struct Stream {
    next: u32,
    entries_per_dir: u32,
    block: Vec<u8>,
    at: usize,
}

impl Stream {
    fn new(entries_per_dir: u32) -> Stream {
        Stream { next: 0, entries_per_dir, block: Vec::new(), at: 0 }
    }

    fn member(&self, n: u32) -> Vec<u8> {
        let mut header = tar::Header::new_gnu();
        let dir = n / self.entries_per_dir;
        let name = format!("srv/{:03}/{dir}/file-number-{n}.conf", dir / 500);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_mode([0o644, 0o600, 0o755, 0o660][n as usize % 4]);
        header.set_uid(u64::from(n % 7 * 1000));
        header.set_gid(u64::from(n % 5 * 100));
        header.set_size(0);
        header.set_cksum();
        header.as_bytes().to_vec()
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.at == self.block.len() {
            self.block = match self.next {
                n if n < ENTRIES => self.member(n),
                ENTRIES => vec![0; 1024],
                _ => return Ok(0),
            };
            (self.next, self.at) = (self.next + 1, 0);
        }
        let n = buf.len().min(self.block.len() - self.at);
        buf[..n].copy_from_slice(&self.block[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

/// What this thread has had of a processor, in seconds: the machine may be busy with other things.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e9
}

/// The most memory this process had, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

#[test]
fn a_million_entries_fit_and_are_answered() {
    let who: Vec<Identity> = (0..8).map(|n| Identity::new(n * 1000, n * 100, &[n * 50])).collect();
    for (what, entries_per_dir) in [("20 entries a directory", 20), ("all in one directory", ENTRIES)] {
        let vfs = Vfs::new().unwrap();
        let started = cpu_seconds();
        let report =
            import_tar(&vfs, Stream::new(entries_per_dir), &ArchiveOptions::default(), &Progress::new())
                .unwrap();
        assert_eq!((report.files, report.problem_count), (u64::from(ENTRIES), 0));
        println!(
            "{what}: import {:.0} a second of one core",
            report.entries() as f64 / (cpu_seconds() - started)
        );
        for (count, want) in [(1, "setid"), (8, "setid"), (1, "all"), (8, "all")] {
            let (rows, rate) = ask(&vfs, &who[who.len() - count..], want.parse().unwrap(), report.entries());
            println!(
                "{what}: {count} identities, {want}: {rate:.1} M (entry, identity) a second of one core, {rows} rows"
            );
            // Modes come in turn: half of the entries can be read by all.
            assert_eq!(rows >= u64::from(ENTRIES) / 2, want == "all");
        }
        println!("{what}: {} MB at most", peak_kib() / 1024);
        assert!(peak_kib() <= MOST_KIB, "{} KiB", peak_kib());
    }
}

/// Makes an audit; gives its rows, and millions of answers a second.
fn ask(vfs: &Vfs, who: &[Identity], want: RightSet, entries: u64) -> (u64, f64) {
    let audit = Audit::new(vfs, b"/", who, want).unwrap();
    let started = cpu_seconds();
    let mut rows = 0;
    let each = |_: &Row| {
        rows += 1;
        ControlFlow::Continue(())
    };
    let summary = audit.run(|_| ControlFlow::Continue(()), each).unwrap();
    let rate = entries as f64 * who.len() as f64 / (cpu_seconds() - started) / 1e6;
    assert_eq!((summary.entries, summary.rows), (entries, rows));
    (rows, rate)
}
