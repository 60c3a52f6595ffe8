//! A report for people.

use std::fmt::Write as _;

use comfy_table::{Attribute, Cell, Color, ColumnConstraint, Table};
use rcuwalk_measure::frame::DIFFERS;
use rcuwalk_measure::table::{Style, new_table, right};

use crate::report::{Report, Row};
use crate::targets::Target;

/// The whole report as text.
pub fn render(report: &Report, style: Style) -> String {
    let mut out = String::new();
    head(report, &mut out);
    if !report.rows.is_empty() {
        let _ = writeln!(out, "\n{}", rows(report, style));
        let _ = writeln!(
            out,
            "ns per operation and thread, medians of {} interleaved rounds; `×` is the host's time divided by ours; ± is \
             the distance of the quartiles.",
            report.settings.rounds
        );
        let slopes =
            report.slopes.iter().map(|slope| format!("{} {:.1}", slope.engine, slope.ns_per_component));
        let _ =
            writeln!(out, "each component from depth 4 to 32, ns: {}", slopes.collect::<Vec<_>>().join(", "));
        scaling(report, &mut out);
        let _ = writeln!(out, "\n{}", targets(&report.targets, style));
    }
    for mismatch in &report.checked.mismatches {
        let _ = writeln!(out, "mismatch: {}: {}: {}", mismatch.call, mismatch.path, mismatch.difference);
    }
    out
}

fn head(report: &Report, out: &mut String) {
    let checked = &report.checked;
    out.push_str(&report.machine.summary());
    let _ = writeln!(
        out,
        "{}: {} entries, imported in {:.2} s ({:.0}/s), {:.0} bytes each",
        report.dir,
        report.entries,
        report.import.seconds,
        report.import.entries_per_second,
        report.memory.bytes_per_entry
    );
    let _ = writeln!(
        out,
        "beside the kernel: stat {} answers, {} differ; access {} answers, {} differ; readdir {}, {} differ",
        checked.stat,
        checked.stat_mismatch,
        checked.access,
        checked.access_mismatch,
        checked.readdir,
        checked.readdir_mismatch
    );
    let mut types: Vec<&str> = report.workloads.iter().map(|about| about.fstype.as_str()).collect();
    types.sort_unstable();
    types.dedup();
    if !types.is_empty() {
        let _ = writeln!(out, "file systems of the host below the rows: {}", types.join(", "));
    }
    let asked: Vec<String> = checked.identities.iter().map(ToString::to_string).collect();
    let _ = writeln!(out, "access as {}; timed as {}", asked.join(" "), report.settings.identity);
    let left_out = [
        (checked.changed, "paths changed meanwhile"),
        (checked.links_outside, "links lead out of the tree"),
        (checked.atime_moved, "access times were moved by readers"),
        (checked.access_skipped, "answers of access skipped"),
    ];
    let left_out: Vec<String> =
        left_out.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if !left_out.is_empty() {
        let _ = writeln!(out, "not compared: {}", left_out.join(", "));
    }
    for note in &checked.notes {
        let _ = writeln!(out, "note: {note}");
    }
}

/// Narrower than this, the columns that a reader can do without are left out.
const ROOMY: u16 = 100;

fn rows(report: &Report, style: Style) -> Table {
    let roomy = style.width.is_none_or(|width| width >= ROOMY);
    let mut table = new_table(style);
    let mut header =
        vec!["workload", "thr", "host", "−getppid", "naive", "walk", "rcuwalk", "±", "×", "check"];
    if !roomy {
        header.retain(|name| !matches!(*name, "−getppid" | "walk" | "check"));
    }
    table.set_header(header);
    for ours in report.rows.iter().filter(|row| row.engine == "rcuwalk") {
        let other = |engine| report.row(&ours.workload, ours.threads, engine);
        let figure =
            |row: Option<&Row>| right(row.map_or_else(String::new, |row| format!("{:.1}", row.ns_per_op)));
        let ratio = report.ratio(&ours.workload, ours.threads, "host");
        let ratio = ratio.map_or_else(String::new, |r| match r.same {
            true => "same".to_owned(),
            false => format!("{:.2}", r.times),
        });
        let check = check_cell(
            ["host", "naive", "walk", "rcuwalk"].map(|engine| other(engine).map_or("", |r| &r.check)),
        );
        let mut cells = vec![Cell::new(&ours.workload), right(ours.threads), figure(other("host"))];
        cells.extend(roomy.then(|| figure(other("host-getppid"))));
        cells.extend([figure(other("naive"))]);
        cells.extend(roomy.then(|| figure(other("walk"))));
        cells.extend([
            figure(Some(ours)).add_attribute(Attribute::Bold),
            right(format!("{:.0} %", ours.spread_pct)),
            right(ratio),
        ]);
        cells.extend(roomy.then_some(check));
        table.add_row(cells);
    }
    if let Some(name) = table.column_mut(0) {
        name.set_constraint(ColumnConstraint::ContentWidth);
    }
    table
}

/// One sum for all engines, or what is wrong with it.
fn check_cell(checks: [&str; 4]) -> Cell {
    if checks.iter().all(|check| *check == checks[0] && *check != DIFFERS) {
        Cell::new(format!("{} ✓", tail(checks[0])))
    } else {
        Cell::new(DIFFERS).fg(Color::Red)
    }
}

/// The last digits of a sum: enough for an eye to compare.
fn tail(check: &str) -> &str {
    &check[check.len().saturating_sub(6)..]
}

fn scaling(report: &Report, out: &mut String) {
    for one in report.scaling.iter().filter(|s| s.engine == "rcuwalk") {
        let other = |engine: &str| {
            let found = report.scaling.iter().find(|s| s.workload == one.workload && s.engine == engine);
            found.map_or(0.0, |s| s.times)
        };
        let _ = writeln!(
            out,
            "{} on {} threads: {:.2} times one thread's rate (host {:.2}, naive {:.2})",
            one.workload,
            one.threads,
            one.times,
            other("host"),
            other("naive")
        );
    }
}

fn targets(targets: &[Target], style: Style) -> Table {
    let mut table = new_table(style);
    table.set_header(["target", "need", "reached", "quartiles", ""]);
    for target in targets {
        let sign = if target.at_most { "≤" } else { "≥" };
        let reached = target.reached.map_or_else(|| "-".to_owned(), |r| format!("{r:.2} {}", target.unit));
        let surely = if target.is_close() { ", within the spread" } else { "" };
        let verdict = match target.met {
            Some(true) => Cell::new(format!("met{surely}")).fg(Color::Green),
            Some(false) => Cell::new(format!("missed{surely}")).fg(Color::Red),
            None => Cell::new("not measured"),
        };
        let quartiles =
            target.quartiles.map_or_else(String::new, |[low, high]| format!("{low:.2} … {high:.2}"));
        table.add_row([
            Cell::new(&target.name),
            right(format!("{sign} {} {}", target.need, target.unit)),
            right(reached),
            right(quartiles),
            verdict,
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_sum_stands_out() {
        assert_eq!(check_cell(["0123456789abcdef"; 4]).content(), "abcdef ✓");
        assert_eq!(check_cell(["0", "0", "0", "1"]).content(), "DIFFERS");
        assert_eq!(check_cell([DIFFERS; 4]).content(), "DIFFERS");
        assert_eq!(tail("-"), "-");
    }
}
