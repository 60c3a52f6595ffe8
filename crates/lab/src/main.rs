//! The `rcuwalk-lab` command: `cargo lab`.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use clap::{Args, Parser, Subcommand};
use rcuwalk_lab::{ablations, fills, mounts, peers, tenants};
use rcuwalk_measure::progress::Bar;
use rcuwalk_measure::table::Style;
use rcuwalk_measure::{Error, hostcalls, scratch};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Measures what rcuwalk's remedies gain, and what other file systems take.
///
/// Exit codes: 0 every answer was right, 1 one was wrong, 2 wrong usage, or it could not be measured.
#[derive(Debug, Parser)]
#[command(name = "rcuwalk-lab", bin_name = "cargo lab", max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    job: Job,
}

#[derive(Debug, Args)]
struct Common {
    /// Fewer and shorter rounds
    #[arg(long, global = true)]
    quick: bool,
    /// Write the record as JSON instead of a table
    #[arg(long, global = true)]
    json: bool,
    /// Write to a file instead of standard output; it is replaced only once the run is complete
    #[arg(short, long, value_name = "FILE", global = true)]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Threads {
    /// Most threads at once [default: one for each processor]
    #[arg(long = "threads", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    most: Option<u16>,
}

impl Threads {
    fn most(&self) -> usize {
        self.most.map_or(0, usize::from)
    }
}

#[derive(Debug, Subcommand)]
enum Job {
    /// Time each remedy with and without it
    Ablations {
        #[command(flatten)]
        threads: Threads,
        /// These rows only, as S3,S7
        #[arg(long, value_name = "ROWS", value_delimiter = ',')]
        only: Vec<String>,
    },
    /// Time the running kernel's calls: by kind, depth and threads, and the making of programs
    Host {
        #[command(flatten)]
        threads: Threads,
    },
    /// Count where the engine clears memory, and how much at a time
    Fills,
    /// Time other in-memory file systems beside the engine; those in other languages where they are installed
    Peers {
        #[command(flatten)]
        threads: Threads,
        /// Build what has to be built in this directory, and use what an earlier run built there
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Time what one tenant's mounts, namespaces and large directories make another one wait; beside the kernel, as root
    Tenants {
        /// The kernel's side of this sequence, in the mount namespace that this program is in
        #[arg(long, value_name = "SEQUENCE", requires = "root", hide = true)]
        on_kernel: Option<String>,
        #[arg(long, value_name = "DIR", hide = true)]
        root: Option<PathBuf>,
    },
    /// Time the same work in directories of several file systems, in turns: calls, tar, git, make
    Mounts {
        #[arg(value_name = "NAME=DIR", required = true, value_parser = parse_place)]
        places: Vec<(String, PathBuf)>,
    },
}

/// `NAME=DIR`.
fn parse_place(text: &str) -> Result<(String, PathBuf), String> {
    let (name, dir) = text.split_once('=').ok_or("a name and a directory, with = in between")?;
    if Path::new(dir).is_dir() {
        Ok((name.to_owned(), dir.into()))
    } else {
        Err(format!("{dir} is no directory"))
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match watch().and_then(|()| run(&cli)) {
        Ok(faults) => {
            for fault in &faults {
                eprintln!("rcuwalk-lab: {fault}; please report it with the output of --json");
            }
            ExitCode::from(u8::from(!faults.is_empty()))
        }
        Err(error) => {
            eprintln!("rcuwalk-lab: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the job and writes its report. The answers that were wrong, one line each.
fn run(cli: &Cli) -> Result<Vec<String>, Error> {
    let Common { quick, .. } = cli.common;
    match &cli.job {
        Job::Ablations { threads, only } => {
            let options = ablations::Options { quick, only: only.clone(), threads: threads.most() };
            let report = Bar::during(|bar| ablations::run(&options, bar))?;
            tell(&cli.common, &report, ablations::render)?;
            Ok(report.faults())
        }
        Job::Host { threads } => {
            let options = hostcalls::Options { quick, threads: threads.most() };
            let report = Bar::during(|bar| hostcalls::run(&options, bar))?;
            tell(&cli.common, &report, hostcalls::render)?;
            Ok(report.faults())
        }
        Job::Fills => tell(&cli.common, &fills::run(quick)?, fills::render).map(|()| Vec::new()),
        Job::Peers { threads, dir } => {
            let report = Bar::during(|bar| peers::run(quick, threads.most(), dir.as_deref(), bar))?;
            tell(&cli.common, &report, peers::render)?;
            Ok(report.faults())
        }
        Job::Tenants { on_kernel: Some(sequence), root: Some(root) } => {
            let side = tenants::on_kernel(sequence, quick, root);
            let side = side.map_err(|why| Error::new("a hostile sequence", sequence, why, ""))?;
            let json =
                serde_json::to_string(&side).map_err(|e| Error::new("writing", "JSON", e.to_string(), ""))?;
            println!("{json}");
            Ok(Vec::new())
        }
        Job::Tenants { .. } => {
            let report = Bar::during(|bar| tenants::run(quick, bar))?;
            tell(&cli.common, &report, tenants::render)?;
            Ok(Vec::new())
        }
        Job::Mounts { places } => {
            let options = mounts::Options { places: places.clone(), quick };
            let report = Bar::during(|bar| mounts::run(&options, bar))?;
            tell(&cli.common, &report, mounts::render)?;
            Ok(report.faults())
        }
    }
}

/// Writes a report as it was asked for.
fn tell<R: Serialize>(common: &Common, report: &R, render: fn(&R, Style) -> String) -> Result<(), Error> {
    let text = if common.json {
        let json = serde_json::to_string_pretty(report);
        json.map_err(|e| Error::new("writing the record", "JSON", e.to_string(), ""))? + "\n"
    } else {
        render(report, Style { width: None, colour: false })
    };
    let written = match &common.output {
        None => std::io::stdout().lock().write_all(text.as_bytes()),
        Some(path) => replace(path, text.as_bytes()),
    };
    let place = common.output.as_deref().unwrap_or(Path::new("standard output"));
    written.map_err(|e| Error::host("writing the record", place, e, "name a file in a directory with room"))
}

/// Puts `bytes` in the place of a file: a reader sees the old contents or the new, never half of them.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666)) // less the umask
        .tempfile_in(parent.unwrap_or(Path::new(".")))?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}

/// Has signals that end the program remove its temporary directories.
fn watch() -> Result<(), Error> {
    let failed = |e| Error::host("watching for signals", "this process", e, "raise ulimit -u and ulimit -n");
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(failed)?;
    let body = move || {
        if let Some(signal) = signals.forever().next() {
            scratch::remove_leftovers();
            std::process::exit(128 + signal);
        }
    };
    thread::Builder::new().name("signals".into()).spawn(body).map_err(failed)?;
    Ok(())
}
