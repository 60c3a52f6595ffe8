//! What making a program costs.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::countdown::{argument, install};
use super::{Report, Row};
use crate::error::Error;
use crate::scratch::{Chain, DEPTHS};
use crate::series::quantile;
use crate::series::rounded;

/// The name of the situation of a program that executes itself again and again.
pub const EXEC_LOOP: &str = "execve in a loop, one process";

/// Entries of PATH before the one that has the program, as on most systems.
const PATH_MISSES: usize = 6;

pub(super) fn measure(chain: &Chain, quick: bool, report: &mut Report) -> Result<(), Error> {
    let short = chain.path().join("countdown");
    let deepest = Chain::file(DEPTHS[DEPTHS.len() - 1]);
    let long = chain.path().join(deepest).with_file_name("countdown");
    for path in [&short, &long] {
        if let Err(why) = install(path)? {
            report.notes.push(why);
            return Ok(());
        }
    }
    let (rounds, times) = if quick { (5, 100) } else { (21, 1000) };
    let mut rows: Vec<Timed<'_>> = [
        ("", &short, 0),
        (", 64 variables", &short, 64),
        (", 1000 variables", &short, 1000),
        (", 33 components", &long, 0),
    ]
    .into_iter()
    .map(|(what, path, variables)| Timed::new(format!("{EXEC_LOOP}{what}"), Way::Loop { path, variables }))
    .collect();
    for misses in [0, PATH_MISSES] {
        let name = match misses {
            0 => "fork, execve, exit, wait".to_owned(),
            n => format!("the same, found in entry {} of PATH", n + 1),
        };
        rows.push(Timed::new(name, Way::whole(chain.path(), &short, misses)));
    }
    // In turns, so that a busy neighbour touches all alike.
    for _ in 0..rounds {
        rows.iter_mut().try_for_each(|row| row.sample(times))?;
    }
    report.rows.extend(rows.into_iter().map(Timed::row));
    Ok(())
}

/// A way to make programs.
enum Way<'a> {
    /// One process, which executes itself again and again.
    Loop { path: &'a Path, variables: usize },
    /// fork, executions of which the last succeeds, exit, wait: in the parent's time.
    Whole { candidates: Vec<CString> },
}

impl<'a> Way<'a> {
    fn whole(dir: &Path, program: &Path, misses: usize) -> Way<'a> {
        let c_path = |path: PathBuf| CString::new(path.into_os_string().into_vec()).unwrap_or_default();
        let missing = (0..misses).map(|i| dir.join(format!("no-{i}/countdown")));
        Way::Whole { candidates: missing.chain([program.to_owned()]).map(c_path).collect() }
    }
}

/// A row that is being measured.
struct Timed<'a> {
    name: String,
    way: Way<'a>,
    samples: Vec<f64>,
    failed: usize,
}

impl<'a> Timed<'a> {
    fn new(name: String, way: Way<'a>) -> Timed<'a> {
        Timed { name, way, samples: Vec::new(), failed: 0 }
    }

    fn sample(&mut self, times: u32) -> Result<(), Error> {
        let (nanos, failed) = match &self.way {
            Way::Loop { path, variables } => {
                let (many, some) = run(path, *variables, times)?;
                let (none, others) = run(path, *variables, 0)?;
                ((many - none) / f64::from(times), some + others)
            }
            Way::Whole { candidates } => whole(candidates, times / 10)?,
        };
        self.samples.push(nanos);
        self.failed += failed;
        Ok(())
    }

    fn row(self) -> Row {
        let middle = quantile(self.samples.clone(), 0.5);
        let spread = quantile(self.samples.clone(), 0.75) - quantile(self.samples, 0.25);
        let check = match self.failed {
            0 => "every program ended well".to_owned(),
            n => format!("{n} programs failed"),
        };
        Row {
            workload: self.name,
            call: if matches!(self.way, Way::Whole { .. }) { "whole" } else { "execve" },
            threads: 1,
            ns: rounded(middle),
            spread_pct: rounded(spread / middle * 100.0),
            scaling: None,
            check,
            wrong: self.failed > 0,
        }
    }
}

/// Nanoseconds that a program takes which executes itself `times` times, and 1 if it failed.
fn run(path: &Path, variables: usize, times: u32) -> Result<(f64, usize), Error> {
    let vars = (0..variables).map(|i| (format!("VARIABLE_{i}"), "a value"));
    let mut command = Command::new(path);
    command.arg(argument(times)).env_clear().envs(vars);
    let clock = Instant::now();
    let status = command.status();
    let nanos = clock.elapsed().as_nanos() as f64;
    let status =
        status.map_err(|e| Error::host("running a program", path, e, "set TMPDIR to another directory"))?;
    Ok((nanos, usize::from(!status.success())))
}

/// Nanoseconds of one process from fork to wait, and how many of `times` failed.
fn whole(candidates: &[CString], times: u32) -> Result<(f64, usize), Error> {
    let candidates: Vec<&CStr> = candidates.iter().map(CString::as_c_str).collect();
    let zero = CString::new(argument(0)).unwrap_or_default();
    let mut failed = 0;
    let clock = Instant::now();
    for _ in 0..times {
        let code = crate::sys::fork_exec_wait(&candidates, &zero)
            .map_err(|e| Error::host("making a process", "fork", e, "raise ulimit -u"))?;
        failed += usize::from(code != Some(0));
    }
    Ok((clock.elapsed().as_nanos() as f64 / f64::from(times), failed))
}
