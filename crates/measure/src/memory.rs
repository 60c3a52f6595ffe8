//! Resident memory of this process.

use std::fs;

/// Resident bytes of data, with free heap given back first; 0 where `/proc` does not tell. The program's own code and
/// other mapped files do not count.
pub fn resident_bytes() -> u64 {
    crate::sys::trim_heap();
    // The rolled-up map is exact; statm lags behind by the per-processor batches of the counters.
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    if let Some(kib) = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:")).and_then(first_number)
    {
        return kib * 1024;
    }
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(first_number).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

fn first_number(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sees_memory_come_and_go() {
        let before = resident_bytes();
        let block = std::hint::black_box(vec![1_u8; 64 << 20]);
        let during = resident_bytes();
        assert!(during >= before + (60 << 20), "{before} {during}");
        drop(block);
        assert!(resident_bytes() + (60 << 20) <= during);
    }
}
