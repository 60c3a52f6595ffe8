//! The commands that measure: `rcuwalk bench`, `doctor` and `replay`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rcuwalk_bench::{Options, Report};
use rcuwalk_measure::progress::Bar;
use rcuwalk_measure::table::Style;
use rcuwalk_measure::{Error, doctor};

use crate::args::{BenchArgs, ReplayArgs};
use crate::output::{Done, Failure, Terminal, complain, print, successor, temporary};

/// The directories that are tried without an argument.
const DEFAULTS: [&str; 2] = ["/usr/include", "/usr/share"];

pub(crate) fn run(args: &BenchArgs) -> Done {
    if let Some(file) = &args.output {
        may_write(file)?;
    }
    if args.ablations {
        return Err(Failure::Error(
            "bench: the old ways that remedies are timed against are not in this program: run `cargo lab ablations` in \
             rcuwalk's sources"
                .into(),
        ));
    }
    let options = Options {
        dir: args.dir.clone().unwrap_or_else(default_dir),
        quick: args.quick,
        seed: args.seed,
        threads: args.threads.map_or(0, usize::from),
        check_only: args.check_only,
    };
    let report = Bar::during(|bar| rcuwalk_bench::run(&options, bar))?;
    write(args, &report)?;
    judge(args, &report)
}

fn default_dir() -> PathBuf {
    let found = DEFAULTS.into_iter().find(|dir| Path::new(dir).is_dir());
    PathBuf::from(found.unwrap_or(DEFAULTS[0]))
}

fn write(args: &BenchArgs, report: &Report) -> Done {
    let mut bytes = Vec::new();
    let made = if args.json {
        report.write_json(&mut bytes)
    } else if args.csv {
        report.write_csv(&mut bytes)
    } else {
        bytes.extend_from_slice(rcuwalk_bench::table::render(report, style(args)).as_bytes());
        Ok(())
    };
    made.map_err(|e| Error::new("writing the record", &report.dir, rcuwalk_host::describe(&e), ""))?;
    deliver(args.output.as_deref(), &bytes)
}

/// `rcuwalk doctor`: which remedies the running kernel has.
pub(crate) fn doctor(as_json: bool) -> Done {
    let report = Bar::during(|bar| Ok(doctor::run(bar)))?;
    if as_json { print(&json(&report)?) } else { print(doctor::render(&report).as_bytes()) }
}

/// Replays a log of path calls.
pub(crate) fn replay(args: &ReplayArgs) -> Done {
    let options = rcuwalk_measure::replay::Options {
        trace: args.trace.clone(),
        cwd: args.cwd.clone(),
        rounds: args.rounds,
    };
    if let Some(file) = &args.output {
        may_write(file)?;
    }
    let report = Bar::during(|bar| rcuwalk_measure::replay::run(&options, bar))?;
    let bytes = if args.json { json(&report)? } else { report.render().into_bytes() };
    deliver(args.output.as_deref(), &bytes)?;
    let faults = report.faults();
    for fault in &faults {
        complain(format_args!("replay: {fault}"));
    }
    if faults.is_empty() { Ok(()) } else { Err(Failure::No) }
}

/// A record as JSON, indented, with a newline at the end.
fn json(record: &impl serde::Serialize) -> Result<Vec<u8>, Failure> {
    let mut bytes = serde_json::to_vec_pretty(record)
        .map_err(|e| Error::new("writing the record", "JSON", e.to_string(), ""))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// How a table looks where it will go.
fn style(args: &BenchArgs) -> Style {
    let terminal = if args.output.is_some() { None } else { Some(Terminal::stdout()) };
    Style { width: terminal.and_then(|t| t.width), colour: terminal.is_some_and(|t| t.colour) }
}

/// Writes a complete record to where it was asked for.
fn deliver(file: Option<&Path>, bytes: &[u8]) -> Done {
    match file {
        None => print(bytes),
        Some(path) => replace(path, bytes).map_err(|e| {
            let file = path.display().to_string();
            Error::new("writing the record", file, rcuwalk_host::describe(&e), "name another file").into()
        }),
    }
}

/// Finds out before the long run whether its result can be kept.
fn may_write(path: &Path) -> Done {
    let answer = match successor(path) {
        Some(parent) => rustix::fs::access(parent, rustix::fs::Access::WRITE_OK),
        None if path.is_dir() => Err(rustix::io::Errno::ISDIR),
        None => rustix::fs::access(path, rustix::fs::Access::WRITE_OK),
    };
    let hint = "name a file in a directory that exists and can be written";
    answer.map_err(|e| Error::host("writing the record", path, e, hint).into())
}

/// Puts `bytes` in the place of a file: a reader sees the old contents or the new, never half of them.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let Some(parent) = successor(path) else { return std::fs::write(path, bytes) };
    let mut file = temporary(parent)?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}

/// Says what went wrong in a complete run.
fn judge(args: &BenchArgs, report: &Report) -> Done {
    let faults = report.faults();
    for fault in &faults {
        complain(format_args!("bench: {}: {fault}; please report it with the output of --json", report.dir));
    }
    let missed: Vec<_> = report.targets.iter().filter(|target| target.met == Some(false)).collect();
    if args.check_targets {
        for target in &missed {
            complain(format_args!("bench: {}: target missed: {}", report.dir, target.name));
        }
    }
    if faults.is_empty() && (missed.is_empty() || !args.check_targets) { Ok(()) } else { Err(Failure::No) }
}
