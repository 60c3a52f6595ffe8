//! `rcuwalk bench`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rcuwalk_bench::{Error, Observer, Options, Report, ablations, doctor, fills, hostcalls, mounts, table};

use crate::args::{BenchArgs, ReplayArgs};
use crate::output::{Done, Failure, Terminal, complain, print, successor, temporary};

/// The directories that are tried without an argument.
const DEFAULTS: [&str; 2] = ["/usr/include", "/usr/share"];

pub(crate) fn run(args: &BenchArgs) -> Done {
    if let Some(file) = &args.output {
        may_write(file)?;
    }
    if args.ablations {
        return ablate(args);
    }
    if args.host {
        return host(args);
    }
    if args.fills {
        return tell(args, &fills::run(args.quick)?, fills::render);
    }
    if !args.mounts.is_empty() {
        return side_by_side(args);
    }
    #[cfg(feature = "peers")]
    if args.peers {
        return peers(args);
    }
    let options = Options {
        dir: args.dir.clone().unwrap_or_else(default_dir),
        quick: args.quick,
        seed: args.seed,
        threads: args.threads.map_or(0, usize::from),
        check_only: args.check_only,
    };
    let report = measured(|bar| rcuwalk_bench::run(&options, bar))?;
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
        bytes.extend_from_slice(table::render(report, style(args)).as_bytes());
        Ok(())
    };
    made.map_err(|e| Error::new("writing the record", &report.dir, rcuwalk_bench::describe(&e), ""))?;
    deliver(args.output.as_deref(), &bytes)
}

/// Times each remedy with and without it.
fn ablate(args: &BenchArgs) -> Done {
    let options = ablations::Options {
        quick: args.quick,
        only: args.only.clone(),
        threads: args.threads.map_or(0, usize::from),
    };
    let report = measured(|bar| ablations::run(&options, bar))?;
    tell(args, &report, ablations::render)?;
    blame(&report.faults())
}

/// Times the running kernel's calls.
fn host(args: &BenchArgs) -> Done {
    let options = hostcalls::Options { quick: args.quick, threads: args.threads.map_or(0, usize::from) };
    let report = measured(|bar| hostcalls::run(&options, bar))?;
    tell(args, &report, hostcalls::render)?;
    blame(&report.faults())
}

/// Times mounted file systems.
fn side_by_side(args: &BenchArgs) -> Done {
    let options = mounts::Options { places: args.mounts.clone(), quick: args.quick };
    let report = measured(|bar| mounts::run(&options, bar))?;
    tell(args, &report, mounts::render)?;
    blame(&report.faults())
}

/// Times other in-memory file systems.
#[cfg(feature = "peers")]
fn peers(args: &BenchArgs) -> Done {
    use rcuwalk_bench::peers;
    let threads = args.threads.map_or(0, usize::from);
    let report = measured(|bar| peers::run(args.quick, threads, args.peers_dir.as_deref(), bar))?;
    tell(args, &report, peers::render)?;
    blame(&report.faults())
}

/// `rcuwalk doctor`: which remedies the running kernel has.
pub(crate) fn doctor(as_json: bool) -> Done {
    let report = measured(|bar| Ok(doctor::run(bar)))?;
    if as_json { print(&json(&report)?) } else { print(doctor::render(&report).as_bytes()) }
}

/// What a measurement gives, with its progress shown meanwhile.
fn measured<R>(measure: impl FnOnce(&Bar) -> Result<R, Error>) -> Result<R, Failure> {
    let bar = Bar::new();
    let report = measure(&bar);
    bar.clear();
    Ok(report?)
}

/// Writes a report as it was asked for.
fn tell<R: serde::Serialize>(args: &BenchArgs, report: &R, render: fn(&R, table::Style) -> String) -> Done {
    deliver(
        args.output.as_deref(),
        &if args.json { json(report)? } else { render(report, style(args)).into_bytes() },
    )
}

/// Says which answers were wrong.
fn blame(faults: &[String]) -> Done {
    for fault in faults {
        complain(format_args!("bench: {fault}; please report it with the output of --json"));
    }
    if faults.is_empty() { Ok(()) } else { Err(Failure::No) }
}

/// Replays a log of path calls.
pub(crate) fn replay(args: &ReplayArgs) -> Done {
    let options = rcuwalk_bench::replay::Options {
        trace: args.trace.clone(),
        cwd: args.cwd.clone(),
        rounds: args.rounds,
    };
    if let Some(file) = &args.output {
        may_write(file)?;
    }
    let report = measured(|bar| rcuwalk_bench::replay::run(&options, bar))?;
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
fn style(args: &BenchArgs) -> table::Style {
    let terminal = if args.output.is_some() { None } else { Some(Terminal::stdout()) };
    table::Style { width: terminal.and_then(|t| t.width), colour: terminal.is_some_and(|t| t.colour) }
}

/// Writes a complete record to where it was asked for.
fn deliver(file: Option<&Path>, bytes: &[u8]) -> Done {
    match file {
        None => print(bytes),
        Some(path) => replace(path, bytes).map_err(|e| {
            let file = path.display().to_string();
            Error::new("writing the record", file, rcuwalk_bench::describe(&e), "name another file").into()
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

/// A progress bar on standard error, if that is a terminal.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Bar {
        Bar(ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()))
    }

    fn clear(&self) {
        self.0.finish_and_clear();
    }
}

impl Observer for Bar {
    fn stage(&self, name: &str, total: Option<u64>) {
        let template = match total {
            Some(_) => "{msg:18} {wide_bar} {human_pos}/{human_len} {elapsed}",
            None => "{msg:18} {elapsed}",
        };
        // The templates are constants: they parse, or the plain bar of the library is shown.
        self.0.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        self.0.set_position(0);
        self.0.set_length(total.unwrap_or(0));
        self.0.set_message(name.to_owned());
        self.0.reset_elapsed();
        self.0.tick();
    }

    fn advance(&self, steps: u64) {
        self.0.inc(steps);
    }

    fn reached(&self, steps: u64) {
        self.0.set_position(steps);
    }
}
