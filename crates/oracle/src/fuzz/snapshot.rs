//! The state of a whole tree.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::args::{Fd, Int, Mem, Room};
use crate::op::Op;
use crate::outcome::{Outcome, Stat};
use crate::words::{Mode, OpenFlags};

/// Bytes of a file's contents that are compared.
const CONTENTS: i64 = 4096;

/// Every object of a tree by its path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Path from the root (empty for the root itself) and state.
    pub objects: BTreeMap<Vec<u8>, State>,
}

/// State of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Attributes.
    pub stat: Stat,
    /// Body of a link, entries of a directory, or a digest of the first bytes of a file.
    pub data: Outcome,
    /// Names of extended attributes.
    pub names: Outcome,
    /// Their values, in the order of the names.
    pub values: Vec<Outcome>,
}

impl State {
    /// Extended attributes, sorted by name.
    pub(super) fn attributes(&self) -> BTreeMap<&[u8], &Outcome> {
        let Outcome::Names(names) = &self.names else { return BTreeMap::new() };
        names.iter().map(Vec::as_slice).zip(&self.values).collect()
    }
}

impl Snapshot {
    /// Attributes by device and inode number.
    pub(super) fn by_inode(&self) -> BTreeMap<(u64, u64), &Stat> {
        self.objects.values().map(|state| (state.stat.identity(), &state.stat)).collect()
    }
}

fn absolute(path: &[u8]) -> Mem {
    Mem::Bytes([b"/", path].concat())
}

pub(super) fn lstat(path: &[u8]) -> Op {
    Op::Lstat { path: absolute(path), buf: crate::args::Struct { bad: false } }
}

/// Room for values, as rows have it.
const ROOM: Room = Room::of(65536);
/// Room for everything that programs make; less room is less to clear.
const SNUG: Room = Room::of(8192);

/// Takes a snapshot with the calls of a privileged task whose root is the root of the tree.
pub(super) fn take(call: &mut dyn FnMut(&Op) -> Outcome) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let mut queue = vec![Vec::new()];
    while let Some(path) = queue.pop() {
        let Outcome::Stat(stat) = call(&lstat(&path)) else { continue };
        let names = call(&Op::Llistxattr { path: absolute(&path), room: SNUG });
        let mut values = Vec::new();
        if let Outcome::Names(names) = &names {
            for name in names {
                let name = Mem::Bytes(name.clone());
                values.push(call(&Op::Lgetxattr { path: absolute(&path), name, room: SNUG }));
            }
        }
        let data = match stat.mode & 0o170000 {
            0o040000 => {
                let entries = list(call, &path);
                if let Outcome::Entries(entries) = &entries {
                    for entry in entries.iter().filter(|entry| !entry.is_dot()) {
                        let mut child = path.clone();
                        if !child.is_empty() {
                            child.push(b'/');
                        }
                        child.extend_from_slice(&entry.name);
                        queue.push(child);
                    }
                }
                entries
            }
            0o120000 => call(&Op::Readlink { path: absolute(&path), room: Room::of(4096) }),
            0o100000 if stat.size > 0 => contents(call, &path),
            _ => Outcome::Done,
        };
        snapshot.objects.insert(path, State { stat: *stat, data, names, values });
    }
    snapshot
}

const QUIET: u64 = (libc::O_NOATIME | libc::O_NONBLOCK | libc::O_NOFOLLOW) as u64;

/// Opens without a trace, makes `with` on the descriptor, closes.
fn opened(
    call: &mut dyn FnMut(&Op) -> Outcome,
    path: &[u8],
    flags: u64,
    with: impl FnOnce(Fd) -> Op,
) -> Outcome {
    let open = Op::Open { path: absolute(path), flags: OpenFlags(QUIET | flags), mode: Mode(0) };
    match call(&open) {
        Outcome::Fd(fd) => {
            let outcome = call(&with(Fd::Raw(fd)));
            call(&Op::Close { fd: Fd::Raw(fd) });
            outcome
        }
        other => other,
    }
}

/// The entries of a directory.
fn list(call: &mut dyn FnMut(&Op) -> Outcome, path: &[u8]) -> Outcome {
    opened(call, path, libc::O_DIRECTORY as u64, |fd| Op::Getdents { fd, room: SNUG })
}

fn contents(call: &mut dyn FnMut(&Op) -> Outcome, path: &[u8]) -> Outcome {
    match opened(call, path, 0, |fd| Op::Pread { fd, count: Room::of(CONTENTS), offset: Int(0) }) {
        Outcome::Bytes(bytes) => Outcome::Number(digest(&bytes)),
        other => other,
    }
}

/// A number that differs where contents differ by accident.
fn digest(bytes: &[u8]) -> i64 {
    let mut hash = bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    hash as i64
}

/// Calls that show the state of `path`, with their answers, for a row.
pub(super) fn calls_for(snapshot: &Snapshot, path: &[u8]) -> Vec<(Op, Outcome)> {
    let Some(state) = snapshot.objects.get(path) else {
        return vec![(lstat(path), Outcome::Error(libc::ENOENT))];
    };
    let mut calls = vec![(lstat(path), Outcome::Stat(Box::new(state.stat.clone())))];
    if let Outcome::Names(names) = &state.names {
        calls.push((Op::Llistxattr { path: absolute(path), room: ROOM }, state.names.clone()));
        for (name, value) in names.iter().zip(&state.values) {
            let name = Mem::Bytes(name.clone());
            calls.push((Op::Lgetxattr { path: absolute(path), name, room: ROOM }, value.clone()));
        }
    }
    if state.stat.mode & 0o170000 == 0o120000 {
        calls.push((Op::Readlink { path: absolute(path), room: Room::of(4096) }, state.data.clone()));
    }
    calls
}
