//! When two answers are the same.
//!
//! Inode and device numbers are each system's own. Times are compared where they were set explicitly (everything before
//! [`LONG_AGO`]) and otherwise by whether they have moved since the last snapshot: the host's clock is coarse, but a
//! stamp that follows a snapshot always differs from what the snapshot saw, except where noted.

use std::collections::BTreeMap;

use crate::fuzz::program::{Difference, Program, Trace};
use crate::fuzz::snapshot::{Snapshot, State};
use crate::host::Place;
use crate::outcome::{DirEntry, Outcome, Stat, Time, show, type_name};
use crate::sys::file_system;

/// Programs set times before this second only; whatever is later came from a clock.
const LONG_AGO: i64 = 1_600_000_000;

/// The file system on the host's side. The engine is tmpfs; where another one may differ, it is not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// Everything is compared.
    Tmpfs,
    /// Not compared: sizes of directories, blocks, what statx says of the file system, the order of attribute names, and
    /// which times of other objects than directories have moved (a truncation to the same size stamps, taking away an
    /// ACL that is not there does not). Not made: inode flags, of which ext4 has more, and which forbid more there;
    /// searches for data and holes, where allocated blocks that were never written are holes as long as none is cached;
    /// `O_TMPFILE`, which it refuses in removed directories;
    /// unmounting without `MNT_DETACH`, and pivot_root: all programs share the file system.
    Ext4,
}

impl FileSystem {
    /// The one of a place.
    ///
    /// # Errors
    ///
    /// If it cannot be found out, or is neither.
    pub fn of(place: &Place) -> Result<FileSystem, String> {
        let Place::Dir(dir) = place else { return Ok(FileSystem::Tmpfs) };
        match file_system(dir.as_os_str().as_encoded_bytes()) {
            Ok(0x0102_1994) => Ok(FileSystem::Tmpfs),
            Ok(0xef53) => Ok(FileSystem::Ext4),
            Ok(other) => Err(format!(
                "{}: programs are compared on tmpfs and ext4, not on a file system of type {other:#x}",
                dir.display()
            )),
            Err(errno) => Err(format!("{}: {}", dir.display(), crate::errno::name(errno))),
        }
    }
}

/// Compares an engine with the host.
pub(super) struct Judge<'a> {
    pub(super) program: &'a Program,
    /// The engine's name.
    pub(super) system: &'a str,
    /// Parts of descriptions of differences that are known.
    pub(super) known: &'a [String],
    pub(super) file_system: FileSystem,
}

impl Judge<'_> {
    /// The first place where the engine's trace differs from the host's, other than in ways that are known.
    pub(super) fn first_difference(&self, host: &Trace, engine: &Trace) -> Option<Difference> {
        let mut before: Option<(&Snapshot, &Snapshot)> = None;
        let mut checked = 0;
        let outcome_difference = |from: usize, to: usize| {
            (from..to).find_map(|i| {
                let what = self.outcomes_differ(host.outcomes.get(i), engine.outcomes.get(i))?;
                let what = format!("{}: {what}", self.program.steps[i].1.print());
                Some(Difference {
                    system: self.system.to_owned(),
                    what,
                    path: None,
                    moved: None,
                    steps: i + 1,
                })
            })
        };
        for ((at, theirs), (_, ours)) in host.snapshots.iter().zip(&engine.snapshots) {
            if let Some(difference) = outcome_difference(checked, *at) {
                // Behind a known difference of answers the two systems go separate ways; the rest proves nothing.
                return (!self.is_known(&difference.what)).then_some(difference);
            }
            checked = *at;
            let differs =
                self.snapshots_differ(theirs, ours).map(|(path, what)| (path, what, None)).or_else(|| {
                    let (path, field, host) = self.moved_differently(theirs, ours, before?)?;
                    let say = |moved| if moved { "moved" } else { "stayed" };
                    let what = format!("{field}: {} on the host, {} in the engine", say(host), say(!host));
                    Some((path, what, Some((field, host))))
                });
            if let Some((path, what, moved)) = differs {
                return Some(Difference {
                    system: self.system.to_owned(),
                    what: format!("after {at} calls, {}: {what}", show(&path)),
                    path: Some(path),
                    moved,
                    steps: *at,
                });
            }
            before = Some((theirs, ours));
        }
        outcome_difference(checked, self.program.steps.len())
    }

    fn is_known(&self, what: &str) -> bool {
        self.known.iter().any(|pattern| what.contains(pattern.as_str()))
    }

    /// The difference between two answers, if there is one.
    fn outcomes_differ(&self, host: Option<&Outcome>, engine: Option<&Outcome>) -> Option<String> {
        let (Some(host), Some(engine)) = (host, engine) else {
            return Some("an answer is missing".to_owned());
        };
        match (host, engine) {
            (Outcome::Stat(a), Outcome::Stat(b)) => self.stats_differ(a, b),
            (Outcome::Entries(a), Outcome::Entries(b)) => {
                self.entries_differ(a, b).then(|| format!("host {host}, engine {engine}"))
            }
            (Outcome::Names(a), Outcome::Names(b)) => {
                self.names_differ(a, b).then(|| format!("host {host}, engine {engine}"))
            }
            _ => (host != engine).then(|| format!("host {host}, engine {engine}")),
        }
    }

    fn entries_differ(&self, host: &[DirEntry], engine: &[DirEntry]) -> bool {
        let set =
            |list: &[DirEntry]| sorted(&list.iter().map(|e| (e.name.clone(), e.kind)).collect::<Vec<_>>());
        match self.file_system {
            FileSystem::Tmpfs => host != engine,
            FileSystem::Ext4 => set(host) != set(engine),
        }
    }

    fn names_differ(&self, host: &[Vec<u8>], engine: &[Vec<u8>]) -> bool {
        match self.file_system {
            FileSystem::Tmpfs => host != engine,
            FileSystem::Ext4 => sorted(host) != sorted(engine),
        }
    }

    fn stats_differ(&self, a: &Stat, b: &Stat) -> Option<String> {
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
        let tmpfs = self.file_system == FileSystem::Tmpfs;
        if tmpfs || a.mode & 0o170000 != 0o040000 {
            compare("size", a.size.into(), b.size.into());
        }
        if tmpfs {
            compare("blocks", a.blocks.into(), b.blocks.into());
        }
        compare("blksize", a.blksize.into(), b.blksize.into());
        if let (Some(a), Some(b)) = (a.extra, b.extra) {
            let visible = if tmpfs { u64::MAX } else { IMMUTABLE_OR_APPEND };
            compare("attributes", (a.attributes & visible).into(), (b.attributes & visible).into());
            if tmpfs {
                compare("mask", a.mask.into(), b.mask.into());
                compare("attributes_mask", a.attributes_mask.into(), b.attributes_mask.into());
            }
        }
        for (name, a, b) in
            [("atime", a.atime, b.atime), ("mtime", a.mtime, b.mtime), ("ctime", a.ctime, b.ctime)]
        {
            if explicit(a) != explicit(b) && (tmpfs || explicit(a).is_some() == explicit(b).is_some()) {
                wrong.push(format!("{name}: host {a}, engine {b}"));
            }
        }
        let kind = type_name(a.mode);
        wrong.retain(|field| !self.is_known(&format!("{kind} {field}")));
        (!wrong.is_empty()).then(|| format!("{kind} {}", wrong.join("; ")))
    }

    /// The first object that differs, and how.
    fn snapshots_differ(&self, host: &Snapshot, engine: &Snapshot) -> Option<(Vec<u8>, String)> {
        for path in host.objects.keys().chain(engine.objects.keys()) {
            let (a, b) = match (host.objects.get(path), engine.objects.get(path)) {
                (Some(a), Some(b)) => (a, b),
                (Some(_), None) => return Some((path.clone(), "exists on the host only".to_owned())),
                (None, _) => return Some((path.clone(), "exists in the engine only".to_owned())),
            };
            if let Some(what) = self.states_differ(a, b).filter(|what| !self.is_known(what)) {
                return Some((path.clone(), what));
            }
        }
        let (a, b) = (aliases(host), aliases(engine));
        let path =
            a.iter().find(|(path, first)| b.get(*path) != Some(first)).map(|(path, _)| path.clone())?;
        Some((path, "belongs to another set of hard links".to_owned()))
    }

    fn states_differ(&self, a: &State, b: &State) -> Option<String> {
        if let Some(what) = self.stats_differ(&a.stat, &b.stat) {
            return Some(what);
        }
        if let Some(what) = self.outcomes_differ(Some(&a.data), Some(&b.data)) {
            return Some(format!("contents: {what}"));
        }
        if let Some(what) = self.outcomes_differ(Some(&a.names), Some(&b.names)) {
            return Some(format!("attributes: {what}"));
        }
        let (a, b) = (a.attributes(), b.attributes());
        let differ = a.iter().zip(&b).find(|(a, b)| a != b);
        differ.map(|((name, a), (_, b))| format!("attribute {}: host {a}, engine {b}", show(name)))
    }

    /// The first object whose mtime or ctime has moved since the last snapshots on one side only: path, field, whether it
    /// was the host's.
    ///
    /// A directory may be stamped by link, unlink and rmdir with a coarse stamp of the other inode, so for directories only
    /// "the host has moved and the engine has not" counts. Access times are coarse on the host and prove nothing.
    fn moved_differently(
        &self,
        host: &Snapshot,
        engine: &Snapshot,
        (old_host, old_engine): (&Snapshot, &Snapshot),
    ) -> Option<(Vec<u8>, &'static str, bool)> {
        let (old_host, old_engine) = (old_host.by_inode(), old_engine.by_inode());
        let times = |s: &Stat| [("mtime", s.mtime), ("ctime", s.ctime)];
        for (path, a) in &host.objects {
            let (a, b) = (&a.stat, &engine.objects.get(path)?.stat);
            let (Some(old_a), Some(old_b)) = (old_host.get(&a.identity()), old_engine.get(&b.identity()))
            else {
                continue;
            };
            let directory = a.mode & 0o170000 == 0o040000;
            for i in 0..2 {
                let (field, now) = times(a)[i];
                let host_moved = times(old_a)[i].1 != now;
                let engine_moved = times(old_b)[i].1 != times(b)[i].1;
                let comparable = match self.file_system {
                    FileSystem::Tmpfs => host_moved || !directory,
                    FileSystem::Ext4 => host_moved && directory,
                };
                if host_moved != engine_moved && comparable {
                    return Some((path.clone(), field, host_moved));
                }
            }
        }
        None
    }
}

/// Attributes of statx that ext4 and the engine both know: `STATX_ATTR_IMMUTABLE`, `STATX_ATTR_APPEND`.
const IMMUTABLE_OR_APPEND: u64 = 0x30;

/// An explicit time, or `None` for one that came from a clock.
fn explicit(time: Time) -> Option<Time> {
    (time.sec < LONG_AGO).then_some(time)
}

fn sorted<T: Ord + Clone>(list: &[T]) -> Vec<T> {
    let mut list = list.to_vec();
    list.sort();
    list
}

/// For each path, the first path of the same inode.
fn aliases(snapshot: &Snapshot) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut first: BTreeMap<(u64, u64), Vec<u8>> = BTreeMap::new();
    snapshot
        .objects
        .iter()
        .map(|(path, state)| {
            let name = first.entry(state.stat.identity()).or_insert_with(|| path.clone());
            (path.clone(), name.clone())
        })
        .collect()
}
