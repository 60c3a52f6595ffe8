//! What the kernel knows: inodes by number, each held by a descriptor.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rcuwalk::uapi::*;
use rcuwalk::{Errno, Result, Stat, Task};

/// The number of the root, which is also its inode's.
pub(crate) const ROOT: u64 = 1;

/// An inode that the kernel has references to.
#[derive(Debug)]
struct Node {
    /// Stands for the inode and keeps it, whatever becomes of its names.
    place: i32,
    /// References of the kernel.
    lookups: u64,
    /// For I/O without an open file; opened when first needed.
    data: [Option<i32>; 3],
}

/// Which I/O a descriptor is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    Read,
    /// Reads that leave the access time alone.
    ReadNoAtime,
    Write,
}

/// The inodes that the kernel knows. Their descriptors lie in the table that all tasks of the server share.
///
/// The number of a node is its inode number, which the engine gives once: hard links agree, and a number that the kernel kept
/// over a FORGET means the same file.
#[derive(Debug)]
pub(crate) struct Nodes {
    /// Opens and closes, with every capability.
    keeper: Task,
    nodes: Mutex<HashMap<u64, Node>>,
}

/// Room for so many nodes is kept.
const MANY: usize = 4096;

impl Nodes {
    /// Knows the root alone.
    pub(crate) fn new(keeper: Task) -> Result<Nodes> {
        let place = keeper.open(b"/", O_PATH | O_DIRECTORY, 0)?;
        let root = Node { place, lookups: 1, data: [None; 3] };
        Ok(Nodes { keeper, nodes: Mutex::new(HashMap::from([(ROOT, root)])) })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The descriptor of a node.
    ///
    /// # Errors
    ///
    /// `ESTALE`: the kernel has no reference to such a node.
    pub(crate) fn place(&self, ino: u64) -> Result<i32> {
        self.lock().get(&ino).map(|node| node.place).ok_or(Errno::ESTALE)
    }

    /// Counts one more reference to what `place` stands for, which passes to the table, and tells what it is.
    pub(crate) fn remember(&self, place: i32) -> Result<Stat> {
        let st = self.keeper.fstat(place)?;
        // Of the root the kernel has one reference for ever.
        let ino = st.ino;
        let spare = match self.lock().entry(ino) {
            Entry::Occupied(mut known) => {
                known.get_mut().lookups += 1;
                Some(place)
            }
            Entry::Vacant(new) => {
                new.insert(Node { place, lookups: 1, data: [None; 3] });
                None
            }
        };
        spare.map_or(Ok(()), |fd| self.keeper.close(fd))?;
        Ok(st)
    }

    /// Takes `lookups` references away.
    pub(crate) fn forget(&self, ino: u64, lookups: u64) {
        let gone = {
            let mut nodes = self.lock();
            let Some(node) = nodes.get_mut(&ino) else { return };
            node.lookups = node.lookups.saturating_sub(lookups);
            if node.lookups > 0 || ino == ROOT {
                return;
            }
            let gone = nodes.remove(&ino);
            if nodes.len() < nodes.capacity() / 8 {
                let room = nodes.len() * 2;
                nodes.shrink_to(room.max(MANY));
            }
            gone
        };
        for fd in gone.iter().flat_map(|node| node.data.into_iter().flatten().chain([node.place])) {
            // It was open, and nothing else closes it.
            let _ = self.keeper.close(fd);
        }
    }

    /// A descriptor for I/O on a regular file; it does not matter which caller asks.
    ///
    /// # Errors
    ///
    /// `ESTALE`; `EPERM` (writing to an immutable file).
    pub(crate) fn data(&self, ino: u64, how: Data) -> Result<i32> {
        let place = {
            let nodes = self.lock();
            let node = nodes.get(&ino).ok_or(Errno::ESTALE)?;
            if let Some(fd) = node.data[how as usize] {
                return Ok(fd);
            }
            node.place
        };
        let fd = match how {
            Data::Read => self.keeper.dentry_open(place, O_RDONLY)?,
            Data::ReadNoAtime => self.keeper.dentry_open(place, O_RDONLY | O_NOATIME)?,
            // To an append-only file one may write at its end alone, which is where the kernel writes.
            Data::Write => self
                .keeper
                .dentry_open(place, O_WRONLY)
                .or_else(|_| self.keeper.dentry_open(place, O_WRONLY | O_APPEND))?,
        };
        let mut nodes = self.lock();
        let kept = nodes.get_mut(&ino).map(|node| *node.data[how as usize].get_or_insert(fd));
        drop(nodes);
        if kept != Some(fd) {
            self.keeper.close(fd)?;
        }
        kept.ok_or(Errno::ESTALE)
    }
}
