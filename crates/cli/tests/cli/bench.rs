//! `bench`, and how the command ends.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{rcuwalk, sample, stderr, stdout};
use serde_json::Value;

/// Leftovers of a run below `dir`.
fn leftovers(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("rcuwalk")).collect()
}

#[test]
fn the_record_has_the_documented_shape_and_no_mismatch() {
    let (temp, scratch) = (sample(), tempfile::tempdir().unwrap());
    let args = ["bench", "--quick", "--json", temp.path().to_str().unwrap()];
    let output = rcuwalk(args).env("TMPDIR", scratch.path()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(leftovers(scratch.path()), Vec::<String>::new());
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();

    assert_eq!(record["entries"], 8);
    let checked = &record["checked"];
    assert_eq!(checked["stat"], 2 * 8 + 2, "two calls for each path, two more for the link");
    assert_eq!(checked["stat_mismatch"], 0);
    let identities = checked["identities"].as_array().unwrap().len() as u64;
    assert_eq!(checked["access"], 8 * 3 * identities);
    assert_eq!(checked["access_mismatch"], 0);
    assert_eq!((&checked["readdir"], &checked["readdir_mismatch"]), (&3.into(), &0.into()));
    for key in ["cpu", "cores", "kernel", "mitigations", "thp", "rustc", "date"] {
        assert!(!record["machine"][key].is_null(), "{key}");
    }
    assert!(record["memory"]["bytes_per_entry"].as_f64().unwrap() > 0.0);

    let rows = record["rows"].as_array().unwrap();
    for row in rows {
        assert!(row["ns_per_op"].is_number() && row["spread_pct"].is_number(), "{row}");
        assert_ne!(row["check"], "DIFFERS", "{row}");
    }
    let engines = |workload: &str| -> Vec<&str> {
        let of = rows.iter().filter(|r| r["workload"] == workload && r["threads"] == 1);
        of.map(|r| r["engine"].as_str().unwrap()).collect()
    };
    for workload in
        ["stat/random", "access/random", "stat/negative", "open/negative", "open+close", "stat/depth32"]
    {
        assert_eq!(engines(workload), ["host", "host-getppid", "naive", "walk", "rcuwalk"], "{workload}");
    }
    let targets = record["targets"].as_array().unwrap();
    let target = |name: &str| targets.iter().find(|t| t["name"].as_str().unwrap().starts_with(name)).unwrap();
    let (reached, quartiles) = (&target("stat/random, ")["reached"], &target("stat/random, ")["quartiles"]);
    let [low, middle, high] = [&quartiles[0], reached, &quartiles[1]].map(|v| v.as_f64().unwrap());
    assert!(low <= middle && middle <= high, "{reached} {quartiles}");
    assert!(target("resident memory")["quartiles"].is_null());
}

#[test]
fn csv_has_one_line_for_each_row() {
    let temp = sample();
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("record.csv");
    let args = ["bench", "--quick", "--csv", "--threads", "1", "-o"];
    let output = rcuwalk(args).arg(&file).arg(temp.path()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
    assert_eq!(leftovers(out.path()), Vec::<String>::new());
    let text = fs::read_to_string(&file).unwrap();
    let mut lines = text.lines();
    let header = lines.next().unwrap();
    assert!(header.starts_with("date,commit,cpu,cores,kernel,rustc,dir,"), "{header}");
    let columns = header.split(',').count();
    let rows: Vec<&str> = lines.collect();
    assert!(rows.iter().any(|row| row.contains(",stat/random,1,rcuwalk,")), "{text}");
    assert!(rows.iter().all(|row| row.split(',').count() >= columns), "{text}");
}

#[test]
fn the_table_shows_engines_and_targets() {
    let temp = sample();
    let output = rcuwalk(["bench", "--quick", "--threads", "1"]).arg(temp.path()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for part in ["workload", "stat/random", "rcuwalk", "naive", "need", "resident memory of an entry", "✓"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("DIFFERS") && !text.contains('\x1b'), "{text}");
}

#[test]
fn ablations_are_another_program_which_is_named() {
    let output = rcuwalk(["bench", "--ablations"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("run `cargo lab ablations`"), "{}", stderr(&output));
}

#[test]
fn the_doctor_judges_the_running_kernel() {
    let output = rcuwalk(["doctor", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    for list in ["remedies", "taxes"] {
        for entry in record[list].as_array().unwrap() {
            let verdict = entry.get("has").or(entry.get("paid")).and_then(Value::as_str).unwrap();
            assert!(["yes", "no", "unknown"].contains(&verdict), "{entry}");
        }
    }
    // Without a place to measure in, it still says what it can.
    let output = rcuwalk(["doctor"]).env("TMPDIR", "/nowhere").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("nothing was measured: making a temporary directory: /nowhere"), "{text}");
    assert!(text.contains("S8") && text.contains("init_on_alloc"), "{text}");
}

#[test]
fn check_only_times_nothing() {
    let temp = sample();
    let output = rcuwalk(["bench", "--check-only", "--json"]).arg(temp.path()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["checked"]["stat_mismatch"], 0);
    assert_eq!(record["rows"].as_array().unwrap().len(), 0);
}

#[test]
fn bad_directories_are_explained() {
    let temp = sample();
    let file = temp.path().join("etc/open");
    let empty = tempfile::tempdir().unwrap();
    for (dir, parts) in [
        (
            Path::new("/nowhere/at/all"),
            ["ENOENT: No such file or directory", "; name a directory that exists"],
        ),
        (&file, ["ENOTDIR: Not a directory", "; name a directory, not a file"]),
        (empty.path(), ["no file that an ordinary user may read", "; name a directory with a readable file"]),
    ] {
        let output = rcuwalk(["bench", "--quick"]).arg(dir).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", dir.display());
        let text = stderr(&output);
        assert!(text.starts_with("rcuwalk: ") && text.lines().count() == 1, "{text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        assert!(text.contains(dir.to_str().unwrap()), "{text}");
    }
    let output =
        rcuwalk(["bench", "--quick", "-o", "/nowhere/record.json"]).arg(temp.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("writing the record: /nowhere/record.json: ENOENT"),
        "{}",
        stderr(&output)
    );
    for args in [["bench", "--threads", "0"], ["bench", "--json", "--csv"]] {
        assert_eq!(rcuwalk(args).output().unwrap().status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn an_unreadable_directory_is_explained() {
    if rustix::process::geteuid().is_root() {
        return; // nothing is unreadable
    }
    let temp = sample();
    let shut = temp.path().join("shut");
    fs::set_permissions(&shut, fs::Permissions::from_mode(0o000)).unwrap();
    let output = rcuwalk(["bench", "--quick"]).arg(&shut).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("EACCES: Permission denied; run as a user who may read it"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let temp = sample();
    for index in 0..3000 {
        fs::write(temp.path().join(format!("etc/a-rather-long-name-{index:05}")), "").unwrap();
    }
    let mut child = rcuwalk(["ls"])
        .arg(temp.path())
        .arg("etc")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut reader = BufReader::with_capacity(16, child.stdout.take().unwrap());
    reader.read_line(&mut line).unwrap();
    drop(reader);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_full_disk_is_explained() {
    let temp = sample();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = rcuwalk(["tree"]).arg(temp.path()).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let output = output.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("standard output: ENOSPC: No space left on device"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn signals_end_it_at_once_and_leave_nothing_behind() {
    let temp = sample();
    for (signal, code, name) in
        [(rustix::process::Signal::INT, 130, "SIGINT"), (rustix::process::Signal::TERM, 143, "SIGTERM")]
    {
        let scratch = tempfile::tempdir().unwrap();
        let mut child = rcuwalk(["bench"])
            .arg(temp.path())
            .env("TMPDIR", scratch.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let patience = Instant::now() + Duration::from_secs(30);
        while leftovers(scratch.path()).is_empty() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5)); // until it is timing
        }
        let asked = Instant::now();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, signal).unwrap();
        let status = child.wait().unwrap();
        assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
        assert_eq!((status.code(), status.signal()), (Some(code), None));
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, format!("rcuwalk: interrupted: {name}; no result was written\n"));
        assert_eq!(leftovers(scratch.path()), Vec::<String>::new());
    }
}

#[test]
fn running_out_of_memory_is_explained() {
    let temp = sample();
    let script = format!(
        "ulimit -v 40000; exec {} bench --check-only {}",
        env!("CARGO_BIN_EXE_rcuwalk"),
        temp.path().display()
    );
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(text.starts_with("rcuwalk: ") && text.contains("ulimit -v"), "{text}");
}

#[test]
fn a_vanishing_tree_is_no_mismatch() {
    let temp = sample();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0_u32;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let dir = temp.path().join(format!("etc/gone-{}", round % 7));
                let _ = fs::create_dir(&dir);
                let _ = fs::write(dir.join("f"), "x");
                let _ = fs::remove_dir_all(&dir);
                round += 1;
            }
        });
        for _ in 0..10 {
            let output = rcuwalk(["bench", "--check-only"]).arg(temp.path()).output().unwrap();
            assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
