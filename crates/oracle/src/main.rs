//! `rcuwalk-oracle`: runs behaviour rows on the host kernel, on a mounted filesystem, on the engine.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use rcuwalk_oracle::SingleThreaded;
use rcuwalk_oracle::backend::Backend;
use rcuwalk_oracle::case::{self, Case};
use rcuwalk_oracle::divergence::Divergences;
#[cfg(feature = "engine")]
use rcuwalk_oracle::fuzz::{Event, Settings, Summary};
use rcuwalk_oracle::host::{Host, Place, SettingsGuard};
use rcuwalk_oracle::launch::Launch;
use rcuwalk_oracle::need::Need;
use rcuwalk_oracle::op::Op;
use rcuwalk_oracle::read::alternatives;
use rcuwalk_oracle::{launch, report};

/// Holds implementations of the Linux pathname layer to the running kernel.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run behaviour rows. Exit status: 0 all passed, 1 some failed, 2 nothing was run.
    Rows(Box<Rows>),
    /// Compare random calls on the host kernel and on the engine. Exit status: 0 no difference, 1 differences, 2 nothing
    /// was run.
    #[cfg(feature = "engine")]
    Fuzz(Fuzz),
    /// List the calls that rows can make, with their arguments.
    Calls,
    /// List what rows can need of a system.
    Needs,
    /// Print as JSON which calls the rows make, and which of their answers they demand.
    Coverage {
        /// A directory of *.toml files, or one file
        #[arg(default_value = "cases")]
        cases: PathBuf,
    },
}

#[derive(clap::Args)]
struct Rows {
    /// host, dir:PATH (raw calls in that directory), engine, engine-ref (walks that always take references),
    /// syscall (the engine behind its raw door), capi (behind its C interface)
    #[arg(long, default_value = "host")]
    backend: String,
    /// Only rows of this topic (the name of a file)
    #[arg(long)]
    topic: Vec<String>,
    /// Only rows whose topic/name contains this
    #[arg(long)]
    filter: Option<String>,
    /// Skip rows that need this (see `needs`); for file systems that do not claim to support it
    #[arg(long, value_name = "NEED")]
    without: Vec<String>,
    /// The name by which divergences know what is mounted at dir:PATH
    #[arg(long, value_name = "NAME")]
    known_as: Option<String>,
    /// Also run rows that change machine-wide settings (restored afterwards)
    #[arg(long)]
    sysctl: bool,
    /// Rows run at a time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Seconds after which a row that has not ended is killed and has failed
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    patience: u64,
    /// Write the report as JSON to this file (- for standard output)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report as JUnit XML to this file (- for standard output)
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Expected failures; default: divergences.toml beside the directory of rows
    #[arg(long, value_name = "FILE")]
    divergences: Option<PathBuf>,
    /// A directory of *.toml files, or one file
    #[arg(default_value = "cases")]
    cases: PathBuf,
}

#[cfg(feature = "engine")]
#[derive(clap::Args)]
struct Fuzz {
    /// How many calls to compare
    #[arg(long, default_value_t = 100_000)]
    ops: u64,
    /// Stop after so many seconds, even if fewer calls were compared
    #[arg(long)]
    seconds: Option<u64>,
    /// Seed of the first program
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stop after so many differences
    #[arg(long, default_value_t = 1)]
    stop_after: usize,
    /// Take differences whose description contains this as known; see also [[fuzz]] in divergences.toml
    #[arg(long, value_name = "TEXT")]
    known: Vec<String>,
    /// Expected differences
    #[arg(long, value_name = "FILE", default_value = "divergences.toml")]
    divergences: PathBuf,
    /// Also say how often each call gave which answer
    #[arg(long)]
    answers: bool,
    /// Make the host's worlds in this directory, which is on tmpfs or ext4, instead of in a tmpfs of their own
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Rows(rows) => run_rows(&rows),
        #[cfg(feature = "engine")]
        Command::Fuzz(fuzz) => run_fuzz(&fuzz),
        Command::Calls => {
            list_calls();
            Ok(ExitCode::SUCCESS)
        }
        Command::Coverage { cases } => load(&cases).map(|cases| {
            println!("{}", rcuwalk_oracle::coverage::json(&cases));
            ExitCode::SUCCESS
        }),
        Command::Needs => {
            for (_, name, about) in Need::ALL {
                println!("{name:12} {}", about.trim());
            }
            Ok(ExitCode::SUCCESS)
        }
    };
    result.unwrap_or_else(|message| {
        eprintln!("rcuwalk-oracle: {message}");
        ExitCode::from(2)
    })
}

fn list_calls() {
    for call in Op::ALL {
        println!("{}", call.line());
    }
}

/// All rows there are.
fn load(cases: &Path) -> Result<Vec<Case>, String> {
    case::load(cases).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        format!("no row was run, {} mistake(s) in the rows:\n{}", lines.len(), lines.join("\n"))
    })
}

/// The rows asked for, and the divergences of all rows.
fn select(rows: &Rows) -> Result<(Vec<Case>, Divergences), String> {
    let all = load(&rows.cases)?;
    let beside = || rows.cases.parent().unwrap_or(Path::new(".")).join("divergences.toml");
    if let Some(file) = rows.divergences.as_ref().filter(|file| !file.is_file()) {
        return Err(format!("{}: no such file of expected failures", file.display()));
    }
    let file = rows.divergences.clone().unwrap_or_else(beside);
    let divergences = Divergences::load(&file, &all).map_err(|e| e.to_string())?;
    for topic in &rows.topic {
        if !all.iter().any(|c| c.topic == *topic) {
            let topics: BTreeSet<&str> = all.iter().map(|c| c.topic.as_str()).collect();
            let known: Vec<&str> = topics.into_iter().collect();
            return Err(format!("no topic `{topic}`{}", alternatives(topic, &known)));
        }
    }
    let wanted = |case: &Case| {
        (rows.topic.is_empty() || rows.topic.contains(&case.topic))
            && rows.filter.as_ref().is_none_or(|f| case.full_name().contains(f.as_str()))
    };
    let chosen: Vec<Case> = all.into_iter().filter(wanted).collect();
    if chosen.is_empty() {
        return Err("no row matches".to_owned());
    }
    Ok((chosen, divergences))
}

/// The backend of that name.
fn backend(rows: &Rows, single: &SingleThreaded) -> Result<Box<dyn Backend>, String> {
    let without = rows.without.iter().map(|n| Need::parse(n)).collect::<Result<Vec<Need>, String>>()?;
    let host = |place| {
        let host = Host::new(single.clone(), place, rows.sysctl)?.without(&without);
        Ok(Box::new(rows.known_as.iter().fold(host, |host, name| host.known_as(name))) as Box<dyn Backend>)
    };
    match rows.backend.as_str() {
        "host" => host(Place::Tmpfs),
        #[cfg(feature = "engine")]
        name @ ("engine" | "engine-ref") => {
            rcuwalk_oracle::engine::Engine::new(name == "engine-ref", &without)
                .map(|engine| Box::new(engine) as Box<dyn Backend>)
        }
        #[cfg(feature = "engine")]
        "syscall" => {
            rcuwalk_oracle::door::Syscalls::new(&without).map(|door| Box::new(door) as Box<dyn Backend>)
        }
        #[cfg(feature = "engine")]
        "capi" => Ok(Box::new(rcuwalk_oracle::capi::CInterface::new(&without))),
        name => match name.strip_prefix("dir:") {
            Some(dir) => host(Place::Dir(PathBuf::from(dir))),
            None => {
                Err(format!("no backend `{name}`; known: host, dir:PATH, engine, engine-ref, syscall, capi"))
            }
        },
    }
}

fn run_rows(rows: &Rows) -> Result<ExitCode, String> {
    let single = SingleThreaded::claim().map_err(|e| e.to_string())?;
    let (cases, divergences) = select(rows)?;
    let backend = backend(rows, &single)?;
    let guard = if rows.sysctl { Some(SettingsGuard::new(&cases).map_err(|e| e.to_string())?) } else { None };
    let launch = Launch { jobs: rows.jobs, patience: Duration::from_secs(rows.patience) };
    let results =
        launch::run_all(&cases, &*backend, &divergences, &single, launch).map_err(|e| e.to_string())?;
    drop(guard);
    if results.len() != cases.len() {
        return Err(format!("{} of {} rows have no result", cases.len() - results.len(), cases.len()));
    }
    let name = backend.name();
    // Whatever becomes of the files, the report is seen.
    let text = report::text(&cases, &results, &name);
    let taken = |file: &Option<PathBuf>| file.as_ref().is_some_and(|f| f.as_os_str() == "-");
    if taken(&rows.json) || taken(&rows.junit) {
        eprint!("{text}");
    } else {
        print!("{text}");
    }
    if let Some(file) = &rows.json {
        let text = serde_json::to_string_pretty(&report::json(&cases, &results, &name))
            .map_err(|e| e.to_string())?;
        write(file, &text)?;
    }
    if let Some(file) = &rows.junit {
        write(file, &report::junit(&cases, &results, &name))?;
    }
    let failed = report::Counts::of(&results).failed > 0;
    Ok(ExitCode::from(u8::from(failed)))
}

#[cfg(feature = "engine")]
fn run_fuzz(fuzz: &Fuzz) -> Result<ExitCode, String> {
    let single = SingleThreaded::claim().map_err(|e| e.to_string())?;
    let mut known = fuzz.known.clone();
    known.extend(Divergences::load_fuzz(&fuzz.divergences).map_err(|e| e.to_string())?);
    let settings = Settings {
        operations: fuzz.ops,
        patience: fuzz.seconds.map(Duration::from_secs),
        seed: fuzz.seed,
        stop_after: fuzz.stop_after,
        known,
        place: fuzz.dir.clone().map_or(Place::Tmpfs, Place::Dir),
    };
    let rate = |summary: &Summary, time: Duration| summary.operations as f64 / time.as_secs_f64().max(1e-9);
    let summary = rcuwalk_oracle::fuzz::run(&settings, &single, &mut |event| match event {
        Event::Row(row) => println!("{row}"),
        Event::Progress(so_far) => eprintln!(
            "seed {}: {} of {} calls, {:.0} calls/s, {} difference(s)",
            fuzz.seed,
            so_far.operations,
            fuzz.ops,
            rate(so_far, so_far.elapsed),
            so_far.rows.len()
        ),
    })?;
    if fuzz.answers {
        let mut calls: std::collections::BTreeMap<&str, Vec<String>> = std::collections::BTreeMap::new();
        for ((call, answer), count) in &summary.answers {
            calls.entry(call).or_default().push(format!("{answer} {count}"));
        }
        for (call, answers) in calls {
            println!("{call:14} {}", answers.join(", "));
        }
    }
    println!(
        "seed {}: {} calls in {} programs compared on host and engine ({:.0} % succeeded), {} snapshots, {:.0} calls/s \
         ({:.0} per second of processor time), {} difference(s)",
        fuzz.seed,
        summary.operations,
        summary.programs,
        100.0 * summary.succeeded() as f64 / summary.operations.max(1) as f64,
        summary.snapshots,
        rate(&summary, summary.elapsed),
        rate(&summary, summary.cpu),
        summary.rows.len()
    );
    Ok(ExitCode::from(u8::from(!summary.rows.is_empty())))
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    if file.as_os_str() == "-" {
        println!("{text}");
        return Ok(());
    }
    std::fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))
}
