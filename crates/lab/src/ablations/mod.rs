//! Each remedy with and without it, in one run.
//!
//! A [`Row`] is one cost that kernel developers found to be paid for nothing, and the way to stop paying it. The product
//! has the remedy; the row's file also has the old way, and times the two against each other on workloads whose answers
//! are checked. [`run`] makes the table.

mod s1;
mod s10;
mod s2;
mod s3;
mod s4;
mod s5;
mod s6;
mod s7;
mod s8;
mod s9;
mod t1;
mod table;
mod world;

pub use rcuwalk_measure::frame::{Budget, Outcome, Point, Side, Variant, Workload, side};
pub use table::render;

use serde::Serialize;

use rcuwalk_measure::Error;
use rcuwalk_measure::machine::Machine;
use rcuwalk_measure::progress::Observer;

/// One remedy.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// `S1` to `S10`, `T1`.
    pub id: &'static str,
    /// The remedy in a few words.
    pub title: &'static str,
    /// What its authors measured, and where they said so.
    pub published: &'static str,
    /// Measures it.
    pub run: fn(&Budget<'_>) -> Result<Outcome, Error>,
}

/// The rows, in the order of the table.
pub const ROWS: &[Row] =
    &[s1::ROW, s2::ROW, s3::ROW, s4::ROW, s5::ROW, s6::ROW, s7::ROW, s8::ROW, s9::ROW, s10::ROW, t1::ROW];

/// What to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Fewer and shorter rounds.
    pub quick: bool,
    /// The rows, by id; all without any.
    pub only: Vec<String>,
    /// Most threads at once; 0 is one for each processor.
    pub threads: usize,
}

/// What a run found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where it ran.
    pub machine: Machine,
    /// Rounds of each comparison; a round runs one batch of each side.
    pub rounds: usize,
    /// Length of a batch, microseconds.
    pub batch_us: u64,
    /// Processors the threads were pinned to, in order.
    pub cpus: Vec<usize>,
    /// A short run.
    pub quick: bool,
    /// Seconds it took.
    pub seconds: f64,
    /// One for each remedy.
    pub rows: Vec<Measured>,
}

/// A remedy, measured.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// Its id.
    pub id: &'static str,
    /// What it is.
    pub title: &'static str,
    /// What its authors measured.
    pub published: &'static str,
    /// The point that stands for the row: the first that a claim is made about.
    #[serde(flatten)]
    pub headline: Option<Headline>,
    /// Every workload.
    pub rows: Vec<Point>,
    /// Whether every claimed point went the published way, beyond the spread, with every answer right.
    pub holds: bool,
    /// What a reader has to know: why it does not hold, or what the figures do not show.
    pub note: String,
}

/// The figures of a row in one line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Headline {
    /// The workload.
    pub workload: String,
    /// The old way, in `unit`.
    pub before: f64,
    /// The new way, in `unit`.
    pub after: f64,
    /// What both count.
    pub unit: &'static str,
    /// Before divided by after.
    pub ratio: f64,
    /// What was checked.
    pub check: String,
}

impl Report {
    /// The rows that did not hold, one line each.
    pub fn faults(&self) -> Vec<String> {
        let wrong = self.rows.iter().flat_map(|row| row.rows.iter().map(move |point| (row, point)));
        wrong
            .filter(|(_, point)| point.wrong)
            .map(|(row, point)| format!("{}: {}: {}", row.id, point.name, point.check))
            .collect()
    }
}

/// Measures the rows that `options` name.
///
/// ```
/// use rcuwalk_lab::ablations::{Options, run};
///
/// let report = run(&Options { quick: true, only: vec!["S4".into()], threads: 1 }, &())?;
/// assert_eq!(report.rows[0].id, "S4");
/// assert!(report.faults().is_empty());
/// # Ok::<(), rcuwalk_measure::Error>(())
/// ```
///
/// # Errors
///
/// A row that there is not, and what the host refuses: threads, pinning, temporary files. A remedy without gain is no
/// error: it stands in the report.
pub fn run(options: &Options, observer: &dyn Observer) -> Result<Report, Error> {
    let unknown = |id: &&String| !ROWS.iter().any(|row| row.id.eq_ignore_ascii_case(id));
    if let Some(id) = options.only.iter().find(unknown) {
        let ids: Vec<&str> = ROWS.iter().map(|row| row.id).collect();
        return Err(Error::new("choosing the rows", id, "there is no such row", ids.join(", ")));
    }
    let clock = std::time::Instant::now();
    let machine = Machine::read();
    let budget = Budget::new(options.quick, options.threads, observer)?;
    let chosen: Vec<&Row> = ROWS
        .iter()
        .filter(|row| {
            options.only.is_empty() || options.only.iter().any(|id| row.id.eq_ignore_ascii_case(id))
        })
        .collect();
    let mut rows = Vec::with_capacity(chosen.len());
    for row in chosen {
        observer.stage(&format!("{} {}", row.id, row.title), None);
        rows.push(measured(row, (row.run)(&budget)?));
    }
    Ok(Report {
        machine,
        rounds: budget.rounds,
        batch_us: budget.batch_nanos / 1000,
        cpus: budget.cpus.clone(),
        quick: options.quick,
        seconds: rcuwalk_measure::series::rounded(clock.elapsed().as_secs_f64()),
        rows,
    })
}

fn measured(row: &Row, outcome: Outcome) -> Measured {
    let claimed: Vec<&Point> = outcome.points.iter().filter(|point| point.claim.is_some()).collect();
    let headline = claimed.first().map(|point| Headline {
        workload: point.name.clone(),
        before: point.before,
        after: point.after,
        unit: point.unit,
        ratio: point.ratio,
        check: point.check.clone(),
    });
    let holds = !claimed.is_empty()
        && claimed.iter().all(|point| point.claim_holds())
        && outcome.points.iter().all(|point| !point.wrong);
    Measured {
        id: row.id,
        title: row.title,
        published: row.published,
        headline,
        rows: outcome.points,
        holds,
        note: outcome.note,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(claim: Option<f64>, ratio: f64, spread_pct: f64, wrong: bool) -> Point {
        Point {
            name: "w".into(),
            variant: "old",
            threads: 1,
            before: 10.0 * ratio,
            after: 10.0,
            unit: "ns",
            ratio,
            spread_pct,
            same: (ratio - 1.0).abs() * 100.0 <= spread_pct / 2.0,
            claim,
            scaling: None,
            check: "checked".into(),
            wrong,
        }
    }

    fn holds(points: Vec<Point>) -> bool {
        measured(&ROWS[0], Outcome { points, note: String::new() }).holds
    }

    #[test]
    fn a_row_holds_only_if_every_claim_does_and_every_answer_is_right() {
        assert!(holds(vec![point(Some(1.5), 2.0, 5.0, false)]));
        assert!(!holds(vec![point(Some(3.0), 2.0, 5.0, false)]), "less than claimed");
        assert!(!holds(vec![point(Some(1.0), 1.02, 10.0, false)]), "inside the spread");
        assert!(!holds(vec![point(Some(1.5), 2.0, 5.0, true)]), "wrong answers");
        assert!(holds(vec![point(Some(1.5), 2.0, 5.0, false), point(None, 0.5, 5.0, false)]));
        assert!(!holds(vec![point(Some(1.5), 2.0, 5.0, false), point(None, 2.0, 5.0, true)]));
        assert!(!holds(vec![point(None, 2.0, 5.0, false)]), "nothing is claimed");
    }

    #[test]
    fn ids_are_unique_and_unknown_ones_are_refused() {
        let mut ids: Vec<&str> = ROWS.iter().map(|row| row.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), ROWS.len());
        let error = run(&Options { only: vec!["S0".into()], ..Options::default() }, &()).unwrap_err();
        assert!(error.to_string().contains("S0: there is no such row"), "{error}");
    }
}
