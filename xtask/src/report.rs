//! `cargo x report`: every table that shows a committed record.

use crate::document;
use crate::process::Outcome;
use crate::records;
use crate::replay;
use crate::suites;
use serde_json::Value;
use std::fmt::Write;

const REMEDY: &str = "run `cargo x report`";

/// The newest records of the main job, by name, with the command that makes them.
const RECORDS: &[(&str, &str)] = &[
    ("usr-include", "cargo run --release -- bench --json /usr/include"),
    ("usr", "cargo run --release -- bench --json /usr"),
];

/// What makes a table of a record and the command behind it.
type Show = fn(&Value, &str) -> String;

/// Other records, each with a table of its own kind.
const OTHERS: &[(&str, &str, Show)] = &[
    ("ablations", "cargo lab ablations --json", ablations),
    ("host", "cargo lab host --json", host),
    ("peers", "cargo lab peers --json", peers),
    ("mounts", "cargo x mounts", mounts),
];

/// Tables on pages of their own.
const PAGES: &[(&str, &str, &str, Show)] = &[
    ("docs/suites.md", "suites", "cargo x suites --record", |record, command| {
        format!("`{command}` on {}", suites::table(record))
    }),
    ("docs/tenancy.md", "tenants", "cargo x tenants", tenants),
];

/// Lists the records of each name, oldest first, with what made them.
pub(crate) fn history() -> Outcome {
    let names = RECORDS.iter().map(|(name, _)| *name).chain(OTHERS.iter().map(|(name, ..)| *name));
    let names = names.chain(PAGES.iter().map(|(_, name, ..)| *name)).map(str::to_owned);
    let replays = replay::TRACES.iter().map(|(name, _)| replay::record(name));
    let list = |name: String| {
        for (path, record) in records::history(&name)? {
            let (date, commit) = (records::said(&record), text(&record["machine"]["commit"]));
            let ns = median(&record, "stat/hit/depth4", 1, "rcuwalk");
            let ns = ns.map_or(String::new(), |(ns, _)| format!("  stat/hit/depth4 {ns:.1} ns"));
            println!("{path}  {date}  {commit}{ns}");
        }
        Ok(())
    };
    names.chain(replays).try_for_each(list).into()
}

/// Writes the tables, or with `check` fails if one is out of date.
pub(crate) fn run(check: bool) -> Outcome {
    let done = RECORDS.iter().try_for_each(|(name, command)| {
        let record = records::newest(name)?;
        let table = table(&record, command);
        document::splice("docs/bench.md", REMEDY, name, &table, check)?;
        if *name == "usr-include" {
            document::splice("README.md", REMEDY, name, &summary(&record, command), check)?;
        }
        Ok(())
    });
    let done = done.and_then(|()| {
        OTHERS.iter().try_for_each(|(name, command, show)| {
            let record = records::newest(name)?;
            document::splice("docs/bench.md", REMEDY, name, &show(&record, command), check)?;
            if *name == "ablations" {
                document::splice("README.md", REMEDY, name, &remedies(&record, command), check)?;
            }
            Ok(())
        })
    });
    let done = done.and_then(|()| {
        PAGES.iter().try_for_each(|(page, name, command, show)| {
            document::splice(page, REMEDY, name, &show(&records::newest(name)?, command), check)
        })
    });
    let done = done.and_then(|()| document::splice("docs/bench.md", REMEDY, "replays", &replays()?, check));
    let done =
        done.and_then(|()| document::splice("docs/parity.md", REMEDY, "imported", &imported()?, check));
    match done {
        Ok(()) => Outcome::Passed,
        Err(why) => Outcome::Failed(why),
    }
}

/// Answers on imported trees that were compared with the kernel's before anything was timed.
fn imported() -> Result<String, String> {
    let mut out = String::from(
        "| tree | entries | answers of stat | of access | differ | command |\n|---|---|---|---|---|---|\n",
    );
    for (name, _) in RECORDS {
        let record = records::newest(name)?;
        let dir = text(&record["dir"]);
        let checked = &record["checked"];
        let differ: u64 =
            ["stat_mismatch", "access_mismatch"].iter().filter_map(|key| checked[key].as_u64()).sum();
        let _ = writeln!(
            out,
            "| {dir} | {} | {} | {} | {differ} | `cargo run --release -- bench {dir}` |",
            record["entries"], checked["stat"], checked["access"],
        );
    }
    Ok(out)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The command, and where it ran.
fn place(record: &Value, command: &str) -> String {
    let machine = &record["machine"];
    format!(
        "`{command}` on {}, {} cores, Linux {}, {}",
        text(&machine["cpu"]),
        machine["cores"],
        text(&machine["kernel"]),
        text(&machine["date"]).split('T').next().unwrap_or_default(),
    )
}

/// The running kernel's calls.
fn host(record: &Value, command: &str) -> String {
    let mut out = format!(
        "{}; files on {}, called as {}; entering and leaving the kernel is {:.0} ns of each call.\n\n",
        place(record, command),
        text(&record["fstype"]),
        text(&record["identity"]),
        record["entry_ns"].as_f64().unwrap_or(f64::NAN),
    );
    out += "| workload | call | threads | ns | spread | × one thread |\n|---|---|---|---|---|---|\n";
    for row in list(&record["rows"]) {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {:.1} | {:.0} % | {} |",
            text(&row["workload"]),
            text(&row["call"]),
            row["threads"],
            row["ns"].as_f64().unwrap_or(f64::NAN),
            row["spread_pct"].as_f64().unwrap_or(f64::NAN),
            row["scaling"].as_f64().map_or(String::new(), |times| format!("{times:.2}")),
        );
    }
    notes(record, &mut out);
    out
}

/// Other in-memory file systems.
fn peers(record: &Value, command: &str) -> String {
    let mut out = format!("{}; {} files.\n\n", place(record, command), record["files"]);
    out += "| workload | threads | file system | ns | spread | × ours | it leaves out |\n|---|---|---|---|---|---|---|\n";
    for row in list(&record["rows"]) {
        let peer = list(&record["peers"]).iter().find(|peer| peer["name"] == row["peer"]);
        let _ = writeln!(
            out,
            "| {} | {} | {} | {:.1} | {:.0} % | {:.2} | {} |",
            text(&row["workload"]),
            row["threads"],
            text(&row["peer"]),
            row["ns"].as_f64().unwrap_or(f64::NAN),
            row["spread_pct"].as_f64().unwrap_or(f64::NAN),
            row["times"].as_f64().unwrap_or(f64::NAN),
            peer.map_or("", |peer| text(&peer["leaves_out"])),
        );
    }
    out.push('\n');
    out += &lead(list(&record["rows"]));
    notes(record, &mut out);
    out
}

/// The rows in which a peer leads, by how much, and those that are the same within the spread.
fn lead(rows: &[Value]) -> String {
    let figure = |row: &Value, key: &str| row[key].as_f64().unwrap_or(f64::NAN);
    let same = |row: &&Value| row["same"] == true;
    let others = || rows.iter().filter(|row| row["peer"] != "rcuwalk" && row["wrong"] != true);
    let place = |row: &Value| {
        let threads =
            if row["threads"] == 1 { String::new() } else { format!(", {} threads", row["threads"]) };
        format!("{}{threads}: {}", text(&row["workload"]), text(&row["peer"]))
    };
    let faster: Vec<String> = others()
        .filter(|row| !same(row) && figure(row, "times") < 1.0)
        .map(|row| {
            let ours = rows.iter().find(|ours| {
                ours["peer"] == "rcuwalk"
                    && ours["workload"] == row["workload"]
                    && ours["threads"] == row["threads"]
            });
            let ours = ours.map_or(f64::NAN, |ours| figure(ours, "ns"));
            let (ns, less) = (figure(row, "ns"), (1.0 - figure(row, "times")) * 100.0);
            format!("{} takes {less:.0} % less ({ns:.1} ns beside {ours:.1})", place(row))
        })
        .collect();
    let equal: Vec<String> = others().filter(same).map(place).collect();
    let said = |list: &[String], some: &str, none: &str| match list {
        [] => format!("{none}.\n"),
        list => format!("{some}: {}.\n", list.join("; ")),
    };
    said(&faster, "Where rcuwalk does not lead", "Nobody is faster than rcuwalk in any row")
        + &said(&equal, "The same within the spread", "No row is a tie within the spread")
}

/// Real programs, asked again.
fn replays() -> Result<String, String> {
    let records = replay::TRACES.map(|(name, _)| records::newest(&replay::record(name)));
    let records = records.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut out = place(&records[0], "cargo x replay");
    out += ".\n\n| log | replayed calls | `ENOENT` | components a path | searches | without a check | kernel, ns a call | walk | × | rcuwalk | × | differ |\n";
    out += "|---|---|---|---|---|---|---|---|---|---|---|---|\n";
    for record in &records {
        let figure = |key: &str| record[key].as_f64().unwrap_or(f64::NAN);
        let ns = |key: &str| record["ns_per_call"][key].as_f64().unwrap_or(f64::NAN);
        let kinds = record["kinds"].as_object().into_iter().flatten();
        let kinds: Vec<String> = kinds.map(|(kind, count)| format!("{count} {kind}")).collect();
        let _ = writeln!(
            out,
            "| {} | {} | {:.1} % | {:.1} | {} | {:.1} % | {:.0} | {:.0} | {:.1} | {:.0} | {:.1} | {} |",
            text(&record["trace"]).rsplit('/').next().unwrap_or_default(),
            kinds.join(", "),
            figure("enoent_pct"),
            figure("mean_depth"),
            record["searches"],
            figure("searches_spared_pct"),
            ns("host"),
            ns("walk"),
            ns("host") / ns("walk"),
            ns("rcuwalk"),
            ns("host") / ns("rcuwalk"),
            list(&record["mismatches"]).len(),
        );
    }
    Ok(out)
}

/// Mounted file systems side by side, microseconds; the fastest of those in user space stands out.
fn mounts(record: &Value, command: &str) -> String {
    let names: Vec<&str> = list(&record["places"]).iter().map(|place| text(&place["name"])).collect();
    let mut out =
        format!("{}; microseconds for each client, medians, spread in brackets.\n\n", place(record, command));
    let _ = writeln!(out, "| work | clients | {} |", names.join(" | "));
    let _ = writeln!(out, "|---|---|{}", "---|".repeat(names.len()));
    let rows = list(&record["rows"]);
    let mut done = Vec::new();
    for key in rows.iter().map(|row| (text(&row["workload"]), &row["clients"])) {
        if done.contains(&key) {
            continue;
        }
        done.push(key);
        let _ = write!(out, "| {} | {} |", key.0, key.1);
        let of = |name: &str| {
            rows.iter().find(|row| (text(&row["workload"]), &row["clients"]) == key && row["on"] == name)
        };
        let ns = |name: &str| of(name).and_then(|row| row["ns"].as_f64());
        // The floor is the first.
        let best = names.iter().skip(1).filter_map(|name| ns(name)).fold(f64::INFINITY, f64::min);
        for name in &names {
            let _ = match (ns(name), of(name)) {
                (Some(ns), Some(row)) => {
                    let bold = if *name != names[0] && ns <= best { "**" } else { "" };
                    let spread = row["spread_pct"].as_f64().unwrap_or(f64::NAN);
                    write!(out, " {bold}{}{bold} ({spread:.0} %) |", digits(ns / 1e3))
                }
                _ => write!(out, " – |"),
            };
        }
        out.push('\n');
    }
    notes(record, &mut out);
    out
}

/// What one tenant's sequences make another one wait, on the engine and on the kernel, microseconds.
fn tenants(record: &Value, command: &str) -> String {
    let mut out = format!("{}; waits in microseconds.\n\n", place(record, command));
    out.push_str(
        "| a tenant's sequence | on | takes, ms | stat p99.9 | max | mkdir p99.9 | max | machine max |\n",
    );
    out.push_str("|---|---|---|---|---|---|---|---|\n");
    for row in list(&record["rows"]) {
        for on in ["engine", "kernel"] {
            let side = &row[on];
            let Some(took) = side["took"].as_f64() else { continue };
            let name = if on == "engine" { text(&row["sequence"]) } else { "" };
            let _ = write!(out, "| {name} | {on} | {} |", digits(took / 1e6));
            for (call, what) in
                [("stat", "p999"), ("stat", "max"), ("mkdir", "p999"), ("mkdir", "max"), ("machine", "max")]
            {
                let _ = write!(out, " {} |", digits(side[call][what].as_f64().unwrap_or(f64::NAN) / 1e3));
            }
            out.push('\n');
        }
    }
    out
}

/// Three digits, or all before the point.
fn digits(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

fn notes(record: &Value, out: &mut String) {
    for note in list(&record["notes"]) {
        let _ = writeln!(out, "\nNote: {}.", text(note));
    }
}

/// One table for each remedy.
fn ablations(record: &Value, command: &str) -> String {
    let mut out = format!(
        "{}: medians of {} interleaved rounds, {:.0} s.\n",
        place(record, command),
        record["rounds"],
        record["seconds"].as_f64().unwrap_or(f64::NAN),
    );
    for row in list(&record["rows"]) {
        let verdict = if row["holds"] == true { "holds" } else { "**does not hold**" };
        let _ = writeln!(out, "\n### {} {}: {verdict}\n", text(&row["id"]), text(&row["title"]));
        let _ = writeln!(out, "Published: {}.\n", text(&row["published"]));
        out += "| workload | threads | before is | before | after | | × | spread |\n|---|---|---|---|---|---|---|---|\n";
        for point in list(&row["rows"]) {
            let figure = |key: &str| point[key].as_f64().unwrap_or(f64::NAN);
            let times = if point["same"] == true { "same".into() } else { format!("{:.2}", figure("ratio")) };
            let _ = writeln!(
                out,
                "| {} | {} | {} | {:.2} | {:.2} | {} | {times} | {:.0} % |",
                text(&point["name"]),
                point["threads"],
                text(&point["variant"]),
                figure("before"),
                figure("after"),
                text(&point["unit"]),
                figure("spread_pct"),
            );
        }
        out += &scaling(list(&row["rows"]));
        if let Some(note) = row["note"].as_str().filter(|note| !note.is_empty()) {
            let _ = writeln!(out, "\n{note}");
        }
    }
    out
}

/// What several threads reach beside one, before and after.
fn scaling(points: &[Value]) -> String {
    let lines = points.iter().filter_map(|point| {
        let (before, after) = (point["scaling"][0].as_f64()?, point["scaling"][1].as_f64()?);
        let (name, threads, variant) = (text(&point["name"]), &point["threads"], text(&point["variant"]));
        Some(format!(
            "* {name}: {threads} threads together reach {before:.2} times the rate of one with {variant}, {after:.2} times after.\n"
        ))
    });
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

/// One line for each remedy: the first workload that something is claimed about.
fn remedies(record: &Value, command: &str) -> String {
    let mut out = format!("{}.\n\n", place(record, command));
    out += "| | remedy | workload | before → after | × | |\n|---|---|---|---|---|---|\n";
    for row in list(&record["rows"]) {
        let figure = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} → {} {} | {:.2} | {} |",
            text(&row["id"]),
            text(&row["title"]),
            text(&row["workload"]),
            digits(figure("before")),
            digits(figure("after")),
            text(&row["unit"]),
            figure("ratio"),
            if row["holds"] == true { "holds".into() } else { format!("**does not hold**{}", failed(row)) },
        );
    }
    out
}

/// The workloads for which a remedy does not keep what is claimed.
fn failed(row: &Value) -> String {
    let kept = |point: &&Value| {
        let (ratio, claim) = (point["ratio"].as_f64(), point["claim"].as_f64());
        let beyond = claim.is_none_or(|claim| claim < 1.0 || point["same"] != true);
        point["wrong"] == false && ratio >= claim && beyond
    };
    let names: Vec<&str> =
        list(&row["rows"]).iter().filter(|point| !kept(point)).map(|point| text(&point["name"])).collect();
    if names.is_empty() { String::new() } else { format!(": {}", names.join("; ")) }
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
    out += "\n| workload | threads | host | without entry | naive | walk | rcuwalk | spread | × host |\n";
    out += "|---|---|---|---|---|---|---|---|---|\n";
    for (workload, threads) in workloads(record) {
        let cell = |engine| median(record, workload, threads, engine);
        let ns = |engine| cell(engine).map_or("–".into(), |(ns, _)| format!("{ns:.1}"));
        let spread = cell("rcuwalk").map_or("–".into(), |(_, spread)| format!("{spread:.0} %"));
        let times = ratio(record, workload, threads).unwrap_or("–".into());
        let _ = writeln!(
            out,
            "| {workload} | {threads} | {} | {} | {} | {} | {} | {spread} | {times} |",
            ns("host"),
            ns("host-getppid"),
            ns("naive"),
            ns("walk"),
            ns("rcuwalk"),
        );
    }
    out += "\n| target | needed | reached | quartiles | |\n|---|---|---|---|---|\n";
    for target in list(&record["targets"]) {
        let need = target["need"].as_f64().unwrap_or(f64::NAN);
        let quartiles = target["quartiles"][0].as_f64().zip(target["quartiles"][1].as_f64());
        let close = quartiles.is_some_and(|(low, high)| low < need && need < high);
        let _ = writeln!(
            out,
            "| {} | {} {} {} | {:.2} {} | {} | {}{} |",
            target["name"].as_str().unwrap_or("?"),
            if target["at_most"] == true { "≤" } else { "≥" },
            target["need"],
            target["unit"].as_str().unwrap_or_default(),
            target["reached"].as_f64().unwrap_or(f64::NAN),
            target["unit"].as_str().unwrap_or_default(),
            quartiles.map_or("–".into(), |(low, high)| format!("{low:.2} … {high:.2}")),
            if target["met"] == true { "met" } else { "**missed**" },
            if close { ", within the spread" } else { "" },
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn who_leads_is_said_in_words() {
        let row = |peer: &str, ns: f64, times: f64, same: bool| json!({ "workload": "open+close", "threads": 1, "peer": peer, "ns": ns, "times": times, "same": same });
        let ours = row("rcuwalk", 80.0, 1.0, true);
        let lost = lead(&[ours.clone(), row("map", 60.0, 0.75, false), row("tree", 81.0, 1.01, true)]);
        assert_eq!(
            lost,
            "Where rcuwalk does not lead: open+close: map takes 25 % less (60.0 ns beside 80.0).\n\
             The same within the spread: open+close: tree.\n"
        );
        let won = lead(&[ours, row("map", 90.0, 1.1, false)]);
        assert_eq!(won, "Nobody is faster than rcuwalk in any row.\nNo row is a tie within the spread.\n");
    }

    #[test]
    fn a_remedy_that_does_not_hold_says_where() {
        let point = |name: &str, ratio: f64, claim: Option<f64>, same: bool| json!({ "name": name, "ratio": ratio, "claim": claim, "same": same, "wrong": false });
        let points = [
            point("kept", 2.0, Some(1.2), false),
            point("less", 1.1, Some(1.2), false),
            point("tie", 1.21, Some(1.2), true),
            point("as fast", 0.98, Some(0.97), true),
            point("beside", 0.5, None, false),
        ];
        assert_eq!(failed(&json!({ "rows": points })), ": less; tie");
        assert_eq!(failed(&json!({ "rows": [] })), "");
    }

    #[test]
    fn what_threads_reach_together_is_said() {
        let point =
            json!({ "name": "access1", "threads": 2, "variant": "cred-copy", "scaling": [0.34, 2.0] });
        let said = scaling(&[json!({ "name": "one", "threads": 1, "scaling": null }), point]);
        assert!(said.contains(
            "access1: 2 threads together reach 0.34 times the rate of one with cred-copy, 2.00 times after"
        ));
        assert_eq!(scaling(&[]), "");
    }
}
