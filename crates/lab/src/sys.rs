//! Memory of this process, copied to and from by system calls.
#![allow(unsafe_code)]

use rcuwalk::syscall::UserMemory;
use rcuwalk::{Errno, Result};
use rcuwalk_host::ProcessMemory;
use std::sync::atomic::AtomicU8;

/// Bytes of this process, each at its own address; all other addresses are `EFAULT`.
pub(crate) struct OwnCells<'a> {
    cells: Vec<&'a [AtomicU8]>,
    memory: ProcessMemory,
}

impl<'a> OwnCells<'a> {
    pub(crate) fn new(cells: &[&'a [AtomicU8]]) -> OwnCells<'a> {
        // SAFETY:
        // 1. `check` lets through what lies within `cells` alone: atomics, which any bytes are valid for, and which others may
        //    refer to. `run` of each measurement is the only one that uses them, one call at a time.
        // 2. This process is there as long as it runs.
        let memory = unsafe { ProcessMemory::of(std::process::id()) };
        OwnCells { cells: cells.to_vec(), memory }
    }

    fn check(&self, address: u64, len: usize) -> Result<()> {
        let holds = |cells: &&[AtomicU8]| {
            let range = cells.as_ptr_range();
            let (start, end) = (range.start as u64, range.end as u64);
            start <= address && address.checked_add(len as u64).is_some_and(|last| last <= end)
        };
        if self.cells.iter().any(holds) { Ok(()) } else { Err(Errno::EFAULT) }
    }
}

impl UserMemory for OwnCells<'_> {
    fn copy_from_user(&mut self, to: &mut [u8], from: u64) -> Result<()> {
        self.check(from, to.len())?;
        self.memory.copy_from_user(to, from)
    }

    fn copy_to_user(&mut self, to: u64, from: &[u8]) -> Result<()> {
        self.check(to, from.len())?;
        self.memory.copy_to_user(to, from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn only_the_cells_are_reached() {
        let cells = [const { AtomicU8::new(7) }; 8];
        let beside = [1_u8; 8];
        let at = cells.as_ptr() as u64;
        let mut own = OwnCells::new(&[&cells[2..6]]);
        assert_eq!(own.copy_to_user(at + 2, &[1, 2, 3, 4]), Ok(()));
        assert_eq!(cells.each_ref().map(|cell| cell.load(Ordering::Relaxed)), [7, 7, 1, 2, 3, 4, 7, 7]);
        let mut to = [0; 2];
        assert_eq!((own.copy_from_user(&mut to, at + 4), to), (Ok(()), [3, 4]));
        for (address, len) in
            [(at + 1, 2), (at + 5, 2), (at + 6, 1), (beside.as_ptr() as u64, 1), (u64::MAX, 2)]
        {
            assert_eq!(own.copy_to_user(address, &[9, 9][..len]), Err(Errno::EFAULT));
            assert_eq!(own.copy_from_user(&mut to[..len], address), Err(Errno::EFAULT));
        }
    }
}
