//! The path calls of a real program, from an `strace` log, asked of the engine and of the kernel.
//!
//! The part of the tree that the program looked at is imported as it is now, so the answers compared are those of now; how
//! many of them the log saw as well is told. Calls that change something are not made, and counted. The others are made as
//! they were: with their flags, and relative to where the program stood. `execve` is asked with `AT_EXECVE_CHECK`: all
//! that execve(2) asks of the path, short of executing.

mod questions;
mod sides;
mod world;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;

use rcuwalk::{Vfs, WalkMode};
use rcuwalk_host::strace;
use rustix::fs::CWD;
use serde::Serialize;

use crate::engines::{Value, error_value};
use crate::error::Error;
use crate::identity;
use crate::identity::cred;
use crate::machine::Machine;
use crate::progress::Observer;
use crate::series::rounded;
use questions::{Kind, Question, Questions};
use sides::{Engine, Kernel, Side, ask_all};

/// What to replay.
#[derive(Debug, Clone)]
pub struct Options {
    /// The log of `strace -f`, best with `-y`; compressed with gzip or not.
    pub trace: PathBuf,
    /// Where the program was started; relative paths start there unless the log says where.
    pub cwd: PathBuf,
    /// Rounds of timing; 0 only compares.
    pub rounds: usize,
}

/// What a replay found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where it ran.
    pub machine: Machine,
    /// The log.
    pub trace: String,
    /// Calls in it.
    pub calls: usize,
    /// Lines of it that could not be read.
    pub unread: usize,
    /// Calls that were replayed, by kind.
    pub kinds: BTreeMap<&'static str, usize>,
    /// Path calls that were not, by reason.
    pub left_out: BTreeMap<&'static str, usize>,
    /// Names that were imported.
    pub entries: usize,
    /// Calls that the engine, walking in any of its ways, answers differently from the kernel.
    pub mismatches: Vec<Mismatch>,
    /// Answers that are, success or error, as the log has them.
    pub as_logged: usize,
    /// Percent of the answers that are `ENOENT`.
    pub enoent_pct: f64,
    /// Components of a path as the program gave it, on average.
    pub mean_depth: f64,
    /// Directories that the engine's walk searched for a name, all calls together.
    pub searches: u64,
    /// Those that it searched without a permission check, percent (S9).
    pub searches_spared_pct: f64,
    /// Calls that are timed: all replayed ones but execve, for which the kernel prepares much more than a path.
    pub timed: usize,
    /// Nanoseconds a call, medians of whole replays: the kernel, the engine's walk, the engine with its whole-path table.
    pub ns_per_call: Option<Times>,
    /// Timed replays whose answers did not add up to the kernel's of the same round.
    pub wrong_sums: usize,
}

/// See [`Report::ns_per_call`].
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Times {
    /// The running kernel.
    pub host: f64,
    /// The engine, walking each path.
    pub walk: f64,
    /// The engine.
    pub rcuwalk: f64,
}

/// An answer that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// The call.
    pub call: &'static str,
    /// Its path.
    pub path: String,
    /// What the kernel says, and what the engine.
    pub host: String,
    /// See above.
    pub rcuwalk: String,
}

/// Replays a log.
///
/// # Errors
///
/// When the log cannot be read or has no path call, and what importing and becoming the caller can fail with.
pub fn run(options: &Options, observer: &dyn Observer) -> Result<Report, Error> {
    const WHAT: &str = "reading the log";
    let text = read(&options.trace)
        .map_err(|e| Error::host(WHAT, &options.trace, e, "name a file that strace -f -o wrote"))?;
    let log = strace::read(&text);
    let questions = Questions::new(&log.calls, &options.cwd);
    if questions.list.is_empty() {
        let hint = "make one with strace -f -y -o LOG PROGRAM";
        return Err(Error::new(
            WHAT,
            options.trace.display().to_string(),
            "no call about a path in it",
            hint,
        ));
    }
    // The kernel is asked by a thread of its own, which goes where the program went and leaves the others where they are.
    let report = thread::scope(|scope| scope.spawn(|| replay(questions, options.rounds, observer)).join());
    let mut report = report.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    report.trace = options.trace.display().to_string();
    (report.calls, report.unread) = (log.calls.len(), log.unread);
    Ok(report)
}

/// A file, unpacked if it is compressed.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let bytes = std::fs::read(path)?;
    if !bytes.starts_with(b"\x1f\x8b") {
        return Ok(bytes);
    }
    let mut text = Vec::new();
    flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_end(&mut text)?;
    Ok(text)
}

fn replay(mut questions: Questions, rounds: usize, observer: &dyn Observer) -> Result<Report, Error> {
    crate::sys::own_working_directory()
        .map_err(|e| Error::host("taking a current directory of my own", "unshare", e, ""))?;
    let mut kernel = Kernel::new(settle(&mut questions)?);
    observer.stage("importing", Some(questions.list.len() as u64));
    let vfs = world::empty()?;
    let entries = import(&mut questions, &vfs, observer)?;
    let who = identity::caller()?;
    let cred =
        cred(&who, identity::assume(&who)?).map_err(|e| Error::engine("becoming the caller", b"", e, ""))?;
    let mut engine = Engine::new(vfs.task(cred), &questions.places)
        .map_err(|(path, errno)| Error::engine("going where the program stood", &path, errno, ""))?;
    observer.stage("comparing", None);
    let mut report = compare(&questions.list, &vfs, &mut kernel, &mut engine);
    (report.left_out, report.entries) = (questions.left_out, entries);
    if rounds > 0 {
        observer.stage("timing", Some(rounds as u64));
        questions.list.retain(|question| !matches!(question.kind, Kind::Execve { .. }));
        time(&questions.list, &vfs, (&mut kernel, &mut engine), rounds, observer, &mut report);
    }
    Ok(report)
}

/// Opens the places that questions start from, on the host. Where one is gone, those that need it are left out, and the root
/// takes its number.
fn settle(questions: &mut Questions) -> Result<Vec<OwnedFd>, Error> {
    let mut found: Vec<Option<OwnedFd>> = questions.places.iter().map(|path| Kernel::place(path)).collect();
    questions.retain("relative to a directory that is gone", |question| {
        question.absolute == question.path.to_bytes() || found[question.starts()].is_some()
    });
    for (path, place) in questions.places.iter_mut().zip(&mut found) {
        if place.is_none() {
            (*path, *place) = (b"/".to_vec(), Kernel::place(b"/"));
        }
    }
    let all: Option<Vec<OwnedFd>> = found.into_iter().collect();
    all.ok_or_else(|| Error::new("going where the program stood", "/", "it cannot be opened", ""))
}

/// Imports what the questions are about; leaves out what cannot be asked of this host without doing something to it. The
/// number of names.
fn import(questions: &mut Questions, vfs: &Vfs, observer: &dyn Observer) -> Result<usize, Error> {
    let mut world = world::World::new(vfs)?;
    for place in &questions.places {
        world.add(place)?;
    }
    let mut special = Vec::with_capacity(questions.list.len());
    for question in &questions.list {
        special.push(world.add(&question.absolute)? == Some(world::Kind::Special));
        observer.advance(1);
    }
    let mut special = special.into_iter();
    questions.retain("opens a device, a pipe or a socket", |question| {
        !special.next().unwrap_or_default() || !question.kind.opens()
    });
    if crate::sys::may_execute(CWD, c"/", 0) == Err(rustix::io::Errno::INVAL) {
        questions.retain("execve, which this kernel cannot check without executing", |question| {
            !matches!(question.kind, Kind::Execve { .. })
        });
    }
    Ok(world.entries())
}

/// An answer in words.
fn tell(value: Value) -> String {
    match value >> 63 {
        0 => format!("{value:x}"),
        _ => error_name(value),
    }
}

fn error_name(value: Value) -> String {
    let raw = (value & 0xffff) as i32;
    rcuwalk::Errno::from_raw(raw).map_or_else(|| format!("errno {raw}"), |errno| errno.name().to_owned())
}

/// Asks everything of both, of the engine with each way to walk: to see a path, to remember it, and from memory.
fn compare(questions: &[Question], vfs: &Vfs, kernel: &mut Kernel, engine: &mut Engine) -> Report {
    (kernel.identify, engine.identify) = (true, true);
    let theirs = answers(kernel, questions);
    vfs.set_walk_mode(WalkMode::Rcu);
    vfs.set_count_searches(true);
    let mut ours = vec![answers(engine, questions)];
    let stats = vfs.stats();
    vfs.set_count_searches(false);
    for mode in [WalkMode::RefOnly, WalkMode::Direct, WalkMode::Direct, WalkMode::Direct] {
        vfs.set_walk_mode(mode);
        ours.push(answers(engine, questions));
    }
    // Another process may change the tree meanwhile: what counts is the kernel's answer before and after.
    let again = answers(kernel, questions);
    (kernel.identify, engine.identify) = (false, false);

    let mut report = Report::of(stats.searches_spared, stats.searches_checked);
    let (mut missing, mut depth) = (0_usize, 0_usize);
    for (i, Question { kind, path, absolute, logged, .. }) in questions.iter().enumerate() {
        *report.kinds.entry(kind.name()).or_insert(0) += 1;
        depth += path.to_bytes().split(|&byte| byte == b'/').filter(|name| !name.is_empty()).count();
        missing += usize::from(theirs[i] == error_value(rcuwalk::Errno::ENOENT.raw()));
        let name = if theirs[i] >> 63 == 1 { error_name(theirs[i]) } else { "0".to_owned() };
        report.as_logged += usize::from(*logged == name);
        let wrong = ours.iter().map(|answers| answers[i]).find(|&answer| answer != theirs[i]);
        if let Some(answer) = wrong.filter(|_| again[i] == theirs[i]) {
            report.mismatches.push(Mismatch {
                call: kind.name(),
                path: String::from_utf8_lossy(absolute).into_owned(),
                host: tell(theirs[i]),
                rcuwalk: tell(answer),
            });
        }
    }
    let all = questions.len().max(1) as f64;
    report.enoent_pct = rounded(missing as f64 * 100.0 / all);
    report.mean_depth = rounded(depth as f64 / all);
    report
}

fn answers(side: &mut impl Side, questions: &[Question]) -> Vec<Value> {
    let mut answers = Vec::with_capacity(questions.len());
    ask_all(side, questions, |answer| answers.push(answer));
    answers
}

/// Times the kernel, the walk and the table in turns, and adds up what they answer.
fn time(
    questions: &[Question],
    vfs: &Vfs,
    (kernel, engine): (&mut Kernel, &mut Engine),
    rounds: usize,
    observer: &dyn Observer,
    report: &mut Report,
) {
    fn replay(side: &mut impl Side, questions: &[Question]) -> (Value, f64) {
        let mut sum: Value = 0;
        let spent = ask_all(side, questions, |answer| sum = sum.wrapping_mul(3).wrapping_add(answer));
        (sum, spent.as_nanos() as f64 / questions.len().max(1) as f64)
    }
    let mut samples: [Vec<f64>; 3] = Default::default();
    for _ in 0..rounds {
        let (expected, ns) = replay(kernel, questions);
        samples[0].push(ns);
        for (at, mode) in [(1, WalkMode::Rcu), (2, WalkMode::Direct)] {
            vfs.set_walk_mode(mode);
            let (sum, ns) = replay(engine, questions);
            report.wrong_sums += usize::from(sum != expected);
            samples[at].push(ns);
        }
        observer.advance(1);
    }
    let [host, walk, rcuwalk] = samples.map(|mut samples| {
        samples.sort_unstable_by(f64::total_cmp);
        rounded(samples[samples.len() / 2])
    });
    report.timed = questions.len();
    report.ns_per_call = Some(Times { host, walk, rcuwalk });
}

impl Report {
    /// A report of nothing but searches.
    fn of(spared: u64, checked: u64) -> Report {
        let searches = spared + checked;
        Report {
            machine: Machine::read(),
            trace: String::new(),
            calls: 0,
            unread: 0,
            kinds: BTreeMap::new(),
            left_out: BTreeMap::new(),
            entries: 0,
            mismatches: Vec::new(),
            as_logged: 0,
            enoent_pct: 0.0,
            mean_depth: 0.0,
            searches,
            searches_spared_pct: rounded(spared as f64 * 100.0 / searches.max(1) as f64),
            timed: 0,
            ns_per_call: None,
            wrong_sums: 0,
        }
    }

    /// What went wrong, in words; nothing if every answer was the kernel's.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.mismatches.is_empty() {
            faults.push(format!("{} answers differ from the kernel's", self.mismatches.len()));
        }
        if self.wrong_sums > 0 {
            faults.push(format!("{} timed replays answered differently from the kernel's", self.wrong_sums));
        }
        faults
    }

    /// The report in plain words.
    pub fn render(&self) -> String {
        let mut out = String::new();
        let replayed: usize = self.kinds.values().sum();
        let _ = writeln!(
            out,
            "{}: {} calls, {replayed} of them about paths and replayed",
            self.trace, self.calls
        );
        let list = |counts: &BTreeMap<&'static str, usize>| {
            counts.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
        };
        let _ = writeln!(out, "by kind: {}", list(&self.kinds));
        if !self.left_out.is_empty() {
            let _ = writeln!(out, "not replayed: {}", list(&self.left_out));
        }
        if self.unread > 0 {
            let _ = writeln!(out, "lines that could not be read: {}", self.unread);
        }
        let _ = writeln!(
            out,
            "{} names imported; {:.1} components a path, {:.1} % ENOENT; {} searches, {:.1} % of them without a permission check",
            self.entries, self.mean_depth, self.enoent_pct, self.searches, self.searches_spared_pct
        );
        let _ = writeln!(out, "answers that differ from the kernel's: {}", self.mismatches.len());
        for Mismatch { call, path, host, rcuwalk } in &self.mismatches {
            let _ = writeln!(out, "  {call} {path}: kernel {host}, rcuwalk {rcuwalk}");
        }
        let _ = writeln!(out, "answers as in the log: {} of {replayed}", self.as_logged);
        if let Some(Times { host, walk, rcuwalk }) = self.ns_per_call {
            let timed = self.timed;
            let _ = writeln!(
                out,
                "ns a call ({timed}, all but execve): kernel {host:.0}, walk {walk:.0} ({:.1} times), with the whole-path table {rcuwalk:.0} ({:.1} times)",
                host / walk,
                host / rcuwalk
            );
        }
        out
    }
}
