//! What the tests of the command share.
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// The command, in a clean environment as far as it looks at one.
pub(crate) fn rcuwalk<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rcuwalk"));
    command.args(args).env_remove("NO_COLOR").env("TZ", "UTC");
    command
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// A small tree with one thing of each kind that an unprivileged user can make; everybody may look around.
///
/// ```text
/// etc/open      0644   "hello"
/// etc/secret    0600
/// etc/link      -> open
/// shut/         0700
/// shut/in       0644
/// run           0755
/// ```
pub(crate) fn sample() -> TempDir {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let top = temp.path();
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for (name, bits) in [("", 0o755), ("etc", 0o755), ("shut", 0o700)] {
        fs::create_dir_all(top.join(name)).unwrap();
        mode(&top.join(name), bits);
    }
    for (name, text, bits) in [
        ("etc/open", "hello", 0o644),
        ("etc/secret", "", 0o600),
        ("shut/in", "x", 0o644),
        ("run", "x", 0o755),
    ] {
        fs::write(top.join(name), text).unwrap();
        mode(&top.join(name), bits);
    }
    symlink("open", top.join("etc/link")).unwrap();
    temp
}
