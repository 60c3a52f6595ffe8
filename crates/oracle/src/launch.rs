//! Running many rows: each in a process of its own, some at a time.
//!
//! A row's process enters namespaces it cannot leave, may hang, may crash. So every row gets a process, whatever the
//! backend; it reports its verdict through a pipe and is killed, with all its tasks, when it takes too long.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::backend::Backend;
use crate::case::Case;
use crate::divergence::Divergences;
use crate::need::Need;
use crate::run::{Mismatch, Verdict, run};
use crate::sys::{Frame, SingleThreaded, exit_now, ignore_signals, nr, wait};

/// How rows are run.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// Rows at a time.
    pub jobs: usize,
    /// How long a row may take.
    pub patience: Duration,
}

/// A row's result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ran {
    /// Index of the row in the list that was run.
    pub index: usize,
    /// How it ended.
    pub verdict: Verdict,
    /// How often it was tried again.
    pub retries: u32,
    /// How long it took.
    pub seconds: f64,
}

/// Runs `cases` on `backend`, several at a time (rows that change machine-wide settings alone, after the others).
///
/// # Errors
///
/// If processes cannot be made.
pub fn run_all(
    cases: &[Case],
    backend: &dyn Backend,
    divergences: &Divergences,
    single: &SingleThreaded,
    launch: Launch,
) -> std::io::Result<Vec<Ran>> {
    ignore_signals();
    let alone = |i: &usize| cases[*i].needs.contains(&Need::Sysctl);
    let (last, together): (Vec<usize>, Vec<usize>) = (0..cases.len()).partition(alone);
    let mut results = Vec::new();
    for (indices, jobs) in [(together, launch.jobs.max(1)), (last, 1)] {
        results.append(&mut in_parallel(cases, &indices, backend, single, Launch { jobs, ..launch })?);
    }
    for ran in &mut results {
        ran.verdict = hold_against(divergences, backend, &cases[ran.index], ran.verdict.clone());
    }
    results.sort_by_key(|ran| ran.index);
    Ok(results)
}

/// Turns an expected failure into a divergence, and a pass that was expected to fail into a failure.
fn hold_against(divergences: &Divergences, backend: &dyn Backend, case: &Case, verdict: Verdict) -> Verdict {
    match (divergences.reason(&backend.name(), case), verdict) {
        (Some(reason), Verdict::Failed(_)) => Verdict::Diverged(reason.to_owned()),
        (Some(reason), Verdict::Passed) => Verdict::Failed(vec![Mismatch::general(format!(
            "passes, but divergences.toml says it fails ({reason}): remove the entry"
        ))]),
        (_, verdict) => verdict,
    }
}

/// Splits `indices` over `jobs` processes, each of which runs its rows one after another.
fn in_parallel(
    cases: &[Case],
    indices: &[usize],
    backend: &dyn Backend,
    single: &SingleThreaded,
    launch: Launch,
) -> std::io::Result<Vec<Ran>> {
    let jobs = launch.jobs;
    let mut workers = Vec::new();
    for job in 0..jobs.min(indices.len()) {
        let (ours, theirs) = UnixStream::pair()?;
        match single.fork()? {
            None => {
                drop(ours);
                let mine = indices.iter().skip(job).step_by(jobs);
                let results: Vec<Ran> =
                    mine.map(|i| one(cases, *i, backend, single, launch.patience)).collect();
                finish(theirs, &results)
            }
            Some(pid) => workers.push((pid, ours)),
        }
    }
    let mut results = Vec::new();
    for (pid, mut channel) in workers {
        let mut bytes = Vec::new();
        channel.read_to_end(&mut bytes)?;
        wait(pid, true)?;
        let mut part: Vec<Ran> = postcard::from_bytes(&bytes)
            .map_err(|e| std::io::Error::other(format!("a worker was lost: {e}")))?;
        results.append(&mut part);
    }
    Ok(results)
}

/// Sends `value` and ends the process.
fn finish<T: Serialize>(mut channel: UnixStream, value: &T) -> ! {
    let sent = postcard::to_stdvec(value).is_ok_and(|bytes| channel.write_all(&bytes).is_ok());
    exit_now(i32::from(!sent))
}

/// Runs one row in a process and a process group of its own.
fn one(
    cases: &[Case],
    index: usize,
    backend: &dyn Backend,
    single: &SingleThreaded,
    patience: Duration,
) -> Ran {
    let start = Instant::now();
    let attempt = || {
        isolated(&cases[index], backend, single, patience).unwrap_or_else(|e| {
            Verdict::Failed(vec![Mismatch::general(format!("no process for the row: {e}"))])
        })
    };
    let mut verdict = attempt();
    let mut retries = 0;
    while matches!(verdict, Verdict::Failed(_)) && retries < backend.retries() {
        retries += 1;
        verdict = attempt();
    }
    Ran { index, verdict, retries, seconds: start.elapsed().as_secs_f64() }
}

fn isolated(
    case: &Case,
    backend: &dyn Backend,
    single: &SingleThreaded,
    patience: Duration,
) -> std::io::Result<Verdict> {
    if let Some(reason) = backend.declines(case) {
        return Ok(Verdict::Skipped(reason));
    }
    let (mut ours, theirs) = UnixStream::pair()?;
    let Some(pid) = single.fork()? else {
        drop(ours);
        group_of_its_own();
        finish(theirs, &run(case, backend))
    };
    drop(theirs);
    ours.set_read_timeout(Some(patience))?;
    let mut bytes = Vec::new();
    let read = ours.read_to_end(&mut bytes);
    kill_group(pid);
    let status = wait(pid, true)?;
    let verdict = match read {
        Err(_) => {
            Verdict::Failed(vec![Mismatch::general(format!("no answer within {} s", patience.as_secs()))])
        }
        Ok(_) => postcard::from_bytes(&bytes).unwrap_or_else(|_| {
            Verdict::Failed(vec![Mismatch::general(format!("the row's process died, status {status:?}"))])
        }),
    };
    Ok(match (backend.clean_up(pid.unsigned_abs()), verdict) {
        (Ok(()), verdict) => verdict,
        (Err(why), Verdict::Failed(mut wrong)) => {
            wrong.push(Mismatch::general(why));
            Verdict::Failed(wrong)
        }
        (Err(why), _) => Verdict::Failed(vec![Mismatch::general(why)]),
    })
}

fn group_of_its_own() {
    let mut frame = Frame::new();
    frame.int(0);
    frame.int(0);
    // Without a group of its own the row still runs; only stragglers would be missed.
    let _ = frame.call(nr::setpgid);
}

/// Ends the row's process and whatever tasks it has left behind.
fn kill_group(pid: i32) {
    let mut frame = Frame::new();
    frame.int(-i64::from(pid) as u64);
    frame.int(libc::SIGKILL as u64);
    // Usually everybody has ended already.
    let _ = frame.call(nr::kill);
}
