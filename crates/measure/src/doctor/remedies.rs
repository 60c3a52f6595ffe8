//! Which remedies the kernel has.

use super::kernel::Facts;
use super::{Measured, Remedy, Verdict};
use crate::hostcalls::{self, FOUR, MISSING, OPEN_FILE};
use crate::series::rounded;

/// A remedy that shows in a ratio: up to `yes` the kernel has it, from `no` on it has not, between them the version decides.
struct Telling {
    what: &'static str,
    ratio: fn(&hostcalls::Report) -> Option<f64>,
    yes: f64,
    no: f64,
}

/// A remedy, and since when kernels have it.
struct Known {
    id: &'static str,
    title: &'static str,
    since: (u32, u32),
    telling: Option<Telling>,
}

const KNOWN: [Known; 9] = [
    Known {
        id: "S1",
        title: "access without a copy of the credential",
        since: (6, 3),
        telling: Some(Telling {
            what: "access : stat of one path",
            ratio: |timed| Some(timed.ns(FOUR, "access", 1)? / timed.ns(FOUR, "stat", 1)?),
            yes: 1.15,
            no: 1.6,
        }),
    },
    Known {
        id: "S2",
        title: "names of ordinary length in a buffer of 192 bytes",
        since: (7, 0),
        telling: None,
    },
    Known { id: "S3", title: "small fills without rep stos", since: (6, 4), telling: None },
    Known { id: "S4", title: "processor masks of a constant size", since: (6, 3), telling: None },
    Known {
        id: "S5",
        title: "execve opens the file before anything else",
        since: (6, 8),
        telling: Some(Telling {
            what: "execve : open of a missing name",
            ratio: |timed| Some(timed.ns(MISSING, "execve", 1)? / timed.ns(MISSING, "open", 1)?),
            yes: 1.5,
            no: 3.0,
        }),
    },
    Known {
        id: "S7",
        title: "statx filled by one copy",
        since: (4, 11),
        telling: Some(Telling {
            what: "statx : fstat of an open file",
            ratio: |timed| Some(timed.ns(OPEN_FILE, "statx", 1)? / timed.ns(OPEN_FILE, "fstat", 1)?),
            yes: 1.6,
            no: 2.5,
        }),
    },
    Known { id: "S8", title: "the user namespace in the credential", since: (2, 39), telling: None },
    Known { id: "S9", title: "search permission known without asking", since: (6, 19), telling: None },
    Known {
        id: "S10",
        title: "lookups that write nothing shared",
        since: (2, 38),
        telling: Some(Telling {
            what: "stat of distinct files, rate of one thread : share of all",
            ratio: slowdown,
            yes: 1.3,
            no: 2.0,
        }),
    },
];

/// How much slower each of all threads is than one alone; none with one processor.
fn slowdown(timed: &hostcalls::Report) -> Option<f64> {
    let rows = timed.rows.iter().filter(|row| row.workload == "distinct files" && row.call == "stat");
    let row = rows.filter(|row| row.threads > 1).max_by_key(|row| row.threads)?;
    Some(row.threads as f64 / row.scaling?)
}

pub(super) fn judge(facts: &Facts, timed: Option<&hostcalls::Report>) -> Vec<Remedy> {
    KNOWN.iter().map(|known| one(known, facts, timed)).collect()
}

fn one(known: &Known, facts: &Facts, timed: Option<&hostcalls::Report>) -> Remedy {
    let telling = known.telling.as_ref();
    let measured = telling.and_then(|telling| {
        let ratio = (telling.ratio)(timed?)?;
        Some((telling, rounded(ratio)))
    });
    let by_measure = measured.and_then(|(telling, ratio)| match ratio {
        r if r <= telling.yes => Some((Verdict::Yes, "measured".to_owned())),
        r if r >= telling.no => Some((Verdict::No, "measured".to_owned())),
        _ => None,
    });
    let by_size = (known.id == "S2").then_some(facts.names_cache).flatten().filter(|&size| size >= 4096);
    let by_size = by_size.map(|size| (Verdict::No, format!("a names_cache object has {size} bytes")));
    let (has, evidence) = by_measure.or(by_size).unwrap_or_else(|| by_version(known.since, facts.version));
    let measured = measured.map(|(telling, ratio)| Measured { what: telling.what, ratio });
    Remedy { id: known.id, title: known.title, has, evidence, measured }
}

/// Versions 2.6.38 and 2.6.39 stand as (2, 38) and (2, 39): every later one is greater.
fn by_version(since: (u32, u32), version: Option<(u32, u32)>) -> (Verdict, String) {
    let name = if since.0 == 2 { format!("2.6.{}", since.1) } else { format!("{}.{}", since.0, since.1) };
    match version {
        Some(version) if version.0 == 2 => (Verdict::Unknown, format!("mainline has it since {name}")),
        Some(version) if version >= since => (Verdict::Yes, format!("mainline has it since {name}")),
        Some(_) => (Verdict::No, format!("mainline has it since {name}; a backport would not show")),
        None => (
            Verdict::Unknown,
            format!("mainline has it since {name}, but the version of this kernel is unclear"),
        ),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::hostcalls::Row;
    use crate::machine::Machine;
    use rcuwalk_host::Identity;

    /// Figures of a kernel, each a situation, a call and nanoseconds.
    pub(in crate::doctor) fn timed(figures: &[(&str, &'static str, f64)]) -> hostcalls::Report {
        let row = |&(workload, call, ns): &(&str, &'static str, f64)| Row {
            workload: workload.to_owned(),
            call,
            threads: 1,
            ns,
            spread_pct: 1.0,
            scaling: None,
            check: String::new(),
            wrong: false,
        };
        hostcalls::Report {
            machine: Machine::read(),
            fstype: "ext4".into(),
            identity: Identity::new(1000, 1000, &[]),
            entry_ns: 80.0,
            rows: figures.iter().map(row).collect(),
            notes: Vec::new(),
        }
    }

    fn judged(id: &str, version: (u32, u32), timed: &hostcalls::Report) -> Remedy {
        let facts = Facts { version: Some(version), ..Facts::default() };
        judge(&facts, Some(timed)).into_iter().find(|remedy| remedy.id == id).unwrap()
    }

    /// Two versions, of which the second had none of what came after RCU-walk.
    const NEW: (u32, u32) = (7, 9);
    const OLD: (u32, u32) = (3, 0);

    /// What a remedy is told by: up to the first ratio there is one, from the second on there is none, and between them the
    /// version says.
    fn bounds(id: &str, yes: f64, no: f64, timed: impl Fn(f64) -> hostcalls::Report) {
        let by_version = [NEW, OLD].map(|version| (version, verdict(id, Some(version))));
        let all = |has| [(NEW, has), (OLD, has)];
        for (ratio, verdicts) in [
            (yes - 0.01, all(Verdict::Yes)),
            (yes, all(Verdict::Yes)),
            (yes + 0.01, by_version),
            (no - 0.01, by_version),
            (no, all(Verdict::No)),
            (no + 0.01, all(Verdict::No)),
        ] {
            let timed = timed(ratio);
            for (version, has) in verdicts {
                let remedy = judged(id, version, &timed);
                assert_eq!(remedy.has, has, "{id} at {ratio} in {version:?}");
                assert_eq!(remedy.measured.unwrap().ratio, ratio, "{id}");
                let told = remedy.evidence == "measured";
                assert_eq!(told, ratio <= yes || ratio >= no, "{id} at {ratio}: {}", remedy.evidence);
            }
        }
    }

    #[test]
    fn each_bound_has_two_sides() {
        bounds("S1", 1.15, 1.6, |ratio| timed(&[(FOUR, "access", 100.0 * ratio), (FOUR, "stat", 100.0)]));
        bounds("S5", 1.5, 3.0, |ratio| {
            timed(&[(MISSING, "execve", 100.0 * ratio), (MISSING, "open", 100.0)])
        });
        bounds("S7", 1.6, 2.5, |ratio| {
            timed(&[(OPEN_FILE, "statx", 100.0 * ratio), (OPEN_FILE, "fstat", 100.0)])
        });
        // How much slower each of four is: of their rate together, as a multiple of one's.
        bounds("S10", 1.3, 2.0, |ratio| {
            let mut report = timed(&[("distinct files", "stat", 100.0), ("distinct files", "stat", 110.0)]);
            report.rows[1].threads = 4;
            report.rows[1].scaling = Some(4.0 / ratio);
            report
        });
    }

    #[test]
    fn what_was_not_measured_is_left_to_the_version() {
        for id in ["S1", "S5", "S7", "S10"] {
            let remedy = judged(id, OLD, &timed(&[(FOUR, "stat", 100.0), (MISSING, "open", 100.0)]));
            assert!(
                remedy.measured.is_none() && remedy.evidence.starts_with("mainline has it"),
                "{remedy:?}"
            );
        }
        let remedy = judged("S9", NEW, &timed(&[(FOUR, "access", 900.0), (FOUR, "stat", 100.0)]));
        assert_eq!((remedy.has, remedy.measured), (Verdict::Yes, None), "no ratio tells of it");
    }

    fn verdict(id: &str, version: Option<(u32, u32)>) -> Verdict {
        let facts = Facts { version, ..Facts::default() };
        judge(&facts, None).into_iter().find(|remedy| remedy.id == id).unwrap().has
    }

    #[test]
    fn versions_decide_where_nothing_was_measured() {
        for (id, version, has) in [
            ("S9", Some((6, 18)), Verdict::No),
            ("S9", Some((6, 19)), Verdict::Yes),
            ("S2", Some((6, 19)), Verdict::No),
            ("S2", Some((7, 0)), Verdict::Yes),
            ("S5", Some((6, 1)), Verdict::No),
            ("S8", Some((3, 10)), Verdict::Yes),
            ("S8", Some((2, 6)), Verdict::Unknown),
            ("S1", None, Verdict::Unknown),
        ] {
            assert_eq!(verdict(id, version), has, "{id} {version:?}");
        }
    }

    #[test]
    fn a_large_names_object_counts_before_the_version() {
        let facts = Facts { version: Some((7, 1)), names_cache: Some(4096), ..Facts::default() };
        let remedy = judge(&facts, None).into_iter().find(|remedy| remedy.id == "S2").unwrap();
        assert_eq!(
            (remedy.has, remedy.evidence.as_str()),
            (Verdict::No, "a names_cache object has 4096 bytes")
        );
    }
}
