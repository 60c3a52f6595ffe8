//! `explain`, as far as anybody can ask.

use std::process::Output;

use crate::common::{rcuwalk, sample, stderr, stdout};
use serde_json::Value;

fn explain(args: &[&str]) -> Output {
    rcuwalk(["explain"].iter().chain(args)).output().expect("the command starts")
}

#[test]
fn the_exit_code_is_the_verdict() {
    let temp = sample();
    let at = |name: &str| temp.path().join(name).display().to_string();
    let code = |args: &[&str]| explain(args).status.code();
    assert_eq!(code(&[&at("etc/open")]), Some(0));
    assert_eq!(code(&["--stat", "-r", &at("etc/open"), &at("etc/link")]), Some(0));
    assert_eq!(code(&["--create", &at("etc/open")]), Some(1), "it is there");
    assert_eq!(code(&["--as", "no such user", "/"]), Some(2));
    assert_eq!(code(&["--caps", "+flying", "/"]), Some(2));
    assert_eq!(code(&["--caps", "chown", "/"]), Some(2), "without a sign");
    assert_eq!(code(&[]), Some(2), "no path");
    assert_eq!(code(&["-r", "/proc/self/exe"]), Some(2), "a magic link");
}

#[test]
fn a_refusal_is_explained() {
    let temp = sample();
    let path = temp.path().join("shut/in").display().to_string();
    let output = explain(&["--as", "4242:4242", "-r", &path]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
    let first = text.lines().next().unwrap();
    assert_eq!(first, format!("read {path}: denied, EACCES"));
    assert!(text.contains("because ") && text.contains("[permission]"), "{text}");
    assert!(text.contains("fix ") && text.contains("setfacl -m u:4242:--x "), "{text}");
    assert!(text.contains("CAP_DAC_READ_SEARCH or CAP_DAC_OVERRIDE would override"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("> ")), "{text}");
}

#[test]
fn json_has_the_same_answer() {
    let temp = sample();
    let path = temp.path().join("etc/open").display().to_string();
    let output = explain(&["--json", "--create", "-r", &path]);
    assert_eq!(output.status.code(), Some(1));
    let reports: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let answers = &reports[0]["answers"];
    assert_eq!((&answers[0]["what"], &answers[0]["verdict"]), (&"read".into(), &"allowed".into()));
    assert_eq!((&answers[1]["what"], &answers[1]["errno"]), (&"create".into(), &"EEXIST".into()));
    assert_eq!(reports[0]["path"], path.as_str());
}

#[test]
fn calls_are_read_as_strace_writes_them() {
    let temp = sample();
    let path = temp.path().join("etc/link").display().to_string();
    let open = format!("openat(AT_FDCWD, \"{path}\", O_RDONLY|O_NOFOLLOW) = -1 ELOOP (Too many)");
    let output = explain(&["--call", &open]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stdout(&output).contains("denied, ELOOP"), "{}", stdout(&output));
    let output = explain(&["--call", "openat2(PATH, {flags=O_RDONLY})", "--call", "fly(PATH)", &path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("fly is not known"), "{}", stderr(&output));
}

#[test]
fn the_host_is_asked() {
    let temp = sample();
    let path = temp.path().join("run").display().to_string();
    let output = explain(&["-r", "-x", "--delete", "--verify", &path]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    assert_eq!(text.matches("the host agrees: ").count(), 3, "{text}");
    assert!(temp.path().join("run").exists(), "nothing was deleted");
}

#[test]
fn changes_of_attributes_have_reasons() {
    let temp = sample();
    let path = temp.path().join("etc/open").display().to_string();
    let says = |call: &str, rule: &str| {
        let output = explain(&["--as", "4242:4242", "--call", call, &path]);
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
        assert!(text.contains(&format!("[{rule}]")), "{text}");
        text
    };
    assert!(says("chown(PATH, 4242, -1)", "chown").contains("CAP_CHOWN would override"));
    assert!(says("chmod(PATH, 0666)", "not-owner").contains("CAP_FOWNER would override"));
    assert!(says("utimensat(AT_FDCWD, PATH, [{tv_sec=1}, UTIME_OMIT], 0)", "not-owner").contains("fix "));
    assert!(says("utimensat(AT_FDCWD, PATH, NULL, 0)", "permission").contains("may not write"));
}

#[test]
fn a_loop_of_links_is_not_walked_forty_times_for_the_reader() {
    let temp = sample();
    std::os::unix::fs::symlink("two", temp.path().join("one")).expect("a link");
    std::os::unix::fs::symlink("one", temp.path().join("two")).expect("a link");
    let output = explain(&["-r", &temp.path().join("one").display().to_string()]);
    let text = stdout(&output);
    assert!(text.contains("denied, ELOOP") && text.contains("more steps to the same places"), "{text}");
    assert!(text.lines().count() < 20, "{text}");
}
