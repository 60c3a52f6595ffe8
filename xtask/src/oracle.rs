//! The differential fuzzer of crates/oracle: on tmpfs, and on ext4 where a loop device is to be had.

use crate::process::{self, Outcome, target_dir, works};
use std::path::Path;
use std::process::Command;

/// Room for the file system, most of which stays a hole. Bytes.
const IMAGE: u64 = 1 << 29;

/// A stage compares so many calls,
const STAGE_CALLS: u64 = 300_000;
/// or what can be compared in this time. Seconds.
const STAGE_TIME: u64 = 50;

/// A bounded run, always of the same programs: what else there is to find is found by other seeds, not by chance here.
pub(crate) fn stage(ext4: bool) -> Outcome {
    run(STAGE_CALLS, Some(STAGE_TIME), 1, ext4)
}

/// Compares `calls` calls, or what can be compared in `seconds`, on tmpfs or on an ext4 file system of its own.
pub(crate) fn run(calls: u64, seconds: Option<u64>, seed: u64, ext4: bool) -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        return Outcome::Skipped("the host's side needs root: its tasks become other users".into());
    }
    let program = match process::program("rcuwalk-oracle") {
        Ok(program) => program,
        Err(why) => return Outcome::Failed(why),
    };
    let fuzz = |command: &mut Command| {
        command.args(["fuzz", "--ops", &calls.to_string(), "--seed", &seed.to_string()]);
        if let Some(seconds) = seconds {
            command.args(["--seconds", &seconds.to_string()]);
        }
    };
    if ext4 {
        return on_ext4(&program, &fuzz);
    }
    let mut command = Command::new(&program);
    fuzz(&mut command);
    process::run(&mut command).into()
}

/// What runs in a mount namespace of its own: with that, mount and loop device go when it ends.
const INSIDE: &str = r#"mount -o loop "$1" "$2" && shift 2 && exec "$@""#;

fn on_ext4(program: &Path, fuzz: &dyn Fn(&mut Command)) -> Outcome {
    let (image, mount) = (target_dir("fuzz-ext4.img"), target_dir("fuzz-ext4"));
    let made = std::fs::create_dir_all(&mount)
        .and_then(|()| std::fs::File::create(&image))
        .and_then(|file| file.set_len(IMAGE));
    if let Err(error) = made {
        return Outcome::Failed(format!("{}: {error}", image.display()));
    }
    // With room for values of attributes beyond a block, which tmpfs has.
    if !works(Command::new("mkfs.ext4").args(["-q", "-F", "-O", "ea_inode"]).arg(&image)) {
        return Outcome::Skipped("no ext4 file system can be made (mkfs.ext4 is in e2fsprogs)".into());
    }
    let inside = || {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", INSIDE, "sh"]);
        command.arg(&image).arg(&mount);
        command
    };
    if !works(inside().arg("true")) {
        return Outcome::Skipped("no ext4 file system can be mounted: no loop device, or no right to".into());
    }
    let mut command = inside();
    command.arg(program);
    fuzz(&mut command);
    let outcome = process::run(command.arg("--dir").arg(&mount)).into();
    // It is made anew each time.
    let _ = std::fs::remove_file(&image);
    outcome
}
