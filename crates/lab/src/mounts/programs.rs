//! Whole programs: tar, git, make.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use tempfile::TempDir;

use super::{Report, Samples, in_turns, together};
use rcuwalk_measure::Error;

/// Directories of the tree, and files in each.
const DIRS: usize = 40;
const FILES: usize = 25;
/// Sources of the project that is built.
const SOURCES: usize = 16;

/// What is needed for them, and where they run.
pub(super) struct Programs {
    archive: PathBuf,
    places: Vec<TempDir>,
    tar: bool,
    git: bool,
    make: bool,
    _scratch: TempDir,
}

impl Programs {
    /// Makes an archive, and with it trees, repositories and projects in all places.
    pub(super) fn make(places: &[(String, PathBuf)], notes: &mut Vec<String>) -> Result<Programs, Error> {
        let mut found = |program: &str| {
            let there = succeeds(Command::new(program).arg("--version"));
            if !there {
                notes.push(format!("{program} is not installed: what it does is not timed"));
            }
            there
        };
        let (tar, git, make) = (found("tar"), found("git"), found("make") & found("cc"));
        let prepare = || {
            let scratch = tempfile::tempdir()?;
            let archive = scratch.path().join("tree.tar");
            tree(&scratch.path().join("tree"))?;
            if tar {
                Command::new("tar")
                    .arg("-cf")
                    .arg(&archive)
                    .arg("-C")
                    .arg(scratch.path())
                    .arg("tree")
                    .status()?;
            }
            let mut dirs = Vec::new();
            for (_, dir) in places {
                let top = tempfile::Builder::new().prefix("rcuwalk-bench-").tempdir_in(dir)?;
                for client in 0..super::work::CLIENTS {
                    let repository = top.path().join(format!("git{client}"));
                    tree(&repository)?;
                    if git {
                        commit(&repository)?;
                    }
                }
                project(&top.path().join("project"))?;
                dirs.push(top);
            }
            Ok(Programs { archive, places: dirs, tar, git, make, _scratch: scratch })
        };
        prepare().map_err(|e: io::Error| Error::host("making files", "a directory", e, "free some space"))
    }

    /// Times each program in all places.
    pub(super) fn measure(&self, rounds: usize, report: &mut Report) {
        let clients = 1..=super::work::CLIENTS;
        if self.tar {
            for clients in clients.clone() {
                self.timed("tar -x of 1,000 files", clients, rounds, report, |top, client| {
                    self.untar(top, client)
                });
            }
        }
        if self.git {
            for clients in clients {
                self.timed("git status, 1,000 files", clients, rounds, report, |top, client| {
                    status(&top.join(format!("git{client}")))
                });
            }
        }
        if self.make {
            self.timed("make -j2 of 16 C files", 1, rounds, report, |top, _| build(&top.join("project")));
        }
    }

    fn timed(
        &self,
        name: &str,
        clients: usize,
        rounds: usize,
        report: &mut Report,
        work: impl Fn(&Path, usize) -> (f64, bool) + Sync,
    ) {
        let mut samples = Samples::new();
        // The first round makes everything warm.
        for round in 0..=rounds {
            in_turns(round, self.places.len(), |place| {
                let top = self.places[place].path();
                let (nanos, wrong) = together(clients, |client| {
                    let (nanos, right) = work(top, client);
                    (nanos, usize::from(!right))
                });
                let all = samples.entry(place).or_default();
                all.1 += wrong;
                if round > 0 {
                    all.0.extend(nanos);
                }
            });
        }
        report.add(name, clients, samples);
    }

    /// Unpacks the archive; then counts and removes what is there, outside of the timed part.
    fn untar(&self, top: &Path, client: usize) -> (f64, bool) {
        let into = top.join(format!("new{client}"));
        let ready = fs::create_dir(&into).is_ok();
        let clock = Instant::now();
        let unpacked = succeeds(Command::new("tar").arg("-xf").arg(&self.archive).arg("-C").arg(&into));
        let nanos = clock.elapsed().as_nanos() as f64;
        let right = (0..DIRS).all(|i| {
            (0..FILES).all(|j| {
                let file = into.join("tree").join(name(i, j));
                fs::metadata(file).is_ok_and(|meta| meta.len() == contents(i, j).len() as u64)
            })
        });
        let removed = fs::remove_dir_all(&into).is_ok();
        (nanos, ready && unpacked && right && removed)
    }
}

fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The standard output of a command, if it succeeds, and its nanoseconds.
fn output(command: &mut Command) -> (f64, Option<Vec<u8>>) {
    let clock = Instant::now();
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let nanos = clock.elapsed().as_nanos() as f64;
    (nanos, output.ok().filter(|output| output.status.success()).map(|output| output.stdout))
}

fn name(dir: usize, file: usize) -> String {
    format!("dir-{dir:02}/file-{file:02}.txt")
}

fn contents(dir: usize, file: usize) -> Vec<u8> {
    vec![b'a' + (file % 26) as u8; 100 + dir * 200]
}

fn tree(top: &Path) -> io::Result<()> {
    for i in 0..DIRS {
        fs::create_dir_all(top.join(format!("dir-{i:02}")))?;
        for j in 0..FILES {
            fs::write(top.join(name(i, j)), contents(i, j))?;
        }
    }
    Ok(())
}

/// git that heeds no settings of the machine.
fn git(repository: &Path, words: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(repository).args(["-c", "user.name=a", "-c", "user.email=a@example.org"]).args(words);
    git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    git
}

fn commit(repository: &Path) -> io::Result<()> {
    for words in [&["init", "-q"][..], &["add", "-A"], &["commit", "-q", "-m", "all"]] {
        if !succeeds(&mut git(repository, words)) {
            return Err(io::Error::other(format!("git {} failed", words.join(" "))));
        }
    }
    Ok(())
}

/// Asks for changes, of which there are none.
fn status(repository: &Path) -> (f64, bool) {
    let (nanos, said) = output(&mut git(repository, &["status", "--porcelain"]));
    (nanos, said.is_some_and(|said| said.is_empty()))
}

/// A C program in several files, whose output is known.
fn project(top: &Path) -> io::Result<()> {
    fs::create_dir_all(top)?;
    let mut main = String::from("#include <stdio.h>\n");
    let mut calls = String::from("0");
    for i in 0..SOURCES {
        let source = format!(
            "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\nint f{i}(int x) {{\n    char text[32];\n    \
             snprintf(text, sizeof text, \"%d\", x);\n    return atoi(text) + (int)strlen(text) - (int)strlen(text);\n}}\n"
        );
        fs::write(top.join(format!("f{i}.c")), source)?;
        let _ = writeln!(main, "int f{i}(int);");
        let _ = write!(calls, " + f{i}({i})");
    }
    let _ = writeln!(main, "int main(void) {{\n    printf(\"%d\\n\", {calls});\n    return 0;\n}}");
    fs::write(top.join("main.c"), main)?;
    let makefile = "objects := $(patsubst %.c,%.o,$(wildcard *.c))\nprogram: $(objects)\n\tcc -o $@ $^\n%.o: %.c\n\tcc -O1 -c -o $@ $<\n";
    fs::write(top.join("Makefile"), makefile)
}

/// Builds the program afresh and runs it.
fn build(project: &Path) -> (f64, bool) {
    let old = fs::read_dir(project).into_iter().flatten().flatten().map(|entry| entry.path());
    let old = old.filter(|path| path.extension().is_none_or(|extension| extension == "o"));
    for path in old.filter(|path| !path.ends_with("Makefile")) {
        drop(fs::remove_file(path));
    }
    let (nanos, built) = output(Command::new("make").args(["-s", "-j2", "-C"]).arg(project));
    let (_, said) = output(&mut Command::new(project.join("program")));
    let sum = (0..SOURCES).sum::<usize>();
    (nanos, built.is_some() && said.is_some_and(|said| said == format!("{sum}\n").into_bytes()))
}
