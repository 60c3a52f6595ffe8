//! The host kernel as a backend: raw calls in a private mount namespace.
//!
//! A world is a process with a mount namespace of its own whose root is a fresh tmpfs (or a fresh directory of a mount
//! under test); nothing else is mounted there, so no row reaches anything outside. Each task is a process of its own
//! with the real ids, capabilities and securebits of its identity; it takes calls over a socket, makes them, answers.

mod exec;
mod sweep;
mod task;
mod world;

#[cfg(feature = "engine")]
pub(crate) use exec::program;
#[cfg(feature = "engine")]
pub(crate) use task::{receive, send};
#[cfg(feature = "engine")]
pub(crate) use world::HostWorld;

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::backend::{Backend, World};
use crate::case::Case;
use crate::need::Need;
use crate::op::Op;
use crate::sys::SingleThreaded;

/// Where worlds are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A fresh tmpfs for each.
    Tmpfs,
    /// A fresh subdirectory of this directory for each, removed when it ends.
    Dir(PathBuf),
}

impl Place {
    /// Removes what runs that were killed have left here.
    ///
    /// # Errors
    ///
    /// What is left and why it could not be removed.
    pub fn prepare(&self) -> Result<(), String> {
        match self {
            Place::Tmpfs => Ok(()),
            Place::Dir(dir) => sweep::remove_abandoned(dir),
        }
    }

    /// Removes what the world of process `pid`, which has ended, has left here.
    ///
    /// # Errors
    ///
    /// What is left and why it could not be removed.
    pub fn clean_up(&self, pid: u32) -> Result<(), String> {
        match self {
            Place::Tmpfs => Ok(()),
            Place::Dir(dir) => sweep::remove(dir, &sweep::name_of(pid)),
        }
    }
}

/// The host kernel.
#[derive(Clone, Debug)]
pub struct Host {
    single: SingleThreaded,
    place: Place,
    sysctl: bool,
    lacking: BTreeSet<Need>,
    name: String,
}

impl Host {
    /// The host kernel, with worlds in `place`. `sysctl` allows rows that flip machine-wide settings.
    ///
    /// # Errors
    ///
    /// If the process is not root, or `place` is no directory.
    pub fn new(single: SingleThreaded, place: Place, sysctl: bool) -> Result<Host, String> {
        if !is_root() {
            return Err(
                "rows on a kernel need root: they take on any identity and mount a tmpfs of their own \
                        (try `unshare -Ur` only for the engine)"
                    .to_owned(),
            );
        }
        let mut lacking = BTreeSet::new();
        if let Place::Dir(dir) = &place {
            if !dir.is_dir() {
                return Err(format!("{} is not a directory", dir.display()));
            }
            place.prepare()?;
            lacking.insert(Need::Tmpfs);
        }
        let name = match &place {
            Place::Tmpfs => "host".to_owned(),
            Place::Dir(dir) => format!("dir:{}", dir.display()),
        };
        Ok(Host { single, place, sysctl, lacking, name })
    }

    /// Takes a name by which divergences know the file system, wherever it is mounted.
    #[must_use]
    pub fn known_as(self, name: &str) -> Host {
        Host { name: name.to_owned(), ..self }
    }

    /// Declines rows that need any of `needs`: for a file system under test that does not claim to support them.
    #[must_use]
    pub fn without(mut self, needs: &[Need]) -> Host {
        self.lacking.extend(needs);
        self
    }
}

/// Puts machine-wide settings back when it is dropped, whatever has become of the rows that changed them.
#[derive(Debug)]
pub struct SettingsGuard(Vec<(PathBuf, String)>);

impl SettingsGuard {
    /// Notes the present values of the settings that `cases` change.
    ///
    /// # Errors
    ///
    /// If a setting cannot be read.
    pub fn new(cases: &[Case]) -> std::io::Result<SettingsGuard> {
        let paths: BTreeSet<PathBuf> = cases.iter().flat_map(settings_of).collect();
        let read = |path: PathBuf| std::fs::read_to_string(&path).map(|value| (path, value));
        Ok(SettingsGuard(paths.into_iter().map(read).collect::<std::io::Result<_>>()?))
    }
}

/// The files below `/proc/sys` that a row writes.
fn settings_of(case: &Case) -> impl Iterator<Item = PathBuf> {
    case.setup.iter().chain(&case.calls).filter_map(|step| match &step.op {
        Op::Sysctl { name, .. } => Some(PathBuf::from(format!("/proc/sys/{}", name.0.replace('.', "/")))),
        _ => None,
    })
}

impl Drop for SettingsGuard {
    fn drop(&mut self) {
        for (path, value) in &self.0 {
            if std::fs::read_to_string(path).is_ok_and(|now| now == *value) {
                continue;
            }
            if let Err(e) = std::fs::write(path, value.trim()) {
                eprintln!("could not restore {} to {value}: {e}", path.display());
            }
        }
    }
}

/// True if the effective user id is 0 and the capabilities that worlds need are there.
pub fn is_root() -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return false };
    let line = |key: &str| status.lines().find_map(|l| l.strip_prefix(key)).map(str::trim);
    let caps = line("CapEff:").and_then(|c| u64::from_str_radix(c, 16).ok()).unwrap_or(0);
    let uid = line("Uid:").and_then(|u| u.split_whitespace().nth(1)).unwrap_or("");
    // CHOWN, DAC_OVERRIDE, FOWNER, FSETID, SETGID, SETUID, SETPCAP, SYS_CHROOT, SYS_ADMIN, MKNOD
    let wanted = [0, 1, 3, 4, 6, 7, 8, 18, 21, 27].iter().fold(0, |set, bit| set | 1_u64 << bit);
    uid == "0" && caps & wanted == wanted
}

impl Backend for Host {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn declines(&self, case: &Case) -> Option<String> {
        if case.needs.contains(&Need::Sysctl) && !self.sysctl {
            return Some("changes a machine-wide setting; run with --sysctl".to_owned());
        }
        // `/proc/sys/user` needs CAP_SYS_RESOURCE, which a container's root may lack.
        let locked = |path: &PathBuf| std::fs::OpenOptions::new().write(true).open(path).is_err();
        if let Some(path) = settings_of(case).find(locked) {
            return Some(format!("{} cannot be written here", path.display()));
        }
        let lacking: Vec<&str> = case.needs.intersection(&self.lacking).map(|n| n.name()).collect();
        (!lacking.is_empty()).then(|| format!("needs {}", lacking.join(", ")))
    }

    fn retries(&self) -> u32 {
        2
    }

    fn clean_up(&self, pid: u32) -> Result<(), String> {
        self.place.clean_up(pid)
    }

    fn world(&self) -> Result<Box<dyn World>, String> {
        Ok(Box::new(world::HostWorld::new(&self.single, &self.place)?))
    }
}
