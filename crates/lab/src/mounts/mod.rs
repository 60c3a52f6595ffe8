//! Mounted file systems side by side: what programs do with files, in directories of each, in turns.
//!
//! [`run`] is given directories of different file systems. In each it makes the same files, and then times the same work in
//! all of them, round after round: single calls, and whole programs (tar, git, make). One client works alone, or two at
//! the same time, each on files of its own. Every answer is checked: sizes, contents, counts, what programs print.

mod programs;
mod work;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Barrier;
use std::thread;

use serde::Serialize;

use rcuwalk_measure::Error;
use rcuwalk_measure::machine::{Machine, fstype_of};
use rcuwalk_measure::progress::Observer;
use rcuwalk_measure::series::quantile;
use rcuwalk_measure::series::rounded;
use rcuwalk_measure::table::{Style, new_table, right};

use programs::Programs;
use work::{Call, Files};

/// What to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The directories, each with the name it has in the table.
    pub places: Vec<(String, PathBuf)>,
    /// Fewer and shorter rounds.
    pub quick: bool,
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where it ran.
    pub machine: Machine,
    /// The file systems, in the order of the table.
    pub places: Vec<Place>,
    /// The figures.
    pub rows: Vec<Row>,
    /// What could not be measured, and why.
    pub notes: Vec<String>,
}

/// One of the file systems.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Its name in the table.
    pub name: String,
    /// What the kernel calls it.
    pub fstype: String,
}

/// One kind of work on one file system.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The work.
    pub workload: String,
    /// Clients at once.
    pub clients: usize,
    /// The file system.
    pub on: String,
    /// Median, nanoseconds for each client.
    pub ns: f64,
    /// Distance of the quartiles in percent of the median.
    pub spread_pct: f64,
    /// Answers that were wrong.
    pub wrong: usize,
}

impl Report {
    /// The rows whose answers were wrong, one line each.
    pub fn faults(&self) -> Vec<String> {
        let wrong = self.rows.iter().filter(|row| row.wrong > 0);
        wrong.map(|row| format!("{} on {}: {} wrong answers", row.workload, row.on, row.wrong)).collect()
    }

    /// The kinds of work with their clients, in order.
    fn workloads(&self) -> Vec<(&str, usize)> {
        let mut all = Vec::new();
        for row in &self.rows {
            let key = (row.workload.as_str(), row.clients);
            if !all.contains(&key) {
                all.push(key);
            }
        }
        all
    }
}

/// How long and how often.
struct Effort {
    rounds: usize,
    /// Nanoseconds of one batch of calls.
    batch: u64,
    /// Rounds of whole programs.
    programs: usize,
}

/// Times the same work in each directory.
///
/// # Errors
///
/// When files cannot be made in one of them. A program that is missing is a note.
pub fn run(options: &Options, observer: &dyn Observer) -> Result<Report, Error> {
    let effort = match options.quick {
        true => Effort { rounds: 3, batch: 2_000_000, programs: 1 },
        false => Effort { rounds: 21, batch: 4_000_000, programs: 5 },
    };
    let place = |(name, dir): &(String, PathBuf)| Place { name: name.clone(), fstype: fstype_of(dir) };
    let mut report = Report {
        machine: Machine::read(),
        places: options.places.iter().map(place).collect(),
        rows: vec![],
        notes: vec![],
    };
    observer.stage("making files", None);
    let files = options.places.iter().map(|(_, dir)| Files::make(dir)).collect::<Result<Vec<_>, _>>()?;
    observer.stage("calls", Some((Call::ALL.len() * work::CLIENTS) as u64));
    for clients in 1..=work::CLIENTS {
        for call in Call::ALL {
            calls(*call, clients, &files, &effort, &mut report);
            observer.advance(1);
        }
    }
    observer.stage("programs", None);
    let programs = Programs::make(&options.places, &mut report.notes)?;
    programs.measure(effort.programs, &mut report);
    Ok(report)
}

/// The samples of each place, and its wrong answers.
type Samples = BTreeMap<usize, (Vec<f64>, usize)>;

/// One kind of call on all file systems.
fn calls(call: Call, clients: usize, files: &[Files], effort: &Effort, report: &mut Report) {
    let mut samples = Samples::new();
    // As many calls as fill a batch, found out while everything gets warm.
    let times: Vec<u64> = files.iter().map(|files| files.calibrate(call, effort.batch)).collect();
    for round in 0..effort.rounds {
        in_turns(round, files.len(), |place| {
            let (nanos, wrong) = together(clients, |client| files[place].batch(call, client, times[place]));
            let all = samples.entry(place).or_default();
            all.0.extend(nanos);
            all.1 += wrong;
        });
    }
    report.add(call.name(), clients, samples);
}

/// Goes forwards in one round and backwards in the next, so that a drift of the machine touches all places alike.
fn in_turns(round: usize, places: usize, mut each: impl FnMut(usize)) {
    for i in 0..places {
        each(if round.is_multiple_of(2) { i } else { places - 1 - i });
    }
}

/// Lets clients begin at the same moment; nanoseconds of each, and wrong answers of all.
fn together(clients: usize, work: impl Fn(usize) -> (f64, usize) + Sync) -> (Vec<f64>, usize) {
    if clients == 1 {
        let (nanos, wrong) = work(0);
        return (vec![nanos], wrong);
    }
    let start = Barrier::new(clients);
    let one = |client| {
        start.wait();
        work(client)
    };
    thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..clients).map(|client| scope.spawn(move || one(client))).collect();
        let done = threads.into_iter().map(|thread| thread.join().unwrap_or((f64::NAN, 1)));
        let (nanos, wrong): (Vec<f64>, Vec<usize>) = done.unzip();
        (nanos, wrong.iter().sum())
    })
}

impl Report {
    fn add(&mut self, workload: &str, clients: usize, samples: Samples) {
        for (place, (values, wrong)) in samples {
            let middle = quantile(values.clone(), 0.5);
            let spread = quantile(values.clone(), 0.75) - quantile(values, 0.25);
            self.rows.push(Row {
                workload: workload.to_owned(),
                clients,
                on: self.places[place].name.clone(),
                ns: rounded(middle),
                spread_pct: rounded(spread / middle * 100.0),
                wrong,
            });
        }
    }
}

/// The report as text.
pub fn render(report: &Report, style: Style) -> String {
    let mut out = report.machine.summary();
    let kinds: Vec<String> = report.places.iter().map(|p| format!("{} ({})", p.name, p.fstype)).collect();
    let _ = writeln!(out, "{}; microseconds for each client, medians", kinds.join(", "));
    let mut table = new_table(style);
    let head = ["work", "clients"].into_iter().chain(report.places.iter().map(|place| place.name.as_str()));
    table.set_header(head);
    for (workload, clients) in report.workloads() {
        let mut cells = vec![comfy_table::Cell::new(workload), right(clients)];
        for place in &report.places {
            let row = report
                .rows
                .iter()
                .find(|row| row.workload == workload && row.clients == clients && row.on == place.name);
            cells.push(right(match row {
                None => "–".to_owned(),
                Some(row) if row.wrong > 0 => "WRONG".to_owned(),
                Some(row) => format!("{:.2}", row.ns / 1e3),
            }));
        }
        table.add_row(cells);
    }
    let _ = writeln!(out, "\n{table}");
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_directories_are_timed_and_every_answer_is_right() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let places = [("one", &dirs[0]), ("two", &dirs[1])];
        let options = Options {
            places: places.map(|(name, dir)| (name.to_owned(), dir.path().to_owned())).to_vec(),
            quick: true,
        };
        let report = run(&options, &()).unwrap();
        assert_eq!(report.faults(), [""; 0]);
        for call in Call::ALL {
            for clients in 1..=work::CLIENTS {
                let rows: Vec<_> = report
                    .rows
                    .iter()
                    .filter(|row| row.workload == call.name() && row.clients == clients)
                    .collect();
                assert_eq!(rows.len(), 2, "{call:?}");
                assert!(rows.iter().all(|row| row.ns > 0.0), "{rows:?}");
            }
        }
        // What was made is gone.
        assert!(dirs.iter().all(|dir| std::fs::read_dir(dir.path()).unwrap().next().is_none()));
    }
}
