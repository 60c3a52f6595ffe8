//! The facts about the machine and the build that a figure needs beside it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity};
use serde::Serialize;

use crate::error::Error;

/// The commit this program was built from; none outside a git checkout.
pub const COMMIT: Option<&str> = non_empty(env!("RCUWALK_COMMIT"));

/// The compiler that built it.
pub const RUSTC: &str = env!("RCUWALK_RUSTC");

const fn non_empty(text: &str) -> Option<&str> {
    if text.is_empty() { None } else { Some(text) }
}

/// The type of the file system that holds `path`, as `ext4`; empty where `/proc` does not tell.
pub fn fstype_of(path: &Path) -> String {
    let mounts = rcuwalk_host::mounts().unwrap_or_default();
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    rcuwalk_host::mount_of(&mounts, &path).map_or_else(String::new, |mount| mount.fs_type.clone())
}

/// Machine, kernel and build of one record.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Start of the run, UTC, RFC 3339.
    pub date: String,
    /// Processor model as the kernel names it.
    pub cpu: String,
    /// Processors this process may run on.
    pub cores: usize,
    /// Whether the processor says that a hypervisor lies below.
    pub virtualised: bool,
    /// Memory in KiB.
    pub memory_kib: u64,
    /// Kernel release.
    pub kernel: String,
    /// Kernel build (`uname -v`).
    pub kernel_version: String,
    /// Machine type (`uname -m`).
    pub arch: String,
    /// What the kernel does about each processor flaw that affects this machine; unaffected ones are left out.
    pub mitigations: BTreeMap<String, String>,
    /// Transparent huge pages: the mode in force.
    pub thp: String,
    /// Compiler.
    pub rustc: String,
    /// Target triple.
    pub target: String,
    /// Build profile and optimisation level, as `release, opt-level 3`.
    pub profile: String,
    /// Commit, with `-dirty` where tracked files differed.
    pub commit: Option<String>,
}

impl Machine {
    /// A line for people: processor, cores and kernel.
    pub fn summary(&self) -> String {
        format!("{}, {} cores, Linux {}\n", self.cpu, self.cores, self.kernel)
    }

    /// Reads the facts of the running machine. A fact that cannot be read is an empty string, never an error.
    pub fn read() -> Machine {
        let uname = rustix::system::uname();
        let text = |value: &std::ffi::CStr| value.to_string_lossy().into_owned();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Machine {
            date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            cpu: cpu_model(&cpuinfo),
            cores: allowed_cpus().map_or(1, |cpus| cpus.len()),
            virtualised: cpuinfo.split_ascii_whitespace().any(|flag| flag == "hypervisor"),
            memory_kib: memory_kib(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
            kernel: text(uname.release()),
            kernel_version: text(uname.version()),
            arch: text(uname.machine()),
            mitigations: mitigations(),
            thp: bracketed(
                &fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default(),
            ),
            rustc: RUSTC.to_owned(),
            target: env!("RCUWALK_TARGET").to_owned(),
            profile: format!("{}, opt-level {}", env!("RCUWALK_PROFILE"), env!("RCUWALK_OPT_LEVEL")),
            commit: COMMIT.map(str::to_owned),
        }
    }
}

/// The processors this process may run on, ascending.
///
/// # Errors
///
/// What `sched_getaffinity(2)` answers.
pub fn allowed_cpus() -> Result<Vec<usize>, Error> {
    let set = sched_getaffinity(None)
        .map_err(|e| Error::host("asking for the processors of this process", "sched_getaffinity", e, ""))?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

fn cpu_model(cpuinfo: &str) -> String {
    ["model name", "Model", "Hardware", "CPU part"]
        .iter()
        .find_map(|key| {
            let line =
                cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|k| k.trim() == *key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_default()
}

fn memory_kib(meminfo: &str) -> u64 {
    meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_ascii_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

fn mitigations() -> BTreeMap<String, String> {
    let Ok(dir) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else { return BTreeMap::new() };
    dir.flatten()
        .filter_map(|entry| {
            let state = fs::read_to_string(entry.path()).ok()?.trim().to_owned();
            let name = entry.file_name().to_string_lossy().into_owned();
            (state != "Not affected").then_some((name, state))
        })
        .collect()
}

/// The word in brackets of a sysfs choice: `always [madvise] never`.
fn bracketed(text: &str) -> String {
    text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(word, _)| word).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_kernel_texts() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nflags\t: x y\n"), "A CPU @ 2 GHz");
        assert_eq!(cpu_model(""), "");
        assert_eq!(memory_kib("MemTotal:       24684084 kB\nMemFree: 1 kB\n"), 24_684_084);
        assert_eq!(bracketed("always [madvise] never"), "madvise");
        assert_eq!(bracketed("nothing"), "");
    }

    #[test]
    fn every_path_has_a_file_system() {
        assert_eq!(fstype_of(Path::new("/proc/self")), "proc");
        assert!(!fstype_of(Path::new("/")).is_empty());
    }

    #[test]
    fn this_machine_has_a_kernel_and_a_cpu() {
        let machine = Machine::read();
        assert!(!machine.kernel.is_empty());
        assert!(machine.cores >= 1);
        assert!(machine.rustc.starts_with("rustc "));
        assert!(machine.date.ends_with('Z') && machine.date.len() == 20, "{}", machine.date);
    }
}
