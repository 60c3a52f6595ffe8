//! The figures that the project answers to, and what a run reached.

use serde::Serialize;

use crate::report::{Report, rounded};

/// One figure to reach.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Target {
    /// What is measured.
    pub name: String,
    /// The bound.
    pub need: f64,
    /// True if less is better.
    pub at_most: bool,
    /// Unit: `x` for a ratio, `ns`, `bytes`.
    pub unit: &'static str,
    /// What the run reached; none where it could not tell.
    pub reached: Option<f64>,
    /// True if the bound is kept; none where the run could not tell.
    pub met: Option<bool>,
}

impl Target {
    fn new(
        name: impl Into<String>,
        unit: &'static str,
        need: f64,
        at_most: bool,
        reached: Option<f64>,
    ) -> Target {
        let met = reached.map(|r| if at_most { r <= need } else { r >= need });
        Target { name: name.into(), need, at_most, unit, reached: reached.map(rounded), met }
    }
}

/// The bounds, against what `report` holds.
pub fn judge(report: &Report) -> Vec<Target> {
    let hit =
        report.workloads.iter().find(|w| w.workload.starts_with("stat/hit/")).map(|w| w.workload.clone());
    let depth = hit.as_deref().and_then(|name| name.strip_prefix("stat/hit/")).unwrap_or("depth4").to_owned();
    let versus_host = |workload: &str| report.ratio(workload, 1, "host").map(|r| r.times);
    let ratio = |workload: String, need: f64| {
        let reached = versus_host(&workload);
        let below = report.workloads.iter().find(|w| w.workload == workload).map_or("", |w| &w.fstype);
        Target::new(format!("{workload}, beside the host's {below}"), "x", need, false, reached)
    };
    let slope = report.slopes.iter().find(|slope| slope.engine == "walk").map(|s| s.ns_per_component);
    let deep = |depth| report.row(&format!("stat/depth{depth}"), 1, "rcuwalk").map(|row| row.ns_per_op);
    let flat = deep(32).zip(deep(2)).map(|(deep, shallow)| deep / shallow);
    let two = report.scaling.iter().find(|s| s.workload == "stat/same-file" && s.engine == "rcuwalk");
    vec![
        ratio(format!("stat/hit/{depth}"), 16.0),
        ratio(format!("access/hit/{depth}"), 8.0),
        ratio(format!("statx/hit/{depth}"), 8.0),
        ratio("stat/negative".into(), 6.0),
        ratio("open+close".into(), 6.0),
        ratio("stat/random".into(), 8.0),
        Target::new("stat of a repeated path, depth 32 beside depth 2", "x", 2.0, true, flat),
        Target::new("the walk, each component from depth 4 to 32", "ns", 6.0, true, slope),
        Target::new(
            "stat of one file, two threads beside one",
            "x",
            1.95,
            false,
            two.map(|s| if s.threads == 2 { s.times } else { s.times / s.threads as f64 * 2.0 }),
        ),
        Target::new(
            "resident memory of an entry",
            "bytes",
            256.0,
            true,
            (report.memory.resident_bytes > 0).then_some(report.memory.bytes_per_entry),
        ),
    ]
}
