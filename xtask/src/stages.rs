//! `cargo x test`: everything that must pass. `cargo x quick`: what to run after every change. `cargo x soak`: for longer.

use crate::process::{self, Outcome, WORKSPACE, cargo, target_dir};
use crate::{
    bench, capi, disasm, lanes, memory, models, oracle, parity, python, report, rows, rules, suites, tidy,
};
use std::process::Command;
use std::time::Instant;

/// What must pass, and beside what it may run.
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    about: &'static str,
    run: fn() -> Outcome,
    turn: Turn,
}

/// When a stage runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Before all others: they use what it builds.
    First,
    /// Beside others.
    Any,
    /// After all others, alone: it takes times.
    Last,
}

const fn stage(name: &'static str, about: &'static str, run: fn() -> Outcome) -> Stage {
    Stage { name, about, run, turn: Turn::Any }
}

/// Those that run side by side start in this order: first what takes long and waits much.
const STAGES: &[Stage] = &[
    Stage { turn: Turn::First, ..stage("build", "the programs and the tests of every crate", build) },
    stage("suites", "suites that others wrote, on mounts of rcuwalk", suites::stage),
    stage("unit", "the tests of every crate", unit),
    stage("tidy", "format, lints, documentation, house rules", tidy::run),
    stage("crash", "processes that keep image files, killed 100 times", || crash(100)),
    stage("mutants", "each ordering and step removed", || models::mutants(&[], true)),
    stage("models", "loom models of crates/sync", || models::model(&[], true)),
    stage("shuttle", "the engine in random schedules", || models::shuttle(&[], true)),
    stage("doc", "the examples in the documentation", doc),
    stage("python", "the Python package, installed and tested", python::run),
    stage("fuzz", "random calls on this kernel and the engine", || oracle::stage(false)),
    stage("fuzz-ext4", "the same, the kernel's side on ext4", || oracle::stage(true)),
    stage("rows", "the behaviour rows on this kernel and the engine; docs/parity.md", || parity::run(true)),
    stage("rows-dir", "the same in directories of a tmpfs and an ext4", rows::dir),
    stage("rows-mount", "the same in a mounted engine, both modes", rows::mount),
    stage("capi", "the C interface, installed; its examples under valgrind", capi::run),
    stage("miri", "undefined behaviour in crates/sync", memory::miri),
    stage("asan", "the address sanitizer on crates/sync", memory::asan),
    stage("valgrind", "valgrind on crates/sync", memory::valgrind),
    stage("disasm", "lookups write nothing shared", disasm::run),
    stage("report", "the tables in the documents", || report::run(true)),
    Stage {
        turn: Turn::Last,
        ..stage("bench", "the main job, the ablations and the peers once, quickly", bench::stage)
    },
];

pub(crate) fn list() -> Outcome {
    for stage in STAGES {
        println!("{:12} {}", stage.name, stage.about);
    }
    Outcome::Passed
}

/// A stage of this name, in this process.
pub(crate) fn one(name: &str) -> Outcome {
    match STAGES.iter().find(|stage| stage.name == name) {
        Some(stage) => (stage.run)(),
        None => Outcome::Failed(format!("no stage is named {name}; see `cargo x test --list`")),
    }
}

/// How a stage ended.
struct Ended {
    stage: &'static Stage,
    seconds: f32,
    outcome: Outcome,
}

impl Ended {
    fn line(&self) -> String {
        let told = match &self.outcome {
            Outcome::Passed => "passed".into(),
            Outcome::Failed(why) => format!("FAILED: {why}"),
            Outcome::Skipped(why) => format!("SKIPPED: {why}"),
        };
        format!("{:12} {:>7.1} s  {told}", self.stage.name, self.seconds)
    }
}

/// Runs the chosen stages, as many side by side as there are `jobs`.
pub(crate) fn run(only: &[String], skip: &[String], jobs: usize) -> Outcome {
    if let Some(unknown) = only.iter().chain(skip).find(|name| STAGES.iter().all(|s| s.name != **name)) {
        return Outcome::Failed(format!("no stage is named {unknown}; see `cargo x test --list`"));
    }
    let named = |names: &[String], stage: &Stage| names.iter().any(|name| name == stage.name);
    let chosen: Vec<&Stage> = STAGES
        .iter()
        .filter(|s| if only.is_empty() { !named(skip, s) } else { named(only, s) && !named(skip, s) })
        .collect();
    let of = |turn: Turn| chosen.iter().copied().filter(move |stage| stage.turn == turn);
    let mut ended: Vec<Ended> = of(Turn::First).map(here).collect();
    // What does not build cannot be tested.
    if ended.iter().all(|first| first.outcome == Outcome::Passed) {
        let side_by_side: Vec<&Stage> = of(Turn::Any).collect();
        if jobs.min(side_by_side.len()) > 1 {
            ended.extend(lanes::parallel(jobs, &side_by_side, |stage| beside(stage)));
        } else {
            ended.extend(side_by_side.into_iter().map(here));
        }
        ended.extend(of(Turn::Last).map(here));
    }
    close(&ended, chosen.len())
}

/// Runs a stage in this process, where its output can be followed.
fn here(stage: &'static Stage) -> Ended {
    println!("\n== {}: {}", stage.name, stage.about);
    timed(stage, stage.run, |ended| println!("== {}", ended.line()))
}

/// Runs a stage in a process of its own, and shows what it printed when it has ended.
fn beside(stage: &'static Stage) -> Ended {
    let log = lanes::log(stage.name);
    println!("-- {} runs: {}", stage.name, log.display());
    timed(
        stage,
        || lanes::aside(stage.name),
        |ended| {
            let output = std::fs::read(&log).unwrap_or_default();
            // In one piece: others print, too.
            println!(
                "\n== {}: {}\n{}== {}",
                stage.name,
                stage.about,
                String::from_utf8_lossy(&output),
                ended.line()
            );
        },
    )
}

fn timed(stage: &'static Stage, run: impl FnOnce() -> Outcome, show: impl FnOnce(&Ended)) -> Ended {
    let start = Instant::now();
    let outcome = run();
    lanes::unless_interrupted(&outcome);
    let ended = Ended { stage, seconds: start.elapsed().as_secs_f32(), outcome };
    show(&ended);
    ended
}

/// One line for each stage, and a last line that names what was not tested.
fn close(ended: &[Ended], chosen: usize) -> Outcome {
    println!("\n== stages");
    ended.iter().for_each(|stage| println!("{}", stage.line()));
    let last = summary(ended, chosen);
    println!("{last}");
    // The stages themselves have said what is wrong.
    let failed = ended.iter().any(|stage| matches!(stage.outcome, Outcome::Failed(_)));
    if failed { Outcome::Failed(String::new()) } else { Outcome::Passed }
}

fn summary(ended: &[Ended], chosen: usize) -> String {
    let names = |wanted: fn(&Outcome) -> bool| -> Vec<&str> {
        ended.iter().filter(|stage| wanted(&stage.outcome)).map(|stage| stage.stage.name).collect()
    };
    let failed = names(|outcome| matches!(outcome, Outcome::Failed(_)));
    let skipped = names(|outcome| matches!(outcome, Outcome::Skipped(_)));
    let passed = ended.len() - failed.len() - skipped.len();
    let mut line = format!("{passed} passed, {} failed, {} skipped", failed.len(), skipped.len());
    if chosen > ended.len() {
        line += &format!(", {} not started", chosen - ended.len());
    }
    for (what, names) in [("failed", failed), ("not tested here", skipped)] {
        if !names.is_empty() {
            line += &format!("; {what}: {}", names.join(", "));
        }
    }
    line
}

fn build() -> Outcome {
    process::run(&mut cargo(&format!("build --quiet {WORKSPACE} --all-targets"))).into()
}

fn unit() -> Outcome {
    let test = format!("test --quiet --no-fail-fast {WORKSPACE} --lib --bins --tests --examples");
    process::run(&mut cargo(&test)).into()
}

fn doc() -> Outcome {
    process::run(&mut cargo(&format!("test --quiet {WORKSPACE} --doc"))).into()
}

/// Kills processes that keep trees in image files, and, a quarter as often, a mounted server.
pub(crate) fn crash(rounds: u64) -> Outcome {
    let test = |test: &str, rounds: u64| {
        let mut test = cargo(&format!("test --quiet {WORKSPACE} --test {test} -- --nocapture killed"));
        process::run(test.env("RCUWALK_CRASH_ROUNDS", rounds.to_string()))
    };
    test("crash", rounds)
        .and_then(|()| test("full", rounds / 4))
        .and_then(|()| test("cli", rounds / 4))
        .into()
}

/// The crates whose tests are the quick ones: one choice for tests and rows, so that nothing is built twice.
const ENGINE: &str = "--package rcuwalk --package rcuwalk-sync --package rcuwalk-oracle";

/// What to run after every change; it stops at the first thing that is wrong, and says what to run then.
pub(crate) fn quick() -> Outcome {
    // Left out: rows on this kernel and behind the other doors, which the stage `rows` runs.
    let tests = format!("test --quiet {ENGINE} --lib --tests -- --skip every_row_passes --skip random_calls");
    let cargo = |args: &str| process::run(&mut cargo(args));
    let rows = || {
        let oracle = target_dir("debug").join("rcuwalk-oracle");
        process::run(Command::new(oracle).args(["rows", "--backend", "engine"]))
    };
    let start = Instant::now();
    let done = cargo("fmt --all --check")
        .map_err(|why| format!("{why}; run `cargo fmt --all`"))
        .and_then(|()| {
            cargo(
                "clippy --quiet --workspace --all-targets --features rcuwalk-cli/parquet -- --deny warnings",
            )
            .map_err(|why| format!("{why}; `cargo clippy --fix --allow-dirty` mends some of that"))
        })
        .and_then(|()| {
            cargo(&tests).map_err(|why| format!("{why}; one test alone: `cargo test -p CRATE NAME`"))
        })
        .and_then(|()| {
            let alone = "one row alone: `cargo run -p rcuwalk-oracle -- rows --backend engine --filter NAME`";
            rows().map_err(|why| format!("{why}; {alone}"))
        });
    if done.is_ok() {
        println!("quick: passed in {:.0} s; `cargo x test` runs everything", start.elapsed().as_secs_f32());
    }
    done.into()
}

/// What the stages sample, for longer and from another seed: until something is wrong, or all of it has been done.
pub(crate) fn soak(seed: u64) -> Outcome {
    println!("seed {seed}; the same again: `cargo x soak --seed {seed}`");
    let hostile = |package: &str, test: &str| {
        let mut test = cargo(&format!("test --quiet {WORKSPACE} --package {package} --test {test}"));
        process::run(test.env("RCUWALK_FUZZ_TIMES", "1000")).into()
    };
    let parts: [(&str, &dyn Fn() -> Outcome); 8] = [
        ("random calls beside tmpfs", &|| oracle::run(SOAK_CALLS, None, seed, false)),
        ("random calls beside ext4", &|| oracle::run(SOAK_CALLS, None, seed, true)),
        ("killed processes", &|| crash(SOAK_KILLS)),
        ("damaged image files", &|| hostile("rcuwalk-image", "corrupt")),
        ("senseless raw calls", &|| hostile("rcuwalk", "syscall")),
        ("the engine in random schedules", &|| models::soak(SOAK_SCHEDULES)),
        ("suites, longer and in every way to mount", &suites::soak),
        ("conditions taken out", &|| rules::run("", rules::CALLS)),
    ];
    let mut skipped = Vec::new();
    for (about, run) in parts {
        println!("\n== {about}");
        match run() {
            Outcome::Passed => {}
            Outcome::Skipped(why) => skipped.push(format!("{about}: {why}")),
            Outcome::Failed(why) => return Outcome::Failed(format!("{about}: {why}")),
        }
    }
    if skipped.is_empty() { Outcome::Passed } else { Outcome::Skipped(skipped.join("; ")) }
}

/// From the clock.
pub(crate) fn another_seed() -> u64 {
    std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_secs())
}

/// Random calls of a soak, on each file system; a stage compares 300,000.
const SOAK_CALLS: u64 = 10_000_000;
/// Schedules of each kind for each race of a soak; the stage has 1,000.
const SOAK_SCHEDULES: u64 = 30_000;
/// Kills of a soak; the stage has 100.
const SOAK_KILLS: u64 = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(stage: usize, outcome: Outcome) -> Ended {
        Ended { stage: &STAGES[stage], seconds: 1.0, outcome }
    }

    #[test]
    fn the_last_line_names_what_was_not_tested() {
        let passed = || ended(0, Outcome::Passed);
        let (skipped, failed) = (|| Outcome::Skipped("no tool".into()), || Outcome::Failed("wrong".into()));
        assert_eq!(summary(&[passed()], 1), "1 passed, 0 failed, 0 skipped");
        let mixed = [passed(), ended(1, skipped()), ended(2, failed()), ended(3, skipped())];
        assert_eq!(
            summary(&mixed, 4),
            "1 passed, 1 failed, 2 skipped; failed: unit; not tested here: suites, tidy"
        );
        assert_eq!(
            summary(&[ended(0, failed())], 5),
            "0 passed, 1 failed, 0 skipped, 4 not started; failed: build"
        );
        assert_eq!(ended(1, skipped()).line(), "suites           1.0 s  SKIPPED: no tool");
    }
}
