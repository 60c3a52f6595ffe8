//! The command as its user meets it: run, and judged by what it prints and how it ends.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn lab<const N: usize>(args: [&str; N]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rcuwalk-lab"));
    command.args(args);
    command
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// Leftovers of a run below `dir`.
fn leftovers(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("rcuwalk")).collect()
}

#[test]
fn ablations_have_one_object_for_each_row() {
    let args = ["ablations", "--quick", "--json", "--only", "s4", "--threads", "1"];
    let output = lab(args).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = record["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!(row["id"], "S4");
    assert!(row["holds"].is_boolean() && row["published"].is_string());
    for key in ["before", "after", "ratio"] {
        assert!(row[key].as_f64().unwrap() > 0.0, "{key}");
    }
    assert!(row["check"].as_str().unwrap().contains("answers equal"), "{row}");
    assert!(row["rows"].as_array().unwrap().iter().all(|point| point["wrong"] == false), "{row}");

    let output = lab(["ablations", "--quick", "--only", "S4"]).output().unwrap();
    let text = stdout(&output);
    assert!(text.contains("runtime-size") && text.contains("published: "), "{text}");
    let output = lab(["ablations", "--only", "S99"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("S99: there is no such row; S"), "{}", stderr(&output));
    assert_eq!(lab(["host", "--only", "S4"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn fills_are_listed_by_place_and_size() {
    let output = lab(["fills", "--quick", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = record["rows"].as_array().unwrap();
    let sites = |policy: &str| -> Vec<&str> {
        let of = rows.iter().filter(|row| row["init_on_alloc"] == policy);
        of.map(|row| row["site"].as_str().unwrap()).collect()
    };
    assert!(sites("on").contains(&"pages: hole") && !sites("on").contains(&"names"), "{rows:?}");
    assert!(sites("force").contains(&"names"), "{rows:?}");
    let output = lab(["fills", "--quick"]).output().unwrap();
    let text = stdout(&output);
    assert!(text.contains("pages: part of a page") && text.contains("128…"), "{text}");
    assert!(
        text.contains("on: the cache `names` of buffers of 4096 bytes, not cleared; 1 came from"),
        "{text}"
    );
}

#[test]
fn the_operator_has_the_last_word_on_what_is_cleared() {
    use std::os::unix::ffi::OsStrExt;
    for (words, clears) in [
        (&b"on"[..], false),
        (b"off", false),
        (b"skip=names", false),
        (b"skip=pages,names", false),
        (b"force", true),
        (b"skip=", true),
        (b"skip=name", true),
        // Words without a meaning choose the safe side.
        (b"", true),
        (b"forec", true),
        (b"OFF", true),
        (b"o\xffff", true),
    ] {
        let mut command = lab(["fills", "--quick", "--json"]);
        let words = std::ffi::OsStr::from_bytes(words);
        let output = command.env("RCUWALK_INIT_ON_ALLOC", words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        let record: Value = serde_json::from_slice(&output.stdout).unwrap();
        let [cache] = &record["caches"].as_array().unwrap()[..] else { panic!("{record}") };
        assert_eq!((&cache["name"], &cache["clears"]), (&"names".into(), &clears.into()), "{words:?}");
        // And it is done, not only said: buffers that are used again are filled.
        let rows = record["rows"].as_array().unwrap();
        assert_eq!(rows.iter().any(|row| row["site"] == "names"), clears, "{words:?}: {rows:?}");
    }
}

#[test]
fn the_kernel_is_timed_by_call() {
    let scratch = tempfile::tempdir().unwrap();
    let args = ["host", "--quick", "--json", "--threads", "2"];
    let output = lab(args).env("TMPDIR", scratch.path()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(leftovers(scratch.path()), Vec::<String>::new());
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = record["rows"].as_array().unwrap();
    let has = |workload: &str, call: &str| {
        rows.iter().any(|row| {
            row["workload"] == workload && row["call"] == call && row["ns"].as_f64().unwrap() > 0.0
        })
    };
    for (workload, call) in [
        ("an open file", "fstat"),
        ("an open file", "statx"),
        ("4 components", "access"),
        ("a missing name", "execve"),
        ("depth 32", "stat"),
        ("distinct files", "access"),
        ("the same file", "access"),
    ] {
        assert!(has(workload, call), "{workload} {call}");
    }
    assert!(rows.iter().all(|row| row["wrong"] == false), "{rows:?}");
    if cfg!(target_arch = "x86_64") {
        assert!(has("execve in a loop, one process", "execve"), "{:?}", record["notes"]);
        assert!(has("fork, execve, exit, wait", "whole"), "{:?}", record["notes"]);
    }
}

#[test]
fn places_are_named_directories_and_records_files_that_can_be_written() {
    for (place, why) in [("/tmp", "with = in between"), ("x=/nowhere", "/nowhere is no directory")] {
        let output = lab(["mounts", place]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
    let output = lab(["fills", "--quick", "-o", "/nowhere/record"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("writing the record: /nowhere/record: "), "{}", stderr(&output));
}
