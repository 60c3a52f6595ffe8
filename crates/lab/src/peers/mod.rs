//! Other in-memory file systems, on the same paths, in the same run.
//!
//! Some Rust ones are linked in; others, and those in Go and Python, are built and run as programs of their own, where
//! `cargo`, `go` and `python3` are found, and do a batch when they are asked to. All take turns with the engine batch by
//! batch, over the same list of paths from start to end. What each leaves out stands in the table: a file system that
//! checks no permissions has less to do.

mod foreign;
mod rust;

use std::ffi::{CStr, CString};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::OnceLock;

use rcuwalk::uapi::{O_RDONLY, R_OK, S_IFDIR, S_IFMT};
use rcuwalk::{Cred, Task, Vfs};
use serde::Serialize;

use rcuwalk_measure::Error;
use rcuwalk_measure::engines::{Contender, Op, Timed, Value, each, error_value};
use rcuwalk_measure::frame::{Budget, Workload};
use rcuwalk_measure::machine::Machine;
use rcuwalk_measure::progress::Observer;
use rcuwalk_measure::series::rounded;
use rcuwalk_measure::table::{Style, new_table, right};

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
    /// Its time divided by the engine's: median of the ratios within rounds.
    pub times: f64,
    /// True if the difference lies inside the spread of those ratios.
    pub same: bool,
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

/// The depths of two more files.
const DEPTHS: [usize; 2] = [2, 32];

/// The value of an existing file; a directory has 2.
const FILE: Value = 1;
const DIRECTORY: Value = 2;
const NOT_FOUND: Value = error_value(2);

/// A file system that is linked in.
trait Linked: Sync {
    fn peer(&self) -> Peer;
    fn stat(&self, path: &str) -> Value;
    fn open_close(&self, path: &str) -> Value;
}

/// The engine, as an ordinary user.
struct Ours(Task);

impl Ours {
    /// The call that no other linked-in file system has.
    #[inline(always)]
    fn access(&self, path: &str) -> Value {
        self.0.access(path.as_bytes(), R_OK).map_or_else(|errno| error_value(errno.raw()), |()| FILE)
    }
}

impl Linked for Ours {
    fn peer(&self) -> Peer {
        OURS
    }

    #[inline(always)]
    fn stat(&self, path: &str) -> Value {
        match self.0.stat(path.as_bytes()) {
            Ok(st) if st.mode & S_IFMT == S_IFDIR => DIRECTORY,
            Ok(_) => FILE,
            Err(errno) => error_value(errno.raw()),
        }
    }

    #[inline(always)]
    fn open_close(&self, path: &str) -> Value {
        let opened = self.0.open(path.as_bytes(), O_RDONLY, 0);
        match opened.and_then(|fd| self.0.close(fd)) {
            Ok(()) => FILE,
            Err(errno) => error_value(errno.raw()),
        }
    }
}

/// A call of a file system that is linked in, in one situation. Who calls such a library has a `&str` at hand: nothing is
/// converted while the clock runs.
struct Direct<F> {
    name: &'static str,
    call: F,
    /// The paths of the situation, which has one list for all its threads.
    paths: OnceLock<Vec<String>>,
}

fn direct<'a, F: Fn(&str) -> Value + Sync + 'a>(of: &dyn Linked, call: F) -> Box<dyn Contender + 'a> {
    Box::new(Direct { name: of.peer().name, call, paths: OnceLock::new() })
}

impl<F: Fn(&str) -> Value + Sync> Contender for Direct<F> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn batch(&self, _op: Op, paths: &[CString], start: usize, count: usize) -> Timed {
        let paths = self.paths.get_or_init(|| paths.iter().map(|path| text(path).to_owned()).collect());
        each(paths, start, count, |path| (self.call)(path))
    }

    fn answer(&self, _op: Op, path: &CStr) -> Option<Value> {
        Some((self.call)(text(path)))
    }
}

/// The paths are made from `str`.
fn text(path: &CStr) -> &str {
    path.to_str().unwrap_or_default()
}

/// A file below `depth - 1` directories.
fn deep(depth: usize) -> String {
    format!("{}/file-{depth:02}", "/deep".repeat(depth - 1))
}

/// What the file systems hold.
struct Tree {
    /// Directories, parents first.
    dirs: Vec<String>,
    /// Files that are looked up in a random order: this one.
    many: Vec<String>,
    /// All files.
    files: Vec<String>,
}

impl Tree {
    fn new() -> Tree {
        let mut dirs: Vec<String> =
            ["/usr", "/usr/include", "/usr/include/linux"].into_iter().map(str::to_owned).collect();
        let mut many = vec![ONE.to_owned()];
        for i in 0..20 {
            dirs.push(format!("/usr/include/part-{i:02}"));
            for j in 0..20 {
                let dir = format!("/usr/include/part-{i:02}/section-{j:02}");
                many.extend((0..20).map(|k| format!("{dir}/header-{k:02}.h")));
                dirs.push(dir);
            }
        }
        fastrand::Rng::with_seed(1).shuffle(&mut many);
        dirs.extend((1..DEPTHS[1]).map(|depth| "/deep".repeat(depth)));
        let files = many.iter().cloned().chain(DEPTHS.map(deep)).collect();
        Tree { dirs, many, files }
    }

    fn in_ours(&self) -> rcuwalk::Result<Ours> {
        let vfs = Vfs::builder().capacity(1 << 16).build()?;
        let root = vfs.task(Cred::root());
        self.dirs.iter().try_for_each(|dir| root.mkdir(dir.as_bytes(), 0o755))?;
        for file in &self.files {
            let fd = root.creat(file.as_bytes(), 0o644)?;
            root.close(fd)?;
        }
        Ok(Ours(vfs.task(Cred::user(1000, 1000, &[]))))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Stat,
    Access,
    Open,
}

/// A call on paths, by one thread or more.
struct Situation {
    name: String,
    call: Call,
    threads: usize,
    paths: Vec<String>,
}

impl Situation {
    fn all(tree: &Tree, processors: usize) -> Vec<Situation> {
        let on = |threads, name: &str, call, paths: &[String]| Situation {
            name: name.to_owned(),
            call,
            threads,
            paths: paths.to_vec(),
        };
        let one = [ONE.to_owned()];
        let mut all = vec![on(1, "stat, 4 components", Call::Stat, &one)];
        all.extend(
            DEPTHS.map(|depth| on(1, &format!("stat, {depth} components"), Call::Stat, &[deep(depth)])),
        );
        all.extend([
            on(1, "stat, missing name", Call::Stat, &[MISSING.to_owned()]),
            on(1, "access, 4 components", Call::Access, &one),
            on(1, "open+close", Call::Open, &one),
            on(1, "stat, random files", Call::Stat, &tree.many),
        ]);
        if processors > 1 {
            all.push(on(processors, "stat, one file, every processor", Call::Stat, &one));
            all.push(on(processors, "stat, random files, every processor", Call::Stat, &tree.many));
        }
        all
    }
}

/// Times the engine and the other file systems. What has to be built first is built below `built`, if given, and not again by
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
    let budget = Budget::new(quick, threads, observer)?;
    let tree = Tree::new();
    let ours = tree.in_ours().map_err(|e| Error::engine("making a tree", b"/usr", e, ""))?;
    let linked = (ours, rust::VfsCrate::new(&tree)?, rust::Axfs::new(&tree)?);
    let mut notes = Vec::new();
    observer.stage("building peers", None);
    let programs = foreign::Programs::start(quick, built, &tree, &mut notes)?;
    let mut report = Report { machine, files: tree.files.len(), peers: vec![], rows: vec![], notes };
    report.peers.extend([linked.0.peer(), linked.1.peer(), linked.2.peer()]);
    report.peers.extend(programs.running.iter().map(|program| program.peer.clone()));
    for situation in Situation::all(&tree, budget.cpus.len()) {
        observer.stage(&situation.name, None);
        timed(&budget, &situation, &linked, &programs.running, &mut report)?;
    }
    report.notes.extend(programs.running.iter().filter_map(foreign::Running::last_words));
    Ok(report)
}

fn timed(
    budget: &Budget<'_>,
    situation: &Situation,
    (ours, vfs, axfs): &(Ours, rust::VfsCrate, rust::Axfs),
    programs: &[foreign::Running],
    report: &mut Report,
) -> Result<(), Error> {
    let &Situation { ref name, call, threads, ref paths } = situation;
    // Each loop is compiled for its file system: no dispatch inside.
    let mut sides = match call {
        Call::Stat => vec![
            direct(ours, |path| ours.stat(path)),
            direct(vfs, |path| vfs.stat(path)),
            direct(axfs, |path| axfs.stat(path)),
        ],
        Call::Access => vec![direct(ours, |path| ours.access(path))],
        Call::Open => vec![
            direct(ours, |path| ours.open_close(path)),
            direct(vfs, |path| vfs.open_close(path)),
            direct(axfs, |path| axfs.open_close(path)),
        ],
    };
    sides.extend(programs.iter().filter_map(|program| program.asked(call, threads)));
    let contenders: Vec<&dyn Contender> = sides.iter().map(|side| &**side).collect();
    let list = paths.iter().map(|path| CString::new(path.as_str()).unwrap_or_default()).collect();
    let workload = Workload::new(name.as_str(), vec![]).threads(threads, vec![list]);
    let timed = budget.series(&workload, &contenders)?;
    let Some(first) = timed.series.first() else { return Ok(()) };
    for (series, side) in timed.series.iter().zip(&contenders) {
        let (times, spread) = series.ratio(first);
        report.rows.push(Row {
            workload: name.clone(),
            threads,
            peer: side.name().to_owned(),
            ns: rounded(series.median()),
            spread_pct: rounded(series.spread_pct()),
            times: rounded(times),
            same: (times - 1.0).abs() * 100.0 <= spread / 2.0,
            check: timed.check.clone(),
            wrong: timed.wrong_of(series),
        });
    }
    Ok(())
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
            right(match row.same && row.peer != OURS.name {
                true => "same".to_owned(),
                false => format!("{:.2}", row.times),
            }),
            comfy_table::Cell::new(leaves_out),
        ]);
    }
    let _ = writeln!(out, "{table}");
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}
