//! Running other programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the last line of a task begins with that failed.
pub(crate) const FAILED: &str = "cargo x: ";

/// What the last line of a task begins with that this machine cannot do, and its exit status.
pub(crate) const SKIPPED: &str = "cargo x: not run: ";
pub(crate) const EXIT_SKIPPED: u8 = 2;

/// The packages that every build of tests and programs chooses. With fewer of them, cargo chooses fewer features of what they
/// depend on, and builds that, and all that stands on it, once more. Parquet, which a plain build of the command lacks, is tested too.
///
/// The Python extension is left to the stage `python`: its library is linked with no interpreter, so no test of it runs.
pub(crate) const WORKSPACE: &str = "--workspace --exclude rcuwalk-python --features rcuwalk-cli/parquet";

/// What is built as users build it: the command, and the probe whose lookups are stepped through. One choice, as above.
pub(crate) const RELEASE: &str =
    "--release --package rcuwalk-cli --package rcuwalk-bench --bin rcuwalk --example lookups";

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It holds.
    Passed,
    /// It does not, or could not be found out.
    Failed(String),
    /// This machine cannot tell, for this reason.
    Skipped(String),
}

impl From<Result<(), String>> for Outcome {
    fn from(result: Result<(), String>) -> Outcome {
        result.map_or_else(Outcome::Failed, |()| Outcome::Passed)
    }
}

/// The top of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Where a build of this kind goes: builds with other flags would otherwise throw each other away.
pub(crate) fn target_dir(kind: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    root().join(target).join(kind)
}

/// `cargo`, with the arguments in `args`, separated by blanks.
pub(crate) fn cargo(args: &str) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(args.split_whitespace()).stdin(Stdio::null());
    cargo
}

/// Builds a program of the workspace, as the tests have built it, and names it.
pub(crate) fn program(name: &str) -> Result<PathBuf, String> {
    run(&mut cargo(&format!("build --quiet {WORKSPACE} --bin {name}")))?;
    Ok(target_dir("debug").join(name))
}

/// `cargo` of the nightly toolchain.
pub(crate) fn nightly(args: &str) -> Command {
    let mut cargo = Command::new("rustup");
    cargo.args(["run", "nightly", "cargo"]).args(args.split_whitespace()).stdin(Stdio::null());
    // What the outer cargo set for its own toolchain.
    cargo.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN");
    cargo
}

/// Adds to the compiler flags that the caller of `cargo x` has set.
pub(crate) fn rustflags(command: &mut Command, flags: &str) {
    let given = std::env::var("RUSTFLAGS").unwrap_or_default();
    command.env("RUSTFLAGS", format!("{given} {flags}").trim());
}

/// The command as a person would type it.
pub(crate) fn show(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Shows the command, runs it with its output shown, and fails if it does.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let shown = show(command);
    println!("$ {shown}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{shown}` failed: {status}")),
        Err(error) => Err(format!("`{shown}`: {error}")),
    }
}

/// What the command prints; fails if it does.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let shown = show(command);
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("`{shown}`: {error}"))?;
    if !output.status.success() {
        return Err(format!("`{shown}` failed: {}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether the command runs and succeeds; it shows nothing.
pub(crate) fn works(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
