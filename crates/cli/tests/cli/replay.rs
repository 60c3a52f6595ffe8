//! `replay`: the path calls of a log, asked of engine and kernel.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

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
    let replayed = replayed + kinds["execve"].as_u64().unwrap_or(0) + kinds["chdir"].as_u64().unwrap();
    assert_eq!(record["as_logged"].as_u64().unwrap(), replayed - 1, "one path is gone since: {record}");
    assert_eq!(record["wrong_sums"], 0);
    assert!(record["enoent_pct"].as_f64().unwrap() > 0.0);
    assert!(record["unread"].as_u64().unwrap() >= 1);
    let left_out = &record["left_out"];
    for why in ["of a descriptor", "changes something", "in /proc, /sys or /dev"] {
        assert!(left_out[why].as_u64().unwrap() >= 1, "{why}: {left_out}");
    }
    assert_eq!(record["timed"].as_u64().unwrap(), replayed - kinds["execve"].as_u64().unwrap_or(0));
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

/// Runs a replay and gives its record.
fn replay(log: &Path, cwd: &Path) -> Value {
    let mut replay = rcuwalk(["replay", "--json", "--rounds", "2", "--cwd"]);
    let output = replay.arg(cwd).arg(log).output().unwrap();
    assert!(output.status.success(), "{}{}", stderr(&output), stdout(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn searches_and_components_are_counted_from_where_the_program_stood() {
    let temp = tempfile::tempdir().unwrap();
    let top = temp.path().canonicalize().unwrap();
    let dirs = [("", 0o700), ("open", 0o755), ("open/in", 0o711), ("closed", 0o750), ("closed/in", 0o755)];
    for (dir, mode) in dirs {
        fs::create_dir_all(top.join(dir)).unwrap();
        fs::set_permissions(top.join(dir), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(top.join("open/in/f"), "").unwrap();
    fs::write(top.join("closed/in/f"), "").unwrap();
    std::os::unix::fs::symlink("in/f", top.join("open/link")).unwrap();
    let file = top.join("log");
    let at = |dir: &str| format!("AT_FDCWD<{}/{dir}>", top.display());
    let [open, closed] = ["open", "closed"].map(at);
    // Behind each call, the directories it searches: those that anybody may search, and the others.
    let log = format!(
        r#"7 newfstatat({open}, "in/f", {{}}, 0) = 0
7 newfstatat({open}, "in/none", 0x7f, 0) = -1 ENOENT (No such file or directory)
7 newfstatat({open}, "link", {{}}, 0) = 0
7 newfstatat({open}, "link", {{}}, AT_SYMLINK_NOFOLLOW) = 0
7 openat({open}, "in", O_RDONLY|O_DIRECTORY|O_CLOEXEC) = 3<{top}/open/in>
7 openat(3<{top}/open/in>, "f", O_RDONLY) = 4
7 openat({open}, "link", O_RDONLY|O_NOFOLLOW) = -1 ELOOP (Too many levels of symbolic links)
7 openat({open}, "in/f", O_RDONLY|O_DIRECTORY) = -1 ENOTDIR (Not a directory)
7 faccessat2({closed}, "in/f", R_OK, AT_EACCESS) = 0
7 openat({closed}, "../open/in/f", O_RDONLY) = 3
"#,
        top = top.display()
    );
    let (spared, checked) = (2 + 2 + 3 + 1 + 1 + 1 + 1 + 2 + 1 + 2, 1 + 1 + 1);
    let components = 2 + 2 + 1 + 1 + 1 + 1 + 1 + 2 + 2 + 4;
    fs::write(&file, log).unwrap();
    let record = replay(&file, &top);
    assert_eq!(record["as_logged"], 10, "{record}");
    assert_eq!(record["mean_depth"], f64::from(components) / 10.0);
    assert_eq!(record["enoent_pct"], 10.0);
    assert_eq!(record["searches"], spared + checked, "{record}");
    let pct = f64::from(spared) * 100.0 / f64::from(spared + checked);
    assert_eq!(record["searches_spared_pct"], (pct * 100.0).round() / 100.0);
}

#[test]
fn nothing_is_executed_and_nobody_waits() {
    let temp = tempfile::tempdir().unwrap();
    let top = temp.path().canonicalize().unwrap();
    let script = top.join("script");
    fs::write(&script, format!("#!/bin/sh\ntouch {}/done\n", top.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, top.join("pipe"), 0o644.into()).unwrap();
    let file = top.join("log");
    let log = r#"7 execve("./script", ["script"], 0x7ffd /* 20 vars */) = 0
7 open("script", O_RDONLY) = 3
7 open("pipe", O_RDONLY) = 3
7 open("pipe", O_RDONLY|O_PATH) = 3
7 open("script", O_WRONLY) = 3
"#;
    fs::write(&file, log).unwrap();
    let record = replay(&file, &top);
    assert_eq!(record["kinds"]["open"], 2);
    let left_out = &record["left_out"];
    assert_eq!(left_out["opens a device, a pipe or a socket"], 1);
    assert_eq!(left_out["opens for writing"], 1);
    assert_eq!(record["as_logged"], 2 + record["kinds"]["execve"].as_u64().unwrap_or(0), "{record}");
    assert!(!top.join("done").exists());
}

/// Records what real programs ask, now and here, and replays it.
#[test]
fn real_programs_are_answered_as_by_the_kernel() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let works = |command: &[&str]| {
        let mut command_line = Command::new(command[0]);
        let output = command_line.args(&command[1..]).current_dir(&repository).output();
        output.is_ok_and(|output| output.status.success())
    };
    for needed in [
        &["strace", "-o", "/dev/null", "true"][..],
        &["gcc", "--version"],
        &["make", "--version"],
        &["python3", "--version"],
        &["git", "rev-parse", "HEAD"],
    ] {
        if !works(needed) {
            eprintln!("skipped: `{}` does not work here", needed.join(" "));
            return;
        }
    }
    let temp = tempfile::tempdir().unwrap();
    let top = temp.path().canonicalize().unwrap();
    let output = Command::new(repository.join("bench/traces/record")).args([&top, &top]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    for (name, start) in [("make", "home/demo"), ("git", "home/repository"), ("python", "home")] {
        let record = replay(&top.join(format!("{name}.strace.gz")), &top.join(start));
        let number = |key: &str| record[key].as_f64().unwrap();
        let asked: u64 =
            record["kinds"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
        assert!(asked > 500, "{name}: {record}");
        assert_eq!((&record["unread"], &record["wrong_sums"]), (&0.into(), &0.into()), "{name}: {record}");
        // Temporary files are gone.
        assert!(number("as_logged") > asked as f64 * 0.95, "{name}: {record}");
        let spared = number("searches_spared_pct");
        assert!(spared > 50.0 && spared < 100.0, "{name}: the home is closed, the system is not: {record}");
    }
}
