//! Timing: every engine in turn on the same paths, round after round, on pinned threads, every batch checked.
//!
//! One round runs one batch per engine. Rounds alternate their direction (A B C, C B A), so that a drift of the clock
//! frequency or a busy neighbour touches all engines alike, and ratios are taken within a round. A batch whose answers
//! do not add up to what the kernel answered before the run spoils its row.

use std::ffi::CString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::engines::{Contender, Op, Value};
use crate::error::Error;
use crate::identity;
use rcuwalk_host::Identity;

/// A list longer than this is more than the innermost cache holds.
pub const MANY_PATHS: usize = 256;

/// Paths and what each must answer.
#[derive(Debug, Clone)]
pub struct PathSet {
    paths: Vec<CString>,
    /// `sums[i]`: wrapping sum of the values of the first `i` paths.
    sums: Vec<Value>,
}

impl PathSet {
    /// The paths on which every contender gives the same answer, with that answer, and the number of the others.
    pub fn agreed(paths: Vec<CString>, op: Op, contenders: &[&dyn Contender]) -> (PathSet, usize) {
        let all = paths.len();
        let mut set = PathSet { paths: Vec::with_capacity(all), sums: vec![0] };
        for path in paths {
            let mut answers = contenders.iter().filter_map(|c| c.answer(op, &path));
            let Some(first) = answers.next() else { continue };
            if answers.all(|other| other == first) {
                set.sums.push(set.total().wrapping_add(first));
                set.paths.push(path);
            }
        }
        let dropped = all - set.paths.len();
        (set, dropped)
    }

    /// Number of paths.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// True without any path.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// The first path.
    pub fn first(&self) -> Option<&CString> {
        self.paths.first()
    }

    /// Sum of the values of all paths.
    pub fn total(&self) -> Value {
        self.sums.last().copied().unwrap_or(0)
    }

    /// What `count` operations from `start` on, cyclically, must sum up to.
    fn expected(&self, start: usize, count: usize) -> Value {
        let len = self.len();
        let turns = self.total().wrapping_mul((count / len) as u64);
        let (end, rest) = (start + count % len, &self.sums);
        let tail = if end <= len {
            rest[end].wrapping_sub(rest[start])
        } else {
            self.total().wrapping_sub(rest[start]).wrapping_add(rest[end - len])
        };
        turns.wrapping_add(tail)
    }
}

/// What to time.
pub struct Plan<'a> {
    /// The operation.
    pub op: Op,
    /// One set of paths per thread.
    pub sets: Vec<&'a PathSet>,
    /// The engines, in table order.
    pub contenders: &'a [&'a dyn Contender],
    /// The processor of each thread.
    pub cpus: &'a [usize],
    /// The identity the threads take on, for the host's sake; the others carry theirs.
    pub who: &'a Identity,
    /// Working directory of the threads, for relative paths.
    pub directory: Option<&'a Path>,
    /// Length of a batch in nanoseconds.
    pub batch_nanos: u64,
    /// Number of rounds.
    pub rounds: usize,
}

/// What one engine reached.
#[derive(Debug, Clone)]
pub struct Series {
    /// Nanoseconds per operation, round by round; within a round, one figure per thread.
    pub rounds: Vec<Vec<f64>>,
    /// With several threads: the first one alone, in the same rounds, while the others wait.
    pub solo: Vec<f64>,
    /// Batches whose answers did not add up.
    pub wrong_batches: usize,
}

impl Series {
    /// Median over all batches.
    pub fn median(&self) -> f64 {
        quantile(self.rounds.iter().flatten().copied().collect(), 0.5)
    }

    /// Distance between the quartiles, as percent of the median.
    pub fn spread_pct(&self) -> f64 {
        let all: Vec<f64> = self.rounds.iter().flatten().copied().collect();
        let (low, middle, high) =
            (quantile(all.clone(), 0.25), quantile(all.clone(), 0.5), quantile(all, 0.75));
        if middle > 0.0 { (high - low) / middle * 100.0 } else { 0.0 }
    }

    /// Mean over the threads of one round.
    pub fn round(&self, at: usize) -> f64 {
        let threads = &self.rounds[at];
        threads.iter().sum::<f64>() / threads.len() as f64
    }

    /// This series with a cost per operation taken off, round by round.
    pub fn minus(&self, cost: &Series, times: u32) -> Series {
        let less = |(mine, theirs): (&Vec<f64>, &Vec<f64>)| {
            mine.iter().zip(theirs).map(|(a, b)| a - b * f64::from(times)).collect()
        };
        Series { rounds: self.rounds.iter().zip(&cost.rounds).map(less).collect(), ..self.clone() }
    }

    /// Median over the rounds of this series divided by `other`, and the distance of the quartiles in percent.
    pub fn ratio(&self, other: &Series) -> (f64, f64) {
        let [low, middle, high] = self.ratio_quartiles(other);
        (middle, if middle > 0.0 { (high - low) / middle * 100.0 } else { 0.0 })
    }

    /// The quartiles over the rounds of this series divided by `other`, the median between them.
    pub fn ratio_quartiles(&self, other: &Series) -> [f64; 3] {
        quartiles((0..self.rounds.len()).map(|i| self.round(i) / other.round(i)).collect())
    }

    /// Operations per second of all threads together as a multiple of the first one's alone, median over the rounds;
    /// none for a single thread.
    pub fn scaling(&self) -> Option<f64> {
        self.scaling_quartiles().map(|[_, middle, _]| middle)
    }

    /// The quartiles of the same.
    pub fn scaling_quartiles(&self) -> Option<[f64; 3]> {
        let times = |(at, solo): (usize, &f64)| self.rounds[at].iter().map(|all| solo / all).sum::<f64>();
        let rounds: Vec<f64> = self.solo.iter().enumerate().map(times).collect();
        (!rounds.is_empty()).then(|| quartiles(rounds))
    }
}

/// Two digits after the point: more would be noise.
pub fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// The quartiles of `values`, the median between them.
fn quartiles(values: Vec<f64>) -> [f64; 3] {
    [0.25, 0.5, 0.75].map(|q| quantile(values.clone(), q))
}

/// The quantile `q` of `values`, interpolated; 0 without values.
pub fn quantile(mut values: Vec<f64>, q: f64) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.sort_unstable_by(f64::total_cmp);
    let at = q * (values.len() - 1) as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    values[low] + (values[high] - values[low]) * (at - at.floor())
}

/// Where threads wait for each other without sleeping: they start within nanoseconds, not a wake-up apart.
struct Gate {
    arrived: AtomicUsize,
    threads: usize,
    /// Set when a thread gives up; the others wait for it no more.
    broken: AtomicBool,
}

impl Gate {
    fn new(threads: usize) -> Gate {
        Gate { arrived: AtomicUsize::new(0), threads, broken: AtomicBool::new(false) }
    }

    /// Announces arrival number `turn` (from 0) of this thread.
    fn arrive(&self) {
        self.arrived.fetch_add(1, Ordering::AcqRel);
    }

    /// True once all threads have arrived `turn + 1` times.
    fn open(&self, turn: usize) -> bool {
        self.arrived.load(Ordering::Acquire) >= self.threads * (turn + 1)
            || self.broken.load(Ordering::Acquire)
    }

    fn wait(&self, turn: usize) {
        self.arrive();
        let mut spins = 0_u32;
        while !self.open(turn) {
            spins += 1;
            if spins.is_multiple_of(1 << 14) {
                thread::yield_now(); // more threads than processors
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// Times the plan. The answer holds one series per contender, in their order.
///
/// # Errors
///
/// When a thread cannot be started, pinned or given its identity.
pub fn run(plan: &Plan<'_>) -> Result<Vec<Series>, Error> {
    let threads = plan.sets.len();
    let (start, finish) = (Gate::new(threads), Gate::new(threads));
    let empty =
        Series { rounds: vec![Vec::with_capacity(threads); plan.rounds], solo: Vec::new(), wrong_batches: 0 };
    let mut series = vec![empty; plan.contenders.len()];
    let results = thread::scope(|scope| {
        let mut handles = Vec::with_capacity(threads);
        for index in 0..threads {
            let (start, finish) = (&start, &finish);
            let spawned =
                thread::Builder::new().name(format!("bench-{index}")).spawn_scoped(scope, move || {
                    let worker = Worker { plan, index, start, finish };
                    let result = worker.run();
                    if result.is_err() {
                        start.broken.store(true, Ordering::Release);
                        finish.broken.store(true, Ordering::Release);
                    }
                    result
                });
            match spawned {
                Ok(handle) => handles.push(handle),
                Err(e) => {
                    start.broken.store(true, Ordering::Release);
                    finish.broken.store(true, Ordering::Release);
                    return Err(Error::host(
                        "starting a thread",
                        format!("bench-{index}"),
                        e,
                        "lower --threads",
                    ));
                }
            }
        }
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Result<Vec<_>, Error>>()
    })?;
    for thread in results {
        for (all, one) in series.iter_mut().zip(thread) {
            all.wrong_batches += one.wrong;
            all.solo.extend(one.solo);
            all.rounds.iter_mut().zip(one.rounds).for_each(|(round, sample)| round.push(sample));
        }
    }
    Ok(series)
}

/// How long an engine may take to be asked for all paths again: those that take longer learn nothing by it.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often each engine is asked for every path of a list of `paths` before it is timed: at the first time some leave a mark,
/// at the second all do, at the third most are remembered, and a table that is full of others takes some more.
fn warm_up(paths: usize) -> usize {
    if paths > MANY_PATHS { (100_000 / paths).max(6) } else { 6 }
}

/// One thread's samples of one contender.
#[derive(Default)]
struct Samples {
    rounds: Vec<f64>,
    solo: Vec<f64>,
    wrong: usize,
}

struct Worker<'a> {
    plan: &'a Plan<'a>,
    index: usize,
    start: &'a Gate,
    finish: &'a Gate,
}

impl Worker<'_> {
    fn run(&self) -> Result<Vec<Samples>, Error> {
        let plan = self.plan;
        self.pin()?;
        let set = plan.sets[self.index];
        // What an engine learns of paths that are asked for again, it learns before.
        for contender in plan.contenders {
            let clock = Instant::now();
            for _ in 0..warm_up(set.len()) {
                contender.batch(plan.op, &set.paths, 0, set.len());
                if clock.elapsed() >= PATIENCE {
                    break;
                }
            }
        }
        // All rounds together go round the whole list, however slow the engine: each is timed on the same paths.
        let least = set.len().div_ceil(plan.rounds.max(1));
        let counts: Vec<usize> = plan
            .contenders
            .iter()
            .map(|c| calibrate(*c, plan.op, set, plan.batch_nanos).max(least))
            .collect();
        // Threads that share a list are spread over it.
        let mut at = vec![set.len() * self.index / plan.sets.len(); counts.len()];
        let checked: Vec<bool> =
            plan.contenders.iter().map(|c| c.answer(plan.op, &set.paths[0]).is_some()).collect();
        let mut samples: Vec<Samples> = counts.iter().map(|_| Samples::default()).collect();
        let mut turn = 0;
        for round in 0..plan.rounds {
            for step in 0..counts.len() {
                let which = if round % 2 == 0 { step } else { counts.len() - 1 - step };
                let (contender, count) = (plan.contenders[which], counts[which]);
                let begin = at[which];
                self.lead_in(contender, begin, count);
                self.start.wait(turn);
                if self.start.broken.load(Ordering::Acquire) {
                    return Ok(samples); // another thread reports the error
                }
                let timed = contender.batch(plan.op, &set.paths, begin, count);
                self.finish.arrive();
                // The others are still being timed: stay as heavy a neighbour as before.
                while !self.finish.open(turn) {
                    contender.batch(plan.op, &set.paths, begin, count.min(64));
                }
                turn += 1;
                at[which] = (begin + count) % set.len();
                let right = !checked[which] || timed.sum == set.expected(begin, count);
                let sample = &mut samples[which];
                sample.rounds.push(timed.nanos as f64 / count as f64);
                sample.wrong += usize::from(!right);
                if self.index == 0 && plan.sets.len() > 1 {
                    // The others wait at the gate of the next turn.
                    let timed = contender.batch(plan.op, &set.paths, begin, count);
                    sample.solo.push(timed.nanos as f64 / count as f64);
                }
            }
        }
        Ok(samples)
    }

    /// Asks for the paths of a long list that come before `begin`, untimed, so that a batch finds in the caches what one of
    /// the same engine would have left there, whichever engine had the caches before.
    fn lead_in(&self, contender: &dyn Contender, begin: usize, count: usize) {
        let set = self.plan.sets[self.index];
        if set.len() > MANY_PATHS {
            let lead = (2 * count).min(set.len());
            contender.batch(self.plan.op, &set.paths, (begin + set.len() - lead) % set.len(), lead);
        }
    }

    /// Pins the thread and makes it who and where it has to be.
    fn pin(&self) -> Result<(), Error> {
        let plan = self.plan;
        let cpu = plan.cpus[self.index % plan.cpus.len()];
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set)
            .map_err(|e| Error::host("pinning a thread", format!("processor {cpu}"), e, "lower --threads"))?;
        settle(plan.who, plan.directory)
    }
}

/// Moves the calling thread, and no other, to a directory, and gives it an identity; in this order, as the last step
/// takes privileges away.
///
/// # Errors
///
/// When the directory cannot be entered or the identity not taken on.
pub fn settle(who: &Identity, directory: Option<&Path>) -> Result<(), Error> {
    if let Some(directory) = directory {
        crate::sys::own_working_directory().and_then(|()| rustix::process::chdir(directory)).map_err(
            |e| Error::host("entering the directory", directory, e, "set TMPDIR to another place"),
        )?;
    }
    identity::assume(who).map(drop)
}

/// Runs `work` on a thread of its own with an identity and, on request, a working directory.
///
/// # Errors
///
/// As [`settle`]; when the thread cannot be started.
pub fn on_thread<T: Send>(
    who: &Identity,
    directory: Option<&Path>,
    work: impl FnOnce() -> T + Send,
) -> Result<T, Error> {
    thread::scope(|scope| {
        let body = || {
            settle(who, directory)?;
            Ok(work())
        };
        let handle = thread::Builder::new()
            .name("bench-prepare".into())
            .spawn_scoped(scope, body)
            .map_err(|e| Error::host("starting a thread", "bench-prepare", e, "raise ulimit -u"))?;
        handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The number of operations that take about `nanos`: of a few tries the most, as a neighbour can only slow it down.
fn calibrate(contender: &dyn Contender, op: Op, set: &PathSet, nanos: u64) -> usize {
    let first = calibrate_once(contender, op, set, nanos);
    // What fills a batch with a few is not thrown off by a neighbour, and takes long to try.
    let more = if first < 64 { 0 } else { 2 };
    (0..more).map(|_| calibrate_once(contender, op, set, nanos)).fold(first, usize::max)
}

fn calibrate_once(contender: &dyn Contender, op: Op, set: &PathSet, nanos: u64) -> usize {
    let mut count = 32;
    loop {
        let timed = contender.batch(op, &set.paths, 0, count);
        if timed.nanos >= nanos / 4 || count >= 1 << 20 {
            let per_op = (timed.nanos.max(1) as f64) / count as f64;
            return ((nanos as f64 / per_op) as usize).clamp(16, 1 << 20);
        }
        count *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::host::{Getppid, Host};
    use crate::engines::{Timed, error_value};
    use std::ffi::CStr;

    /// Says that everything exists.
    struct Liar;

    impl Contender for Liar {
        fn name(&self) -> &'static str {
            "liar"
        }
        fn batch(&self, _op: Op, _paths: &[CString], _start: usize, count: usize) -> Timed {
            Timed { nanos: count as u64, sum: count as u64 }
        }
        fn answer(&self, _op: Op, _path: &CStr) -> Option<Value> {
            Some(1)
        }
    }

    fn plan<'a>(
        set: &'a PathSet,
        contenders: &'a [&'a dyn Contender],
        who: &'a Identity,
        cpus: &'a [usize],
    ) -> Plan<'a> {
        Plan {
            op: Op::Access,
            sets: vec![set; 2],
            contenders,
            cpus,
            who,
            directory: Some(Path::new("/")),
            batch_nanos: 20_000,
            rounds: 5,
        }
    }

    #[test]
    fn expects_cyclic_sums() {
        let set = PathSet { paths: vec![c"a".into(), c"b".into(), c"c".into()], sums: vec![0, 1, 11, 111] };
        for (start, count) in [(0, 3), (1, 1), (2, 2), (1, 7), (0, 0), (2, 10)] {
            let values = [1_u64, 10, 100];
            let by_hand: u64 = (start..start + count).map(|i| values[i % 3]).sum();
            assert_eq!(set.expected(start, count), by_hand, "{start} {count}");
        }
    }

    #[test]
    fn catches_an_engine_that_answers_something_else() {
        let who = identity::caller().unwrap();
        let cpus = crate::machine::allowed_cpus().unwrap();
        let paths = vec![c"/nowhere".to_owned(), c".".to_owned()];
        let (set, dropped) = PathSet::agreed(paths.clone(), Op::Access, &[&Host, &Getppid]);
        assert_eq!((set.len(), dropped), (2, 0));
        assert_eq!(set.total(), error_value(2).wrapping_add(1));
        let contenders: [&dyn Contender; 3] = [&Host, &Getppid, &Liar];
        let series = run(&plan(&set, &contenders, &who, &cpus)).unwrap();
        assert_eq!(series[0].wrong_batches, 0);
        assert_eq!(series[1].wrong_batches, 0);
        assert_eq!(series[2].wrong_batches, 10, "every batch of both threads");
        assert!(series[0].rounds.iter().all(|round| round.len() == 2));
        assert!(series[0].median() > series[1].median(), "access costs more than getppid");
        assert!(series[0].minus(&series[1], 1).median() > 0.0);
        assert!(series[0].ratio(&series[1]).0 > 1.0);
        assert_eq!(series[0].solo.len(), 5);
        assert!(series[0].scaling().is_some_and(|times| times > 0.0));
        let (set, dropped) = PathSet::agreed(paths, Op::Access, &[&Host, &Liar]);
        assert_eq!((set.len(), dropped), (1, 1));
    }

    #[test]
    fn interpolates_quantiles() {
        assert_eq!(quantile(vec![4.0, 1.0, 3.0, 2.0], 0.5), 2.5);
        assert_eq!(quantile(vec![1.0], 0.25), 1.0);
        assert_eq!(quantile(Vec::new(), 0.5), 0.0);
    }

    #[test]
    fn a_thread_that_cannot_start_ends_the_run() {
        let who = identity::caller().unwrap();
        let (set, _) = PathSet::agreed(vec![c"/".into()], Op::Access, &[&Host]);
        let contenders: [&dyn Contender; 1] = [&Host];
        let error = run(&plan(&set, &contenders, &who, &[CpuSet::MAX_CPU - 1])).unwrap_err().to_string();
        assert!(error.contains("pinning a thread"), "{error}");
    }
}
