//! SOURCE into an engine, and a task of the chosen identity to look at it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rcuwalk::{Task, Vfs};
use rcuwalk_host::{Files, HostNames, Identity, ImportOptions, Names, Problem, Progress, Source};

use crate::args::Place;
use crate::output::{Failure, complain};
use crate::signals;

/// Imports the source and gives a process that belongs to the identity, with root and working directory at its top.
pub(crate) fn open(place: &Place) -> Result<Task, Failure> {
    let source = rcuwalk_host::open(&place.source).map_err(|e| Failure::Error(format!("importing: {e}")))?;
    let vfs = Vfs::new().map_err(|e| {
        let place = place.source.display();
        Failure::Error(format!("reserving memory: {place}: {e}; raise ulimit -v, or free memory"))
    })?;
    let options = ImportOptions { databases: place.who.is_some(), ..ImportOptions::default() };
    let report = watched(|progress| source.import(&vfs, &options, progress))
        .map_err(|e| Failure::Error(format!("importing: {e}")))?;
    complain_of(&report.problems, report.problem_count);
    let who = match &place.who {
        Some(text) => named(text, &source, &vfs)?,
        None => caller()?,
    };
    Ok(vfs.task(who.cred().map_err(|e| Failure::Error(format!("taking on the identity: {who}: {e}")))?))
}

/// The identity that `--as` names.
fn named(text: &str, source: &Source, vfs: &Vfs) -> Result<Identity, Failure> {
    let names: Box<dyn Names> = match source {
        Source::Dir(_) => Box::new(HostNames),
        Source::Archive(_) | Source::Image(_) | Source::TreeImage(_) => Box::new(Files::of_vfs(vfs).names()),
    };
    Identity::parse(text, &*names).map_err(|e| Failure::Error(format!("--as {text}: {e}")))
}

/// This process.
pub(crate) fn caller() -> Result<Identity, Failure> {
    Identity::caller().map_err(|e| Failure::Error(format!("asking who I am: {}", rcuwalk_host::describe(&e))))
}

/// Shows the import's counters on a terminal while it runs, and cancels it if the user wants to be asked first and has come.
pub(crate) fn watched<R, E>(import: impl FnOnce(&Progress) -> Result<R, E>) -> Result<R, E> {
    let progress = Progress::new();
    let finished = AtomicBool::new(false);
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if bar.is_hidden() && !signals::asks_first() {
        return import(&progress);
    }
    let style = ProgressStyle::with_template("importing: {human_pos} entries {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    thread::scope(|scope| {
        let watch = || {
            // A short import shows nothing.
            thread::park_timeout(Duration::from_millis(200));
            while !finished.load(Ordering::Acquire) {
                bar.set_position(progress.entries());
                bar.tick();
                if signals::asked().is_some() {
                    progress.cancel();
                }
                thread::park_timeout(Duration::from_millis(100));
            }
            bar.finish_and_clear();
        };
        // Without this thread there is no progress bar, and nothing else is lost.
        let watcher = thread::Builder::new().name("progress".into()).spawn_scoped(scope, watch).ok();
        let report = import(&progress);
        finished.store(true, Ordering::Release);
        if let Some(watcher) = watcher {
            watcher.thread().unpark();
        }
        report
    })
}

/// How many problems of a source are named.
const NAMED: usize = 10;

/// Says on standard error what of a source could not be taken over: how many entries, and the first of them.
pub(crate) fn complain_of(problems: &[Problem], count: u64) {
    if count == 0 {
        return;
    }
    let first: Vec<String> = problems.iter().take(NAMED).map(|problem| format!("\n  {problem}")).collect();
    let more = if count > NAMED as u64 { "; the first:" } else { ":" };
    complain(format_args!("note: {count} entries are not as in the source{more}{}", first.concat()));
}
