//! Peers in other languages: programs of their own, which get the tree as a list and print what they measured.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{ENOENT, MISSING, ONE, OPEN, Peer, RANDOM, Report, Row, STAT};
use crate::error::Error;
use crate::measure::quantile;
use crate::report::rounded;

const GO_MODULE: &str = "module peers\n\ngo 1.21\n\nrequire github.com/spf13/afero v1.15.0\n";
const GO_PROGRAM: &str = include_str!("peer.go.txt");
const PYTHON_PROGRAM: &str = include_str!("peer.py.txt");

/// How often each program is run.
const RUNS: usize = 3;

pub(super) fn measure(
    quick: bool,
    dirs: &[String],
    files: &[String],
    report: &mut Report,
) -> Result<(), Error> {
    let base = std::env::temp_dir();
    let failed =
        |e| Error::host("making a temporary directory", &base, e, "set TMPDIR to a directory with room");
    let dir = tempfile::Builder::new().prefix("rcuwalk-bench-").tempdir_in(&base).map_err(failed)?;
    fs::write(dir.path().join("dirs"), dirs.join("\n"))
        .and_then(|()| fs::write(dir.path().join("files"), files.join("\n")))
        .map_err(failed)?;
    let afero = Peer { name: "afero MemMapFs (Go)", leaves_out: "walk, permissions, links" };
    match go(dir.path()) {
        Ok(()) => runs(quick, afero, || Command::new(dir.path().join("peer")), dir.path(), report),
        Err(why) => report.notes.push(format!("{} is left out: {why}", afero.name)),
    }
    let fake = Peer { name: "pyfakefs (Python)", leaves_out: "ACLs, mounts; it is interpreted" };
    match python(dir.path()) {
        Ok(()) => {
            let program = || {
                let mut command = Command::new("python3");
                command.arg("peer.py");
                command
            };
            runs(quick, fake, program, dir.path(), report);
        }
        Err(why) => report.notes.push(format!("{} is left out: {why}", fake.name)),
    }
    Ok(())
}

/// Builds the Go program; the reason if that cannot be.
fn go(dir: &Path) -> Result<(), String> {
    let text = |e: std::io::Error| crate::describe(&e);
    fs::write(dir.join("go.mod"), GO_MODULE).map_err(text)?;
    fs::write(dir.join("main.go"), GO_PROGRAM).map_err(text)?;
    quietly(Command::new("go").args(["mod", "tidy"]).current_dir(dir), "go")?;
    quietly(Command::new("go").args(["build", "-o", "peer", "."]).current_dir(dir), "go")
}

fn python(dir: &Path) -> Result<(), String> {
    fs::write(dir.join("peer.py"), PYTHON_PROGRAM).map_err(|e| crate::describe(&e))?;
    quietly(Command::new("python3").args(["-c", "import pyfakefs"]), "python3")
        .map_err(|why| format!("{why}; `pip install pyfakefs` installs it"))
}

/// Runs a command that says nothing when all is well; the last line it said otherwise.
fn quietly(command: &mut Command, name: &str) -> Result<(), String> {
    let output =
        command.stdin(Stdio::null()).output().map_err(|e| format!("{name}: {}", crate::describe(&e)))?;
    if output.status.success() {
        return Ok(());
    }
    Err(last_line(&output.stderr))
}

/// What a program said last, before it failed.
fn last_line(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("its program failed").to_owned()
}

/// Runs a program a few times and takes the medians. It prints a line `KEY NANOSECONDS FOUND` for each workload.
fn runs(quick: bool, peer: Peer, program: impl Fn() -> Command, dir: &Path, report: &mut Report) {
    let workloads =
        [("stat", STAT, 1), ("missing", ENOENT, 0), ("open", OPEN, 1), ("random", RANDOM, report.files)];
    let mut samples: [Vec<f64>; 4] = Default::default();
    let mut wrong = [false; 4];
    for _ in 0..if quick { 1 } else { RUNS } {
        let output = program().args([ONE, MISSING]).current_dir(dir).stdin(Stdio::null()).output();
        let output = match output {
            Ok(output) if output.status.success() => output,
            Ok(output) => {
                report.notes.push(format!("{} is left out: {}", peer.name, last_line(&output.stderr)));
                return;
            }
            Err(e) => {
                report.notes.push(format!("{} is left out: {}", peer.name, crate::describe(&e)));
                return;
            }
        };
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let mut words = line.split(' ');
            let (Some(key), Some(ns), Some(found)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            if let Some(at) = workloads.iter().position(|(name, _, _)| *name == key) {
                samples[at].extend(ns.parse::<f64>());
                wrong[at] |= found.parse() != Ok(workloads[at].2);
            }
        }
    }
    for ((_, workload, found), (samples, wrong)) in workloads.into_iter().zip(samples.into_iter().zip(wrong))
    {
        let ours = report.rows.iter().find(|row| row.workload == workload && row.peer == super::OURS.name);
        let ns = quantile(samples.clone(), 0.5);
        let spread = quantile(samples.clone(), 0.75) - quantile(samples.clone(), 0.25);
        let times = ours.map_or(0.0, |ours| rounded(ns / ours.ns));
        report.rows.push(Row {
            workload: workload.to_owned(),
            threads: 1,
            peer: peer.name.to_owned(),
            ns: rounded(ns),
            spread_pct: rounded(spread / ns * 100.0),
            times,
            check: format!("{found} found, {} runs", samples.len()),
            wrong: wrong || samples.is_empty(),
        });
    }
    report.rows.sort_by_key(|row| workloads_order(&row.workload));
    report.peers.push(peer);
}

fn workloads_order(workload: &str) -> usize {
    [STAT, ENOENT, OPEN, RANDOM].iter().position(|name| *name == workload).unwrap_or(usize::MAX)
}
