//! `cargo x report`: the tables of the benchmark, from the committed records.

use crate::document;
use crate::process::{Outcome, root};
use serde_json::Value;
use std::fmt::Write;

const REMEDY: &str = "run `cargo x report`";

/// The records that the documents show, by name of the table, with the command that makes them.
const RECORDS: &[(&str, &str, &str)] = &[
    ("usr-include", "bench/records/usr-include.json", "cargo run --release -- bench --json /usr/include"),
    ("usr", "bench/records/usr.json", "cargo run --release -- bench --json /usr"),
];

/// Writes the tables, or with `check` fails if one is out of date.
pub(crate) fn run(check: bool) -> Outcome {
    let done = RECORDS.iter().try_for_each(|(name, record, command)| {
        let text =
            std::fs::read_to_string(root().join(record)).map_err(|error| format!("{record}: {error}"))?;
        let record: Value = serde_json::from_str(&text).map_err(|error| format!("{record}: {error}"))?;
        let table = table(&record, command);
        document::splice("docs/bench.md", REMEDY, name, &table, check)?;
        if *name == "usr-include" {
            document::splice("README.md", REMEDY, name, &summary(&record, command), check)?;
        }
        Ok(())
    });
    match done {
        Ok(()) => Outcome::Passed,
        Err(why) => Outcome::Failed(why),
    }
}

/// The median of an engine on a workload, in ns per operation and thread, and the spread in percent.
fn median(record: &Value, workload: &str, threads: u64, engine: &str) -> Option<(f64, f64)> {
    let rows = record["rows"].as_array()?;
    let row = rows
        .iter()
        .find(|row| row["workload"] == workload && row["threads"] == threads && row["engine"] == engine)?;
    Some((row["ns_per_op"].as_f64()?, row["spread_pct"].as_f64()?))
}

/// How many times faster than the host, with the spread in percent, and whether the two are the same within it.
fn ratio(record: &Value, workload: &str, threads: u64) -> Option<String> {
    let row = record["ratios"]
        .as_array()?
        .iter()
        .find(|row| row["workload"] == workload && row["threads"] == threads && row["versus"] == "host")?;
    if row["same"] == true {
        return Some("same".into());
    }
    Some(format!("{:.1}", row["times"].as_f64()?))
}

/// The workloads that the engine ran, in the record's order.
fn workloads(record: &Value) -> Vec<(&str, u64)> {
    let rows = record["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ours = rows.iter().filter(|row| row["engine"] == "rcuwalk");
    ours.filter_map(|row| Some((row["workload"].as_str()?, row["threads"].as_u64()?))).collect()
}

/// Where and how it was measured, and what was checked before.
fn caption(record: &Value, command: &str) -> String {
    let (machine, checked) = (&record["machine"], &record["checked"]);
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    format!(
        "`{command}` on {}, {} cores, Linux {}, {}. {} entries; before anything was timed, {} answers of stat and {} of access \
         were compared with the kernel's: {} and {} differed.\n",
        text(&machine["cpu"]),
        machine["cores"],
        text(&machine["kernel"]),
        text(&machine["date"]).split('T').next().unwrap_or_default(),
        record["entries"],
        checked["stat"],
        checked["access"],
        checked["stat_mismatch"],
        checked["access_mismatch"],
    )
}

fn table(record: &Value, command: &str) -> String {
    let mut out = caption(record, command);
    out += "\n| workload | threads | host | without entry | naive | rcuwalk | spread | × host |\n";
    out += "|---|---|---|---|---|---|---|---|\n";
    for (workload, threads) in workloads(record) {
        let cell = |engine| median(record, workload, threads, engine);
        let ns = |engine| cell(engine).map_or("–".into(), |(ns, _)| format!("{ns:.1}"));
        let spread = cell("rcuwalk").map_or("–".into(), |(_, spread)| format!("{spread:.0} %"));
        let times = ratio(record, workload, threads).unwrap_or("–".into());
        let _ = writeln!(
            out,
            "| {workload} | {threads} | {} | {} | {} | {} | {spread} | {times} |",
            ns("host"),
            ns("host-getppid"),
            ns("naive"),
            ns("rcuwalk"),
        );
    }
    out += "\n| target | needed | reached | |\n|---|---|---|---|\n";
    for target in record["targets"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let _ = writeln!(
            out,
            "| {} | {} {} {} | {:.2} {} | {} |",
            target["name"].as_str().unwrap_or("?"),
            if target["at_most"] == true { "≤" } else { "≥" },
            target["need"],
            target["unit"].as_str().unwrap_or_default(),
            target["reached"].as_f64().unwrap_or(f64::NAN),
            target["unit"].as_str().unwrap_or_default(),
            if target["met"] == true { "met" } else { "**missed**" },
        );
    }
    out
}

/// The rows that say most.
fn summary(record: &Value, command: &str) -> String {
    const SHOWN: &[(&str, u64)] = &[
        ("stat/hit/depth4", 1),
        ("statx/hit/depth4", 1),
        ("access/hit/depth4", 1),
        ("stat/negative", 1),
        ("open+close", 1),
        ("stat/random", 1),
        ("stat/same-file", 2),
    ];
    let mut out = caption(record, command);
    out += "\n| ns per operation and thread | threads | the kernel | rcuwalk | × |\n|---|---|---|---|---|\n";
    for &(workload, threads) in SHOWN {
        let ns = |engine| {
            median(record, workload, threads, engine).map_or("–".into(), |(ns, _)| format!("{ns:.0}"))
        };
        let times = ratio(record, workload, threads).unwrap_or("–".into());
        let _ = writeln!(out, "| {workload} | {threads} | {} | {} | {times} |", ns("host"), ns("rcuwalk"));
    }
    out
}
