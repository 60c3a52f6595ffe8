//! The main job: import, check, time.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use rcuwalk::{Vfs, WalkMode};
use rcuwalk_host::Identity;
use rcuwalk_measure::Error;
use rcuwalk_measure::engines::Contender;
use rcuwalk_measure::engines::host::{Getppid, Host};
use rcuwalk_measure::frame::DIFFERS;
use rcuwalk_measure::identity::{self, Caps};
use rcuwalk_measure::machine::{Machine, allowed_cpus, fstype_of};
use rcuwalk_measure::memory::resident_bytes;
use rcuwalk_measure::progress::Observer;
use rcuwalk_measure::scratch::Chain;
use rcuwalk_measure::series::{self, MANY_PATHS, PathSet, Plan, Series, on_thread, rounded};

use crate::check::{Checked, Subject, check_access, check_stat, identities};
use crate::engines::naive::Naive;
use crate::engines::rcuwalk::Rcuwalk;
use crate::load;
use crate::report::{About, Import, Memory, Ratio, Report, Row, Scaling, Settings, Slope};
use crate::targets;
use crate::tree::Tree;
use crate::workloads::{Case, cases};

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The directory.
    pub dir: PathBuf,
    /// Fewer and shorter rounds: a smoke run of seconds.
    pub quick: bool,
    /// Seed of the shuffle.
    pub seed: u64,
    /// Most threads at once; 0 is one for each processor.
    pub threads: usize,
    /// Check the answers, time nothing.
    pub check_only: bool,
}

impl Options {
    /// The full run over `dir`: seed 1, one thread and all processors.
    pub fn new(dir: impl Into<PathBuf>) -> Options {
        Options { dir: dir.into(), quick: false, seed: 1, threads: 0, check_only: false }
    }
}

/// Imports `options.dir`, checks every answer beside the kernel's, and times the engines.
///
/// ```
/// use rcuwalk_bench::{Options, run};
///
/// let dir = tempfile::tempdir().unwrap();
/// std::fs::write(dir.path().join("file"), "contents").unwrap();
/// let report = run(&Options { check_only: true, ..Options::new(dir.path()) }, &())?;
/// assert_eq!((report.entries, report.checked.stat_mismatch), (2, 0));
/// assert!(report.faults().is_empty());
/// # Ok::<(), rcuwalk_measure::Error>(())
/// ```
///
/// # Errors
///
/// When the directory cannot be read, a tree does not fit into memory, or threads cannot be started. Wrong answers
/// are no error: they stand in the report, see [`Report::faults`].
pub fn run(options: &Options, observer: &dyn Observer) -> Result<Report, Error> {
    let machine = Machine::read();
    observer.stage("listing the tree", None);
    let tree = Tree::read(&options.dir)?;
    let who = timed_identity()?;

    observer.stage("importing", Some(tree.entries.len() as u64));
    let loaded = load::with_ancestors(&tree, observer)?;
    let checked = check(&tree, &loaded.vfs, observer)?;

    let entries = tree.entries.len() as u64;
    let mut report = Report {
        machine,
        dir: tree.dir.to_string_lossy().into_owned(),
        entries,
        checked,
        rows: Vec::new(),
        ratios: Vec::new(),
        scaling: Vec::new(),
        slopes: Vec::new(),
        memory: Memory {
            bytes_per_entry: rounded(loaded.resident_bytes as f64 / entries as f64),
            resident_bytes: loaded.resident_bytes,
            empty_bytes: loaded.empty_bytes,
            naive_bytes_per_entry: 0.0,
        },
        import: Import {
            seconds: loaded.seconds,
            entries_per_second: (loaded.entries as f64 / loaded.seconds.max(1e-9)).round(),
        },
        workloads: Vec::new(),
        settings: settings(options, &who)?,
        targets: Vec::new(),
    };
    if !options.check_only {
        time(&tree, &loaded.vfs, &mut report, observer)?;
        report.slopes = slopes(&report);
        report.targets = targets::judge(&report);
    }
    Ok(report)
}

/// An ordinary user where the caller may become one, else the caller.
fn timed_identity() -> Result<Identity, Error> {
    if identity::can_switch() { Ok(Identity::new(1000, 1000, &[])) } else { identity::caller() }
}

fn settings(options: &Options, who: &Identity) -> Result<Settings, Error> {
    let mut cpus = allowed_cpus()?;
    // The first processor takes most interrupts: it comes last.
    cpus.reverse();
    if options.threads > 0 {
        cpus.truncate(options.threads);
    }
    let (rounds, batch_us) = if options.quick { (41, 200) } else { (301, 400) };
    Ok(Settings { seed: options.seed, rounds, batch_us, cpus, identity: who.clone(), quick: options.quick })
}

fn check(tree: &Tree, vfs: &Vfs, observer: &dyn Observer) -> Result<Checked, Error> {
    let subject_for = |who: &Identity, caps: Caps| -> Result<Box<dyn Subject>, Error> {
        let subject = Rcuwalk::new(vfs, who, caps, WalkMode::default())
            .map_err(|e| Error::engine("taking on the identity", who.to_string().as_bytes(), e, ""))?;
        Ok(Box::new(subject))
    };
    let advance = |steps| observer.advance(steps);
    let caller = identity::caller()?;
    let entries = tree.entries.len() as u64;
    observer.stage("checking stat", Some(2 * entries));
    let mut checked = check_stat(tree, &*subject_for(&caller, identity::assume(&caller)?)?, &advance)?;
    let identities = identities(tree)?;
    if !identity::can_switch() {
        checked.notes.push("access is compared for the caller only: becoming another user takes root".into());
    }
    observer.stage("checking access", Some(entries * identities.len() as u64));
    let access = check_access(tree, &identities, &subject_for, &advance)?;
    checked.merge(access);
    Ok(checked)
}

/// A place with engines in it: the tree, or the chain.
struct Place<'a> {
    contenders: [&'a dyn Contender; 5],
    directory: Option<&'a Path>,
    fstype: String,
}

/// Positions in [`Place::contenders`].
const HOST: usize = 0;
const GETPPID: usize = 1;
const NAIVE: usize = 2;
const WALK: usize = 3;
const OURS: usize = 4;

fn time(tree: &Tree, vfs: &Vfs, report: &mut Report, observer: &dyn Observer) -> Result<(), Error> {
    observer.stage("preparing", None);
    let who = report.settings.identity.clone();
    let engine = |vfs, mode| {
        Rcuwalk::new(vfs, &who, caps_of(&who)?, mode)
            .map_err(|e| Error::engine("taking on the identity", who.to_string().as_bytes(), e, ""))
    };
    let before = resident_bytes();
    let naive = Naive::of(tree, &who);
    let growth = resident_bytes().saturating_sub(before);
    report.memory.naive_bytes_per_entry = rounded(growth as f64 / report.entries as f64);
    let [walk, ours] = [engine(vfs, WalkMode::Rcu)?, engine(vfs, WalkMode::Direct)?];

    let chain = Chain::new()?;
    let chain_tree = Tree::read(chain.path())?;
    let chain_vfs = load::alone(&chain_tree)?;
    let chain_naive = Naive::below(&chain_tree, &who);
    let [chain_walk, chain_ours] =
        [engine(&chain_vfs, WalkMode::Rcu)?, engine(&chain_vfs, WalkMode::Direct)?];

    let in_tree = Place {
        contenders: [&Host, &Getppid, &naive, &walk, &ours],
        directory: None,
        fstype: tree.mount.as_ref().map_or_else(String::new, |mount| mount.fs_type.clone()),
    };
    let in_chain = Place {
        contenders: [&Host, &Getppid, &chain_naive, &chain_walk, &chain_ours],
        directory: Some(chain.path()),
        fstype: fstype_of(chain.path()),
    };
    let threads = report.settings.cpus.len();
    let seed = report.settings.seed;
    let cases = on_thread(&who, None, || cases(tree, seed, threads, &in_tree.contenders))??;
    observer.stage("timing", Some(cases.iter().map(|case| case.threads.len() as u64).sum()));
    for case in &cases {
        let place = if case.in_chain { &in_chain } else { &in_tree };
        time_case(case, place, report, observer)?;
    }
    Ok(())
}

/// The capabilities that are left to a thread with this identity.
fn caps_of(who: &Identity) -> Result<Caps, Error> {
    on_thread(who, None, || identity::assume(who))?
}

/// The lists of a case, reduced to the paths on which all engines agree.
fn agreed(case: &Case, place: &Place<'_>, who: &Identity) -> Result<(Vec<PathSet>, usize), Error> {
    let lists: Vec<Vec<CString>> = case.lists.clone();
    on_thread(who, place.directory, || {
        let mut left_out = 0;
        let sets = lists.into_iter().map(|list| {
            let (set, dropped) = PathSet::agreed(list, case.op, &place.contenders);
            left_out += dropped;
            set
        });
        (sets.collect(), left_out)
    })
}

fn time_case(
    case: &Case,
    place: &Place<'_>,
    report: &mut Report,
    observer: &dyn Observer,
) -> Result<(), Error> {
    let who = report.settings.identity.clone();
    let (sets, left_out) = agreed(case, place, &who)?;
    report.workloads.push(About {
        workload: case.name.clone(),
        paths: case.paths.clone(),
        count: sets.iter().map(PathSet::len).sum(),
        left_out,
        fstype: place.fstype.clone(),
    });
    if sets.iter().any(PathSet::is_empty) {
        observer.advance(case.threads.len() as u64);
        report.checked.notes.push(format!("{} is not timed: no path on which all engines agree", case.name));
        return Ok(());
    }
    // Each engine needs some time to make the caches its own before many paths say anything.
    let many = sets.iter().any(|set| set.len() > MANY_PATHS);
    let (longer, fewer) = if many { (10, 3) } else { (1, 1) };
    for &threads in &case.threads {
        let settings = report.settings.clone();
        let plan = Plan {
            op: case.op,
            sets: (0..threads).map(|i| &sets[i % sets.len()]).collect(),
            contenders: &place.contenders,
            cpus: &settings.cpus,
            who: &who,
            directory: place.directory,
            batch_nanos: settings.batch_us * 1000 * longer,
            rounds: settings.rounds / fewer,
        };
        let series = series::run(&plan)?;
        let wrong = series.iter().any(|s| s.wrong_batches > 0);
        // Wrong sums of everybody's, the kernel's included, mean that the tree changed underneath.
        let changed = wrong && {
            let (again, _) = agreed(case, place, &who)?;
            again.iter().zip(&sets).any(|(a, b)| a.total() != b.total() || a.len() != b.len())
        };
        record(case, threads, &series, &sets, changed, report);
        observer.advance(1);
    }
    Ok(())
}

/// Turns the series of one case into rows, ratios and scaling.
fn record(
    case: &Case,
    threads: usize,
    series: &[Series],
    sets: &[PathSet],
    changed: bool,
    report: &mut Report,
) {
    let total = sets.iter().take(threads).fold(0_u64, |sum, set| sum.wrapping_add(set.total()));
    if report.row("getppid", 1, "host").is_none() {
        let getppid = &series[GETPPID];
        report.rows.push(Row {
            workload: "getppid".to_owned(),
            threads: 1,
            engine: "host",
            ns_per_op: rounded(getppid.median()),
            spread_pct: rounded(getppid.spread_pct()),
            check: "-".to_owned(),
        });
    }
    let mut push = |engine: &'static str, series: &Series| {
        let check = match (series.wrong_batches, changed) {
            (0, _) => format!("{total:016x}"),
            (_, true) => "changed".to_owned(),
            (_, false) => DIFFERS.to_owned(),
        };
        report.rows.push(Row {
            workload: case.name.clone(),
            threads,
            engine,
            ns_per_op: rounded(series.median()),
            spread_pct: rounded(series.spread_pct()),
            check,
        });
    };
    let inside = series[HOST].minus(&series[GETPPID], case.op.calls());
    push("host", &series[HOST]);
    push("host-getppid", &inside);
    push("naive", &series[NAIVE]);
    push("walk", &series[WALK]);
    push("rcuwalk", &series[OURS]);
    let others = [
        ("host", &series[HOST]),
        ("host-getppid", &inside),
        ("naive", &series[NAIVE]),
        ("walk", &series[WALK]),
    ];
    for (versus, other) in others {
        let (times, spread_pct) = other.ratio(&series[OURS]);
        let same = (times - 1.0).abs() * 100.0 <= spread_pct / 2.0;
        let [low, _, high] = other.ratio_quartiles(&series[OURS]).map(rounded);
        report.ratios.push(Ratio {
            workload: case.name.clone(),
            threads,
            versus,
            times: rounded(times),
            spread_pct: rounded(spread_pct),
            quartiles: [low, high],
            same,
        });
    }
    let engines = [("host", HOST), ("naive", NAIVE), ("walk", WALK), ("rcuwalk", OURS)];
    for (engine, series) in engines.map(|(engine, at)| (engine, &series[at])) {
        if let Some(quartiles) = series.scaling_quartiles() {
            let [low, times, high] = quartiles.map(rounded);
            let workload = case.name.clone();
            report.scaling.push(Scaling { workload, engine, threads, times, quartiles: [low, high] });
        }
    }
}

/// Nanoseconds that each component costs between the depths 4 and 32.
fn slopes(report: &Report) -> Vec<Slope> {
    let slope = |engine: &'static str| {
        let (short, long) = (report.row("stat/depth4", 1, engine)?, report.row("stat/depth32", 1, engine)?);
        Some(Slope { engine, ns_per_component: rounded((long.ns_per_op - short.ns_per_op) / 28.0) })
    };
    ["host", "naive", "walk", "rcuwalk"].into_iter().filter_map(slope).collect()
}
