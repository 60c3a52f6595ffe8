//! The table for people.

use std::fmt::Write as _;

use comfy_table::{Attribute, Cell, Color, ColumnConstraint};

use super::{Measured, Point, Report};
use rcuwalk_measure::table::{Style, new_table, right};

/// The whole report as text.
pub fn render(report: &Report, style: Style) -> String {
    let mut out = report.machine.summary();
    let _ = writeln!(
        out,
        "each remedy without it (before) and with it (after): medians of {} interleaved rounds; ± is the distance of \
         the quartiles of the ratio; {:.0} s",
        report.rounds, report.seconds
    );
    for row in &report.rows {
        let _ = write!(out, "\n{}", section(row, style));
    }
    out
}

fn section(row: &Measured, style: Style) -> String {
    let mut out =
        format!("{} {}: {}\n", row.id, row.title, if row.holds { "holds" } else { "does not hold" });
    let _ = writeln!(out, "published: {}", row.published);
    let mut table = new_table(style);
    table.set_header(["workload", "thr", "before is", "before", "after", "", "×", "±"]);
    for point in &row.rows {
        table.add_row([
            Cell::new(&point.name),
            right(point.threads),
            Cell::new(point.variant),
            right(figure(point.before)),
            right(figure(point.after)).add_attribute(Attribute::Bold),
            Cell::new(point.unit),
            ratio(point),
            right(format!("{:.0} %", point.spread_pct)),
        ]);
    }
    if let Some(name) = table.column_mut(0) {
        name.set_constraint(ColumnConstraint::ContentWidth);
    }
    let _ = writeln!(out, "{table}");
    for (point, (before, after)) in row.rows.iter().filter_map(|p| Some((p, p.scaling?))) {
        let _ = writeln!(
            out,
            "{} on {} threads: {before:.2} times one thread's rate before, {after:.2} after",
            point.name, point.threads
        );
    }
    for point in row.rows.iter().filter(|point| point.wrong) {
        let _ = writeln!(out, "{}: {}", point.name, point.check);
    }
    if !row.note.is_empty() {
        let _ = writeln!(out, "{}", row.note);
    }
    out
}

/// Three significant digits, or whole numbers.
fn figure(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn ratio(point: &Point) -> Cell {
    if point.wrong {
        return right("DIFFERS").fg(Color::Red);
    }
    let text = if point.same { "same".to_owned() } else { format!("{:.2}", point.ratio) };
    if point.claim_holds() { right(text) } else { right(text).fg(Color::Red) }
}
