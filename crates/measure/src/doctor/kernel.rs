//! What can be read about the running kernel.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

use crate::machine::Machine;

/// The configuration that the kernel was built with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The file it was read from.
    pub source: String,
    text: String,
}

/// More than any configuration has.
const MOST: u64 = 16 << 20;

impl Config {
    /// The configuration of the running kernel, `release`, if a file that shows it can be read.
    pub fn read(release: &str) -> Option<Config> {
        let packed = File::open("/proc/config.gz").ok().and_then(|file| {
            let mut text = String::new();
            flate2::read::GzDecoder::new(file).take(MOST).read_to_string(&mut text).ok()?;
            Some(Config { source: "/proc/config.gz".into(), text })
        });
        packed.or_else(|| {
            let places = ["/boot/config-{}", "/lib/modules/{}/config", "/usr/lib/modules/{}/config"];
            places.iter().find_map(|place| {
                let source = place.replace("{}", release);
                let mut text = String::new();
                File::open(&source).ok()?.take(MOST).read_to_string(&mut text).ok()?;
                Some(Config { source, text })
            })
        })
    }

    /// The value of an option, given without `CONFIG_`: `y`, `n`, a number; none for an option that it does not have.
    pub fn get(&self, option: &str) -> Option<&str> {
        self.text.lines().find_map(|line| {
            let rest = line.strip_prefix("# CONFIG_").or_else(|| line.strip_prefix("CONFIG_"))?;
            let rest = rest.strip_prefix(option)?;
            rest.strip_prefix('=').or_else(|| (rest == " is not set").then_some("n"))
        })
    }
}

/// What bears on the questions.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    /// Major and minor version.
    pub(super) version: Option<(u32, u32)>,
    /// Whether objects are cleared when allocated, and how that is known.
    pub(super) init_on_alloc: Option<(bool, String)>,
    /// Bytes of a names_cache object.
    pub(super) names_cache: Option<u64>,
    /// Processors that masks have room for.
    pub(super) nr_cpus: Option<u32>,
    /// Processors that may ever be there.
    pub(super) possible: Option<u32>,
    /// Whether masks are allocated apart (`CONFIG_CPUMASK_OFFSTACK`).
    pub(super) offstack: Option<bool>,
    /// Whether the kernel was told to leave mitigations away.
    pub(super) mitigations_off: bool,
}

impl Facts {
    pub(super) fn read(machine: &Machine, config: Option<&Config>) -> Facts {
        let text = |path: &str| fs::read_to_string(path).ok();
        let number = |path: &str| text(path)?.trim().parse::<u64>().ok();
        let command_line = text("/proc/cmdline").unwrap_or_default();
        Facts {
            version: version(&machine.kernel),
            init_on_alloc: init_on_alloc(boot_message().as_deref(), &command_line, config),
            names_cache: number("/sys/kernel/slab/names_cache/object_size"),
            nr_cpus: number("/sys/devices/system/cpu/kernel_max")
                .and_then(|last| u32::try_from(last + 1).ok()),
            possible: text("/sys/devices/system/cpu/possible")
                .as_deref()
                .and_then(last_of_list)
                .map(|last| last + 1),
            offstack: config.map(|config| config.get("CPUMASK_OFFSTACK") == Some("y")),
            mitigations_off: command_line.split_ascii_whitespace().any(|word| word == "mitigations=off"),
        }
    }
}

/// `6.18.44-anything` as (6, 18).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The last number of a list like `0-3,8-11`.
fn last_of_list(list: &str) -> Option<u32> {
    list.trim().rsplit(['-', ',']).next()?.parse().ok()
}

/// What the kernel said about clearing memory when it started: `mem auto-init: stack:off, heap alloc:off, heap free:off`.
fn boot_message() -> Option<String> {
    // Each read gives one record. Kernel: Documentation/ABI/testing/dev-kmsg.
    let mut messages = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg").ok()?;
    let mut record = [0; 8192];
    for _ in 0..100_000 {
        match messages.read(&mut record) {
            Ok(n) => {
                let text = String::from_utf8_lossy(&record[..n]);
                if let Some(at) = text.find("mem auto-init:") {
                    return Some(text[at..].lines().next().unwrap_or_default().to_owned());
                }
            }
            // Overwritten before it was read.
            Err(e) if e.raw_os_error() == Some(libc::EPIPE) || e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    None
}

fn init_on_alloc(boot: Option<&str>, command_line: &str, config: Option<&Config>) -> Option<(bool, String)> {
    if let Some(state) = boot.and_then(|text| text.split_once("heap alloc:")).map(|(_, rest)| rest) {
        return Some((state.starts_with("on"), "the kernel said so when it started".into()));
    }
    let asked =
        command_line.split_ascii_whitespace().rev().find_map(|word| word.strip_prefix("init_on_alloc="));
    match asked {
        Some("1" | "y" | "on") => return Some((true, "init_on_alloc=1 on the kernel's command line".into())),
        Some("0" | "n" | "off") => {
            return Some((false, "init_on_alloc=0 on the kernel's command line".into()));
        }
        _ => {}
    }
    let default = config?.get("INIT_ON_ALLOC_DEFAULT_ON")?;
    let what = if default == "y" { "set" } else { "not set" };
    Some((
        default == "y",
        format!("CONFIG_INIT_ON_ALLOC_DEFAULT_ON is {what}, and the command line says nothing"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config { source: "test".into(), text: text.into() }
    }

    #[test]
    fn options_are_read_whole() {
        let config = config(
            "CONFIG_NR_CPUS=64\nCONFIG_NR_CPUS_RANGE_END=512\n# CONFIG_MAXSMP is not set\nCONFIG_SMP=y\n",
        );
        assert_eq!(config.get("NR_CPUS"), Some("64"));
        assert_eq!(config.get("MAXSMP"), Some("n"));
        assert_eq!(config.get("SMP"), Some("y"));
        assert_eq!(config.get("NR"), None);
    }

    #[test]
    fn versions_and_lists() {
        assert_eq!(version("6.18.44-fc-v1"), Some((6, 18)));
        assert_eq!(version("7.0-rc1"), Some((7, 0)));
        assert_eq!(version("unknown"), None);
        assert_eq!(last_of_list("0-3,8-11\n"), Some(11));
        assert_eq!(last_of_list("0"), Some(0));
        assert_eq!(last_of_list(""), None);
    }

    #[test]
    fn what_runs_counts_before_what_was_asked_before_what_was_built() {
        let on = config("CONFIG_INIT_ON_ALLOC_DEFAULT_ON=y\n");
        let off = config("# CONFIG_INIT_ON_ALLOC_DEFAULT_ON is not set\n");
        let said =
            |boot: Option<&str>, line: &str, config| init_on_alloc(boot, line, config).map(|(on, _)| on);
        let boot = Some("mem auto-init: stack:off, heap alloc:off, heap free:off");
        assert_eq!(said(boot, "init_on_alloc=1", Some(&on)), Some(false));
        assert_eq!(said(None, "quiet init_on_alloc=0", Some(&on)), Some(false));
        assert_eq!(said(None, "init_on_alloc=0 init_on_alloc=1", None), Some(true));
        assert_eq!(said(None, "quiet", Some(&on)), Some(true));
        assert_eq!(said(None, "quiet", Some(&off)), Some(false));
        assert_eq!(said(None, "quiet", None), None);
    }
}
