//! `cargo x mounts`: the same work on a tmpfs, on mounts of rcuwalk and on other file systems in user space, side by side.
//! `cargo x tenants`: hostile tenants, on the engine and on this kernel.

use crate::place::Place;
use crate::process::{self, Outcome, cargo, target_dir};
use crate::records;
use std::path::Path;

pub(crate) fn run(quick: bool) -> Outcome {
    if !nix::unistd::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return Outcome::Skipped("mounting file systems for all users needs root and /dev/fuse".into());
    }
    measure(quick).into()
}

/// With everything mounted at once, so that it can take turns.
fn measure(quick: bool) -> Result<(), String> {
    process::run(&mut cargo("build --quiet --release --package rcuwalk-cli"))?;
    let mut bench = cargo("run --quiet --release --package rcuwalk-lab -- mounts");
    let mut mounted = Vec::new();
    for place in Place::ours(|_| true).into_iter().chain(Place::peers()) {
        match place.prepare(&target_dir("release/rcuwalk")) {
            Ok(ready) => {
                bench.arg(format!("{}={}", place.name(), ready.path().display()));
                mounted.push(ready);
            }
            Err(why) if place.judged() => return Err(why),
            Err(why) => println!("{}: {why}", place.name()),
        }
    }
    if quick {
        bench.arg("--quick");
    } else {
        bench.args(["--json", "--output", &records::today("mounts")?]);
    }
    process::run(&mut bench)
}

/// Hostile tenants, on the engine and on this kernel.
pub(crate) fn tenants(quick: bool) -> Outcome {
    let measure = || {
        let mut lab = cargo("run --quiet --release --package rcuwalk-lab -- tenants");
        if quick {
            lab.arg("--quick");
        } else {
            lab.args(["--json", "--output", &records::today("tenants")?]);
        }
        process::run(&mut lab)
    };
    measure().into()
}
