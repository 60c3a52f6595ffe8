//! `cargo x replay`: what real programs ask of the file system, recorded, and asked again at once, while their trees are there.

use crate::process::{self, Outcome, cargo};
use crate::records;
use std::process::Command;

/// Where the programs work.
const DIR: &str = "/usr/src/rcuwalk-traces";

/// The programs, and where in [`DIR`] they start.
pub(crate) const TRACES: [(&str, &str); 3] =
    [("make", "home/demo"), ("git", "home/repository"), ("python", "home")];

/// The name of a program's record.
pub(crate) fn record(name: &str) -> String {
    format!("replay-{name}")
}

pub(crate) fn run() -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        return Outcome::Skipped(format!(
            "{DIR} is made, which needs root; bench/traces/record takes another"
        ));
    }
    // Built first, so that as little as possible changes between recording and replay.
    let built = process::run(&mut cargo("build --quiet --release --package rcuwalk-cli"));
    let recorded = built.and_then(|()| process::run(&mut Command::new("bench/traces/record")));
    let done = recorded.and_then(|()| replay());
    let removed = match std::fs::remove_dir_all(DIR) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{DIR}: {error}")),
        _ => Ok(()),
    };
    done.and(removed).into()
}

fn replay() -> Result<(), String> {
    TRACES.iter().try_for_each(|(name, start)| {
        let mut replay = cargo("run --quiet --release --package rcuwalk-cli -- replay --json --cwd");
        replay.arg(format!("{DIR}/{start}")).arg("--output").arg(records::today(&record(name))?);
        process::run(replay.arg(format!("bench/traces/{name}.strace.gz")))
    })
}
