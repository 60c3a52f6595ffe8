//! The record of a run: what `--json` and `--csv` write.

use std::io;

use rcuwalk_host::Identity;
use rcuwalk_measure::frame::DIFFERS;
use rcuwalk_measure::machine::Machine;
use serde::Serialize;

use crate::check::Checked;
use crate::targets::Target;

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where it ran and what was run.
    pub machine: Machine,
    /// The directory, links resolved.
    pub dir: String,
    /// Names in it, itself included.
    pub entries: u64,
    /// Every answer beside the kernel's.
    pub checked: Checked,
    /// The figures.
    pub rows: Vec<Row>,
    /// Ratios, each the median of the ratios within one round.
    pub ratios: Vec<Ratio>,
    /// Several threads beside one.
    pub scaling: Vec<Scaling>,
    /// What each further component of a path costs.
    pub slopes: Vec<Slope>,
    /// What the tree costs.
    pub memory: Memory,
    /// How fast it was loaded.
    pub import: Import,
    /// What each workload is.
    pub workloads: Vec<About>,
    /// How it was measured.
    pub settings: Settings,
    /// The figures that the project answers to.
    pub targets: Vec<Target>,
}

/// One engine on one workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Name of the workload.
    pub workload: String,
    /// Threads at once.
    pub threads: usize,
    /// `host`, `host-getppid` (the host without the cost of entering the kernel), `naive`,
    /// `walk` (the engine without its whole-path table) or `rcuwalk`.
    pub engine: &'static str,
    /// Median, per operation and thread.
    pub ns_per_op: f64,
    /// Distance of the quartiles in percent of the median.
    pub spread_pct: f64,
    /// Sum of the answers over the workload's paths, hexadecimal; the same for every engine. `DIFFERS` when a timed
    /// batch did not add up, `changed` when it did not because the host's tree changed, `-` where there is no answer.
    pub check: String,
}

/// How many times faster the engine was.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ratio {
    /// Name of the workload.
    pub workload: String,
    /// Threads at once.
    pub threads: usize,
    /// The other engine.
    pub versus: &'static str,
    /// Its time divided by ours.
    pub times: f64,
    /// Distance of the quartiles in percent.
    pub spread_pct: f64,
    /// The quartiles.
    pub quartiles: [f64; 2],
    /// True if the difference lies inside the spread.
    pub same: bool,
}

/// Operations per second of several threads, as a multiple of one thread's in the same rounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scaling {
    /// Name of the workload.
    pub workload: String,
    /// The engine.
    pub engine: &'static str,
    /// Threads at once.
    pub threads: usize,
    /// The multiple; `threads` would be perfect.
    pub times: f64,
    /// Its quartiles.
    pub quartiles: [f64; 2],
}

/// The price of depth.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Slope {
    /// The engine.
    pub engine: &'static str,
    /// Nanoseconds for each component between 4 and 32 of them.
    pub ns_per_component: f64,
}

/// Resident memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Memory {
    /// Growth of the resident memory by the import, divided by the entries.
    pub bytes_per_entry: f64,
    /// That growth.
    pub resident_bytes: u64,
    /// What the empty engine took before.
    pub empty_bytes: u64,
    /// The same for the naive engine.
    pub naive_bytes_per_entry: f64,
}

/// The import.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Import {
    /// Seconds.
    pub seconds: f64,
    /// Entries per second.
    pub entries_per_second: f64,
}

/// What a workload does.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct About {
    /// Its name.
    pub workload: String,
    /// The path, or what the paths are.
    pub paths: String,
    /// Number of paths.
    pub count: usize,
    /// Paths that were left out because the engines disagree on them (links that leave the tree, ACLs for the naive
    /// one).
    pub left_out: usize,
    /// The host's file system below.
    pub fstype: String,
}

/// How the figures were taken.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Settings {
    /// Seed of the shuffle.
    pub seed: u64,
    /// Rounds per workload; a third of them on long lists of paths.
    pub rounds: usize,
    /// Length of a batch, microseconds; ten times that on long lists of paths.
    pub batch_us: u64,
    /// Processors the threads were pinned to, in order.
    pub cpus: Vec<usize>,
    /// Who asked, on the host and in the engine.
    pub identity: Identity,
    /// A short run.
    pub quick: bool,
}

impl Report {
    /// The row of an engine.
    pub fn row(&self, workload: &str, threads: usize, engine: &str) -> Option<&Row> {
        self.rows.iter().find(|r| r.workload == workload && r.threads == threads && r.engine == engine)
    }

    /// The ratio to another engine.
    pub fn ratio(&self, workload: &str, threads: usize, versus: &str) -> Option<&Ratio> {
        self.ratios.iter().find(|r| r.workload == workload && r.threads == threads && r.versus == versus)
    }

    /// What went wrong, one line each: answers that differ from the kernel's. Empty after a good run.
    pub fn faults(&self) -> Vec<String> {
        let checked = &self.checked;
        let mut faults: Vec<String> = [
            ("stat", checked.stat_mismatch, checked.stat),
            ("access", checked.access_mismatch, checked.access),
            ("readdir", checked.readdir_mismatch, checked.readdir),
        ]
        .iter()
        .filter(|(_, wrong, _)| *wrong > 0)
        .map(|(call, wrong, all)| format!("{wrong} of {all} answers of {call} differ from the kernel's"))
        .collect();
        let differs = self.rows.iter().filter(|row| row.check == DIFFERS);
        faults
            .extend(differs.map(|r| format!("{} as {}: timed answers do not add up", r.workload, r.engine)));
        faults
    }

    /// Writes the record as one JSON object, indented.
    ///
    /// # Errors
    ///
    /// The writer's.
    pub fn write_json(&self, out: &mut dyn io::Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        out.write_all(b"\n")
    }

    /// Writes the rows as CSV with a header line, machine and date in every row, so that records can be appended.
    ///
    /// # Errors
    ///
    /// The writer's.
    pub fn write_csv(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record([
            "date",
            "commit",
            "cpu",
            "cores",
            "kernel",
            "rustc",
            "dir",
            "fstype",
            "entries",
            "identity",
            "seed",
            "workload",
            "threads",
            "engine",
            "ns_per_op",
            "spread_pct",
            "check",
        ])?;
        for row in &self.rows {
            let fstype = self.workloads.iter().find(|w| w.workload == row.workload).map_or("", |w| &w.fstype);
            csv.write_record([
                self.machine.date.as_str(),
                self.machine.commit.as_deref().unwrap_or(""),
                &self.machine.cpu,
                &self.machine.cores.to_string(),
                &self.machine.kernel,
                &self.machine.rustc,
                &self.dir,
                fstype,
                &self.entries.to_string(),
                &self.settings.identity.to_string(),
                &self.settings.seed.to_string(),
                &row.workload,
                &row.threads.to_string(),
                row.engine,
                &row.ns_per_op.to_string(),
                &row.spread_pct.to_string(),
                &row.check,
            ])?;
        }
        csv.flush()
    }
}
