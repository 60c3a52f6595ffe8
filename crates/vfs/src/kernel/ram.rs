//! How much memory there is, for sizes in percent of it.

use crate::base::errno::{Errno, Result};
use crate::dcache::store::Namespace;
use crate::tmpfs::pages::PAGE_SIZE;
use rcuwalk_sync::Budget;

/// So many percent of the memory there is, in pages: of the limit that the file system was built with, or of what the machine has.
///
/// # Errors
///
/// `EIO` if there is no limit, and the machine does not say in `/proc/meminfo` what it has.
///
/// Kernel: mm/shmem.c `shmem_parse_one()`.
pub(crate) fn pages_of_percent(ns: &Namespace, percent: u64) -> Result<u64> {
    let total = total(ns.mnt.memory.as_deref()).ok_or(Errno::EIO)?;
    let bytes = u128::from(total) * u128::from(percent) / 100;
    Ok(u64::try_from(bytes.div_ceil(PAGE_SIZE as u128)).unwrap_or(u64::MAX))
}

/// Half of the memory there is, in pages; `None` if that cannot be known. Kernel: mm/shmem.c `shmem_default_max_blocks()`.
pub(crate) fn half(limit: Option<&Budget>) -> Option<u64> {
    total(limit).map(|bytes| bytes / PAGE_SIZE as u64 / 2)
}

/// Bytes of memory there are: the limit that the file system was built with, or what the machine has.
fn total(limit: Option<&Budget>) -> Option<u64> {
    limit.map_or_else(machine, |limit| Some(limit.limit()))
}

/// Bytes of memory that the running machine has.
fn machine() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cred, Vfs};

    #[test]
    fn a_size_in_percent_is_of_the_limit_or_of_the_machine() {
        let blocks = |vfs: &Vfs| {
            let root = vfs.task(Cred::root());
            root.mkdir(b"/m", 0o755)?;
            root.mount(b"none", b"/m", b"tmpfs", 0, b"size=50%")?;
            root.statfs(b"/m").map(|stat| stat.blocks)
        };
        let limited = Vfs::builder().memory_limit(64 << 20).build().expect("an engine");
        assert_eq!(blocks(&limited), Ok((32 << 20) / 4096));
        let free = Vfs::new().expect("an engine");
        let half = machine().expect("a machine that says how much memory it has") / 2;
        assert_eq!(blocks(&free), Ok(half.div_ceil(4096)));
    }
}
