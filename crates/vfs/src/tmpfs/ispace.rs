//! How many inodes a file system may have, and how much their extended attributes may take: one account for both, as in
//! tmpfs, since each is memory that no page of contents is counted for.
//!
//! Kernel: mm/shmem.c `shmem_reserve_inode()`, `shmem_free_inode()`, `shmem_xattr_handler_set()`, fs/xattr.c
//! `simple_xattr_space()`.

use crate::base::errno::{Errno, Result};
use rcuwalk_sync::Budget;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What an inode counts for, and each further name of it; bytes. Kernel: `BOGO_INODE_SIZE`.
const INODE: u64 = 1024;
/// What an extended attribute counts for besides its name and its value; bytes.
const XATTR: u64 = 40;
/// What one takes of memory beside that: where it stands in the tree, and what the allocator adds.
const XATTR_MEMORY: u64 = 120;

/// The account of one file system.
#[derive(Debug)]
pub(crate) struct InodeSpace {
    limit: Option<Budget>,
    /// The memory that all file systems share, from which attributes take; that of inodes is counted where they lie.
    memory: Option<Arc<Budget>>,
}

impl InodeSpace {
    /// Room for so many inodes; without limit for 0.
    pub(crate) fn new(inodes: u64) -> InodeSpace {
        InodeSpace { limit: (inodes != 0).then(|| Budget::new(inodes.saturating_mul(INODE))), memory: None }
    }

    /// The same, whose attributes count as memory.
    pub(crate) fn counted(self, memory: Option<Arc<Budget>>) -> InodeSpace {
        InodeSpace { memory, ..self }
    }

    /// The most inodes there may be, and how many more there is room for; 0 without limit.
    pub(crate) fn inodes(&self) -> (u64, u64) {
        self.limit
            .as_ref()
            .map_or((0, 0), |limit| (limit.limit() / INODE, (limit.limit() - limit.used()) / INODE))
    }

    /// Sets the most inodes there may be; not if there are more, and not where there was no limit.
    pub(crate) fn set_inodes(&self, inodes: u64) -> bool {
        let bytes = if inodes == 0 { u64::MAX } else { inodes.saturating_mul(INODE) };
        self.limit.as_ref().map_or(inodes == 0, |limit| limit.set_limit(bytes))
    }

    /// # Errors
    ///
    /// `ENOSPC` if there is no room for this attribute.
    pub(crate) fn admit_xattr(&self, name: &[u8], value: &[u8]) -> Result<()> {
        let bytes = xattr_space(name, value);
        self.charge(bytes).inspect(|()| self.release(bytes))
    }

    fn charge(&self, bytes: u64) -> Result<()> {
        match &self.limit {
            Some(limit) if !limit.charge(bytes) => Err(Errno::ENOSPC),
            _ => Ok(()),
        }
    }

    fn release(&self, bytes: u64) {
        if let Some(limit) = &self.limit {
            limit.release(bytes);
        }
    }

    /// Takes room and memory for an attribute.
    ///
    /// # Errors
    ///
    /// `ENOSPC`, `ENOMEM`.
    fn charge_xattr(&self, name: &[u8], value: &[u8]) -> Result<()> {
        let bytes = xattr_space(name, value);
        self.charge(bytes)?;
        match &self.memory {
            Some(memory) if !memory.charge(XATTR_MEMORY + bytes) => {
                self.release(bytes);
                Err(Errno::ENOMEM)
            }
            _ => Ok(()),
        }
    }

    fn release_xattr(&self, name: &[u8], value: &[u8]) {
        let bytes = xattr_space(name, value);
        self.release(bytes);
        self.memory.iter().for_each(|memory| memory.release(XATTR_MEMORY + bytes));
    }

    /// Takes room for an inode, or for a further name of one.
    ///
    /// # Errors
    ///
    /// `ENOSPC`.
    pub(crate) fn charge_name(&self) -> Result<()> {
        self.charge(INODE)
    }

    /// Gives that back.
    pub(crate) fn release_name(&self) {
        self.release(INODE);
    }
}

/// Extended attributes, by name.
pub(crate) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

fn xattr_space(name: &[u8], value: &[u8]) -> u64 {
    XATTR + name.len() as u64 + value.len() as u64
}

/// The extended attributes of one inode other than ACLs; what they take is given back with them.
#[derive(Debug)]
pub(crate) struct CountedXattrs {
    all: Xattrs,
    space: Arc<InodeSpace>,
}

impl CountedXattrs {
    pub(crate) fn new(space: Arc<InodeSpace>) -> CountedXattrs {
        CountedXattrs { all: Xattrs::new(), space }
    }

    pub(crate) fn all(&self) -> &Xattrs {
        &self.all
    }

    /// Sets one. There must be room for the new value beside the old one.
    ///
    /// # Errors
    ///
    /// `ENOSPC`, `ENOMEM`.
    pub(crate) fn set(&mut self, name: &[u8], value: &[u8]) -> Result<()> {
        let (mut key, mut copy) = (Vec::new(), Vec::new());
        key.try_reserve_exact(name.len()).map_err(|_| Errno::ENOMEM)?;
        copy.try_reserve_exact(value.len()).map_err(|_| Errno::ENOMEM)?;
        self.space.charge_xattr(name, value)?;
        key.extend_from_slice(name);
        copy.extend_from_slice(value);
        if let Some(old) = self.all.insert(key, copy) {
            self.space.release_xattr(name, &old);
        }
        Ok(())
    }

    /// Removes one; says whether it was there.
    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        let old = self.all.remove(name);
        if let Some(value) = &old {
            self.space.release_xattr(name, value);
        }
        old.is_some()
    }
}

impl Drop for CountedXattrs {
    fn drop(&mut self) {
        self.all.iter().for_each(|(name, value)| self.space.release_xattr(name, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_attributes_share_the_room() {
        let space = Arc::new(InodeSpace::new(2));
        space.charge_name().unwrap();
        assert_eq!(space.inodes(), (2, 1));
        let mut xattrs = CountedXattrs::new(Arc::clone(&space));
        assert_eq!(xattrs.set(b"user.x", &[0; 979]), Err(Errno::ENOSPC));
        assert_eq!(xattrs.set(b"user.x", &[0; 978]), Ok(()));
        assert_eq!(space.charge_name(), Err(Errno::ENOSPC));
        assert!(xattrs.remove(b"user.x") && !xattrs.remove(b"user.x"));
        assert_eq!(xattrs.set(b"user.x", &[0; 500]), Ok(()));
        assert_eq!(
            xattrs.set(b"user.x", &[0; 500]),
            Err(Errno::ENOSPC),
            "the old one goes after the new one came"
        );
        assert_eq!((xattrs.set(b"user.x", &[0; 400]), space.inodes()), (Ok(()), (2, 0)));
        drop(xattrs);
        assert_eq!(space.inodes(), (2, 1));
        assert_eq!((InodeSpace::new(0).charge_name(), InodeSpace::new(0).inodes()), (Ok(()), (0, 0)));
    }
}
