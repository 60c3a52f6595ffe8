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
    let door = [rcuwalk_oracle::door::NO_CALL, rcuwalk_oracle::door::NO_SYSCALL];
    listed.chain(rcuwalk_oracle::engine::LACKING.iter().chain(&door).map(|why| (*why).to_owned())).collect()
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
fn every_row_passes_behind_the_raw_door() {
    rows_pass_on("syscall");
}

#[cfg(feature = "engine")]
#[test]
fn every_row_passes_behind_the_c_interface() {
    rows_pass_on("capi");
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
fn every_file_says_what_it_is_about() {
    let cases = rcuwalk_oracle::case::load(&repository().join("cases")).expect("well-formed rows");
    let silent: Vec<String> = cases.iter().filter(|c| c.about.is_empty()).map(|c| c.full_name()).collect();
    assert_eq!(silent, Vec::<String>::new());
}

/// As nobody: a clear refusal, and no word that would read as success.
#[test]
fn without_root_nothing_passes() {
    use std::os::unix::process::CommandExt;
    if !host_is_possible() {
        return;
    }
    for backend in ["host", "dir:/tmp"] {
        let output = Command::new(env!("CARGO_BIN_EXE_rcuwalk-oracle"))
            .args(["rows", "--backend", backend, "--topic", "path"])
            .arg(repository().join("cases"))
            .uid(65534)
            .gid(65534)
            .output();
        // Where nobody may not even start the program there is nothing to show.
        let Ok(output) = output else { return };
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains("need root"), "{}", text(&output));
        assert!(!text(&output).contains("passed"), "{}", text(&output));
    }
}

/// A kernel that refuses the row's namespaces: every row fails, with the reason, none is left out.
#[test]
fn without_a_world_every_row_fails() {
    if !host_is_possible() {
        return;
    }
    let dir = Scratch::new("read-only");
    let script =
        "mount -t tmpfs -o ro none \"$1\" && exec \"$2\" rows --backend \"dir:$1\" --topic link cases";
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
        .arg(&dir.0)
        .arg(env!("CARGO_BIN_EXE_rcuwalk-oracle"))
        .current_dir(repository())
        .output()
        .expect("unshare(1) runs");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("no world"), "{}", text(&output));
    assert!(text(&output).contains(": 0 passed"), "{}", text(&output));
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

/// A fresh directory that is removed again.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("rcuwalk-oracle-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        Scratch(dir)
    }

    fn backend(&self) -> String {
        format!("dir:{}", self.0.display())
    }

    fn contents(&self) -> Vec<PathBuf> {
        std::fs::read_dir(&self.0)
            .expect("a directory")
            .map(|entry| entry.expect("an entry").path())
            .collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// On whatever file system temporary files lie.
#[test]
fn rows_run_in_a_directory() {
    if !host_is_possible() {
        return;
    }
    let dir = Scratch::new("dir");
    let output = oracle(&["rows", "--backend", &dir.backend(), "--topic", "path", "--topic", "ops", "cases"]);
    assert_eq!(dir.contents(), Vec::<PathBuf>::new(), "rows leave nothing behind");
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("needs tmpfs"), "{}", text(&output));
}

/// A world that resists removal: no permission anywhere, names longer together than any path, mounts over mounts, and
/// where the file system has them immutable and append-only objects, the root among them. The last row never ends well.
const STUBBORN: &str = r#"
[[case]]
name = "closed"
tree = ["d/ 0000 root", "d/e/ 0000 root", "d/e/f 0000 1000", "s socket", "p fifo", "l -> /"]
call = { op = "chdir", path = "d/e" }
expect = "ok"
why = "w"

[[case]]
name = "deep"
calls = [
  { op = "mkdir", path = { repeat = "d", times = 255 }, repeat = 1, expect = "ok" },
  { op = "chdir", path = { repeat = "d", times = 255 }, expect = "ok" },
DEEPER
  { op = "getcwd", expect = "ENAMETOOLONG" },
]
why = "w"

[[case]]
name = "mounted"
tree = ["a/ 0755 root", "a/f 0644 root", "m/ 0755 root"]
calls = [
  { op = "mount", source = "/a", target = "/m", flags = "MS_BIND", repeat = 3, expect = "ok" },
  { op = "mount", source = "none", target = "/m", fstype = "tmpfs", expect = "ok" },
  { op = "mkdir", path = "/m/x", expect = "ok" },
  { op = "mount", source = "/m", target = "/m/x", flags = "MS_BIND", expect = "ok" },
  { op = "chdir", path = "/m/x", expect = "ok" },
]
why = "w"

[[case]]
name = "frozen"
tree = [
  "i 0644 root flags=i", "a 0644 root flags=a", "d/ 0755 root", "d/e/ 0755 root flags=i", "d/p fifo 0644 root",
  "/ 0755 root flags=a",
]
calls = [
  { op = "open", path = "d", bind = "d", expect = "fd" },
  { op = "setflags", fd = "d", flags = "FS_IMMUTABLE_FL|FS_APPEND_FL", expect = "ok" },
]
why = "w"

[[case]]
name = "killed"
tree = ["p fifo 0644 root", "d/ 0755 root flags=i"]
call = { op = "open", path = "p" }
expect = "fd"
why = "it waits for a writer until the runner loses patience"
"#;

#[test]
fn rows_leave_nothing_behind_in_a_directory() {
    if !host_is_possible() {
        return;
    }
    let dir = Scratch::new("stubborn");
    let file = Scratch::new("stubborn-rows");
    let deeper = "  { op = \"mkdir\", path = \"DIR\", expect = \"ok\" },\n  { op = \"chdir\", path = \"DIR\", expect = \"ok\" },\n"
        .replace("DIR", &"e".repeat(255))
        .repeat(20);
    let rows = file.0.join("stubborn.toml");
    std::fs::write(&rows, STUBBORN.replace("DEEPER\n", &deeper)).expect("written");
    let rows = rows.to_str().expect("UTF-8");
    // A file system that knows no such flags fails that row; what was made before is removed all the same.
    let flags = oracle(&["rows", "--backend", &dir.backend(), "--filter", "frozen", rows]);
    if !flags.status.success() {
        eprintln!("skipped: no inode flags in {}: {}", dir.0.display(), text(&flags));
    }
    assert_eq!(dir.contents(), Vec::<PathBuf>::new(), "after rows with flags");
    for name in ["closed", "deep", "mounted"] {
        let output = oracle(&["rows", "--backend", &dir.backend(), "--filter", name, rows]);
        assert!(output.status.success(), "{}", text(&output));
        assert_eq!(dir.contents(), Vec::<PathBuf>::new(), "after {name}");
    }
    let killed =
        oracle(&["rows", "--backend", &dir.backend(), "--filter", "killed", "--patience", "1", rows]);
    assert_eq!(killed.status.code(), Some(1), "{}", text(&killed));
    assert_eq!(dir.contents(), Vec::<PathBuf>::new(), "after a row that was killed");
}

#[test]
fn worlds_of_a_killed_run_are_removed_by_the_next() {
    if !host_is_possible() {
        return;
    }
    let dir = Scratch::new("abandoned");
    // No process has a number this high.
    std::fs::create_dir_all(dir.0.join("rcuwalk-oracle.4194305/d")).expect("made");
    std::fs::create_dir_all(dir.0.join("rcuwalk-oracle.mine")).expect("made");
    let output = oracle(&["rows", "--backend", &dir.backend(), "--filter", "umask_answers", "cases"]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(dir.contents(), [dir.0.join("rcuwalk-oracle.mine")]);
}
