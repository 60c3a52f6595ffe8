//! `cargo x test`: everything that must pass, one stage after the other.

use crate::process::{self, Outcome, cargo};
use crate::{bench, capi, disasm, memory, models, oracle, parity, python, report, rows, suites, tidy};
use std::time::Instant;

struct Stage {
    name: &'static str,
    about: &'static str,
    run: fn() -> Outcome,
}

const STAGES: &[Stage] = &[
    Stage { name: "tidy", about: "format, lints, documentation, house rules", run: tidy::run },
    Stage { name: "unit", about: "the tests of every crate", run: unit },
    Stage { name: "doc", about: "the examples in the documentation", run: doc },
    Stage { name: "models", about: "loom models of crates/sync", run: || models::model(&[], true) },
    Stage { name: "mutants", about: "each ordering and step removed", run: || models::mutants(&[], true) },
    Stage { name: "shuttle", about: "the engine in random schedules", run: || models::shuttle(&[], true) },
    Stage { name: "miri", about: "undefined behaviour in crates/sync", run: memory::miri },
    Stage { name: "asan", about: "the address sanitizer on crates/sync", run: memory::asan },
    Stage { name: "valgrind", about: "valgrind on crates/sync", run: memory::valgrind },
    Stage { name: "rows-host", about: "the behaviour rows on this kernel", run: rows::host },
    Stage { name: "rows-dir", about: "the same in directories of a tmpfs and an ext4", run: rows::dir },
    Stage { name: "rows-mount", about: "the same in a mounted engine, both modes", run: rows::mount },
    Stage { name: "rows-engine", about: "the behaviour rows on the engine", run: || rows::on("engine") },
    Stage { name: "rows-ref", about: "the same without the lockless walk", run: || rows::on("engine-ref") },
    Stage { name: "rows-syscall", about: "the same behind the raw door", run: || rows::on("syscall") },
    Stage { name: "rows-capi", about: "the same behind the C interface", run: || rows::on("capi") },
    Stage { name: "capi", about: "the C interface, installed; its examples under valgrind", run: capi::run },
    Stage { name: "python", about: "the Python package, installed and tested", run: python::run },
    Stage { name: "fuzz", about: "random calls on this kernel and the engine", run: || oracle::stage(false) },
    Stage { name: "fuzz-ext4", about: "the same, the kernel's side on ext4", run: || oracle::stage(true) },
    Stage { name: "crash", about: "processes that keep image files, killed 250 times", run: || crash(250) },
    Stage { name: "disasm", about: "lookups write nothing shared", run: disasm::run },
    Stage { name: "suites", about: "suites that others wrote, on mounts of rcuwalk", run: suites::stage },
    Stage { name: "parity", about: "the tables of docs/parity.md", run: || parity::run(true) },
    Stage { name: "report", about: "the tables in the documents", run: || report::run(true) },
    Stage {
        name: "bench",
        about: "the main job, the ablations and the peers once, quickly",
        run: bench::stage,
    },
];

pub(crate) fn list() -> Outcome {
    for stage in STAGES {
        println!("{:12} {}", stage.name, stage.about);
    }
    Outcome::Passed
}

pub(crate) fn run(only: &[String], skip: &[String]) -> Outcome {
    if let Some(unknown) = only.iter().chain(skip).find(|name| STAGES.iter().all(|s| s.name != **name)) {
        return Outcome::Failed(format!("no stage is named {unknown}; see `cargo x test --list`"));
    }
    let named = |names: &[String], stage: &Stage| names.iter().any(|name| name == stage.name);
    let chosen = STAGES.iter().filter(|s| only.is_empty() || named(only, s)).filter(|s| !named(skip, s));
    let results: Vec<_> = chosen
        .map(|stage| {
            println!("\n== {}: {}", stage.name, stage.about);
            let start = Instant::now();
            let outcome = (stage.run)();
            let line =
                format!("{:12} {:>7.1} s  {}", stage.name, start.elapsed().as_secs_f32(), tell(&outcome));
            println!("== {line}");
            (line, outcome)
        })
        .collect();
    println!("\n== stages");
    results.iter().for_each(|(line, _)| println!("{line}"));
    let count = |wanted: fn(&Outcome) -> bool| results.iter().filter(|(_, outcome)| wanted(outcome)).count();
    let failed = count(|o| matches!(o, Outcome::Failed(_)));
    let skipped = count(|o| matches!(o, Outcome::Skipped(_)));
    println!("{} passed, {failed} failed, {skipped} skipped", results.len() - failed - skipped);
    // The count is the last line; the stages themselves have said what is wrong.
    if failed == 0 { Outcome::Passed } else { Outcome::Failed(String::new()) }
}

fn tell(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed => "passed".into(),
        Outcome::Failed(why) => format!("FAILED: {why}"),
        Outcome::Skipped(why) => format!("skipped: {why}"),
    }
}

/// The Python extension is left to the stage `python`: its library is linked with no interpreter, so no test of it runs.
fn unit() -> Outcome {
    process::run(&mut cargo(
        "test --quiet --no-fail-fast --workspace --exclude rcuwalk-python --lib --bins --tests --examples",
    ))
    .into()
}

fn doc() -> Outcome {
    process::run(&mut cargo("test --quiet --workspace --doc")).into()
}

/// Kills processes that keep trees in image files.
pub(crate) fn crash(rounds: u64) -> Outcome {
    let test = |args: &str, rounds: u64| {
        let mut test = cargo(args);
        process::run(
            test.args(["--", "--nocapture", "killed"]).env("RCUWALK_CRASH_ROUNDS", rounds.to_string()),
        )
    };
    test("test --quiet --package rcuwalk-image --test crash", rounds)
        .and_then(|()| test("test --quiet --package rcuwalk-cli --test cli", rounds / 4))
        .into()
}
