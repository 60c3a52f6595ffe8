//! Programs: what is run, on anything that is a [`World`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::args::{Fd, Struct};
use crate::backend::{THREAD, TaskId, World};
use crate::expect::Expect;
use crate::fuzz::snapshot::{self, Snapshot};
use crate::identity::Identity;
use crate::need::Need;
use crate::op::Op;
use crate::outcome::Outcome;
use crate::read::quote;
use crate::run::{Mismatch, build};
use crate::tree::Entry;
use crate::words::CapSet;

/// A world and what is done in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// The tree at the start.
    pub tree: Vec<Entry>,
    /// Who acts.
    pub tasks: Vec<Identity>,
    /// Calls: index of the task, call.
    pub steps: Vec<(usize, Op)>,
    /// A snapshot is taken after so many calls, and at the end.
    pub interval: usize,
}

/// What a system made of a program.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trace {
    /// The answer to each call.
    pub outcomes: Vec<Outcome>,
    /// Snapshots: number of calls made before, whole tree.
    pub snapshots: Vec<(usize, Snapshot)>,
}

/// Where two systems differ.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The engine that differs from the host.
    pub system: String,
    /// What differs, for a person.
    pub what: String,
    /// Path of the object whose state differs, if it was a snapshot.
    pub path: Option<Vec<u8>>,
    /// A time that has moved on one side only, and whether that was the host.
    pub moved: Option<(&'static str, bool)>,
    /// Calls made before the difference showed.
    pub steps: usize,
}

impl Program {
    /// The program with "full" capability sets replaced by those the host has, so that both sides start equal.
    pub(super) fn with_capabilities(&self, full: u64) -> Program {
        let mut program = self.clone();
        for who in &mut program.tasks {
            for set in [
                &mut who.effective,
                &mut who.permitted,
                &mut who.inheritable,
                &mut who.ambient,
                &mut who.bounding,
            ] {
                *set = CapSet(set.0 & full);
            }
        }
        program
    }

    /// True if it mounts or unshares: what it leaves behind cannot be cleared away safely.
    pub(super) fn needs_a_world_of_its_own(&self) -> bool {
        let needs =
            |op: &Op| op.needs().iter().any(|n| matches!(n, Need::Mount | Need::Userns | Need::Idmap));
        self.steps.iter().any(|(_, op)| needs(op))
    }

    /// Runs it in a fresh world.
    ///
    /// # Errors
    ///
    /// If the tree or the tasks could not be made.
    pub fn run(&self, world: &mut dyn World) -> Result<Trace, Mismatch> {
        let mut run = Run::start(self, world)?;
        let mut at = 0;
        while at < self.steps.len() {
            let task = self.steps[at].0;
            let boundary = (at / self.interval + 1) * self.interval;
            let mut end = at;
            while end < self.steps.len() && end < boundary && self.steps[end].0 == task {
                end += 1;
            }
            let ops: Vec<Op> = self.steps[at..end].iter().map(|(_, op)| op.clone()).collect();
            run.calls(task, &ops);
            at = end;
            run.snapshot_if_due(self.interval, at == self.steps.len());
        }
        Ok(run.finish())
    }

    /// The program as a row that expects what the host answered.
    pub fn row(&self, host: &Trace, difference: &Difference, seed: u64, full: u64) -> String {
        let mut out = format!(
            "# {}: {}\n[[case]]\nname = \"fuzz_{seed:016x}\"\ntree = [\n",
            difference.system,
            difference.what.replace('\n', " ")
        );
        for entry in &self.tree {
            out.push_str(&format!("  {},\n", quote(&entry.print())));
        }
        out.push_str("]\n");
        let used = |i: usize| self.steps.iter().any(|(task, _)| *task == i);
        let tasks: Vec<String> = (0..self.tasks.len())
            .filter(|i| used(*i))
            .map(|i| format!("t{i} = {}", self.tasks[i].print()))
            .collect();
        out.push_str(&format!("tasks = {{ {} }}\ncalls = [\n", tasks.join(", ")));
        for (i, ((task, op), outcome)) in self.steps.iter().zip(&host.outcomes).enumerate() {
            if let (Some(path), Some(_), true) =
                (&difference.path, difference.moved, i + 1 == self.steps.len())
            {
                let lstat = snapshot::lstat(path).print();
                out.push_str(&format!(
                    "  {{ task = \"root\", {lstat}, bind = \"before\", expect = \"ok\" }},\n"
                ));
            }
            let expect = Expect::exactly(outcome, full).print(op.kind());
            out.push_str(&format!("  {{ task = \"t{task}\", {}, expect = {expect} }},\n", op.print()));
        }
        if let (Some(path), Some((field, moved))) = (&difference.path, difference.moved) {
            let (lstat, relation) = (snapshot::lstat(path).print(), if moved { "changed" } else { "same" });
            out.push_str(&format!(
                "  {{ task = \"root\", {lstat}, expect = {{ since = \"before\", {relation} = [\"{field}\"] }} }},\n"
            ));
        } else if let (Some(path), Some((_, snapshot))) = (&difference.path, host.snapshots.last()) {
            for (op, outcome) in snapshot::calls_for(snapshot, path) {
                let expect = Expect::exactly(&outcome, full).print(op.kind());
                out.push_str(&format!("  {{ task = \"root\", {}, expect = {expect} }},\n", op.print()));
            }
        }
        out.push_str(&format!("]\nwhy = \"found by the fuzzer, seed {seed:#x}\"\n"));
        out
    }
}

/// A program on its way through a world.
pub(super) struct Run<'a> {
    world: &'a mut dyn World,
    /// By the numbers that steps name them by.
    tasks: BTreeMap<usize, TaskId>,
    trace: Trace,
}

impl<'a> Run<'a> {
    /// Makes the tree and the tasks.
    pub(super) fn start(program: &Program, world: &'a mut dyn World) -> Result<Run<'a>, Mismatch> {
        build(world, &program.tree)?;
        let mut tasks = BTreeMap::new();
        for (number, who) in program.tasks.iter().enumerate() {
            tasks.insert(number, world.spawn(who).map_err(Mismatch::general)?);
        }
        Ok(Run { world, tasks, trace: Trace::default() })
    }

    /// Makes a call; its answer.
    pub(super) fn call(&mut self, task: usize, op: &Op) -> &Outcome {
        self.calls(task, std::slice::from_ref(op));
        self.trace.outcomes.last().expect("a call has an outcome")
    }

    /// Type bits of what a descriptor refers to, 0 if it is not open; not a call of the program.
    pub(super) fn kind(&mut self, task: usize, fd: i32) -> u32 {
        let fstat = Op::Fstat { fd: Fd::Raw(fd), buf: Struct { bad: false } };
        let Some(task) = self.tasks.get(&task) else { return 0 };
        match self.world.call(*task, &fstat) {
            Outcome::Stat(stat) => stat.mode & 0o170000,
            _ => 0,
        }
    }

    /// Makes several calls.
    fn calls(&mut self, task: usize, ops: &[Op]) {
        let Some(&id) = self.tasks.get(&task) else {
            // Where the fork was left out, everybody lacks the task.
            self.trace.outcomes.extend(ops.iter().map(|_| Outcome::Broken("no such task".to_owned())));
            return;
        };
        let makes_a_task = |op: &Op| matches!(op, Op::Fork { .. } | Op::Thread { .. });
        for part in ops.chunk_by(|a, b| !makes_a_task(a) && !makes_a_task(b)) {
            let (child, flags) = match part {
                [Op::Fork { child, flags }] => (child, flags.0),
                [Op::Thread { child }] => (child, THREAD),
                part => {
                    self.trace.outcomes.extend(self.world.calls(id, part));
                    continue;
                }
            };
            let outcome = match (self.world.fork(id, flags), child.0.strip_prefix('t').map(str::parse)) {
                (Ok(id), Some(Ok(number))) => {
                    self.tasks.insert(number, id);
                    Outcome::Done
                }
                (Ok(_), _) => Outcome::Broken(format!("tasks are called t and a number, not {}", child.0)),
                (Err(outcome), _) => outcome,
            };
            self.trace.outcomes.push(outcome);
        }
    }

    /// Takes a snapshot if the program wants one at this point.
    pub(super) fn snapshot_if_due(&mut self, interval: usize, end: bool) -> Option<&Snapshot> {
        let at = self.trace.outcomes.len();
        if !end && !at.is_multiple_of(interval) {
            return None;
        }
        self.trace.snapshots.push((at, snapshot::take(&mut |op| self.world.outsider(op))));
        self.trace.snapshots.last().map(|(_, snapshot)| snapshot)
    }

    /// What the world made of the program.
    pub(super) fn finish(self) -> Trace {
        self.trace
    }
}
