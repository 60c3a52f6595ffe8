//! What comparisons are written in: sides, workloads, points.

use std::ffi::{CStr, CString};
use std::path::Path;

use serde::Serialize;

use crate::engines::{Contender, Op, Timed, Value, chained, each};
use crate::error::Error;
use crate::identity;
use crate::machine::allowed_cpus;
use crate::progress::Observer;
use crate::series::{self, MANY_PATHS, PathSet, Plan, Series, on_thread, rounded};
use rcuwalk_host::Identity;

/// The `check` of a row whose answers were wrong.
pub const DIFFERS: &str = "DIFFERS";

/// What a row may spend, and what it measures with.
pub struct Budget<'a> {
    /// Rounds of each comparison.
    pub rounds: usize,
    /// Length of a batch, nanoseconds.
    pub batch_nanos: u64,
    /// Processors for the threads, in order.
    pub cpus: Vec<usize>,
    /// A smoke run: a second or two for a row, not ten or fifteen.
    pub quick: bool,
    /// The caller, as whom the threads run unless a workload says otherwise.
    pub caller: Identity,
    observer: &'a dyn Observer,
}

/// What a row found.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Its workloads.
    pub points: Vec<Point>,
    /// What a reader has to know.
    pub note: String,
}

impl From<Vec<Point>> for Outcome {
    fn from(points: Vec<Point>) -> Outcome {
        Outcome { points, note: String::new() }
    }
}

/// One workload, the old way and the new.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// The workload.
    pub name: String,
    /// What the old way is called.
    pub variant: &'static str,
    /// Threads at once.
    pub threads: usize,
    /// The old way: median, per operation and thread.
    pub before: f64,
    /// The new way.
    pub after: f64,
    /// What both count.
    pub unit: &'static str,
    /// Before divided by after: median of the ratios within rounds.
    pub ratio: f64,
    /// Distance of the quartiles of those ratios, percent.
    pub spread_pct: f64,
    /// True if the difference lies inside the spread.
    pub same: bool,
    /// The least ratio that the row claims here; none where the point only informs.
    pub claim: Option<f64>,
    /// With several threads: operations per second of all, as a multiple of one's alone; before, after.
    pub scaling: Option<(f64, f64)>,
    /// What was checked.
    pub check: String,
    /// True if a checked answer was wrong.
    pub wrong: bool,
}

impl Point {
    /// Whether the claim, if there is one, is met beyond the spread.
    pub fn claim_holds(&self) -> bool {
        self.claim.is_none_or(|least| self.ratio >= least && (least < 1.0 || !self.same))
    }
}

/// One way to do an operation.
pub struct Side<F> {
    name: &'static str,
    call: F,
}

/// The side `name`, which does what `call` does with the path (or whatever the workload's lists hold) and answers with
/// a number that the other side must answer with, too.
pub fn side<F: Fn(&CStr) -> Value + Sync>(name: &'static str, call: F) -> Side<F> {
    Side { name, call }
}

impl<F: Fn(&CStr) -> Value + Sync> Contender for Side<F> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn batch(&self, op: Op, paths: &[CString], start: usize, count: usize) -> Timed {
        match op {
            Op::StatChained => chained(paths, start, count, &self.call),
            _ => each(paths, start, count, |path| (self.call)(path)),
        }
    }

    fn answer(&self, _op: Op, path: &CStr) -> Option<Value> {
        Some((self.call)(path))
    }
}

/// An old way; its name stands in the table.
pub type Variant<'a> = &'a dyn Contender;

/// What is done, and how often.
pub struct Workload<'a> {
    name: String,
    threads: usize,
    lists: Vec<Vec<CString>>,
    chained: bool,
    per: f64,
    unit: &'static str,
    claim: Option<f64>,
    who: Option<&'a Identity>,
    directory: Option<&'a Path>,
}

impl<'a> Workload<'a> {
    /// The workload `name`: one operation for each of `paths`, again and again, on one thread.
    pub fn new(name: impl Into<String>, paths: Vec<CString>) -> Workload<'a> {
        Workload {
            name: name.into(),
            threads: 1,
            lists: vec![paths],
            chained: false,
            per: 1.0,
            unit: "ns",
            claim: None,
            who: None,
            directory: None,
        }
    }

    /// On several threads, thread `i` with list `i` modulo their number.
    #[must_use]
    pub fn threads(mut self, threads: usize, lists: Vec<Vec<CString>>) -> Self {
        self.threads = threads;
        self.lists = lists;
        self
    }

    /// Each path depends on the answer before it: latency instead of throughput.
    #[must_use]
    pub fn chained(mut self) -> Self {
        self.chained = true;
        self
    }

    /// A call is `n` operations; the figures are per operation.
    #[must_use]
    pub fn per(mut self, n: u32) -> Self {
        self.per = f64::from(n);
        self
    }

    /// The row claims that the old way takes at least `least` times as long; without a number it only informs.
    #[must_use]
    pub fn claims(mut self, least: impl Into<Option<f64>>) -> Self {
        self.claim = least.into();
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Threads at once.
    pub fn thread_count(&self) -> usize {
        self.threads
    }

    /// The threads act as another user, for the host's sake.
    #[must_use]
    pub fn as_identity(mut self, who: &'a Identity) -> Self {
        self.who = Some(who);
        self
    }

    /// The threads stand in a directory, for the host's sake.
    #[must_use]
    pub fn within(mut self, directory: &'a Path) -> Self {
        self.directory = Some(directory);
        self
    }
}

impl<'a> Budget<'a> {
    /// What a comparison on at most `threads` threads may spend; 0 is one for each processor.
    ///
    /// # Errors
    ///
    /// When the processors or the identity of the caller cannot be asked for.
    pub fn new(quick: bool, threads: usize, observer: &'a dyn Observer) -> Result<Budget<'a>, Error> {
        let mut cpus = allowed_cpus()?;
        // The first processor takes most interrupts: it comes last.
        cpus.reverse();
        if threads > 0 {
            cpus.truncate(threads);
        }
        let (rounds, batch_nanos) = if quick { (31, 60_000) } else { (151, 200_000) };
        let caller = identity::caller()?;
        Ok(Budget { rounds, batch_nanos, cpus, quick, caller, observer })
    }

    /// The numbers of threads to measure with: one, and, where there are more processors, powers of two up to all.
    pub fn thread_counts(&self) -> Vec<usize> {
        let all = self.cpus.len();
        let mut counts: Vec<usize> = (0..).map(|i| 1 << i).take_while(|&n| n < all).collect();
        counts.push(all);
        counts
    }

    /// Tells how far the row is.
    pub fn doing(&self, what: &str) {
        self.observer.stage(what, None);
    }

    /// Times old ways and the new one on a workload, in turns. One point for each old way.
    ///
    /// # Errors
    ///
    /// When threads cannot be started, pinned or made who and where they have to be.
    pub fn compare(
        &self,
        workload: Workload<'_>,
        before: &[Variant<'_>],
        after: &dyn Contender,
    ) -> Result<Vec<Point>, Error> {
        let contenders: Vec<&dyn Contender> = before.iter().copied().chain([after]).collect();
        let timed = self.series(&workload, &contenders)?;
        let Some((ours, theirs)) = timed.series.split_last() else { return Ok(Vec::new()) };
        let points = before.iter().zip(theirs);
        Ok(points.map(|(side, old)| point(&workload, side.name(), old, ours, &timed)).collect())
    }

    /// Times contenders on a workload, in turns.
    ///
    /// # Errors
    ///
    /// As [`compare`](Self::compare).
    pub fn series(
        &self,
        workload: &Workload<'_>,
        contenders: &[&dyn Contender],
    ) -> Result<TimedSeries, Error> {
        let op = if workload.chained { Op::StatChained } else { Op::Stat };
        let who = workload.who.unwrap_or(&self.caller);
        let mut dropped = 0;
        let sets: Vec<PathSet> = on_thread(who, workload.directory, || {
            let lists = workload.lists.iter().cloned();
            lists
                .map(|list| {
                    let (set, less) = PathSet::agreed(list, op, contenders);
                    dropped += less;
                    set
                })
                .collect()
        })?;
        if sets.iter().any(PathSet::is_empty) {
            let why = "the sides agree on no answer of a list";
            return Err(Error::new("comparing", &workload.name, why, "please report it"));
        }
        // Each side needs some time to make the caches its own before many paths say anything.
        let many = sets.iter().any(|set| set.len() > MANY_PATHS);
        let (longer, fewer) = if many { (10, 3) } else { (1, 1) };
        let series = series::run(&Plan {
            op,
            sets: (0..workload.threads).map(|i| &sets[i % sets.len()]).collect(),
            contenders,
            cpus: &self.cpus,
            who,
            directory: workload.directory,
            batch_nanos: self.batch_nanos * longer,
            rounds: self.rounds / fewer,
        })?;
        let wrong: usize = series.iter().map(|series| series.wrong_batches).sum();
        let answers: usize = sets.iter().map(PathSet::len).sum();
        let sum = sets.iter().fold(0_u64, |sum, set| sum.wrapping_add(set.total()));
        let check = match (wrong, dropped) {
            (0, 0) => format!("{answers} answers equal, every batch sums up, {sum:016x}"),
            (0, _) => format!("{DIFFERS}: the sides give {dropped} different answers"),
            (_, _) => format!("{DIFFERS}: {wrong} batches do not add up"),
        };
        Ok(TimedSeries { series, check, dropped })
    }
}

/// What contenders took on a workload.
pub struct TimedSeries {
    /// One for each, in their order.
    pub series: Vec<Series>,
    /// What was checked.
    pub check: String,
    /// Paths on which they gave different answers.
    dropped: usize,
}

impl TimedSeries {
    /// True if a checked answer was wrong.
    pub fn wrong(&self) -> bool {
        self.series.iter().any(|series| self.wrong_of(series))
    }

    /// True if it was an answer of this one, as far as one can tell whose.
    pub fn wrong_of(&self, series: &Series) -> bool {
        self.dropped > 0 || series.wrong_batches > 0
    }
}

fn point(
    workload: &Workload<'_>,
    variant: &'static str,
    old: &Series,
    new: &Series,
    timed: &TimedSeries,
) -> Point {
    let (ratio, spread_pct) = old.ratio(new);
    Point {
        name: workload.name.clone(),
        variant,
        threads: workload.threads,
        before: rounded(old.median() / workload.per),
        after: rounded(new.median() / workload.per),
        unit: workload.unit,
        ratio: rounded(ratio),
        spread_pct: rounded(spread_pct),
        same: (ratio - 1.0).abs() * 100.0 <= spread_pct / 2.0,
        claim: workload.claim,
        scaling: old.scaling().zip(new.scaling()).map(|(a, b)| (rounded(a), rounded(b))),
        check: timed.check.clone(),
        wrong: timed.wrong(),
    }
}
