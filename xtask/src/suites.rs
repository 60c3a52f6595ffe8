//! `cargo x suites`: suites that others wrote, on a tmpfs and on mounts of rcuwalk.
//!
//! A program in `suites/` runs one suite in a directory and says what each test came to. What tmpfs makes of a test is the
//! measure: a test that does not pass on a mount as it does there has failed, unless `suites/expected.toml` says why; and a
//! test named there that passes has failed, too.

mod expected;

use crate::lanes;
use crate::place::{self, OURS, Place, Ready};
use crate::process::{self, Outcome, root, target_dir};
use crate::records;
use expected::Expected;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The programs in `suites/`, and what each is about.
const SUITES: &[(&str, &str)] = &[
    ("pjdfstest", "POSIX system calls, pjdfstest 0.2.2"),
    ("fsx", "random operations on one file, fsx 0.3.2, 10,000 a test"),
    ("acl", "the tests of acl(5)'s tools, a test for each command"),
    ("stress-ng", "the file-system stressors, 2 s each, verifying"),
    ("cpython", "CPython's tests of modules that use files"),
    ("go", "Go's tests of package os"),
    ("sqlite", "SQLite: journals, two writers, a killed writer"),
    ("git", "git: commits, merges, gc, clones, fsck"),
    ("make", "a C project built with two jobs"),
    ("copy", "tar, rsync and cp with all metadata"),
    ("layers", "container layers and an overlay in a user namespace"),
];

/// What a program exits with when it lacks something.
const MISSING: i32 = 77;

/// How long a suite may take.
const PATIENCE: Duration = Duration::from_secs(420);

/// What to run, and where.
pub(crate) struct Options {
    /// A directory, instead of mounts.
    pub(crate) on: Option<PathBuf>,
    /// Only these suites; none is all.
    pub(crate) only: Vec<String>,
    /// Only this mode of mount.
    pub(crate) mode: Option<String>,
    /// Other file systems in user space, too, beyond judgement.
    pub(crate) peers: bool,
    /// Whether the record is kept under today's date.
    pub(crate) record: bool,
    /// Seconds for each stressor.
    pub(crate) stress: u32,
}

/// What became of a test. Ordered: the worst of several with one name counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Ok,
    Skipped,
    Failed,
}

/// What became of a suite in a place.
#[derive(Clone)]
struct Run {
    suite: &'static str,
    place: String,
    seconds: f32,
    tests: BTreeMap<String, Verdict>,
    /// Why it did not run.
    missing: Option<String>,
}

impl Run {
    fn count(&self, verdict: Verdict) -> usize {
        self.tests.values().filter(|v| **v == verdict).count()
    }

    fn failed(&self) -> impl Iterator<Item = &str> {
        self.tests.iter().filter(|(_, v)| **v == Verdict::Failed).map(|(name, _)| name.as_str())
    }
}

/// Runs them all, as a stage.
pub(crate) fn stage() -> Outcome {
    run(&Options { on: None, only: vec![], mode: None, peers: false, record: false, stress: 1 })
}

/// For longer, and with the kernel collecting writes, too.
pub(crate) fn soak() -> Outcome {
    let run = |mode: &str| {
        run(&Options {
            on: None,
            only: vec![],
            mode: Some(mode.into()),
            peers: false,
            record: false,
            stress: 10,
        })
    };
    OURS.iter()
        .map(|(mode, _)| run(mode))
        .find(|outcome| *outcome != Outcome::Passed)
        .unwrap_or(Outcome::Passed)
}

pub(crate) fn run(options: &Options) -> Outcome {
    if let Some(unknown) = options.only.iter().find(|name| SUITES.iter().all(|(s, _)| s != name)) {
        return Outcome::Failed(format!("no suite is named {unknown}"));
    }
    if !nix::unistd::geteuid().is_root() {
        return Outcome::Skipped("suites mount file systems and become other users: that needs root".into());
    }
    let places = match &options.on {
        Some(dir) => vec![Place::Directory(dir.clone())],
        None if !Path::new("/dev/fuse").exists() => {
            return Outcome::Skipped("there is no /dev/fuse".into());
        }
        None => places(options),
    };
    let done = process::program("rcuwalk").and_then(|rcuwalk| {
        let expected = Expected::read()?;
        let runs = everywhere(&places, &rcuwalk, options)?;
        report(&runs, &expected, options)
    });
    match done {
        Ok(missing) if missing.is_empty() => Outcome::Passed,
        Ok(missing) => Outcome::Skipped(format!("{}; suites/install installs it", missing.join("; "))),
        Err(why) => Outcome::Failed(why),
    }
}

/// The floor, ours in both modes or as asked, and others if wanted.
fn places(options: &Options) -> Vec<Place> {
    let mut places = Place::ours(|way| match &options.mode {
        None => way != "writeback",
        Some(mode) => way == mode,
    });
    places.extend(Place::peers().filter(|_| options.peers));
    places
}

/// Each suite in each place. The places run side by side: much of the time is waiting.
fn everywhere(places: &[Place], rcuwalk: &Path, options: &Options) -> Result<Vec<Run>, String> {
    let numbered: Vec<(usize, &Place)> = places.iter().enumerate().collect();
    let runs = lanes::parallel(places.len(), &numbered, |(number, place)| {
        // What one place waits in, another one works in.
        let suites = SUITES.iter().cycle().skip(number * SUITES.len() / places.len()).take(SUITES.len());
        let wanted = |suite: &str| options.only.is_empty() || options.only.iter().any(|only| only == suite);
        let suites = suites.map(|(suite, _)| *suite).filter(|suite| wanted(suite));
        in_place(place, rcuwalk, suites, options)
    });
    Ok(runs.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
}

/// Some suites in one place, one after the other.
fn in_place(
    place: &Place,
    rcuwalk: &Path,
    suites: impl Iterator<Item = &'static str>,
    options: &Options,
) -> Result<Vec<Run>, String> {
    let mut runs = Vec::new();
    let mut ready = match place.prepare(rcuwalk) {
        Ok(ready) => ready,
        Err(why) if place.judged() => return Err(why),
        Err(why) => {
            println!("{}: {why}", place.name());
            return Ok(runs);
        }
    };
    for suite in suites {
        let mut done = one(suite, place, &ready, options)?;
        if let Some(why) = ready.broken() {
            println!("{}: {why}", place.name());
            done.tests.insert("the file system is still there".into(), Verdict::Failed);
            ready = place.prepare(rcuwalk)?;
        }
        println!("{}", line(&done));
        runs.push(done);
    }
    Ok(runs)
}

/// One suite in an empty directory of one place.
fn one(suite: &'static str, place: &Place, ready: &Ready, options: &Options) -> Result<Run, String> {
    let logs = target_dir("suites").join(place.name().trim_start_matches('/')).join(suite);
    drop(std::fs::remove_dir_all(&logs));
    let dir = ready.path().join(suite);
    for made in [&logs, &dir] {
        std::fs::create_dir_all(made).map_err(|error| format!("{}: {error}", made.display()))?;
    }
    let log =
        std::fs::File::create(logs.join("output")).map_err(|error| format!("{}: {error}", logs.display()))?;
    let mut program = Command::new("timeout");
    program.arg("--kill-after=10").arg(PATIENCE.as_secs().to_string());
    program.arg(root().join("suites").join(suite)).arg(&dir);
    program.env("SCRATCH", ready.scratch(suite)?).env("TOOLS", target_dir("suites-tools"));
    program.env("SECONDS_EACH", options.stress.to_string());
    let start = Instant::now();
    let output = program
        .stdin(Stdio::null())
        .stderr(log)
        .output()
        .map_err(|error| format!("{}: {error}", process::show(&program)))?;
    let text = String::from_utf8_lossy(&output.stdout);
    drop(std::fs::write(logs.join("results"), text.as_bytes()));
    let mut run = Run {
        suite,
        place: place.name(),
        seconds: start.elapsed().as_secs_f32(),
        tests: BTreeMap::new(),
        missing: None,
    };
    for line in text.lines() {
        let (verdict, name) = match line.split_once(' ') {
            Some(("ok", name)) => (Verdict::Ok, name),
            Some(("FAILED", name)) => (Verdict::Failed, name),
            Some(("skipped", name)) => {
                (Verdict::Skipped, name.split_once(": ").map_or(name, |(name, _)| name))
            }
            _ => continue,
        };
        let worst = run.tests.entry(name.to_owned()).or_insert(verdict);
        *worst = verdict.max(*worst);
    }
    match output.status.code() {
        Some(MISSING) => run.missing = Some(last_line(&logs.join("output"))),
        Some(124 | 137) => drop(run.tests.insert("ended in time".into(), Verdict::Failed)),
        _ if run.tests.is_empty() => drop(run.tests.insert("ran".into(), Verdict::Failed)),
        _ => {}
    }
    // What a test left behind may be undeletable; the file system goes with it, and the next suite has its own directory.
    drop(std::fs::remove_dir_all(&dir));
    Ok(run)
}

fn last_line(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().last().unwrap_or("something is missing").to_owned()
}

fn line(run: &Run) -> String {
    if let Some(missing) = &run.missing {
        return format!("{:10} {:15} not run: {missing}", run.suite, run.place);
    }
    let counts = format!(
        "{:5} passed {:4} failed {:4} skipped",
        run.count(Verdict::Ok),
        run.count(Verdict::Failed),
        run.count(Verdict::Skipped)
    );
    format!("{:10} {:15} {counts} {:6.1} s", run.suite, run.place, run.seconds)
}

/// Prints what is wrong, writes the record, and answers what was missing.
fn report(runs: &[Run], expected: &Expected, options: &Options) -> Result<Vec<String>, String> {
    let mut wrong = String::new();
    for run in runs.iter().filter(|run| run.missing.is_none() && place::is_judged(&run.place)) {
        let floor = runs.iter().find(|floor| floor.suite == run.suite && floor.place == place::FLOOR);
        for fault in faults(run, floor, expected) {
            let _ = writeln!(wrong, "{} on {}: {fault}", run.suite, run.place);
        }
    }
    let record = record(runs, expected);
    let text = serde_json::to_string_pretty(&record).map_err(|error| error.to_string())? + "\n";
    let output = if options.record { records::today("suites")?.into() } else { target_dir("suites.json") };
    std::fs::write(&output, text).map_err(|error| format!("{}: {error}", output.display()))?;
    println!("\n{}", table(&record));
    print!("{wrong}");
    println!("{}", output.display());
    if !wrong.is_empty() {
        let logs = target_dir("suites");
        return Err(format!(
            "{} tests are not as expected; see {}/*/*/output",
            wrong.lines().count(),
            logs.display()
        ));
    }
    let mut missing: Vec<String> = runs.iter().filter_map(|run| run.missing.clone()).collect();
    missing.sort();
    missing.dedup();
    Ok(missing)
}

/// What is not as it should be about a run, a line each.
fn faults(run: &Run, floor: Option<&Run>, expected: &Expected) -> Vec<String> {
    let may_fail = |name: &str| expected.of(run.suite, &run.place).any(|entry| entry.names(name));
    let mut faults: Vec<String> =
        run.failed().filter(|name| !may_fail(name)).map(|name| format!("failed: {name}")).collect();
    for entry in
        expected.of(run.suite, &run.place).filter(|entry| !run.failed().any(|name| entry.names(name)))
    {
        faults.push(format!("passed, though suites/expected.toml says that it fails: {}", entry.test));
    }
    // What passes on tmpfs must have run.
    for (name, _) in floor.into_iter().flat_map(|floor| &floor.tests).filter(|(_, v)| **v == Verdict::Ok) {
        let ran = matches!(run.tests.get(name), Some(Verdict::Ok | Verdict::Failed));
        if !ran && !may_fail(name) {
            faults.push(format!("did not run, but passes on tmpfs: {name}"));
        }
    }
    faults
}

fn record(runs: &[Run], expected: &Expected) -> Value {
    let rows: Vec<Value> = runs
        .iter()
        .map(|run| {
            json!({
                "suite": run.suite,
                "on": run.place,
                "passed": run.count(Verdict::Ok),
                "failed": run.count(Verdict::Failed),
                "skipped": run.count(Verdict::Skipped),
                "seconds": (run.seconds * 10.0).round() / 10.0,
                "missing": run.missing,
                "failures": run.failed().collect::<Vec<_>>(),
            })
        })
        .collect();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({
        "kernel": kernel.trim(),
        "date": records::date().unwrap_or_default(),
        "about": SUITES.iter().map(|(name, about)| json!({ "suite": name, "about": about })).collect::<Vec<_>>(),
        "runs": rows,
        "expected": expected.all(),
    })
}

/// The record as a table for people; `cargo x report` puts it into docs/suites.md.
pub(crate) fn table(record: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let list = |key: &str| record[key].as_array().cloned().unwrap_or_default();
    let runs = list("runs");
    let mut places: Vec<String> = Vec::new();
    for place in runs.iter().map(|run| text(&run["on"])) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let mut out = format!(
        "Linux {}, {}: passed / failed / skipped.\n\n",
        text(&record["kernel"]),
        text(&record["date"])
    );
    let _ = writeln!(out, "| suite | what | {} |", places.join(" | "));
    let _ = writeln!(out, "|---|---|{}", "---|".repeat(places.len()));
    for about in list("about") {
        let name = &about["suite"];
        if !runs.iter().any(|run| run["suite"] == *name) {
            continue;
        }
        let _ = write!(out, "| {} | {} |", text(name), text(&about["about"]));
        for place in &places {
            let run = runs.iter().find(|run| run["suite"] == *name && run["on"] == **place);
            let _ = match run {
                Some(run) if run["missing"].is_null() => {
                    write!(out, " {} / {} / {} |", run["passed"], run["failed"], run["skipped"])
                }
                _ => write!(out, " not run |"),
            };
        }
        out.push('\n');
    }
    let expected = list("expected");
    if !expected.is_empty() {
        out += "\n| expected to fail | on | why |\n|---|---|---|\n";
    }
    for entry in expected {
        let on: Vec<String> = entry["on"].as_array().into_iter().flatten().map(text).collect();
        let test = format!("{} {}", text(&entry["suite"]), text(&entry["test"]));
        let _ = writeln!(out, "| `{test}` | {} | {} |", on.join(", "), text(&entry["why"]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(place: &str, tests: &[(&str, Verdict)]) -> Run {
        Run {
            suite: "fsx",
            place: place.into(),
            seconds: 0.0,
            tests: tests.iter().map(|(name, verdict)| ((*name).to_owned(), *verdict)).collect(),
            missing: None,
        }
    }

    #[test]
    fn only_what_is_expected_may_fail_and_it_must() {
        let expected = Expected::parse(
            "[[expected]]\nsuite = 'fsx'\ntest = 'known*'\non = ['engine']\nwhy = 'it cannot'\n",
        )
        .unwrap();
        let floor = run("tmpfs", &[("a", Verdict::Ok), ("known 1", Verdict::Ok), ("known 2", Verdict::Ok)]);
        let faults = |tests: &[(&str, Verdict)]| faults(&run("engine", tests), Some(&floor), &expected);
        let (ok, failed, skipped) = (Verdict::Ok, Verdict::Failed, Verdict::Skipped);
        assert_eq!(faults(&[("a", ok), ("known 1", failed), ("known 2", ok)]), [""; 0]);
        assert_eq!(faults(&[("a", failed), ("known 1", failed), ("known 2", ok)]), ["failed: a"]);
        assert_eq!(faults(&[("a", skipped), ("known 1", failed)]), ["did not run, but passes on tmpfs: a"]);
        let passed = faults(&[("a", ok), ("known 1", ok), ("known 2", ok)]);
        assert_eq!(passed, ["passed, though suites/expected.toml says that it fails: known*"]);
    }
}
