//! Help, version, completions, manual pages.

use crate::common::{rcuwalk, stderr, stdout};

#[test]
fn help_documents_every_command_and_exit_code() {
    let output = rcuwalk(["--help"]).output().unwrap();
    assert!(output.status.success());
    let text = stdout(&output);
    for part in [
        "bench",
        "stat",
        "ls",
        "tree",
        "readlink",
        "access",
        "explain",
        "save",
        "image",
        "mount",
        "completions",
        "man",
        "Exit codes:",
        "130",
        "141",
    ] {
        assert!(text.contains(part), "{part}");
    }
    let output = rcuwalk::<&str>([]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "help, but nothing was done");
    assert!(stderr(&output).contains("Usage:"));
}

#[test]
fn version_names_the_compiler() {
    let text = stdout(&rcuwalk(["--version"]).output().unwrap());
    assert!(text.starts_with(concat!("rcuwalk ", env!("CARGO_PKG_VERSION"), " (")), "{text}");
    assert!(text.contains("rustc 1."), "{text}");
}

#[test]
fn completions_and_manual_pages_come_out() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = stdout(&rcuwalk(["completions", shell]).output().unwrap());
        assert!(text.contains("rcuwalk") && text.contains("check-targets"), "{shell}");
    }
    let page = stdout(&rcuwalk(["man"]).output().unwrap());
    assert!(page.contains(".TH rcuwalk 1") && page.contains("141"), "{page}");
    for variable in ["NO_COLOR", "RCUWALK_INIT_ON_ALLOC", "RCUWALK_FILL"] {
        assert!(page.contains(variable), "{variable}: {page}");
    }
    let dir = tempfile::tempdir().unwrap();
    assert!(rcuwalk(["man", "--dir"]).arg(dir.path()).status().unwrap().success());
    let page = std::fs::read_to_string(dir.path().join("rcuwalk-bench.1")).unwrap();
    assert!(page.contains("quick"), "{page}");
    let output = rcuwalk(["man", "--dir", "/nowhere"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/nowhere: ENOENT"), "{}", stderr(&output));
}
