//! The tests of crates/sync under checkers of memory accesses. Each runs where its tool is installed.

use crate::process::{self, Outcome, cargo, nightly, target_dir, works};
use std::process::Command;

const HOST: &str = "x86_64-unknown-linux-gnu";
const NO_NIGHTLY: &str = "there is no nightly toolchain; `rustup toolchain install nightly` installs it";
const NO_SOURCE: &str = "the nightly toolchain has no source of the standard library; `rustup component add --toolchain \
                         nightly rust-src` installs it";
/// Not every nightly has it.
const NO_MIRI: &str = "the nightly toolchain has no Miri; `rustup component add --toolchain nightly miri` installs it, \
                       or says that this nightly comes without it";

/// Seeds of the schedule, and of the choices of the memory model, under Miri.
const SEEDS: &str = "0..8";

pub(crate) fn miri() -> Outcome {
    if !works(&mut nightly("--version")) {
        return Outcome::Skipped(NO_NIGHTLY.into());
    }
    if !works(&mut nightly("miri --version")) {
        return Outcome::Skipped(NO_MIRI.into());
    }
    if !library_source() {
        return Outcome::Skipped(NO_SOURCE.into());
    }
    let miri = |args: &str, flags: &str| {
        let mut miri = nightly("miri test --quiet --package rcuwalk-sync");
        miri.args(args.split_whitespace()).env("CARGO_TARGET_DIR", target_dir("miri"));
        process::run(miri.env("MIRIFLAGS", format!("-Zmiri-strict-provenance {flags}")))
    };
    // Left out: what takes minutes there and is plain arithmetic.
    miri("--lib -- --skip name:: --skip a_class_wastes", "")
        .and_then(|()| miri("--test stress", &format!("-Zmiri-many-seeds={SEEDS}")))
        .into()
}

pub(crate) fn asan() -> Outcome {
    sanitizer("address", "asan", "")
}

pub(crate) fn tsan() -> Outcome {
    if !library_source() {
        return Outcome::Skipped(NO_SOURCE.into());
    }
    // The standard library has to be instrumented too, or its locks look like races.
    sanitizer("thread", "tsan", "-Zbuild-std")
}

/// Whether the nightly can build a standard library of its own.
fn library_source() -> bool {
    let mut rustc = Command::new("rustup");
    rustc.args(["run", "nightly", "rustc", "--print", "sysroot"]).env_remove("RUSTUP_TOOLCHAIN");
    let sysroot = process::output(&mut rustc).unwrap_or_default();
    std::path::Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library").is_dir()
}

fn sanitizer(name: &str, dir: &str, build: &str) -> Outcome {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
        return Outcome::Skipped(format!("the sanitizers are run on {HOST} only"));
    }
    if !works(&mut nightly("--version")) {
        return Outcome::Skipped(NO_NIGHTLY.into());
    }
    let mut test = nightly("test --quiet --package rcuwalk-sync --lib --test stress --target");
    test.arg(HOST).args(build.split_whitespace()).env("CARGO_TARGET_DIR", target_dir(dir));
    process::rustflags(&mut test, &format!("-Zsanitizer={name}"));
    process::run(&mut test).into()
}

pub(crate) fn valgrind() -> Outcome {
    if !works(Command::new("valgrind").arg("--version")) {
        return Outcome::Skipped("valgrind is not installed (package valgrind)".into());
    }
    if !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
        return Outcome::Skipped(format!("valgrind is run on {HOST} only"));
    }
    let mut test = cargo("test --quiet --package rcuwalk-sync --lib --test stress");
    let runner = "valgrind --quiet --error-exitcode=9 --fair-sched=yes";
    process::run(test.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", runner)).into()
}
