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
    assert_eq!(code(&["-r", "/proc/self/exe"]), Some(3), "a magic link");
    let output = explain(&["-r", "/proc/self/exe"]);
    let first = stdout(&output).lines().next().map(str::to_owned).unwrap_or_default();
    assert!(first.starts_with("read /proc/self/exe: unknown, ") && first.contains("magic link"), "{first}");
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
    assert_eq!(text.matches("the host agrees: ").count(), 2, "{text}");
    assert_eq!(text.matches("the host agrees about a stand-in: rmdir").count(), 1, "{text}");
    assert!(temp.path().join("run").exists(), "nothing was deleted");
}

#[test]
fn what_the_kernel_makes_up_is_unknown_until_it_is_asked() {
    let output = explain(&["-r", "/proc/version"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.starts_with("read /proc/version: unknown, /proc/version is a file of proc"), "{text}");
    let open = ["--call", "open(PATH, O_RDONLY)", "--verify", "/proc/version"];
    assert_eq!(explain(&open).status.code(), Some(0), "the open itself settles it");
    // Nobody may read it by its mode: the kernel's code cannot allow that.
    let output = explain(&["--as", "4242:4242", "-w", "/proc/version"]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
}

#[test]
fn a_machine_that_answers_otherwise_makes_the_verdict_unknown() {
    let temp = sample();
    let program = temp.path().join("busy");
    std::fs::copy("/bin/true", &program).expect("a program to run");
    let path = program.display().to_string();
    // A program that is open for writing is not executed; no table says which files are open.
    let writer = std::fs::OpenOptions::new().append(true).open(&program).expect("it can be written to");
    let exec = ["--exec", &path];
    let (alone, verified) = (explain(&exec), explain(&[&exec[..], &["--verify"]].concat()));
    drop(writer);
    assert_eq!(alone.status.code(), Some(0), "that it is open is not seen");
    let text = stdout(&verified);
    assert_eq!(verified.status.code(), Some(3), "{text}");
    let first = text.lines().next().unwrap_or_default();
    assert!(
        first.contains("unknown, the machine answers otherwise") && first.contains("open for writing"),
        "{text}"
    );
}

#[test]
fn what_is_meant_is_asked() {
    let temp = sample();
    let file = temp.path().join("etc/open").display().to_string();
    let text = |args: &[&str]| stdout(&explain(args));
    assert!(text(&["-w", &file]).contains("openat(AT_FDCWD, \""), "{}", text(&["-w", &file]));
    assert!(text(&["--access", "rw", &file]).contains("R_OK|W_OK"), "{}", text(&["--access", "rw", &file]));
    assert!(text(&["--connect", &file]).contains("denied, ECONNREFUSED"), "{}", text(&["--connect", &file]));
    let fifo = text(&["--mknod", "p", &format!("{file}.new")]);
    assert!(fifo.contains("mknod(") && fifo.contains(": allowed"), "{fifo}");
    assert!(text(&["--setxattr", "user.x", &file]).contains("setxattr("));
    for wrong in [["--access", "q"], ["--mknod", "c:1"], ["--mknod", "x"]] {
        assert_eq!(explain(&[&wrong[..], &[file.as_str()]].concat()).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_fuse_file_system_without_allow_other_lets_in_who_mounted_it() {
    let temp = sample();
    let point = temp.path().join("etc").display().to_string();
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can unmount without a program's help, and ask as another user");
        return;
    }
    let mounted = rcuwalk(["mount", "-o", "noallow_other", &point]).output().expect("the command starts");
    if !mounted.status.success() {
        println!("skipped: nothing can be mounted here: {}", stderr(&mounted));
        return;
    }
    let other = explain(&["--as", "4242:4242", "--stat", "-r", &point]);
    let own = explain(&["--stat", "-r", "--verify", &point]);
    let verified = explain(&["--as", "4242:4242", "-r", "--verify", &point]);
    rustix::mount::unmount(&point, rustix::mount::UnmountFlags::DETACH).expect("it can be unmounted");
    let text = stdout(&other);
    assert_eq!(other.status.code(), Some(1), "{text}");
    assert_eq!(text.matches("denied, EACCES").count(), 2, "{text}");
    assert!(text.contains("[fuse-owner]"), "{text}");
    assert_eq!(own.status.code(), Some(0), "{}", stdout(&own));
    assert_eq!(verified.status.code(), Some(1), "the host agrees:\n{}", stdout(&verified));
}

#[test]
fn a_stand_in_is_called_that_and_settles_nothing() {
    let temp = sample();
    let path = temp.path().join("etc/open").display().to_string();
    let output = explain(&["--delete", "--verify", "--json", &path]);
    let reports: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let verify = &reports[0]["answers"][0]["verify"];
    assert_eq!(verify["outcome"], "stand-in", "{verify}");
    assert!(verify["text"].as_str().is_some_and(|text| text.contains("EBUSY, EXDEV, ENOSPC")), "{verify}");
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
