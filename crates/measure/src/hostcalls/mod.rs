//! The running kernel alone: the calls of the ablations, measured honestly.
//!
//! [`run`] times what a program pays: path calls by kind, by depth and by threads, and the making of programs in the two
//! ways that measure it and not the scheduler: execve in a loop within one process, whose argument counts down; and
//! fork, execve, exit and wait as a whole, timed in the parent.

pub mod countdown;
mod exec;

use std::ffi::{CStr, CString};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::hint::black_box;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use serde::Serialize;

use crate::engines::host::{Getppid, Host};
use crate::engines::{Contender, Engine, Value, attr_value, error_value};
use crate::error::Error;
use crate::frame::{Budget, Workload, side};
use crate::identity;
use crate::machine::{Machine, fstype_of};
use crate::progress::Observer;
use crate::scratch::{Chain, DEPTHS};
use crate::series::rounded;
use crate::table::{Style, new_table, right};
use rcuwalk_host::Identity;

pub use exec::EXEC_LOOP;

/// What to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Fewer and shorter rounds.
    pub quick: bool,
    /// Most threads at once; 0 is one for each processor.
    pub threads: usize,
}

/// What the kernel took.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where it ran.
    pub machine: Machine,
    /// The file system of the files that were made for it.
    pub fstype: String,
    /// Who called.
    pub identity: Identity,
    /// What entering and leaving the kernel takes (`getppid`), nanoseconds.
    pub entry_ns: f64,
    /// The figures.
    pub rows: Vec<Row>,
    /// What could not be measured, and why.
    pub notes: Vec<String>,
}

/// One call in one situation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The situation.
    pub workload: String,
    /// The call.
    pub call: &'static str,
    /// Threads at once.
    pub threads: usize,
    /// Median, per call and thread.
    pub ns: f64,
    /// Distance of the quartiles in percent of the median.
    pub spread_pct: f64,
    /// With several threads: calls per second of all, as a multiple of one's alone.
    pub scaling: Option<f64>,
    /// What was checked.
    pub check: String,
    /// True if a checked answer was wrong.
    pub wrong: bool,
}

impl Report {
    /// The figure of a call in a situation.
    pub fn ns(&self, workload: &str, call: &str, threads: usize) -> Option<f64> {
        self.row(workload, call, threads).map(|row| row.ns)
    }

    /// The row of a call in a situation.
    pub fn row(&self, workload: &str, call: &str, threads: usize) -> Option<&Row> {
        let wanted = |row: &&Row| row.workload == workload && row.call == call && row.threads == threads;
        self.rows.iter().find(wanted)
    }

    /// The rows whose answers were wrong, one line each.
    pub fn faults(&self) -> Vec<String> {
        let wrong = self.rows.iter().filter(|row| row.wrong);
        wrong.map(|row| format!("{}: {}: {}", row.workload, row.call, row.check)).collect()
    }
}

/// The name of the situation of calls on an open file.
pub const OPEN_FILE: &str = "an open file";
/// The name of the situation of calls on a name that is not there.
pub const MISSING: &str = "a missing name";
/// The name of the situation of calls on an existing file, four components down.
pub const FOUR: &str = "4 components";

/// Times the running kernel.
///
/// # Errors
///
/// When a temporary directory cannot be made, or threads not started.
pub fn run(options: &Options, observer: &dyn Observer) -> Result<Report, Error> {
    let machine = Machine::read();
    let budget = Budget::new(options.quick, options.threads, observer)?;
    let chain = Chain::new()?;
    let place = Place::new(&chain, &budget)?;
    let mut report = Report {
        machine,
        fstype: fstype_of(chain.path()),
        identity: place.who.clone(),
        entry_ns: 0.0,
        rows: Vec::new(),
        notes: Vec::new(),
    };
    observer.stage("open file and paths", None);
    place.open_file(&mut report)?;
    place.paths(&mut report)?;
    observer.stage("depth", None);
    for depth in DEPTHS {
        let list = vec![c_path(&Chain::file(depth))];
        let workload = Workload::new(format!("depth {depth}"), list);
        place.measure(workload, &[&side("stat", |path| Host.stat(path))], &mut report)?;
    }
    observer.stage("threads", None);
    for threads in budget.thread_counts() {
        place.threads(threads, &mut report)?;
    }
    observer.stage("programs", None);
    exec::measure(&chain, options.quick, &mut report)?;
    Ok(report)
}

/// Where the calls are made, and by whom.
struct Place<'a> {
    budget: &'a Budget<'a>,
    directory: &'a Path,
    who: Identity,
    files: usize,
}

/// Files that threads have for themselves.
fn own_file(i: usize) -> String {
    format!("own-{i}")
}

impl<'a> Place<'a> {
    fn new(chain: &'a Chain, budget: &'a Budget<'a>) -> Result<Place<'a>, Error> {
        let files = budget.cpus.len();
        for i in 0..files {
            let path = chain.path().join(own_file(i));
            fs::write(&path, "")
                .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o644)))
                .map_err(|e| Error::host("making a file", &path, e, "set TMPDIR to a directory with room"))?;
        }
        let who = if identity::can_switch() { Identity::new(1000, 1000, &[]) } else { identity::caller()? };
        Ok(Place { budget, directory: chain.path(), who, files })
    }

    /// Times calls that must answer the same, and getppid between them.
    fn measure(
        &self,
        workload: Workload<'_>,
        calls: &[&dyn Contender],
        report: &mut Report,
    ) -> Result<(), Error> {
        let contenders: Vec<&dyn Contender> =
            calls.iter().copied().chain([&Getppid as &dyn Contender]).collect();
        let workload = workload.within(self.directory).as_identity(&self.who);
        let timed = self.budget.series(&workload, &contenders)?;
        for (call, series) in calls.iter().zip(&timed.series) {
            report.rows.push(Row {
                workload: workload.name().to_owned(),
                call: call.name(),
                threads: workload.thread_count(),
                ns: rounded(series.median()),
                spread_pct: rounded(series.spread_pct()),
                scaling: series.scaling().map(rounded),
                check: timed.check.clone(),
                wrong: timed.wrong(),
            });
        }
        if let Some(getppid) = timed.series.last().filter(|_| report.entry_ns == 0.0) {
            report.entry_ns = rounded(getppid.median());
        }
        Ok(())
    }

    fn open_file(&self, report: &mut Report) -> Result<(), Error> {
        let path = self.directory.join(own_file(0));
        let file = File::open(&path).map_err(|e| Error::host("opening a file", &path, e, ""))?;
        let fstat = side("fstat", |_| match rustix::fs::fstat(&file) {
            Ok(st) => attr_value(st.st_ino, st.st_size as u64, st.st_mode),
            Err(errno) => error_value(errno.raw_os_error()),
        });
        let statx = side("statx", |_| {
            match rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS) {
                Ok(stx) => {
                    let stx = black_box(&stx);
                    attr_value(stx.stx_ino, stx.stx_size, stx.stx_mode.into())
                }
                Err(errno) => error_value(errno.raw_os_error()),
            }
        });
        self.measure(Workload::new(OPEN_FILE, vec![CString::default()]), &[&fstat, &statx], report)
    }

    fn paths(&self, report: &mut Report) -> Result<(), Error> {
        let sides: [&dyn Contender; 2] =
            [&side("stat", |path| Host.stat(path)), &side("statx", |path| Host.statx(path))];
        self.measure(Workload::new(FOUR, vec![c_path(&Chain::file(4))]), &sides, report)?;
        let sides: [&dyn Contender; 2] =
            [&side("access", |path| Host.access(path)), &side("open+close", |path| Host.open_close(path))];
        self.measure(Workload::new(FOUR, vec![c_path(&Chain::file(4))]), &sides, report)?;

        let deepest = Chain::file(DEPTHS[DEPTHS.len() - 1]);
        for (name, path) in [
            (MISSING.to_owned(), "missing".to_owned()),
            (format!("{MISSING}, 32 components"), deepest + "-missing"),
        ] {
            let sides: [&dyn Contender; 4] = [
                &side("stat", |path| Host.stat(path)),
                &side("access", |path| Host.access(path)),
                &side("open", |path| Host.open_close(path)),
                &side("execve", exec_missing),
            ];
            self.measure(Workload::new(name, vec![c_path(&path)]), &sides, report)?;
        }
        Ok(())
    }

    /// Shaped like will-it-scale's access1 and access2.
    fn threads(&self, threads: usize, report: &mut Report) -> Result<(), Error> {
        let distinct = (0..threads).map(|i| vec![c_path(&own_file(i % self.files))]).collect();
        let situations: [(&str, Vec<Vec<CString>>); 2] =
            [("distinct files", distinct), ("the same file", vec![vec![c_path(&own_file(0))]])];
        for (name, lists) in situations {
            let sides: [&dyn Contender; 1] = [&side("access", |path| Host.access(path))];
            self.measure(Workload::new(name, vec![]).threads(threads, lists.clone()), &sides, report)?;
            let sides: [&dyn Contender; 1] = [&side("stat", |path| Host.stat(path))];
            self.measure(Workload::new(name, vec![]).threads(threads, lists), &sides, report)?;
        }
        Ok(())
    }
}

/// execve of a name that is not there.
fn exec_missing(path: &CStr) -> Value {
    error_value(crate::sys::exec_missing(path).map_or(0, Errno::raw_os_error))
}

fn c_path(path: &str) -> CString {
    CString::new(path).unwrap_or_default()
}

/// The report as text.
pub fn render(report: &Report, style: Style) -> String {
    let mut out = report.machine.summary();
    let _ = writeln!(
        out,
        "files on {}, called as {}; entering and leaving the kernel (getppid): {:.1} ns of each call",
        report.fstype, report.identity, report.entry_ns
    );
    let mut table = new_table(style);
    table.set_header(["workload", "call", "thr", "ns", "±", "scaling"]);
    let mut before = "";
    for row in &report.rows {
        let workload = if before == row.workload { "" } else { &row.workload };
        before = &row.workload;
        table.add_row([
            comfy_table::Cell::new(workload),
            comfy_table::Cell::new(row.call),
            right(row.threads),
            right(if row.wrong { "DIFFERS".to_owned() } else { format!("{:.1}", row.ns) }),
            right(format!("{:.0} %", row.spread_pct)),
            right(row.scaling.map_or_else(String::new, |times| format!("{times:.2} ×"))),
        ]);
    }
    let _ = writeln!(out, "\n{table}");
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}
