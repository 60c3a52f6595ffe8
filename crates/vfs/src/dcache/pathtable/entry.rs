//! What is remembered of a path.

use super::{AsOf, Signature};
use crate::dcache::inode::Inode;
use crate::dcache::store::Namespace;
use crate::dcache::{Meta, Seen};
use rcuwalk_sync::{Handle, MODELLED, Racy32, Racy64, SeqCount, SeqRead, SeqWrite, type_stable};

type_stable! {
    /// Where one path led: a cache line, and the next one with a copy of the inode. Written under `seq` and the name space
    /// lock.
    pub(super) struct Entry {
        seq: SeqCount,
        pub(super) path_seq: Racy32,
        pub(super) sign: [Racy64; 4],
        pub(super) m_seq: Racy32,
        pub(super) mnt: Racy32,
        /// What the path led to, or the directory that its last name is missing in.
        pub(super) dentry: Racy32,
        pub(super) dentry_seq: Racy32,
        /// The dentry's [`Meta`]; that of none for a missing name.
        pub(super) meta: Racy32,
        /// The stamp of the dentry, [`NO_COPY`] if there is no copy.
        pub(super) stamp: Racy32,
        /// Its own count is never opened.
        pub(super) inode: Inode,
    }
}

const _: () = assert!(
    MODELLED || size_of::<Entry>() == 128 && std::mem::offset_of!(Entry, inode) == 64,
    "an answer is one pair of cache lines, and the first one tells whether it is one"
);

/// No stamp is odd.
pub(super) const NO_COPY: u32 = 1;

/// Counts of changes are never odd when they are read.
pub(super) const NO_TIME: u32 = 1;

impl Entry {
    /// Whether this is the entry of that signature, and of these changes, since `seq`.
    #[inline(always)]
    pub(super) fn answers(&self, seq: u32, sign: Signature, as_of: AsOf) -> bool {
        let [a, b, c, d] = sign.words();
        let differ = (self.sign[0].get() ^ a)
            | (self.sign[1].get() ^ b)
            | (self.sign[2].get() ^ c)
            | (self.sign[3].get() ^ d)
            | u64::from(self.path_seq.get() ^ as_of.path_seq)
            | u64::from(self.m_seq.get() ^ as_of.m_seq);
        differ == 0 && !self.seq.retry(seq)
    }

    pub(super) fn signature(&self) -> Signature {
        let [a, b, c, d] = self.sign.each_ref().map(Racy64::get);
        Signature(u128::from(a) | u128::from(b) << 64, u128::from(c) | u128::from(d) << 64)
    }

    /// The entry as it is now: what [`Remembered::read`] then vouches for.
    #[inline(always)]
    pub(super) fn begin(&self) -> u32 {
        self.seq.begin()
    }

    /// Whether anything was ever written here.
    pub(super) fn is_used(&self) -> bool {
        self.seq.begin() != 0
    }

    /// Starts a change, which ends when the guard is dropped. There is no other way to write an entry, so every writer has
    /// the name space lock.
    pub(super) fn change(&self, _: &Namespace) -> SeqWrite<'_> {
        self.seq.write()
    }

    /// Becomes another one, which does not change meanwhile.
    pub(super) fn copy_from(&self, ns: &Namespace, other: &Entry) {
        let _change = self.change(ns);
        self.sign.iter().zip(&other.sign).for_each(|(to, from)| to.set(from.get()));
        self.path_seq.set(other.path_seq.get());
        self.m_seq.set(other.m_seq.get());
        self.mnt.set(other.mnt.get());
        self.dentry.set(other.dentry.get());
        self.dentry_seq.set(other.dentry_seq.get());
        self.meta.set(other.meta.get());
        self.stamp.set(other.stamp.get());
        self.inode.copy_from(&other.inode);
    }
}

/// What the table knows of a path. Nothing of it counts before [`read`](Self::read) says so.
#[derive(Clone, Copy)]
pub(crate) struct Remembered<'a> {
    pub(super) entry: &'a Entry,
    pub(super) seq: u32,
}

impl<'a> Remembered<'a> {
    #[inline(always)]
    pub(crate) fn mnt(self) -> Handle {
        self.entry.mnt.get()
    }

    /// Where the path led; [`Seen::is_missing`] if only to a directory without its last name.
    #[inline(always)]
    pub(crate) fn seen(self) -> Seen {
        let Entry { dentry, dentry_seq, meta, .. } = self.entry;
        Seen { dentry: dentry.get(), seq: dentry_seq.get(), meta: Meta(meta.get()) }
    }

    /// What is known is so as long as this is the stamp of that dentry.
    #[inline(always)]
    pub(crate) fn stamp(self) -> u32 {
        self.entry.stamp.get()
    }

    /// Whether there is a copy of the inode.
    pub(crate) fn has_copy(self) -> bool {
        self.stamp() != NO_COPY
    }

    /// The copy.
    #[inline(always)]
    pub(crate) fn inode(self) -> &'a Inode {
        &self.entry.inode
    }

    /// What vouches for all of this.
    #[inline(always)]
    pub(crate) fn read(self) -> SeqRead<'a> {
        self.entry.seq.since(self.seq)
    }
}
