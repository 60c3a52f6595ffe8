//! The figures that the project answers to, and what a run reached.

use rcuwalk_measure::series::rounded;
use serde::Serialize;

use crate::report::Report;

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
    /// What the run reached, the median; none where it could not tell.
    pub reached: Option<f64>,
    /// The quartiles of that; none where it is not a median over rounds.
    pub quartiles: Option<[f64; 2]>,
    /// True if the median keeps the bound; none where the run could not tell.
    pub met: Option<bool>,
}

/// A median, and its quartiles if it has any.
type Reached = Option<(f64, Option<[f64; 2]>)>;

impl Target {
    fn new(
        name: impl Into<String>,
        unit: &'static str,
        need: f64,
        at_most: bool,
        reached: Reached,
    ) -> Target {
        let (reached, quartiles) = reached.unzip();
        let met = reached.map(|r| if at_most { r <= need } else { r >= need });
        let (reached, quartiles) = (reached.map(rounded), quartiles.flatten());
        Target { name: name.into(), need, at_most, unit, reached, quartiles, met }
    }

    /// True if the bound lies between the quartiles: another run may end on its other side.
    pub fn is_close(&self) -> bool {
        self.quartiles.is_some_and(|[low, high]| low < self.need && self.need < high)
    }
}

/// The bounds, against what `report` holds.
pub fn judge(report: &Report) -> Vec<Target> {
    let hit =
        report.workloads.iter().find(|w| w.workload.starts_with("stat/hit/")).map(|w| w.workload.clone());
    let depth = hit.as_deref().and_then(|name| name.strip_prefix("stat/hit/")).unwrap_or("depth4").to_owned();
    let ratio = |workload: &str, threads: usize, need: f64| {
        let reached = report.ratio(workload, threads, "host").map(|r| (r.times, Some(r.quartiles)));
        let below = report.workloads.iter().find(|w| w.workload == workload).map_or("", |w| &w.fstype);
        let on = if threads > 1 { format!(" on {threads} threads") } else { String::new() };
        Target::new(format!("{workload}{on}, beside the host's {below}"), "x", need, false, reached)
    };
    let mut targets = vec![
        ratio(&format!("stat/hit/{depth}"), 1, 16.0),
        ratio(&format!("access/hit/{depth}"), 1, 8.0),
        ratio(&format!("statx/hit/{depth}"), 1, 8.0),
        ratio("stat/negative", 1, 6.0),
        ratio("open+close", 1, 6.0),
    ];
    let random = report.ratios.iter().filter(|r| r.versus == "host" && r.workload == "stat/random");
    targets.extend(random.map(|r| ratio(&r.workload, r.threads, 8.0)));

    let slope = report.slopes.iter().find(|slope| slope.engine == "walk").map(|s| s.ns_per_component);
    let deep = |depth| report.row(&format!("stat/depth{depth}"), 1, "rcuwalk").map(|row| row.ns_per_op);
    let flat = deep(32).zip(deep(2)).map(|(deep, shallow)| deep / shallow);
    let two = report.scaling.iter().find(|s| s.workload == "stat/same-file" && s.engine == "rcuwalk");
    let two = two.map(|s| {
        let of_two = |times: f64| if s.threads == 2 { times } else { times / s.threads as f64 * 2.0 };
        (of_two(s.times), Some(s.quartiles.map(of_two)))
    });
    let once = |reached: Option<f64>| reached.map(|reached| (reached, None));
    let memory = (report.memory.resident_bytes > 0).then_some(report.memory.bytes_per_entry);
    targets.extend([
        Target::new("stat of a repeated path, depth 32 beside depth 2", "x", 2.0, true, once(flat)),
        Target::new("the walk, each component from depth 4 to 32", "ns", 6.0, true, once(slope)),
        Target::new("stat of one file, two threads beside one", "x", 1.95, false, two),
        Target::new("resident memory of an entry", "bytes", 256.0, true, once(memory)),
    ]);
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_decides_and_the_quartiles_say_how_surely() {
        let target = |median: f64, low, high| {
            Target::new("a ratio", "x", 8.0, false, Some((median, Some([low, high]))))
        };
        let verdict = |target: Target| (target.met, target.is_close());
        assert_eq!(verdict(target(10.0, 9.0, 11.0)), (Some(true), false));
        assert_eq!(verdict(target(8.1, 7.9, 8.3)), (Some(true), true));
        assert_eq!(verdict(target(7.99, 7.0, 9.0)), (Some(false), true), "not rounded up, nor made up for");
        assert_eq!(verdict(target(7.0, 6.0, 7.5)), (Some(false), false));
        let most = |reached| Target::new("bytes", "bytes", 256.0, true, reached);
        assert_eq!(verdict(most(Some((248.0, None)))), (Some(true), false));
        assert_eq!(verdict(most(Some((257.0, None)))), (Some(false), false));
        assert_eq!(verdict(most(None)), (None, false));
    }
}
