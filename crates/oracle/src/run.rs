//! Running a row in a world.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::args::{Data, Fd, Mem, SetFlags, Times};
use crate::backend::{Backend, THREAD, TaskId, World};
use crate::case::{Case, MAIN, ROOT, Step};
use crate::op::Op;
use crate::outcome::{Outcome, Stat};
use crate::tree::{Contents, Entry, Object};
use crate::words::{AtFlags, InodeFlags, Mode, OpenFlags, XattrFlags};

/// How a row ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Every call answered as expected.
    Passed,
    /// These did not, or the row could not be run to its end.
    Failed(Vec<Mismatch>),
    /// The backend declined the row.
    Skipped(String),
    /// It failed, as `divergences.toml` says it does.
    Diverged(String),
}

/// A call that did not answer as expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Line of the call in the file; 0 if it is not about a call.
    pub line: usize,
    /// The call as the row writes it.
    pub call: String,
    /// Expected and got.
    pub difference: String,
}

impl Mismatch {
    /// Something that went wrong outside of any call.
    pub fn general(difference: impl Into<String>) -> Mismatch {
        Mismatch { line: 0, call: String::new(), difference: difference.into() }
    }
}

/// Runs `case` in a fresh world of `backend`. Whatever prevents it from running to its end is a failure.
pub fn run(case: &Case, backend: &dyn Backend) -> Verdict {
    if let Some(reason) = backend.declines(case) {
        return Verdict::Skipped(reason);
    }
    let mut world = match backend.world() {
        Ok(world) => world,
        Err(why) => return Verdict::Failed(vec![Mismatch::general(format!("no world: {why}"))]),
    };
    let mut runner = Runner { world: &mut *world, case, tasks: BTreeMap::new(), saved: BTreeMap::new() };
    match runner.run() {
        Ok(wrong) if wrong.is_empty() => Verdict::Passed,
        Ok(wrong) => Verdict::Failed(wrong),
        Err(mismatch) => Verdict::Failed(vec![mismatch]),
    }
}

/// A task that has started, and its names for descriptors.
struct Live {
    id: TaskId,
    descriptors: BTreeMap<String, i32>,
}

struct Runner<'a> {
    world: &'a mut dyn World,
    case: &'a Case,
    tasks: BTreeMap<String, Live>,
    saved: BTreeMap<String, Stat>,
}

impl Runner<'_> {
    fn run(&mut self) -> Result<Vec<Mismatch>, Mismatch> {
        build(self.world, &self.case.tree)?;
        for step in &self.case.setup {
            self.step(step)?.map_or(Ok(()), |mut m| {
                m.difference = format!("in setup: {}", m.difference);
                Err(m)
            })?;
        }
        let mut wrong = Vec::new();
        for step in &self.case.calls {
            wrong.extend(self.step(step)?);
        }
        Ok(wrong)
    }

    /// Makes a call of the row and compares its answer; `Err` if the row cannot go on.
    fn step(&mut self, step: &Step) -> Result<Option<Mismatch>, Mismatch> {
        let full = self.world.full_caps();
        let mismatch =
            |difference| Mismatch { line: step.line, call: format!("{{ {} }}", step.op.print()), difference };
        for round in 0..step.repeat {
            let live = self.task(&step.task)?;
            let id = live.id;
            let mut op = step.op.clone();
            // A name whose call has failed stays unknown: that failure is the mismatch to read, this one follows.
            let Ok(()) = op.resolve(&|name| live.descriptors.get(name).copied()) else {
                return Ok(Some(mismatch("not made: a descriptor it uses was not opened".to_owned())));
            };
            let outcome = match &op {
                Op::Fork { child, flags } => self.fork(&step.task, &child.0, flags.0),
                Op::Thread { child } => self.fork(&step.task, &child.0, THREAD),
                Op::OpenProc { file, of } if !of.0.is_empty() => {
                    let of = self.task(&of.0)?.id;
                    self.world.open_proc(id, of, *file)
                }
                Op::Sleep { milliseconds } => {
                    std::thread::sleep(std::time::Duration::from_millis(milliseconds.0.unsigned_abs()));
                    Outcome::Done
                }
                op => self.world.call(id, op),
            };
            if let Some(difference) = step.expect.mismatch(&outcome, &self.saved, full) {
                let difference =
                    if step.repeat > 1 { format!("round {}: {difference}", round + 1) } else { difference };
                return Ok(Some(mismatch(difference)));
            }
            if let Some(name) = &step.bind {
                match outcome {
                    Outcome::Fd(fd) => {
                        self.task(&step.task)?.descriptors.insert(name.clone(), fd);
                    }
                    Outcome::Stat(stat) => {
                        self.saved.insert(name.clone(), *stat);
                    }
                    _ => {}
                }
            }
        }
        Ok(None)
    }

    /// The task, started if it has not acted before.
    fn task(&mut self, name: &str) -> Result<&mut Live, Mismatch> {
        if !self.tasks.contains_key(name) {
            let who = self.case.tasks.get(name).ok_or_else(|| {
                Mismatch::general(format!("task `{name}` was never forked: the fork before has failed"))
            })?;
            let id = self
                .world
                .spawn(who)
                .map_err(|why| Mismatch::general(format!("task `{name}` could not start: {why}")))?;
            self.tasks.insert(name.to_owned(), Live { id, descriptors: BTreeMap::new() });
        }
        Ok(self.tasks.get_mut(name).expect("inserted above"))
    }

    fn fork(&mut self, parent: &str, child: &str, flags: u64) -> Outcome {
        let Ok(live) = self.task(parent) else {
            return Outcome::Broken(format!("task `{parent}` could not start"));
        };
        let (id, descriptors) = (live.id, live.descriptors.clone());
        match self.world.fork(id, flags) {
            Ok(id) => {
                self.tasks.insert(child.to_owned(), Live { id, descriptors });
                Outcome::Done
            }
            Err(outcome) => outcome,
        }
    }
}

/// The names of the tasks every row has.
pub const IMPLICIT_TASKS: [&str; 2] = [MAIN, ROOT];

/// Makes the tree of a row.
///
/// # Errors
///
/// The first call that failed.
pub fn build(world: &mut dyn World, tree: &[Entry]) -> Result<(), Mismatch> {
    let mut build = Builder { world };
    for entry in tree {
        build.make(entry)?;
        build.adorn(entry)?;
    }
    for entry in tree {
        build.finish(entry)?;
    }
    Ok(())
}

struct Builder<'a> {
    world: &'a mut dyn World,
}

/// The path of an entry as the builder names it.
fn absolute(path: &[u8]) -> Mem {
    Mem::Bytes([b"/", path].concat())
}

impl Builder<'_> {
    fn call(&mut self, op: &Op) -> Result<Outcome, Mismatch> {
        match self.world.outsider(op) {
            outcome @ (Outcome::Error(_) | Outcome::Broken(_)) => Err(Mismatch {
                line: 0,
                call: format!("{{ {} }}", op.print()),
                difference: format!("building the tree failed: {outcome}"),
            }),
            outcome => Ok(outcome),
        }
    }

    /// Makes the object.
    fn make(&mut self, entry: &Entry) -> Result<(), Mismatch> {
        let path = absolute(&entry.path);
        let node = |kind: u64| Mode(kind | entry.mode.map_or(0, |m| m.0));
        let op = match &entry.kind {
            Object::Dir if entry.path.is_empty() => return Ok(()),
            Object::Dir => Op::Mkdir { path, mode: Mode(0o700) },
            Object::File(contents) => {
                let bytes = match contents {
                    Contents::Bytes(bytes) => bytes.clone(),
                    Contents::Program => self.world.program(),
                    Contents::Hole(_) => Vec::new(),
                };
                self.write(&path, &bytes)?;
                match contents {
                    Contents::Hole(size) => Op::Truncate { path, length: crate::args::Int(*size) },
                    _ => return Ok(()),
                }
            }
            Object::Symlink(target) => Op::Symlink { target: Mem::Bytes(target.clone()), path },
            Object::Hardlink(old) => Op::Link { old: absolute(old), new: path },
            Object::Fifo => Op::Mknod { path, mode: node(0o010000), dev: crate::args::Dev::default() },
            Object::Socket => Op::Mknod { path, mode: node(0o140000), dev: crate::args::Dev::default() },
            Object::Char(dev) => Op::Mknod { path, mode: node(0o020000), dev: *dev },
            Object::Block(dev) => Op::Mknod { path, mode: node(0o060000), dev: *dev },
        };
        self.call(&op).map(drop)
    }

    /// Creates a file with these contents.
    fn write(&mut self, path: &Mem, bytes: &[u8]) -> Result<(), Mismatch> {
        const CREATE: u64 = (libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY) as u64;
        let open = Op::Open { path: path.clone(), flags: OpenFlags(CREATE), mode: Mode(0o600) };
        let Outcome::Fd(fd) = self.call(&open)? else {
            return Err(Mismatch::general("open answered no descriptor"));
        };
        if !bytes.is_empty() {
            let data = Data::of(bytes.to_vec());
            let written = self.call(&Op::Write { fd: Fd::Raw(fd), data })?;
            if written != Outcome::Number(bytes.len() as i64) {
                return Err(Mismatch::general(format!("wrote {written} of {} bytes", bytes.len())));
            }
        }
        self.call(&Op::Close { fd: Fd::Raw(fd) }).map(drop)
    }

    /// Gives the object its owner and mode, in the order in which none undoes the other.
    fn adorn(&mut self, entry: &Entry) -> Result<(), Mismatch> {
        let path = absolute(&entry.path);
        if matches!(entry.kind, Object::Hardlink(_)) {
            return Ok(());
        }
        // Also for root: the group may have come from a set-gid parent.
        let (uid, gid) = entry.owner;
        self.call(&Op::Lchown { path: path.clone(), uid, gid })?;
        if let Some(mode) = entry.mode {
            self.call(&Op::Chmod { path, mode })?;
        }
        Ok(())
    }

    /// What would hinder or change the making of the rest: attributes (a default ACL is inherited), times, flags.
    fn finish(&mut self, entry: &Entry) -> Result<(), Mismatch> {
        let path = absolute(&entry.path);
        for (name, value) in &entry.xattrs {
            self.call(&Op::Lsetxattr {
                path: path.clone(),
                name: Mem::Bytes(name.clone()),
                value: Data::of(value.clone()),
                flags: XattrFlags(0),
            })?;
        }
        if let Some(times) = entry.times {
            let flags = AtFlags(libc::AT_SYMLINK_NOFOLLOW as u64);
            self.call(&Op::Utimensat {
                dirfd: Fd::CWD,
                path: path.clone(),
                times: Times::Pair(times),
                flags,
            })?;
        }
        if entry.iflags != 0 {
            let open = Op::Open { path, flags: OpenFlags(0), mode: Mode(0) };
            let Outcome::Fd(fd) = self.call(&open)? else {
                return Err(Mismatch::general("open answered no descriptor"));
            };
            // What the file system set by itself stays: ext4 refuses to lose its extents flag.
            let present = match self.world.outsider(&Op::Getflags { fd: Fd::Raw(fd) }) {
                Outcome::Number(flags) => flags as u64,
                _ => 0,
            };
            let flags = SetFlags(InodeFlags(present | entry.iflags));
            self.call(&Op::Setflags { fd: Fd::Raw(fd), flags })?;
            self.call(&Op::Close { fd: Fd::Raw(fd) })?;
        }
        Ok(())
    }
}
