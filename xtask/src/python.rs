//! The Python package, as a user gets it: into a fresh virtual environment, and then its tests.

use crate::process::{self, Outcome, root, works};
use std::path::Path;
use std::process::Command;

/// Installs the package from this tree and runs its tests against what was installed.
pub(crate) fn run() -> Outcome {
    let mut modules = Command::new("python3");
    modules.args(["-c", "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"]);
    if !works(&mut modules) {
        return Outcome::Skipped(
            "python3 of version 3.11 or newer with venv and pip is not installed".into(),
        );
    }
    let venv = process::target_dir("python-venv");
    let result = install_and_test(&venv);
    // Whatever comes next starts afresh, too; the outcome is what counts.
    drop(std::fs::remove_dir_all(&venv));
    result.into()
}

fn install_and_test(venv: &Path) -> Result<(), String> {
    let package = root().join("crates/python");
    process::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(venv))?;
    let python = venv.join("bin/python");
    // The profile that other stages have built already; one thing built twice would be one too many.
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    install.arg("--config-settings=build-args=--profile=dev").arg(format!("{}[test]", package.display()));
    install.env("CARGO_TARGET_DIR", process::target_dir(""));
    process::run(&mut install)?;
    let mut pytest = Command::new(&python);
    pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).current_dir(&package);
    process::run(&mut pytest)
}
