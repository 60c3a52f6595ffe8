//! Runs the rows themselves, through the binary: on the host kernel where that is allowed, on the engine always.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn oracle(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rcuwalk-oracle"))
        .args(args)
        .current_dir(repository())
        .output()
        .expect("the binary runs")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// True if rows can run on the kernel here; says why not otherwise.
fn host_is_possible() -> bool {
    let possible = rcuwalk_oracle::host::is_root();
    if !possible {
        eprintln!("skipped: rows on the host kernel need root with its capabilities");
    }
    possible
}

#[test]
fn every_row_passes_on_the_host_kernel() {
    if host_is_possible() {
        let output = oracle(&["rows", "--backend", "host", "cases"]);
        assert!(output.status.success(), "{}", text(&output));
    }
}

/// What the engine may skip, and why. A row that is skipped for another reason fails this test.
#[cfg(feature = "engine")]
fn allowed_reasons() -> Vec<String> {
    let listed = rcuwalk_oracle::engine::UNSUPPORTED.iter().map(|(_, why)| (*why).to_owned());
    listed.chain(rcuwalk_oracle::engine::LACKING.iter().map(|why| (*why).to_owned())).collect()
}

#[cfg(feature = "engine")]
fn rows_pass_on(backend: &str) {
    let output = oracle(&["rows", "--backend", backend, "--json", "-", "cases"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
    let rows = report["rows"].as_array().expect("a list of rows");
    assert!(rows.len() > 300, "only {} rows", rows.len());
    let allowed = allowed_reasons();
    for row in rows.iter().filter(|row| row["verdict"] == "skipped") {
        let reason = row["detail"].as_str().expect("a reason");
        assert!(allowed.iter().any(|a| a == reason), "{} is skipped: {reason}", row["name"]);
    }
}

#[cfg(feature = "engine")]
#[test]
fn every_row_passes_on_the_engine() {
    rows_pass_on("engine");
}

#[cfg(feature = "engine")]
#[test]
fn every_row_passes_on_the_engine_without_rcu_walk() {
    rows_pass_on("engine-ref");
}

#[cfg(feature = "engine")]
#[test]
fn random_calls_answer_alike() {
    if host_is_possible() {
        let output = oracle(&["fuzz", "--ops", "20000", "--seed", "2026"]);
        assert!(output.status.success(), "{}", text(&output));
    }
}

#[test]
fn a_mistake_in_a_row_keeps_the_run_from_starting() {
    let dir = std::env::temp_dir().join(format!("rcuwalk-oracle-test-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary directory");
    let good =
        "[[case]]\nname = \"good\"\nwhy = \"w\"\ncall = { op = \"umask\", mask = \"0\" }\nexpect = \"ok\"\n";
    let bad =
        "[[case]]\nname = \"bad\"\nwhy = \"w\"\ncall = { op = \"umask\", msk = \"0\" }\nexpect = \"ok\"\n";
    std::fs::write(dir.join("a.toml"), good).expect("written");
    std::fs::write(dir.join("b.toml"), bad).expect("written");
    let output = oracle(&["rows", dir.to_str().expect("UTF-8")]);
    std::fs::remove_dir_all(&dir).expect("removed");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let text = text(&output);
    assert!(text.contains("b.toml:4:8: case `bad`: call `umask` needs `mask`"), "{text}");
    assert!(!text.contains("passed"), "{text}");
}

#[test]
fn a_failing_row_fails_the_run() {
    if !host_is_possible() {
        return;
    }
    let file = std::env::temp_dir().join(format!("rcuwalk-oracle-failing-{}.toml", std::process::id()));
    let row = "[[case]]\nname = \"x\"\nwhy = \"w\"\ncalls = [{ op = \"stat\", path = \"/\", expect = \"ENOENT\" }]\n";
    std::fs::write(&file, row).expect("written");
    let output = oracle(&["rows", file.to_str().expect("UTF-8")]);
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("expected ENOENT, got dir 0755"), "{}", text(&output));
    assert!(text(&output).ends_with("host: 0 passed, 1 failed, 0 skipped\n"), "{}", text(&output));
}

#[test]
fn nothing_to_run_is_an_error() {
    for args in [
        &["rows", "/nowhere"][..],
        &["rows", "--topic", "nosuch"],
        &["rows", "--filter", "no such row"],
        &["rows", "--backend", "fuse"],
    ] {
        assert_eq!(oracle(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn the_readme_lists_the_calls_there_are() {
    let readme = std::fs::read_to_string(repository().join("cases/README.md")).expect("cases/README.md");
    let (_, rest) = readme.split_once("<!-- calls -->\n```\n").expect("the marker");
    let (listed, _) = rest.split_once("```\n<!-- /calls -->").expect("the end marker");
    let calls: String = rcuwalk_oracle::op::Op::ALL.iter().map(|call| call.line() + "\n").collect();
    assert_eq!(listed, calls, "put the output of `rcuwalk-oracle calls` between the markers");
}

/// A directory of another file system, if there is one that rows may run on: `target` on a disk.
#[test]
fn rows_run_in_a_directory() {
    if !host_is_possible() {
        return;
    }
    let dir = std::env::temp_dir().join(format!("rcuwalk-oracle-dir-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let backend = format!("dir:{}", dir.display());
    let output = oracle(&["rows", "--backend", &backend, "--topic", "path", "--topic", "ops", "cases"]);
    let left: Vec<_> = std::fs::read_dir(&dir).expect("a directory").collect();
    assert!(left.is_empty(), "rows leave nothing behind");
    std::fs::remove_dir(&dir).expect("removed");
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("needs tmpfs"), "{}", text(&output));
}
