//! Peers in other languages, and those in Rust whose dependencies are not for this tree: programs of their own, which get the
//! tree as a list and print what they measured.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{ENOENT, MISSING, ONE, OPEN, Peer, RANDOM, Report, Row, STAT};
use crate::error::Error;
use crate::measure::quantile;
use crate::report::rounded;

/// A peer, and how its program is made in a folder of its own.
struct Program {
    peer: Peer,
    /// The name of that folder.
    folder: &'static str,
    make: fn(&Path) -> Result<(), String>,
    /// The command that runs it, in that folder.
    command: &'static [&'static str],
    /// Made also in a quick run: within seconds.
    quick: bool,
}

const PROGRAMS: &[Program] = &[
    Program {
        peer: Peer { name: "rsfs (Rust)", leaves_out: "owners, ACLs, mounts" },
        folder: "rsfs",
        make: |dir| cargo(dir, "rsfs = \"=0.4.1\"", include_str!("programs/rsfs.rs.txt")),
        command: &["target/release/peer"],
        quick: false,
    },
    Program {
        peer: Peer { name: "wasmer virtual-fs (Rust)", leaves_out: "permissions, links" },
        folder: "virtual-fs",
        make: |dir| {
            let needs = "virtual-fs = { version = \"=0.704.2\", default-features = false }";
            cargo(dir, needs, include_str!("programs/virtual_fs.rs.txt"))
        },
        command: &["target/release/peer"],
        quick: false,
    },
    Program {
        peer: Peer { name: "gVisor tmpfs (Go)", leaves_out: "idmapped mounts" },
        folder: "gvisor",
        make: |dir| {
            let needs = "gvisor.dev/gvisor v0.0.0-20250205023644-9414b50a5633";
            go(dir, needs, include_str!("programs/gvisor.go.txt"))
        },
        command: &["peer"],
        quick: false,
    },
    Program {
        peer: Peer { name: "afero MemMapFs (Go)", leaves_out: "walk, permissions, links" },
        folder: "afero",
        make: |dir| go(dir, "github.com/spf13/afero v1.15.0", include_str!("programs/afero.go.txt")),
        command: &["peer"],
        quick: true,
    },
    Program {
        peer: Peer { name: "pyfakefs (Python)", leaves_out: "ACLs, mounts; it is interpreted" },
        folder: "pyfakefs",
        make: python,
        command: &["python3", "peer.py"],
        quick: true,
    },
];

/// How often each program is run.
const RUNS: usize = 3;

/// Builds and runs the programs in folders of `built`, where what an earlier run built is used again, or in temporary ones.
pub(super) fn measure(
    quick: bool,
    built: Option<&Path>,
    dirs: &[String],
    files: &[String],
    report: &mut Report,
) -> Result<(), Error> {
    let temporary = match built {
        Some(_) => None,
        None => Some(tempfile::Builder::new().prefix("rcuwalk-bench-").tempdir().map_err(|e| {
            let hint = "set TMPDIR to a directory with room";
            Error::host("making a temporary directory", std::env::temp_dir(), e, hint)
        })?),
    };
    let base = built.or(temporary.as_ref().map(|dir| dir.path())).unwrap_or(Path::new("."));
    // Absolute, as the programs are run in their folders.
    let made = fs::create_dir_all(base).and_then(|()| base.canonicalize());
    let base = made.map_err(|e| Error::host("making", base, e, ""))?;
    for Program { peer, folder, make, command, quick: in_quick } in PROGRAMS {
        if quick && !in_quick {
            report.notes.push(format!("{} is left out of a quick run: it has to be built", peer.name));
            continue;
        }
        let dir = base.join(folder);
        fs::create_dir_all(&dir)
            .and_then(|()| fs::write(dir.join("dirs"), dirs.join("\n")))
            .and_then(|()| fs::write(dir.join("files"), files.join("\n")))
            .map_err(|e| Error::host("writing a list of paths in", &dir, e, ""))?;
        match make(&dir) {
            Ok(()) => runs(quick, peer.clone(), command, &dir, report),
            Err(why) => report.notes.push(format!("{} is left out: {why}", peer.name)),
        }
    }
    Ok(())
}

/// Writes the files of a program.
fn write(dir: &Path, files: &[(&str, &str)]) -> Result<(), String> {
    files.iter().try_for_each(|(name, text)| fs::write(dir.join(name), text)).map_err(|e| crate::describe(&e))
}

/// Builds a Go program on a module; the reason if that cannot be.
fn go(dir: &Path, needs: &str, source: &str) -> Result<(), String> {
    let module = format!("module peers\n\ngo 1.23.1\n\nrequire {needs}\n");
    write(dir, &[("go.mod", &module), ("main.go", include_str!("programs/main.go.txt")), ("fs.go", source)])?;
    quietly(Command::new("go").args(["mod", "tidy"]).current_dir(dir), "go")?;
    quietly(Command::new("go").args(["build", "-o", "peer", "."]).current_dir(dir), "go")
}

/// Builds a Rust program on a crate whose dependencies are not for this tree.
fn cargo(dir: &Path, needs: &str, source: &str) -> Result<(), String> {
    let manifest = format!(
        "[package]\nname = \"peer\"\nversion = \"0.0.0\"\nedition = \"2024\"\nrust-version = \"1.95\"\n\
         [dependencies]\n{needs}\n[workspace]\n"
    );
    fs::create_dir_all(dir.join("src")).map_err(|e| crate::describe(&e))?;
    let main = include_str!("programs/main.rs.txt");
    write(dir, &[("Cargo.toml", &manifest), ("src/main.rs", main), ("src/fs.rs", source)])?;
    let target = dir.join("target");
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--quiet", "--target-dir"]).arg(target).current_dir(dir);
    quietly(&mut build, "cargo")
}

fn python(dir: &Path) -> Result<(), String> {
    write(dir, &[("peer.py", include_str!("programs/pyfakefs.py.txt"))])?;
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
fn runs(quick: bool, peer: Peer, command: &[&str], dir: &Path, report: &mut Report) {
    let workloads =
        [("stat", STAT, 1), ("missing", ENOENT, 0), ("open", OPEN, 1), ("random", RANDOM, report.files)];
    let mut samples: [Vec<f64>; 4] = Default::default();
    let mut wrong = [false; 4];
    for _ in 0..if quick { 1 } else { RUNS } {
        let own = dir.join(command[0]);
        let program = if own.exists() { own.as_os_str() } else { command[0].as_ref() };
        let output = Command::new(program)
            .args(&command[1..])
            .args([ONE, MISSING])
            .current_dir(dir)
            .stdin(Stdio::null())
            .output();
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
