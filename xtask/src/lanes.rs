//! Work side by side: stages as processes of their own, each with its output kept together, and an end for all of them.

use crate::process::{self, Outcome, target_dir};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long processes may take to end when they are asked to, before they are killed.
const PATIENCE: Duration = Duration::from_secs(5);

/// `work` on all of `items`, on as many threads as there are `lanes`; the results in the order of the items.
pub(crate) fn parallel<T: Sync, R: Send>(lanes: usize, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..lanes.min(items.len()) {
            scope.spawn(|| {
                loop {
                    // Relaxed: it only deals out numbers.
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(i) else { return };
                    let result = work(item);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((i, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, result)| result).collect()
}

/// How many processors there are.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Where the output of a stage goes that runs beside others.
pub(crate) fn log(stage: &str) -> PathBuf {
    target_dir("stages").join(format!("{stage}.log"))
}

/// Runs a stage in a process of its own, with its output in its log.
pub(crate) fn aside(stage: &str) -> Outcome {
    let path = log(stage);
    let run = || {
        fs::create_dir_all(target_dir("stages"))?;
        let file = fs::File::create(&path)?;
        // This program as it was started: a stage may build another in its place.
        let mut command = Command::new("/proc/self/exe");
        command.args(["stage", stage]).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let status = command.status()?;
        let output = fs::read(&path)?;
        let output = String::from_utf8_lossy(&output);
        let why =
            |mark: &str| output.lines().rev().find_map(|line| line.strip_prefix(mark)).map(str::to_owned);
        Ok(match (status.code(), why(process::SKIPPED), why(process::FAILED)) {
            (Some(0), ..) => Outcome::Passed,
            (Some(code), Some(why), _) if code == i32::from(process::EXIT_SKIPPED) => Outcome::Skipped(why),
            (_, _, Some(why)) => Outcome::Failed(why),
            _ => Outcome::Failed(format!("it ended with {status}")),
        })
    };
    run().unwrap_or_else(|error: std::io::Error| Outcome::Failed(format!("{}: {error}", path.display())))
}

/// From now on, an interrupt ends every process that this one has started, directly or not, before this one.
///
/// A terminal interrupts its foreground group, which some programs leave (`timeout`, servers of mounts).
pub(crate) fn end_all_on_interrupt() -> Result<(), String> {
    // What loses its parent becomes a child of this process, where it is found.
    nix::sys::prctl::set_child_subreaper(true).map_err(|error| format!("prctl: {error}"))?;
    let signals = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];
    let mut signals =
        signal_hook::iterator::Signals::new(signals).map_err(|error| format!("signals: {error}"))?;
    std::thread::spawn(move || {
        if let Some(number) = signals.forever().next() {
            let _held = INTERRUPTED.lock();
            eprintln!("cargo x: interrupted; ending what still runs");
            end_all();
            std::process::exit(128 + number);
        }
    });
    Ok(())
}

/// Held from an interrupt to the end.
static INTERRUPTED: Mutex<()> = Mutex::new(());

/// Does not return after an interrupt: what failed because of it is not told, and nothing starts.
pub(crate) fn unless_interrupted(outcome: &Outcome) {
    if matches!(outcome, Outcome::Failed(_)) {
        // The interrupt may have reached a child first.
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(INTERRUPTED.lock());
}

fn end_all() {
    let start = Instant::now();
    loop {
        let all = descendants(std::process::id() as i32);
        if all.is_empty() {
            return;
        }
        let signal = if start.elapsed() < PATIENCE { Signal::SIGTERM } else { Signal::SIGKILL };
        for process in all {
            // It may have ended by itself.
            let _ = kill(Pid::from_raw(process), signal);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The processes below `top` that run.
pub(crate) fn descendants(top: i32) -> BTreeSet<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let stats = numbers.filter_map(|number| {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        Some((number, parent(&stat)?))
    });
    let parents: Vec<(i32, i32)> = stats.collect();
    let mut found = BTreeSet::from([top]);
    loop {
        let before = found.len();
        for (number, parent) in &parents {
            if found.contains(parent) {
                found.insert(*number);
            }
        }
        if found.len() == before {
            found.remove(&top);
            return found;
        }
    }
}

/// The parent that `/proc/N/stat` names, if the process still runs.
fn parent(stat: &str) -> Option<i32> {
    // The name, in parentheses, may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if fields.next()? == "Z" { None } else { fields.next()?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items_and_every_item_is_done_once() {
        let items: Vec<u64> = (0..50).collect();
        for lanes in [1, 3, 100] {
            let doubled = parallel(lanes, &items, |n| {
                std::thread::sleep(Duration::from_micros(50 - n));
                n * 2
            });
            assert_eq!(doubled, items.iter().map(|n| n * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_process_is_found_below_the_one_that_started_it_until_it_ends() {
        assert_eq!(parent("12 (a) b) (c) S 7 12 12 0"), Some(7));
        assert_eq!(parent("12 (ended) Z 7 12 12 0"), None);
        let mut shell = Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let me = std::process::id() as i32;
        let shell_and_sleep = || descendants(shell.id() as i32).len();
        let start = Instant::now();
        while shell_and_sleep() != 1 {
            assert!(start.elapsed() < Duration::from_secs(30), "the child of the child was not found");
        }
        let below = descendants(shell.id() as i32);
        assert!(descendants(me).is_superset(&below) && descendants(me).contains(&(shell.id() as i32)));
        for process in below {
            kill(Pid::from_raw(process), Signal::SIGKILL).unwrap();
        }
        shell.kill().unwrap();
        shell.wait().unwrap();
        assert!(!descendants(me).contains(&(shell.id() as i32)));
    }
}
