//! `cargo x parity`: the tables of docs/parity.md, from the rows and from what each of them does on every backend now.

use crate::document;
use crate::lanes;
use crate::process::{self, Outcome};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;

const DOCUMENT: &str = "docs/parity.md";
const REMEDY: &str = "run `cargo x parity`";

/// Where rows run, the judge first.
const BACKENDS: &[&str] = &["host", "engine", "engine-ref", "syscall", "capi"];

/// The rows of one backend.
struct Report {
    backend: &'static str,
    rows: Vec<Value>,
}

impl Report {
    /// Rows of a topic, or all, that ended so.
    fn count(&self, topic: Option<&str>, verdict: &str) -> usize {
        let of_topic = |row: &&Value| topic.is_none_or(|topic| row["topic"] == topic);
        self.rows.iter().filter(of_topic).filter(|row| row["verdict"] == verdict).count()
    }
}

/// Writes the tables, or with `check` fails if one is out of date.
pub(crate) fn run(check: bool) -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        return Outcome::Skipped("the rows of the host need root: they become other users".into());
    }
    write(check).into()
}

fn write(check: bool) -> Result<(), String> {
    let oracle = process::program("rcuwalk-oracle")?;
    let json = |arguments: &str| {
        let text = process::output(Command::new(&oracle).args(arguments.split_whitespace()))?;
        serde_json::from_str::<Value>(&text).map_err(|error| format!("{arguments}: {error}"))
    };
    let coverage = json("coverage")?;
    let reports = lanes::parallel(BACKENDS.len(), BACKENDS, |backend| {
        let report = json(&format!("rows --backend {backend} --json -"))?;
        Ok::<_, String>(Report { backend, rows: list(&report["rows"]) })
    });
    let reports = reports.into_iter().collect::<Result<Vec<Report>, String>>()?;
    for (name, table) in [
        ("summary", summary(&coverage, &reports)),
        ("topics", topics(&coverage, &reports)),
        ("calls", calls(&coverage)),
        ("differences", differences(&reports)),
    ] {
        document::splice(DOCUMENT, REMEDY, name, &table, check)?;
    }
    Ok(())
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

/// How many rows each backend passes, of how many.
fn summary(coverage: &Value, reports: &[Report]) -> String {
    let sum = |key: &str| list(&coverage["topics"]).iter().filter_map(|t| t[key].as_u64()).sum::<u64>();
    let answers = |call: &Value| usize::from(call["succeeds"] == true) + list(&call["errors"]).len();
    let calls = list(&coverage["calls"]);
    let mut out = format!(
        "{} rows make {} calls of {} kinds and demand {} different answers (success, or one errno) of them.\n\n",
        sum("rows"),
        sum("calls"),
        calls.iter().filter(|call| call["rows"] != 0).count(),
        calls.iter().map(answers).sum::<usize>(),
    );
    out += "| backend | rows | passed | failed | differ on purpose | not run | command |\n|---|---|---|---|---|---|---|\n";
    for report in reports {
        let count = |verdict| report.count(None, verdict);
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | `cargo run -p rcuwalk-oracle -- rows --backend {}` |",
            report.backend,
            report.rows.len(),
            count("passed"),
            count("failed"),
            count("diverged"),
            count("skipped"),
            report.backend,
        );
    }
    out
}

/// What each file of rows is about, and how many of its rows each backend passes.
fn topics(coverage: &Value, reports: &[Report]) -> String {
    let mut out = String::from("| rows in | about | rows |");
    reports.iter().for_each(|report| out += &format!(" {} |", report.backend));
    out += "\n|---|---|---|";
    reports.iter().for_each(|_| out += "---|");
    out.push('\n');
    for topic in list(&coverage["topics"]) {
        let (name, about) = (text(&topic["name"]), text(&topic["about"]).trim_end_matches('.'));
        let _ = write!(out, "| [{name}](../cases/{name}.toml) | {about} | {} |", topic["rows"]);
        for report in reports {
            let _ = write!(out, " {} |", report.count(Some(name), "passed"));
        }
        out.push('\n');
    }
    out
}

/// The answers that rows demand of each call.
fn calls(coverage: &Value) -> String {
    let mut out = String::from("| call | rows | made | answers |\n|---|---|---|---|\n");
    for call in list(&coverage["calls"]) {
        let errors = list(&call["errors"]);
        let success = (call["succeeds"] == true).then_some("success");
        let answers: Vec<&str> = success.into_iter().chain(errors.iter().map(text)).collect();
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} |",
            text(&call["name"]),
            call["rows"],
            call["made"],
            answers.join(", ")
        );
    }
    out
}

/// What differs on purpose, and what is not run where and why.
fn differences(reports: &[Report]) -> String {
    let mut reasons: BTreeMap<(&str, String), BTreeMap<&str, usize>> = BTreeMap::new();
    for report in reports {
        for row in &report.rows {
            let key = match text(&row["verdict"]) {
                "diverged" => (
                    "differs",
                    format!("{}/{}: {}", text(&row["topic"]), text(&row["name"]), text(&row["detail"])),
                ),
                "skipped" => ("not run", text(&row["detail"]).to_owned()),
                _ => continue,
            };
            *reasons.entry(key).or_default().entry(report.backend).or_default() += 1;
        }
    }
    let mut out = String::from("| | what and why | rows |\n|---|---|---|\n");
    for ((what, why), backends) in reasons {
        let counts: Vec<String> = reports
            .iter()
            .filter_map(|report| Some(format!("{} {}", report.backend, backends.get(report.backend)?)))
            .collect();
        let _ = writeln!(out, "| {what} | {why} | {} |", counts.join(", "));
    }
    out
}
