//! `stat`, `ls`, `tree`, `readlink`, `access`.

use std::os::unix::fs::MetadataExt;
use std::process::Output;

use crate::common::{rcuwalk, sample, stderr, stdout};
use serde_json::Value;

fn run(args: &[&str]) -> Output {
    rcuwalk(args).output().expect("the command starts")
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn stat_shows_what_the_kernel_shows() {
    let temp = sample();
    let source = temp.path().to_str().unwrap();
    let kernel = temp.path().join("etc/open").metadata().unwrap();
    let facts = json(&run(&["stat", source, "etc/open", "--json"]));
    assert_eq!(facts["type"], "regular file");
    assert_eq!(facts["permissions"], "-rw-r--r--");
    assert_eq!(facts["size"], 5);
    assert_eq!(facts["ino"], kernel.ino());
    assert_eq!(facts["nlink"], 1);
    assert_eq!(facts["uid"], kernel.uid());

    let text = stdout(&run(&["stat", source, "/etc/link"]));
    assert!(text.contains("File: /etc/link -> open") && text.contains("symbolic link"), "{text}");
    let text = stdout(&run(&["stat", "-L", source, "/etc/link"]));
    assert!(text.contains("regular file") && text.contains("(0644/-rw-r--r--)"), "{text}");
}

#[test]
fn a_missing_path_is_explained() {
    let temp = sample();
    let output = run(&["stat", temp.path().to_str().unwrap(), "etc/nope"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.starts_with("rcuwalk: stat: etc/nope: ENOENT: No such file or directory; "), "{text}");
}

#[test]
fn the_answer_depends_on_who_asks() {
    let temp = sample();
    let source = temp.path().to_str().unwrap();
    let owner = temp.path().metadata().unwrap();
    let other = if owner.uid() == 4242 { "4243:4243" } else { "4242:4242" };
    let owner = format!("{}:{}", owner.uid(), owner.gid());
    let code = |args: &[&str]| run(args).status.code();

    assert_eq!(code(&["access", source, "etc/open", "-r", "--as", other]), Some(0));
    assert_eq!(code(&["access", source, "etc/open", "-w", "--as", other]), Some(1));
    assert_eq!(code(&["access", source, "etc/secret", "-r", "--as", &owner]), Some(0));
    assert_eq!(
        code(&["access", source, "etc/secret", "-x", "--as", "0"]),
        Some(1),
        "no x bit: not even root"
    );
    assert_eq!(code(&["access", source, "run", "-rwx", "--as", "0"]), Some(0));
    assert_eq!(code(&["access", source, "shut/in", "-e", "--as", other]), Some(1));

    let denied = run(&["access", source, "shut/in", "-r", "--as", other]);
    assert_eq!(stdout(&denied), "denied: EACCES: Permission denied\n");
    assert_eq!(stderr(&denied), "");
    let quiet = run(&["access", source, "etc/open", "-rq", "--as", other]);
    assert_eq!((quiet.status.code(), stdout(&quiet)), (Some(0), String::new()));
    let answer: Value = serde_json::from_slice(
        &run(&["access", source, "etc/secret", "-rw", "--json", "--as", other]).stdout,
    )
    .unwrap();
    assert_eq!(answer["allowed"], false);
    assert_eq!((&answer["errno"], &answer["mode"]), (&"EACCES".into(), &"rw".into()));

    let hidden = run(&["stat", source, "shut/in", "--as", other]);
    assert_eq!(hidden.status.code(), Some(2));
    assert!(stderr(&hidden).contains("EACCES: Permission denied; --as 0 may"), "{}", stderr(&hidden));
}

#[test]
fn ls_lists_and_tree_draws() {
    let temp = sample();
    let source = temp.path().to_str().unwrap();
    std::fs::write(temp.path().join("etc/.hidden"), "").unwrap();
    let text = stdout(&run(&["ls", source, "etc"]));
    let names: Vec<&str> = text.lines().map(|line| line.rsplit("  ").next().unwrap()).collect();
    assert_eq!(names.len(), 3, "{text}");
    assert!(text.lines().next().unwrap().ends_with("link -> open"), "{text}");
    assert!(text.lines().next().unwrap().starts_with("lrwxrwxrwx 1 "), "{text}");
    assert!(stdout(&run(&["ls", "-a", source, "etc"])).contains(".hidden"));
    let own = stdout(&run(&["ls", "-d", source, "etc"]));
    assert!(own.starts_with("drwxr-xr-x 2 ") && own.lines().count() == 1, "{own}");
    let list = json(&run(&["ls", source, "--json"]));
    let names: Vec<&str> = list.as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["etc", "run", "shut"]);

    let drawn = stdout(&run(&["tree", source]));
    let expected = "/\n├── etc\n│   ├── link -> open\n│   ├── open\n│   └── secret\n├── run\n└── shut\n    └── in\n\n\
                    2 directories, 5 others\n";
    assert_eq!(drawn, expected);
    let drawn = stdout(&run(&["tree", source, "--depth", "1"]));
    assert_eq!(drawn, "/\n├── etc\n├── run\n└── shut\n\n2 directories, 1 others\n");
    let grown = json(&run(&["tree", source, "etc", "--json"]));
    assert_eq!(grown["children"][0]["target"], "open");
}

#[test]
fn what_may_not_be_read_is_shown_and_counted() {
    let temp = sample();
    let source = temp.path().to_str().unwrap();
    let other = if temp.path().metadata().unwrap().uid() == 4242 { "4243" } else { "4242" };
    let output = run(&["tree", source, "--as", other]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).contains("└── shut [EACCES: Permission denied]\n"), "{}", stdout(&output));
    assert!(stderr(&output).contains("1 directories or names may not be read"), "{}", stderr(&output));
    let output = run(&["ls", source, "shut", "--as", other]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).starts_with("rcuwalk: ls: shut: EACCES: Permission denied; "),
        "{}",
        stderr(&output)
    );
}

#[test]
fn readlink_shows_the_target() {
    let temp = sample();
    let source = temp.path().to_str().unwrap();
    assert_eq!(stdout(&run(&["readlink", source, "etc/link"])), "open\n");
    assert_eq!(json(&run(&["readlink", source, "etc/link", "--json"]))["target"]["name"], "open");
    let output = run(&["readlink", source, "etc/open"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("readlink: etc/open: EINVAL: Invalid argument"), "{}", stderr(&output));
}

#[test]
fn an_archive_is_a_source_too() {
    let temp = sample();
    let archive = tempfile::Builder::new().suffix(".tar").tempfile().unwrap();
    let made = std::process::Command::new("tar")
        .arg("-C")
        .arg(temp.path())
        .args(["--owner=5", "--group=6", "--numeric-owner", "-cf"])
        .arg(archive.path())
        .arg(".")
        .status()
        .expect("tar starts");
    assert!(made.success());
    let source = archive.path().to_str().unwrap();
    let facts = json(&run(&["stat", source, "etc/secret", "--json", "--as", "0"]));
    assert_eq!((&facts["uid"], &facts["gid"], &facts["mode"]), (&5.into(), &6.into(), &0o100_600.into()));
    assert_eq!(run(&["access", source, "etc/secret", "-r", "--as", "5"]).status.code(), Some(0));
    assert_eq!(run(&["access", source, "etc/secret", "-r", "--as", "7"]).status.code(), Some(1));
}

#[test]
fn bad_sources_and_identities_are_explained() {
    let temp = sample();
    let source = temp.path().to_str().unwrap();
    let file = temp.path().join("etc/open");
    for (args, part) in [
        (vec!["ls", "/nowhere/at/all"], "/nowhere/at/all"),
        (vec!["ls", file.to_str().unwrap()], "tar archive"),
        (vec!["ls", source, "--as", "no-such-user"], "there is no user 'no-such-user' on this machine"),
        (vec!["access", source, "/", "--as", "1:"], "a group is missing"),
        (vec!["stat", source, "/", "--as", "1-dac_overide"], "'dac_override' comes nearest"),
        (vec!["tree", source, "--as", "4294967295"], "ids go from 0 to 4294967294"),
        (vec!["frobnicate"], "unrecognized subcommand"),
        (vec!["stat", source], "<PATH>"),
    ] {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(part), "{args:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{args:?}");
    }
}
