//! When two answers are the same.
//!
//! Inode and device numbers are each system's own. Times are compared where they were set explicitly (everything before
//! [`LONG_AGO`]) and otherwise by whether they have moved since the last snapshot: the host's clock is coarse, but a
//! stamp that follows a snapshot always differs from what the snapshot saw, except where noted.

use std::collections::BTreeMap;

use crate::fuzz::program::{Difference, Program, Trace};
use crate::fuzz::snapshot::{Snapshot, State};
use crate::outcome::{Outcome, Stat, Time, show, type_name};

/// Programs set times before this second only; whatever is later came from a clock.
const LONG_AGO: i64 = 1_600_000_000;

/// The first place where the engine's trace differs from the host's, other than in ways that are known.
pub(super) fn first_difference(
    program: &Program,
    host: &Trace,
    engine: &Trace,
    system: &str,
    known: &[String],
) -> Option<Difference> {
    let mut before: Option<(&Snapshot, &Snapshot)> = None;
    let mut checked = 0;
    let outcome_difference = |from: usize, to: usize| {
        (from..to).find_map(|i| {
            let what = outcomes_differ(host.outcomes.get(i), engine.outcomes.get(i), known)?;
            let what = format!("{}: {what}", program.steps[i].1.print());
            Some(Difference { system: system.to_owned(), what, path: None, moved: None, steps: i + 1 })
        })
    };
    for ((at, theirs), (_, ours)) in host.snapshots.iter().zip(&engine.snapshots) {
        if let Some(difference) = outcome_difference(checked, *at) {
            // Behind a known difference of answers the two systems go separate ways; the rest proves nothing.
            return (!is_known(&difference.what, known)).then_some(difference);
        }
        checked = *at;
        let differs =
            snapshots_differ(theirs, ours, known).map(|(path, what)| (path, what, None)).or_else(|| {
                let (path, field, host) = moved_differently(theirs, ours, before?)?;
                let say = |moved| if moved { "moved" } else { "stayed" };
                let what = format!("{field}: {} on the host, {} in the engine", say(host), say(!host));
                Some((path, what, Some((field, host))))
            });
        if let Some((path, what, moved)) = differs {
            return Some(Difference {
                system: system.to_owned(),
                what: format!("after {at} calls, {}: {what}", show(&path)),
                path: Some(path),
                moved,
                steps: *at,
            });
        }
        before = Some((theirs, ours));
    }
    outcome_difference(checked, program.steps.len())
}

fn is_known(what: &str, known: &[String]) -> bool {
    known.iter().any(|pattern| what.contains(pattern.as_str()))
}

/// The difference between two answers, if there is one.
fn outcomes_differ(host: Option<&Outcome>, engine: Option<&Outcome>, known: &[String]) -> Option<String> {
    let (Some(host), Some(engine)) = (host, engine) else { return Some("an answer is missing".to_owned()) };
    match (host, engine) {
        (Outcome::Stat(a), Outcome::Stat(b)) => stats_differ(a, b, known),
        (Outcome::Entries(a), Outcome::Entries(b)) => {
            let sorted = |entries: &[(Vec<u8>, u8)]| {
                let mut entries = entries.to_vec();
                entries.sort();
                entries
            };
            (sorted(a) != sorted(b)).then(|| format!("host {host}, engine {engine}"))
        }
        _ => (host != engine).then(|| format!("host {host}, engine {engine}")),
    }
}

/// An explicit time, or `None` for one that came from a clock.
fn explicit(time: Time) -> Option<Time> {
    (time.sec < LONG_AGO).then_some(time)
}

fn stats_differ(a: &Stat, b: &Stat, known: &[String]) -> Option<String> {
    let mut wrong = Vec::new();
    let mut compare = |name: &str, a: i128, b: i128| {
        if a != b {
            wrong.push(if name == "mode" {
                format!("mode: host {a:o}, engine {b:o}")
            } else {
                format!("{name}: host {a}, engine {b}")
            });
        }
    };
    compare("mode", a.mode.into(), b.mode.into());
    compare("uid", a.uid.into(), b.uid.into());
    compare("gid", a.gid.into(), b.gid.into());
    compare("nlink", a.nlink.into(), b.nlink.into());
    compare("rdev", a.rdev.into(), b.rdev.into());
    compare("size", a.size.into(), b.size.into());
    compare("blocks", a.blocks.into(), b.blocks.into());
    compare("blksize", a.blksize.into(), b.blksize.into());
    if let (Some(a), Some(b)) = (a.extra, b.extra) {
        compare("mask", a.mask.into(), b.mask.into());
        compare("attributes", a.attributes.into(), b.attributes.into());
        compare("attributes_mask", a.attributes_mask.into(), b.attributes_mask.into());
    }
    for (name, a, b) in
        [("atime", a.atime, b.atime), ("mtime", a.mtime, b.mtime), ("ctime", a.ctime, b.ctime)]
    {
        if explicit(a) != explicit(b) {
            wrong.push(format!("{name}: host {a}, engine {b}"));
        }
    }
    let kind = type_name(a.mode);
    wrong.retain(|field| !is_known(&format!("{kind} {field}"), known));
    (!wrong.is_empty()).then(|| format!("{kind} {}", wrong.join("; ")))
}

/// The first object that differs, and how.
fn snapshots_differ(host: &Snapshot, engine: &Snapshot, known: &[String]) -> Option<(Vec<u8>, String)> {
    for path in host.objects.keys().chain(engine.objects.keys()) {
        let (a, b) = match (host.objects.get(path), engine.objects.get(path)) {
            (Some(a), Some(b)) => (a, b),
            (Some(_), None) => return Some((path.clone(), "exists on the host only".to_owned())),
            (None, _) => return Some((path.clone(), "exists in the engine only".to_owned())),
        };
        if let Some(what) = states_differ(a, b, known).filter(|what| !is_known(what, known)) {
            return Some((path.clone(), what));
        }
    }
    let (a, b) = (aliases(host), aliases(engine));
    let path = a.iter().find(|(path, first)| b.get(*path) != Some(first)).map(|(path, _)| path.clone())?;
    Some((path, "belongs to another set of hard links".to_owned()))
}

fn states_differ(a: &State, b: &State, known: &[String]) -> Option<String> {
    if let Some(what) = stats_differ(&a.stat, &b.stat, known) {
        return Some(what);
    }
    if a.data != b.data {
        return Some(format!("contents: host {}, engine {}", a.data, b.data));
    }
    if a.names != b.names {
        return Some(format!("attributes: host {}, engine {}", a.names, b.names));
    }
    let values = a.values.iter().zip(&b.values).find(|(a, b)| a != b);
    values.map(|(a, b)| format!("attribute value: host {a}, engine {b}"))
}

/// For each path, the first path of the same inode.
fn aliases(snapshot: &Snapshot) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut first: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    snapshot
        .objects
        .iter()
        .map(|(path, state)| {
            let name = first.entry(state.stat.ino).or_insert_with(|| path.clone());
            (path.clone(), name.clone())
        })
        .collect()
}

/// The first object whose mtime or ctime has moved since the last snapshots on one side only: path, field, whether it
/// was the host's.
///
/// A directory may be stamped by link, unlink and rmdir with a coarse stamp of the other inode, so for directories only
/// "the host has moved and the engine has not" counts. Access times are coarse on the host and prove nothing.
fn moved_differently(
    host: &Snapshot,
    engine: &Snapshot,
    (old_host, old_engine): (&Snapshot, &Snapshot),
) -> Option<(Vec<u8>, &'static str, bool)> {
    let (old_host, old_engine) = (old_host.by_inode(), old_engine.by_inode());
    let times = |s: &Stat| [("mtime", s.mtime), ("ctime", s.ctime)];
    for (path, a) in &host.objects {
        let (a, b) = (&a.stat, &engine.objects.get(path)?.stat);
        let (Some(old_a), Some(old_b)) = (old_host.get(&a.ino), old_engine.get(&b.ino)) else { continue };
        let directory = a.mode & 0o170000 == 0o040000;
        for i in 0..2 {
            let (field, now) = times(a)[i];
            let host_moved = times(old_a)[i].1 != now;
            let engine_moved = times(old_b)[i].1 != times(b)[i].1;
            if host_moved != engine_moved && (host_moved || !directory) {
                return Some((path.clone(), field, host_moved));
            }
        }
    }
    None
}
