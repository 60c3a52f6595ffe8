//! Other in-memory file systems, on the same paths, in the same run.
//!
//! Some Rust ones are linked in and take turns with the engine batch by batch; others, and those in Go and Python, are built and
//! run as programs of their own, where `cargo`, `go` and `python3` are found, and measure themselves the same way. What each leaves out stands in the
//! table: a file system that asks nobody for permission has less to do.

mod foreign;
mod rust;

use std::ffi::CString;
use std::fmt::Write as _;
use std::path::Path;

use rcuwalk::{Cred, Task, Vfs};
use serde::Serialize;

use crate::ablations::{Budget, Options, Workload, side};
use crate::engines::{Contender, Value, error_value};
use crate::error::Error;
use crate::machine::Machine;
use crate::report::rounded;
use crate::run::Observer;
use crate::table::{Style, new_table, right};

/// One file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Peer {
    /// Its name.
    pub name: &'static str,
    /// What of our work it does not do.
    pub leaves_out: &'static str,
}

/// One file system on one workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The workload.
    pub workload: String,
    /// Threads at once.
    pub threads: usize,
    /// The file system.
    pub peer: String,
    /// Median, per operation and thread.
    pub ns: f64,
    /// Distance of the quartiles, percent.
    pub spread_pct: f64,
    /// Its time divided by the engine's.
    pub times: f64,
    /// What was checked.
    pub check: String,
    /// True if a checked answer was wrong.
    pub wrong: bool,
}

/// What a run found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where it ran.
    pub machine: Machine,
    /// Files in the tree.
    pub files: usize,
    /// Who took part.
    pub peers: Vec<Peer>,
    /// The figures.
    pub rows: Vec<Row>,
    /// Who did not, and why.
    pub notes: Vec<String>,
}

const OURS: Peer = Peer { name: "rcuwalk", leaves_out: "" };

/// One file, four components down.
const ONE: &str = "/usr/include/linux/fs.h";
const MISSING: &str = "/usr/include/linux/missing.h";

const STAT: &str = "stat, 4 components";
const ENOENT: &str = "stat, missing name";
const OPEN: &str = "open+close";
const RANDOM: &str = "stat, random files";

/// The value of an existing file; a directory has 2.
const FILE: Value = 1;
const DIRECTORY: Value = 2;
const NOT_FOUND: Value = error_value(2);

/// A file system that can be asked.
trait Asked: Sync {
    fn peer(&self) -> Peer;
    fn stat(&self, path: &str) -> Value;
    fn open_close(&self, path: &str) -> Value;
}

/// The engine, as an ordinary user.
struct Ours(Task);

impl Asked for Ours {
    fn peer(&self) -> Peer {
        OURS
    }

    #[inline(always)]
    fn stat(&self, path: &str) -> Value {
        match self.0.stat(path.as_bytes()) {
            Ok(st) if st.mode & rcuwalk::uapi::S_IFMT == rcuwalk::uapi::S_IFDIR => DIRECTORY,
            Ok(_) => FILE,
            Err(errno) => error_value(errno.raw()),
        }
    }

    #[inline(always)]
    fn open_close(&self, path: &str) -> Value {
        let opened = self.0.open(path.as_bytes(), rcuwalk::uapi::O_RDONLY, 0);
        match opened.and_then(|fd| self.0.close(fd)) {
            Ok(()) => FILE,
            Err(errno) => error_value(errno.raw()),
        }
    }
}

/// The directories of the tree, parents first, and its files.
fn tree() -> (Vec<String>, Vec<String>) {
    let mut dirs: Vec<String> =
        ["/usr", "/usr/include", "/usr/include/linux"].into_iter().map(str::to_owned).collect();
    let mut files = vec![ONE.to_owned()];
    for i in 0..20 {
        dirs.push(format!("/usr/include/part-{i:02}"));
        for j in 0..20 {
            let dir = format!("/usr/include/part-{i:02}/section-{j:02}");
            files.extend((0..20).map(|k| format!("{dir}/header-{k:02}.h")));
            dirs.push(dir);
        }
    }
    fastrand::Rng::with_seed(1).shuffle(&mut files);
    (dirs, files)
}

fn ours(dirs: &[String], files: &[String]) -> rcuwalk::Result<Ours> {
    let vfs = Vfs::builder().capacity(1 << 16).build()?;
    let root = vfs.task(Cred::root());
    dirs.iter().try_for_each(|dir| root.mkdir(dir.as_bytes(), 0o755))?;
    for file in files {
        let fd = root.creat(file.as_bytes(), 0o644)?;
        root.close(fd)?;
    }
    Ok(Ours(vfs.task(Cred::user(1000, 1000, &[]))))
}

/// Times the engine and whatever else there is. What has to be built first is built below `built`, if given, and not again by
/// a later run.
///
/// # Errors
///
/// When a tree cannot be made, or threads not started. A peer that is missing is a note.
pub fn run(
    quick: bool,
    threads: usize,
    built: Option<&Path>,
    observer: &dyn Observer,
) -> Result<Report, Error> {
    let machine = Machine::read();
    let options = Options { quick, threads, only: vec![] };
    let budget = Budget::new(&options, observer)?;
    let (dirs, files) = tree();
    let engine = ours(&dirs, &files).map_err(|e| Error::engine("making a tree", b"/usr", e, ""))?;
    let mut report = Report { machine, files: files.len(), peers: vec![OURS], rows: vec![], notes: vec![] };
    let (vfs, axfs) = (rust::VfsCrate::new(&dirs, &files)?, rust::Axfs::new(&dirs, &files)?);
    report.peers.extend([vfs.peer(), axfs.peer()]);
    observer.stage("peers in Rust", None);
    let all = budget.cpus.len();
    let list =
        |paths: &[String]| paths.iter().map(|path| CString::new(path.as_str()).unwrap_or_default()).collect();
    let one: Vec<CString> = list(&[ONE.to_owned()]);
    let many: Vec<CString> = list(&files);
    let mut situations = vec![
        (Workload::new(STAT, one.clone()), Call::Stat),
        (Workload::new(ENOENT, list(&[MISSING.to_owned()])), Call::Stat),
        (Workload::new(OPEN, one.clone()), Call::Open),
        (Workload::new(RANDOM, many), Call::Stat),
    ];
    if all > 1 {
        let workload = Workload::new("stat, one file, every processor", vec![]).threads(all, vec![one]);
        situations.push((workload, Call::Stat));
    }
    for (workload, call) in situations {
        timed(&budget, &workload, call, (&engine, &vfs, &axfs), &mut report)?;
    }
    observer.stage("peers that are built first", None);
    foreign::measure(quick, built, &dirs, &files, &mut report)?;
    Ok(report)
}

#[derive(Clone, Copy)]
enum Call {
    Stat,
    Open,
}

fn timed(
    budget: &Budget<'_>,
    workload: &Workload<'_>,
    call: Call,
    (ours, vfs, axfs): (&Ours, &rust::VfsCrate, &rust::Axfs),
    report: &mut Report,
) -> Result<(), Error> {
    // Each loop is compiled for its file system: no dispatch inside.
    macro_rules! sides {
        ($method:ident) => {
            [
                &side(ours.peer().name, |path| ours.$method(text(path))) as &dyn Contender,
                &side(vfs.peer().name, |path| vfs.$method(text(path))),
                &side(axfs.peer().name, |path| axfs.$method(text(path))),
            ]
        };
    }
    let timed = match call {
        Call::Stat => budget.series(workload, &sides!(stat))?,
        Call::Open => budget.series(workload, &sides!(open_close))?,
    };
    let Some(first) = timed.series.first() else { return Ok(()) };
    for (series, peer) in timed.series.iter().zip([OURS, vfs.peer(), axfs.peer()]) {
        report.rows.push(Row {
            workload: workload.name().to_owned(),
            threads: workload.thread_count(),
            peer: peer.name.to_owned(),
            ns: rounded(series.median()),
            spread_pct: rounded(series.spread_pct()),
            times: rounded(series.ratio(first).0),
            check: timed.check.clone(),
            wrong: timed.wrong,
        });
    }
    Ok(())
}

/// The paths are made from `str`.
#[inline(always)]
fn text(path: &std::ffi::CStr) -> &str {
    path.to_str().unwrap_or_default()
}

impl Report {
    /// The rows whose answers were wrong, one line each.
    pub fn faults(&self) -> Vec<String> {
        let wrong = self.rows.iter().filter(|row| row.wrong);
        wrong.map(|row| format!("{}: {}: {}", row.workload, row.peer, row.check)).collect()
    }
}

/// The report as text.
pub fn render(report: &Report, style: Style) -> String {
    let mut out = report.machine.summary();
    let _ = writeln!(out, "{} files; × is a peer's time divided by ours\n", report.files);
    let mut table = new_table(style);
    table.set_header(["workload", "thr", "file system", "ns", "±", "×", "it leaves out"]);
    let mut before = "";
    for row in &report.rows {
        let workload = if before == row.workload { "" } else { &row.workload };
        before = &row.workload;
        let leaves_out =
            report.peers.iter().find(|peer| peer.name == row.peer).map_or("", |peer| peer.leaves_out);
        table.add_row([
            comfy_table::Cell::new(workload),
            right(row.threads),
            comfy_table::Cell::new(&row.peer),
            right(if row.wrong { "DIFFERS".to_owned() } else { format!("{:.1}", row.ns) }),
            right(format!("{:.0} %", row.spread_pct)),
            right(format!("{:.2}", row.times)),
            comfy_table::Cell::new(leaves_out),
        ]);
    }
    let _ = writeln!(out, "{table}");
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}
