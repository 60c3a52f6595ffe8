//! Records what built the benchmark, for the machine facts of a report.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    set("RCUWALK_RUSTC", output(&rustc, &["--version"]));
    for (name, from) in
        [("RCUWALK_TARGET", "TARGET"), ("RCUWALK_PROFILE", "PROFILE"), ("RCUWALK_OPT_LEVEL", "OPT_LEVEL")]
    {
        set(name, std::env::var(from).ok());
    }
    set("RCUWALK_COMMIT", commit());
}

/// The checked-out commit, with `-dirty` after it where tracked files differ; none outside a git checkout.
fn commit() -> Option<String> {
    let hash = output("git", &["rev-parse", "--short=12", "HEAD"])?;
    for name in ["HEAD", "logs/HEAD"] {
        let path = output("git", &["rev-parse", "--git-path", name])?;
        if Path::new(&path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    // A source edit anywhere in the workspace may turn a clean checkout into a dirty one.
    println!("cargo:rerun-if-changed=..");
    let dirty = output("git", &["status", "--porcelain", "--untracked-files=no", ".."]).is_some();
    Some(if dirty { format!("{hash}-dirty") } else { hash })
}

/// Standard output of a command, trimmed; none when it fails or says nothing.
fn output(program: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    (out.status.success() && !text.is_empty()).then_some(text)
}

fn set(name: &str, value: Option<String>) {
    println!("cargo:rustc-env={name}={}", value.unwrap_or_default());
}
