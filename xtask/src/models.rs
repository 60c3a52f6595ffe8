//! The models of crates/sync under loom, the races of the engine under shuttle, the mutants of both, and their tables in
//! docs/ordering.md.

use crate::document;
use crate::lanes::{parallel, processors};
use crate::orderings::{CHECKS, ORDERINGS, STEPS};
use crate::process::{self, Outcome, cargo, target_dir};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

const DOCUMENT: &str = "docs/ordering.md";

/// What brings its tables up to date.
const REMEDY: &str = "run `cargo x model`, `cargo x model --shuttle` and `cargo x mutants`";

/// What a model prints when it is done: this, its name, and the columns of its row in the table.
const REPORT: &str = "model: ";

/// What a model says first when it meets what must not happen.
const FORBIDDEN: &str = "forbidden: ";

/// Runs the models whose names contain one of `names`, or all, and writes or checks their table.
pub(crate) fn model(names: &[String], check: bool) -> Outcome {
    let head = ["Model", "Schedules", "Preemptions", "Outcomes that were reached"];
    all_of(&LOOM, names, "models", &head, check).into()
}

fn all_of(suite: &Suite, names: &[String], name: &str, head: &[&str], check: bool) -> Result<(), String> {
    let models = Models::build(suite)?;
    let all = models.list()?;
    let chosen: Vec<_> = all
        .iter()
        .filter(|model| names.is_empty() || names.iter().any(|n| model.contains(n.as_str())))
        .collect();
    if chosen.is_empty() {
        return Err(format!("no model is named so; there are {}", all.join(", ")));
    }
    let rows = parallel(processors(), &chosen, |model| {
        let (start, run) = (Instant::now(), models.run(model, None));
        let passed = run.report.is_some();
        let verdict = if passed { "holds" } else { "FAILS" };
        println!("{model}: {verdict} ({:.1} s)", start.elapsed().as_secs_f32());
        run.report.ok_or_else(|| {
            println!("{}", run.output);
            model.as_str()
        })
    });
    let (rows, failed) = split(rows);
    if !failed.is_empty() {
        return Err(format!("{} of {} models fail: {}", failed.len(), chosen.len(), failed.join(", ")));
    }
    if chosen.len() < all.len() {
        return Ok(());
    }
    document::splice(DOCUMENT, REMEDY, name, &table(head, rows), check)
}

/// One ordering, step or check to leave out, and a model that must notice.
struct Mutant {
    suite: &'static Suite,
    id: &'static str,
    model: &'static str,
}

/// Runs the mutants named in `ids`, or all, and writes or checks their tables.
pub(crate) fn mutants(ids: &[String], check: bool) -> Outcome {
    let orderings = ORDERINGS.iter().map(|o| (&LOOM, o.id, o.models));
    let steps = STEPS.iter().map(|s| (&LOOM, s.id, s.models));
    let checks = CHECKS.iter().map(|s| (&SHUTTLE, s.id, s.models));
    let mutants = |(suite, id, models): (&'static Suite, _, &'static [&'static str])| {
        models.iter().map(move |model| Mutant { suite, id, model })
    };
    let all: Vec<Mutant> = orderings.chain(steps).chain(checks).flat_map(mutants).collect();
    let result = || {
        if let Some(unknown) = ids.iter().find(|id| all.iter().all(|m| m.id != **id)) {
            return Err(format!("no mutant is named {unknown}"));
        }
        let chosen: Vec<_> =
            all.iter().filter(|m| ids.is_empty() || ids.iter().any(|id| id == m.id)).collect();
        let [loom, shuttle] = [Models::build(&LOOM)?, Models::build(&SHUTTLE)?];
        let of = |suite| if std::ptr::eq(suite, &LOOM) { &loom } else { &shuttle };
        let (killed, survived) =
            split(parallel(processors(), &chosen, |mutant| kill(of(mutant.suite), mutant)));
        println!("{} of {} kills", killed.len(), chosen.len());
        if !survived.is_empty() {
            return Err(format!("survived: {}", survived.join(", ")));
        }
        if chosen.len() < all.len() {
            return Ok(());
        }
        document::splice(DOCUMENT, REMEDY, "orderings", &orderings_table(&killed), check)?;
        document::splice(DOCUMENT, REMEDY, "steps", &steps_table(&killed), check)?;
        document::splice(DOCUMENT, REMEDY, "checks", &checks_table(), check)
    };
    result().into()
}

/// Runs one model without one ordering or step: what it reports, or, as an error, that it noticed nothing.
fn kill(models: &Models, mutant: &Mutant) -> Result<(&'static str, String), String> {
    let Mutant { id, model, .. } = mutant;
    let run = models.run(model, Some(id));
    let report = run.output.lines().find_map(|line| line.split_once(FORBIDDEN));
    match report {
        Some((_, what)) if run.report.is_none() => {
            println!("without {id}, {model} fails: {what}");
            Ok((*id, what.to_owned()))
        }
        _ => {
            println!("without {id}, {model} does NOT notice\n{}", run.output);
            Err(format!("{id} ({model})"))
        }
    }
}

fn orderings_table(killed: &[(&str, String)]) -> String {
    let rows = ORDERINGS.iter().map(|o| {
        let cells = [
            code(o.id),
            code(o.place),
            o.what.into(),
            o.partner.into(),
            list(o.models),
            without(killed, o.id),
        ];
        cells.join(" | ")
    });
    let head = ["ID", "Where", "Ordering", "Pairs with", "Model", "Without it"];
    table(&head, rows.collect())
}

fn steps_table(killed: &[(&str, String)]) -> String {
    let rows = STEPS.iter().map(|s| {
        let cells = [code(s.id), code(s.place), s.what.into(), list(s.models), without(killed, s.id)];
        cells.join(" | ")
    });
    table(&["Step", "Where", "What is left out", "Model", "Without it"], rows.collect())
}

fn checks_table() -> String {
    let rows = CHECKS.iter().map(|s| [code(s.id), code(s.place), s.what.into(), list(s.models)].join(" | "));
    table(&["Check", "Where", "What is left out", "Races that fail without it"], rows.collect())
}

/// What the models reported in the absence of `id`, each thing once.
fn without(killed: &[(&str, String)], id: &str) -> String {
    let mut reports: Vec<&str> = killed.iter().filter(|k| k.0 == id).map(|k| k.1.as_str()).collect();
    reports.dedup();
    reports.join("; ")
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn list(models: &[&str]) -> String {
    models.iter().map(|m| code(m)).collect::<Vec<_>>().join(", ")
}

fn table(head: &[&str], rows: Vec<String>) -> String {
    let rule = vec!["---"; head.len()].join(" | ");
    let lines = [head.join(" | "), rule].into_iter().chain(rows);
    lines.map(|line| format!("| {line} |\n")).collect()
}

/// Tests that exist for a model checker alone.
struct Suite {
    package: &'static str,
    test: &'static str,
    checker: &'static str,
}

/// The primitives, in every schedule.
static LOOM: Suite = Suite { package: "rcuwalk-sync", test: "models", checker: "loom" };

/// The engine, in many.
static SHUTTLE: Suite = Suite { package: "rcuwalk", test: "schedules", checker: "shuttle" };

/// The compiled models.
struct Models(PathBuf);

/// How a run of one model ended.
struct Run {
    /// The model's row, if it holds.
    report: Option<String>,
    output: String,
}

impl Models {
    fn build(suite: &Suite) -> Result<Models, String> {
        let Suite { package, test, checker } = suite;
        let mut build =
            cargo(&format!("test --quiet --package {package} --test {test} --no-run --message-format json"));
        process::rustflags(&mut build, &format!("--cfg {checker}"));
        let messages = process::output(build.env("CARGO_TARGET_DIR", target_dir(checker)))?;
        let name = format!(r#""name":"{test}""#);
        let path = messages
            .lines()
            .filter(|line| line.contains(&name))
            .find_map(|line| line.split_once(r#""executable":""#)?.1.split_once('"'))
            .map(|(path, _)| path.into());
        path.map(Models).ok_or_else(|| "cargo names no executable for the models".to_owned())
    }

    fn list(&self) -> Result<Vec<String>, String> {
        let list = process::output(Command::new(&self.0).args(["--list", "--format", "terse"]))?;
        Ok(list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    fn run(&self, model: &str, mutant: Option<&str>) -> Run {
        let mut command = Command::new(&self.0);
        command.args(["--exact", "--nocapture", model]).env("RUST_BACKTRACE", "0");
        // Shuttle warns once that it models no weaker orderings, which is what the loom models are for.
        command.env("SHUTTLE_SILENCE_WARNINGS", "1");
        match mutant {
            // One that has noticed stops; the last to notice needs more schedules than hold for what is right.
            Some(id) => command.env("RCUWALK_MUTANT", id).env("RCUWALK_SCHEDULES", "3000"),
            None => command.env_remove("RCUWALK_MUTANT"),
        };
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => return Run { report: None, output: format!("{}: {error}", self.0.display()) },
        };
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        let report = text.lines().find_map(|line| Some(line.split_once(REPORT)?.1.to_owned()));
        Run { report: report.filter(|_| output.status.success()), output: text }
    }
}

/// The races of the engine, and their table; the shuttle build of the random histories in crates/sync.
pub(crate) fn shuttle(names: &[String], check: bool) -> Outcome {
    let head = ["Race", "Executions", "Answers that were reached"];
    all_of(&SHUTTLE, names, "races", &head, check).and_then(|()| histories(names)).into()
}

/// The races in so many schedules of each kind, for hours; the table stays as it is.
pub(crate) fn soak(schedules: u64) -> Outcome {
    let mut test = cargo("test --quiet --package rcuwalk --test schedules");
    process::rustflags(&mut test, "--cfg shuttle");
    test.env("CARGO_TARGET_DIR", target_dir("shuttle")).env("SHUTTLE_SILENCE_WARNINGS", "1");
    process::run(test.env("RCUWALK_SCHEDULES", schedules.to_string())).into()
}

/// `tests/stress.rs` of crates/sync; none if only races are named.
fn histories(names: &[String]) -> Result<(), String> {
    let mut test = cargo("test --quiet --package rcuwalk-sync --test stress -- --nocapture");
    process::rustflags(&mut test, "--cfg shuttle");
    test.args(names).env("CARGO_TARGET_DIR", target_dir("shuttle")).env("SHUTTLE_SILENCE_WARNINGS", "1");
    process::run(&mut test)
}

fn split<T, E>(results: Vec<Result<T, E>>) -> (Vec<T>, Vec<E>) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(value) => good.push(value),
            Err(error) => bad.push(error),
        }
    }
    (good, bad)
}
