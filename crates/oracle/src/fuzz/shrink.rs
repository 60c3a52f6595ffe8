//! From a program that shows a difference to a small one that still does.

use crate::fuzz::program::{Difference, Program};
use crate::identity::Identity;
use crate::tree::Object;

/// Runs a candidate; the difference it shows.
type Try<'a> = dyn FnMut(&Program) -> Result<Option<Difference>, String> + 'a;

/// How many candidates are tried.
const BUDGET: usize = 2000;

struct Shrinker<'a, 'b> {
    best: Program,
    attempt: &'a mut Try<'b>,
    left: usize,
}

/// The smallest program found that still shows a difference.
///
/// # Errors
///
/// If a candidate could not be run.
pub(super) fn shrink(program: Program, attempt: &mut Try<'_>) -> Result<Program, String> {
    let mut shrinker = Shrinker { best: program, attempt, left: BUDGET };
    shrinker.cut_the_end()?;
    // With a snapshot after every call, a difference shows where it arises.
    let mut candidate = shrinker.best.clone();
    candidate.interval = 1;
    if shrinker.keep(candidate)? {
        shrinker.cut_the_end()?;
    }
    loop {
        let before = shrinker.size();
        shrinker.drop_steps()?;
        shrinker.drop_entries()?;
        shrinker.plainer_entries()?;
        shrinker.plainer_tasks()?;
        if shrinker.size() == before || shrinker.left == 0 {
            return Ok(shrinker.best);
        }
    }
}

impl Shrinker<'_, '_> {
    /// What is to become smaller, in bytes of the printed program.
    fn size(&self) -> usize {
        let entries: usize = self.best.tree.iter().map(|e| e.print().len()).sum();
        let steps: usize = self.best.steps.iter().map(|(_, op)| op.print().len()).sum();
        let tasks: usize = self.best.tasks.iter().map(|who| who.print().len()).sum();
        entries + steps + tasks
    }

    /// Takes `candidate` if it still shows a difference.
    fn keep(&mut self, candidate: Program) -> Result<bool, String> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        let shows = (self.attempt)(&candidate)?.is_some_and(|d| d.steps > 0);
        if shows {
            self.best = candidate;
        }
        Ok(shows)
    }

    /// Drops everything behind the difference.
    fn cut_the_end(&mut self) -> Result<(), String> {
        let Some(difference) = (self.attempt)(&self.best)? else { return Ok(()) };
        if difference.steps > 0 && difference.steps < self.best.steps.len() {
            let mut candidate = self.best.clone();
            candidate.steps.truncate(difference.steps);
            self.keep(candidate)?;
        }
        Ok(())
    }

    /// Drops steps, in ever smaller runs.
    fn drop_steps(&mut self) -> Result<(), String> {
        let mut run = self.best.steps.len().div_ceil(2);
        while run > 0 {
            let mut at = 0;
            while at < self.best.steps.len() {
                let mut candidate = self.best.clone();
                let end = (at + run).min(candidate.steps.len());
                candidate.steps.drain(at..end);
                if candidate.steps.is_empty() || !self.keep(candidate)? {
                    at += run;
                }
            }
            run /= 2;
        }
        Ok(())
    }

    /// Drops objects with what lies below them and what links to them.
    fn drop_entries(&mut self) -> Result<(), String> {
        let mut at = self.best.tree.len();
        while at > 0 {
            at -= 1;
            if at >= self.best.tree.len() {
                continue;
            }
            let mut candidate = self.best.clone();
            let path = candidate.tree[at].path.clone();
            let below = [&path[..], b"/"].concat();
            candidate.tree.retain(|e| {
                let linked =
                    matches!(&e.kind, Object::Hardlink(old) if *old == path || old.starts_with(&below));
                !(e.path == path || (!path.is_empty() && e.path.starts_with(&below)) || linked)
            });
            self.keep(candidate)?;
        }
        Ok(())
    }

    /// Gives objects plain modes, owners and nothing else.
    fn plainer_entries(&mut self) -> Result<(), String> {
        for at in 0..self.best.tree.len() {
            let mut candidate = self.best.clone();
            candidate.tree[at].xattrs.clear();
            self.try_if_new(candidate)?;
            let mut candidate = self.best.clone();
            candidate.tree[at].times = None;
            self.try_if_new(candidate)?;
            let mut candidate = self.best.clone();
            candidate.tree[at].owner = (crate::args::Id(0), crate::args::Id(0));
            self.try_if_new(candidate)?;
            let mut candidate = self.best.clone();
            if candidate.tree[at].mode.is_some() {
                let plain = if candidate.tree[at].kind == Object::Dir { 0o755 } else { 0o644 };
                candidate.tree[at].mode = Some(crate::words::Mode(plain));
            }
            self.try_if_new(candidate)?;
        }
        Ok(())
    }

    /// Replaces identities by root or by a plain user.
    fn plainer_tasks(&mut self) -> Result<(), String> {
        for at in 0..self.best.tasks.len() {
            for plain in [Identity::root(), Identity::user(1000, 1000, &[])] {
                if self.best.tasks[at] == Identity::root() {
                    break;
                }
                let mut candidate = self.best.clone();
                candidate.tasks[at] = plain;
                self.try_if_new(candidate)?;
            }
        }
        Ok(())
    }

    fn try_if_new(&mut self, candidate: Program) -> Result<(), String> {
        if candidate != self.best {
            self.keep(candidate)?;
        }
        Ok(())
    }
}
