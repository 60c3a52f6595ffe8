//! Project tasks: `cargo x <task>`.
#![forbid(unsafe_code)]

mod bench;
mod capi;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod disasm;
mod document;
mod lanes;
mod memory;
mod models;
mod mounts;
mod oracle;
mod orderings;
mod parity;
mod place;
mod process;
mod python;
mod records;
mod replay;
mod report;
mod rows;
mod rules;
mod stages;
mod suites;
mod tidy;

/// It steps through x86-64 machine code on Linux.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod disasm {
    pub(crate) fn run() -> crate::process::Outcome {
        crate::process::Outcome::Skipped("it reads x86-64 machine code on Linux".into())
    }
}

use clap::{Parser, Subcommand};
use process::Outcome;
use std::process::ExitCode;

/// Checks and tests rcuwalk.
#[derive(Parser)]
#[command(name = "cargo x", bin_name = "cargo x", subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// What to run after every change: format, lints, the tests of the engine, the rows on the engine
    Quick,
    /// Everything that must pass, stage by stage
    ///
    /// Stages run side by side; each prints its output when it ends, and names the file that holds it when it starts. A stage
    /// that this machine cannot run is skipped, and says what is missing. The last line counts the stages and names those.
    Test {
        /// Only these stages
        #[arg(long, value_name = "STAGE", value_delimiter = ',')]
        only: Vec<String>,
        /// All stages but these
        #[arg(long, value_name = "STAGE", value_delimiter = ',')]
        skip: Vec<String>,
        /// Names the stages and runs none
        #[arg(long)]
        list: bool,
        /// So many stages side by side; one after the other, a stage prints at once [default: number of processors]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
        jobs: Option<u16>,
    },
    /// What the stages sample, for hours: random calls, killed processes, damaged files, suites in every way to mount
    Soak {
        /// Where the random calls start; without it, another place each time
        #[arg(long)]
        seed: Option<u64>,
    },
    /// A stage of `test`, by itself
    #[command(hide = true)]
    Stage { name: String },
    /// Format, lints, documentation, and the rules of CONTRIBUTING.md that a program can check
    Tidy,
    /// The loom models of crates/sync: every schedule, every value that a racy load may see
    Model {
        /// Only models whose name contains one of these
        names: Vec<String>,
        /// The engine itself, and larger histories, in random schedules under shuttle instead (its atomics are sequentially
        /// consistent)
        #[arg(long)]
        shuttle: bool,
        /// Fail if the table in docs/ordering.md would change, instead of writing it
        #[arg(long)]
        check: bool,
    },
    /// Removes each ordering, and each step of the walk's protocols, and expects the model named for it to fail
    Mutants {
        /// Only these; the document is then left alone
        ids: Vec<String>,
        /// Fail if the tables in docs/ordering.md would change, instead of writing them
        #[arg(long)]
        check: bool,
    },
    /// Takes one condition out of the engine's rules at a time, and expects a row, a test or a random call to notice
    ///
    /// Permissions, walk, mounts, credentials, opening, directories, namespaces: all conditions, with one build, of a copy.
    /// crates/vfs/tests/equivalent.toml names those that change no answer, with the reason.
    Rules {
        /// Only those in files whose name contains this
        #[arg(default_value = "")]
        within: String,
        /// How many random calls are compared, twice, when rows and tests have not noticed
        #[arg(long, value_name = "N", default_value_t = rules::CALLS)]
        calls: u64,
    },
    /// The tests of crates/sync under Miri: undefined behaviour, and the C11 memory model on several seeds
    Miri,
    /// The tests of crates/sync under the address sanitizer
    Asan,
    /// The tests of crates/sync under the thread sanitizer, with a standard library built for it
    Tsan,
    /// The tests of crates/sync under valgrind's memory checker
    Valgrind,
    /// Shows from the machine code that lookups execute no atomic read-modify-write, no fence and no shared store
    ///
    /// Runs lookups one instruction at a time and looks at each instruction, and at the functions of the lockless walk as
    /// a whole. Needs x86-64, Linux and objdump.
    Disasm,
    /// Compares random calls, answer by answer, on this kernel and on the engine; needs root
    ///
    /// A difference is shrunk to the few calls it takes and printed as a row for cases/. The same seed makes the same
    /// programs.
    Oracle {
        /// How many calls to compare
        #[arg(long, default_value_t = 100_000)]
        ops: u64,
        /// Seed of the first program
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// On an ext4 file system of its own, in a loop device, instead of tmpfs
        #[arg(long)]
        ext4: bool,
    },
    /// Kills processes that keep trees in image files, at random moments, and looks at what the images hold
    ///
    /// Once a program of the crate's tests, and, where there is FUSE and the user is root, once a mounted server.
    Crash {
        /// How often to kill the program; the server is killed a quarter as often
        #[arg(long, default_value_t = 250)]
        rounds: u64,
    },
    /// The C interface: its header, its installation, its examples under valgrind
    Capi {
        /// Install a release build here (header, libraries, pkg-config file, manual page) instead
        #[arg(long, value_name = "DIR", conflicts_with = "header")]
        prefix: Option<std::path::PathBuf>,
        /// Write the header instead, with cbindgen
        #[arg(long)]
        header: bool,
    },
    /// Suites that others wrote, on a tmpfs and on mounts of rcuwalk; needs root and /dev/fuse
    ///
    /// A test that does not pass as it does on tmpfs has failed, unless suites/expected.toml says why.
    Suites {
        /// Only in this directory, of whatever file system
        #[arg(long, value_name = "DIR", conflicts_with_all = ["mode", "peers"])]
        on: Option<std::path::PathBuf>,
        /// Only these suites
        #[arg(long, value_name = "NAME", value_delimiter = ',')]
        only: Vec<String>,
        /// Only this way to mount, beside the tmpfs
        #[arg(long, value_parser = ["as-seen", "engine", "writeback"])]
        mode: Option<String>,
        /// Other file systems in user space, too, where installed; their failures do not count
        #[arg(long)]
        peers: bool,
        /// Keep the record in bench/records, under today's date, instead of target/suites.json
        #[arg(long, conflicts_with = "on")]
        record: bool,
    },
    /// Times the same work on a tmpfs, on mounts of rcuwalk and on other file systems in user space; needs root and /dev/fuse
    Mounts {
        /// Fewer and shorter rounds, and no record
        #[arg(long)]
        quick: bool,
    },
    /// Times what one tenant's hostile sequences make another one wait, on the engine and on this kernel; needs root for that
    Tenants {
        /// An eighth of the sizes, and no record
        #[arg(long)]
        quick: bool,
    },
    /// Records what make, git and python ask of the file system, and times the engine and this kernel on it; needs root, strace,
    /// gcc, make, git and python3
    Replay,
    /// Writes the tables of docs/parity.md: what the rows say, and what every backend makes of them; needs root
    Parity {
        /// Fail if a table would change, instead of writing it
        #[arg(long)]
        check: bool,
    },
    /// Writes the tables of docs/bench.md and README.md from the newest records in bench/records
    Report {
        /// Fail if a table would change, instead of writing it
        #[arg(long)]
        check: bool,
        /// List the records that there are, with what made them, instead
        #[arg(long, conflicts_with = "check")]
        history: bool,
    },
}

fn main() -> ExitCode {
    // Children find the workspace wherever `cargo x` was called.
    if let Err(error) = std::env::set_current_dir(process::root()) {
        eprintln!("cargo x: {}: {error}", process::root().display());
        return ExitCode::FAILURE;
    }
    match run(Cli::parse().task) {
        Outcome::Passed => ExitCode::SUCCESS,
        Outcome::Skipped(why) => {
            eprintln!("{}{why}", process::SKIPPED);
            ExitCode::from(process::EXIT_SKIPPED)
        }
        Outcome::Failed(why) => {
            if !why.is_empty() {
                eprintln!("{}{why}", process::FAILED);
            }
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Outcome {
    match task {
        Task::Test { list: true, .. } => stages::list(),
        Task::Test { only, skip, jobs, .. } => match lanes::end_all_on_interrupt() {
            Ok(()) => stages::run(&only, &skip, jobs.map_or_else(lanes::processors, usize::from)),
            Err(why) => Outcome::Failed(why),
        },
        Task::Quick => stages::quick(),
        Task::Soak { seed } => stages::soak(seed.unwrap_or_else(stages::another_seed)),
        Task::Stage { name } => stages::one(&name),
        Task::Tidy => tidy::run(),
        Task::Model { shuttle: true, names, check } => models::shuttle(&names, check),
        Task::Model { names, check, .. } => models::model(&names, check),
        Task::Mutants { ids, check } => models::mutants(&ids, check),
        Task::Rules { within, calls } => rules::run(&within, calls),
        Task::Crash { rounds } => stages::crash(rounds),
        Task::Miri => memory::miri(),
        Task::Asan => memory::asan(),
        Task::Tsan => memory::tsan(),
        Task::Valgrind => memory::valgrind(),
        Task::Disasm => disasm::run(),
        Task::Capi { prefix: Some(prefix), .. } => match std::path::absolute(prefix) {
            Ok(prefix) => capi::install(&prefix, true).into(),
            Err(error) => Outcome::Failed(error.to_string()),
        },
        Task::Capi { header: true, .. } => capi::header(false).into(),
        Task::Capi { .. } => capi::run(),
        Task::Oracle { ops, seed, ext4 } => oracle::run(ops, None, seed, ext4),
        Task::Suites { on, only, mode, peers, record } => {
            suites::run(&suites::Options { on, only, mode, peers, record, stress: 2 })
        }
        Task::Mounts { quick } => mounts::run(quick),
        Task::Tenants { quick } => mounts::tenants(quick),
        Task::Replay => replay::run(),
        Task::Parity { check } => parity::run(check),
        Task::Report { history: true, .. } => report::history(),
        Task::Report { check, .. } => report::run(check),
    }
}
