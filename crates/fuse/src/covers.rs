//! Whether something is mounted within the tree: what the kernel forgets there, it unmounts.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Looks at every mount namespace that a process is in.
#[derive(Debug, Default)]
pub(crate) struct Covers {
    /// The device number of the mounted tree, as `/proc/PID/mountinfo` has it.
    device: OnceLock<String>,
    /// Something was mounted there once: it is not looked for again.
    found: Mutex<bool>,
}

impl Covers {
    /// The tree is mounted now, as this device.
    pub(crate) fn set_device(&self, device: u64) {
        let _ = self.device.set(format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device)));
    }

    /// Whether something may be mounted within the tree.
    pub(crate) fn may_exist(&self) -> bool {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        *found = *found || self.device.get().is_none_or(|device| anywhere(device).unwrap_or(true));
        *found
    }
}

/// # Errors
///
/// Those of reading `/proc`. A process that may not be looked at is passed over: root may look at all of them.
fn anywhere(device: &str) -> io::Result<bool> {
    let mut namespaces = HashSet::new();
    for process in fs::read_dir("/proc")? {
        let process = process?.path();
        let Ok(namespace) = fs::read_link(process.join("ns/mnt")) else { continue };
        if namespaces.insert(namespace)
            && let Ok(mounts) = fs::read_to_string(process.join("mountinfo"))
            && covered(device, &mounts)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether one of the mounts in a `mountinfo` lies on a mount of the device.
fn covered(device: &str, mounts: &str) -> bool {
    let fields = || {
        mounts
            .lines()
            .filter_map(|line| <[&str; 3]>::try_from(line.splitn(4, ' ').take(3).collect::<Vec<_>>()).ok())
    };
    let ours: HashSet<&str> = fields().filter(|[_, _, of]| *of == device).map(|[id, ..]| id).collect();
    fields().any(|[_, parent, _]| ours.contains(parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_on_the_tree_is_found() {
        let tree = "30 1 0:40 / /mnt rw - fuse.rcuwalk none rw\n";
        assert!(!covered("0:40", tree));
        assert!(!covered("0:40", &format!("{tree}31 1 0:41 / /other rw - tmpfs x rw\n")));
        assert!(covered("0:40", &format!("{tree}31 30 0:41 / /mnt/x rw - tmpfs x rw\n")));
        assert!(covered("0:40", &format!("31 30 0:40 /y /mnt/x rw - fuse.rcuwalk none rw\n{tree}")));
        assert!(!covered("0:4", &format!("{tree}31 30 0:41 / /mnt/x rw - tmpfs x rw\n")));
    }

    #[test]
    fn this_machine_is_looked_at() {
        let covers = Covers::default();
        assert!(covers.may_exist(), "before it is mounted nothing is known");
        assert!(!anywhere("4095:1048575").expect("/proc can be read"));
        assert!(
            anywhere(&{
                let root = rustix::fs::stat("/").expect("stat").st_dev;
                format!("{}:{}", rustix::fs::major(root), rustix::fs::minor(root))
            })
            .expect("/proc can be read")
        );
    }
}
