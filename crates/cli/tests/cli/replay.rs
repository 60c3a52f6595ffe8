//! `replay`: the path calls of a log, asked of engine and kernel.

use std::fs;
use std::path::Path;

use crate::common::{rcuwalk, sample, stderr, stdout};
use serde_json::Value;

/// What `strace -f -y` writes of a program that looks around in the sample at `top`.
fn log(top: &Path) -> String {
    let top = top.display();
    format!(
        r#"70 execve("{top}/run", ["run"], 0x7ffd /* 20 vars */) = 0
70 chdir("{top}/etc") = 0
70 openat(AT_FDCWD<{top}/etc>, "open", O_RDONLY|O_CLOEXEC) = 3<{top}/etc/open>
70 newfstatat(3<{top}/etc/open>, "", {{st_mode=S_IFREG|0644, st_size=5, ...}}, AT_EMPTY_PATH) = 0
70 newfstatat(AT_FDCWD<{top}/etc>, "none", 0x7ffc, 0) = -1 ENOENT (No such file or directory)
70 access("{top}/etc/link", R_OK) = 0
70 lstat("link", {{st_mode=S_IFLNK|0777, st_size=4, ...}}) = 0
70 readlink("{top}/etc/link", "open", 4096) = 4
70 access("{top}/gone/since", F_OK) = 0
70 mkdir("{top}/new", 0777) = 0
70 openat(AT_FDCWD, "/proc/self/maps", O_RDONLY) = 4
70 what is this
70 exit_group(0) = ?
70 +++ exited with 0 +++
"#
    )
}

#[test]
fn answers_are_compared_with_the_kernel_and_with_the_log() {
    let temp = sample();
    let top = temp.path().canonicalize().unwrap();
    let file = temp.path().join("log");
    fs::write(&file, log(&top)).unwrap();
    let output = rcuwalk(["replay", "--json", "--rounds", "2"]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["mismatches"], Value::Array(vec![]));
    let kinds = &record["kinds"];
    let counts =
        ["open", "stat", "lstat", "access", "readlink"].map(|kind| kinds[kind].as_u64().unwrap_or(0));
    assert!(counts[0] >= 1 && counts[1..].iter().all(|&n| n >= 1), "{kinds}");
    let replayed: u64 = counts.iter().sum();
    assert_eq!(record["as_logged"].as_u64().unwrap(), replayed - 1, "one path is gone since: {record}");
    assert!(record["enoent_pct"].as_f64().unwrap() > 0.0);
    assert!(record["unread"].as_u64().unwrap() >= 1);
    let left_out = &record["left_out"];
    for why in ["of a descriptor", "changes something", "in /proc, /sys or /dev"] {
        assert!(left_out[why].as_u64().unwrap() >= 1, "{why}: {left_out}");
    }
    for engine in ["host", "walk", "rcuwalk"] {
        assert!(record["ns_per_call"][engine].as_f64().unwrap() > 0.0, "{engine}");
    }
    assert!(!top.join("new").exists(), "nothing is changed");

    let output = rcuwalk(["replay", "--rounds", "0"]).arg(&file).output().unwrap();
    let text = stdout(&output);
    assert!(
        text.contains("answers that differ from the kernel's: 0") && !text.contains("ns a call"),
        "{text}"
    );
}

#[test]
fn logs_without_path_calls_are_refused_with_a_hint() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("log");
    fs::write(&file, "1 getpid() = 1\n\u{0}garbage\n").unwrap();
    for (path, part) in [(file, "strace -f"), (temp.path().join("none"), "ENOENT")] {
        let output = rcuwalk(["replay"]).arg(&path).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
}
