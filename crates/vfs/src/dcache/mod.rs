//! Dentries: which name in which directory is which inode.
//!
//! Kernel: fs/dcache.c. Differs: the tree lives in the cache alone (as on tmpfs), so a miss under a stable directory is
//! an answer; a dentry and the inode made with it share one 128-byte slot, so that `stat` of a name touches one pair of
//! cache lines.

pub(crate) mod children;
pub(crate) mod feed;
pub(crate) mod inode;
pub(crate) mod pathtable;
pub(crate) mod remains;
pub(crate) mod stamps;
pub(crate) mod store;

use crate::base::uapi::{S_IFDIR, S_IFLNK, S_IFMT};
use crate::dcache::stamps::SlotSeq;
use crate::dcache::store::{MovesGuard, Namespace, Slot, Store};
use rcuwalk_sync::name::{self, Component};
use rcuwalk_sync::{
    ChainsView, Handle, Link, LockRef, MODELLED, Nodes, Racy32, Racy64, View, step, type_stable,
};

/// The longest name kept inside the dentry; longer ones lie in the blob store.
pub(crate) const INLINE_NAME: usize = 40;

type_stable! {
    /// All that a hit reads, in one cache line. Everything but `next` changes only under `seq` and the name space lock.
    pub(crate) struct Dentry {
        pub(crate) seq: SlotSeq,
        pub(crate) parent: Racy32,
        pub(crate) hash: Racy32,
        pub(crate) next: Link,
        pub(crate) inode: Racy32,
        /// A [`Meta`].
        pub(crate) meta: Racy32,
        /// The name, zero-padded; beyond 40 bytes: its first eight bytes, then the handle of a blob with all of it.
        pub(crate) name: [Racy64; INLINE_NAME / 8],
    }
}

type_stable! {
    /// What a dentry has besides, which no lookup that hits reads.
    pub(crate) struct DentryLinks {
        /// References: one of the tree while hashed, one of each child, one of each user.
        pub(crate) count: LockRef,
        /// The neighbours in the parent's list of children, newest first.
        pub(crate) sib_prev: Racy32,
        pub(crate) sib_next: Racy32,
        /// Where `getdents` finds this entry again: see [`children`]. 0 while it is in no list.
        pub(crate) offset: Racy32,
    }
}

const _: () = assert!(MODELLED || size_of::<Dentry>() == 64, "a hit reads one cache line");

/// The flags of a dentry: the length of its name, the type of its inode, and its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta(pub(crate) u32);

impl Meta {
    const LEN: u32 = 0xff;
    const TYPE_SHIFT: u32 = 8;
    /// In the hash table, and so findable.
    const HASHED: u32 = 1 << 12;
    /// The dentry half of the slot is in use.
    const LIVE: u32 = 1 << 13;
    /// A directory that anybody may search: all three x bits and no access ACL (S9).
    const MAY_SEARCH: u32 = 1 << 14;
    /// Coming to it takes more than standing on it: it is a link, or something is mounted over it. Kernel: `d_managed()`.
    const STEP: u32 = 1 << 15;
    /// Something is mounted over it, in some namespace. Kernel: `DCACHE_MOUNTED`.
    const MOUNTED: u32 = 1 << 16;
    /// A link that paths of the whole-path table lead through, or a directory that they go into and leave by `..`.
    const REMEMBERED: u32 = 1 << 17;
    /// Of an entry of the whole-path table: it answers only who follows links.
    const FOLLOWED: u32 = 1 << 18;

    /// Of no dentry.
    pub(crate) const NONE: Meta = Meta(0);

    pub(crate) fn new(name_len: usize, mode: u32) -> Meta {
        debug_assert!(name_len <= 255);
        let step = if mode & S_IFMT == S_IFLNK { Self::STEP } else { 0 };
        Meta(name_len as u32 | ((mode & S_IFMT) >> 12) << Self::TYPE_SHIFT | Self::LIVE | step)
    }

    #[inline(always)]
    pub(crate) fn name_len(self) -> usize {
        (self.0 & Self::LEN) as usize
    }

    /// The `S_IFMT` bits of the inode's mode.
    #[inline(always)]
    pub(crate) fn file_type(self) -> u32 {
        (self.0 >> Self::TYPE_SHIFT & 0xf) << 12
    }

    #[inline(always)]
    pub(crate) fn is_dir(self) -> bool {
        self.file_type() == S_IFDIR
    }

    /// A link, or a place that something is mounted over.
    #[inline(always)]
    pub(crate) fn takes_step(self) -> bool {
        self.0 & Self::STEP != 0
    }

    /// A directory that nothing is mounted over.
    #[inline(always)]
    pub(crate) fn is_plain_dir(self) -> bool {
        self.0 & (0xf << Self::TYPE_SHIFT | Self::STEP) == (S_IFDIR >> 12) << Self::TYPE_SHIFT
    }

    /// Whether something is mounted over it, in some namespace.
    #[inline(always)]
    pub(crate) fn is_mounted(self) -> bool {
        self.0 & Self::MOUNTED != 0
    }

    pub(crate) fn with_mounted(self, yes: bool) -> Meta {
        let step = if self.file_type() == S_IFLNK { Self::STEP } else { 0 };
        Meta(if yes {
            self.0 | Self::STEP | Self::MOUNTED
        } else {
            self.0 & !(Self::STEP | Self::MOUNTED) | step
        })
    }

    /// Whether this is a hashed dentry whose name is `len` bytes long.
    #[inline(always)]
    fn is_hashed_with_len(self, len: u32) -> bool {
        self.0 & (Self::HASHED | Self::LEN) == Self::HASHED | len
    }

    #[inline(always)]
    pub(crate) fn may_search(self) -> bool {
        self.0 & Self::MAY_SEARCH != 0
    }

    pub(crate) fn is_remembered(self) -> bool {
        self.0 & Self::REMEMBERED != 0
    }

    pub(crate) fn with_remembered(self) -> Meta {
        Meta(self.0 | Self::REMEMBERED)
    }

    #[inline(always)]
    pub(crate) fn is_followed(self) -> bool {
        self.0 & Self::FOLLOWED != 0
    }

    pub(crate) fn with_followed(self, yes: bool) -> Meta {
        Meta(if yes { self.0 | Self::FOLLOWED } else { self.0 })
    }

    pub(crate) fn is_hashed(self) -> bool {
        self.0 & Self::HASHED != 0
    }

    pub(crate) fn is_live(self) -> bool {
        self.0 & Self::LIVE != 0
    }

    pub(crate) fn with_may_search(self, yes: bool) -> Meta {
        Meta(if yes { self.0 | Self::MAY_SEARCH } else { self.0 & !Self::MAY_SEARCH })
    }

    pub(crate) fn with_hashed(self, yes: bool) -> Meta {
        Meta(if yes { self.0 | Self::HASHED } else { self.0 & !Self::HASHED })
    }

    pub(crate) fn with_name_len(self, len: usize) -> Meta {
        Meta(self.0 & !Self::LEN | len as u32)
    }
}

/// A dentry as a lockless walker saw it: `meta` belongs to it as long as its count is still `seq`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) dentry: Handle,
    pub(crate) seq: u32,
    pub(crate) meta: Meta,
}

impl Seen {
    /// Whether this is what the whole-path table says of a name that is not there: the directory, and no dentry in it.
    #[inline(always)]
    pub(crate) fn is_missing(self) -> bool {
        self.meta == Meta::NONE
    }
}

/// A name in a path, as the hash table is asked for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name<'a> {
    pub(crate) path: &'a [u8],
    pub(crate) start: usize,
    pub(crate) component: Component,
}

impl<'a> Name<'a> {
    /// The bytes of the name.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        &self.path[self.start..self.start + self.component.len as usize]
    }
}

impl Nodes for Store {
    #[inline(always)]
    fn link(&self, handle: Handle) -> &Link {
        &self.dentry(handle).next
    }

    #[inline(always)]
    fn hash(&self, handle: Handle) -> u32 {
        let dentry = self.dentry(handle);
        bucket_hash(dentry.parent.get(), dentry.hash.get())
    }
}

/// The hash of a name in a directory. Names are well mixed already, so the parent only has to keep equal names in
/// different directories apart.
#[inline(always)]
fn bucket_hash(parent: Handle, name: u32) -> u32 {
    name ^ parent
}

/// What a lockless look for a name came to.
pub(crate) enum Look {
    Hit(Seen),
    Miss,
    Astray,
}

/// What a lockless look for a name needs, by value, so that a walk keeps it in registers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tree<'a> {
    pub(crate) slots: View<'a, Slot>,
    pub(crate) chains: ChainsView<'a>,
    pub(crate) store: &'a Store,
}

impl Tree<'_> {
    /// Looks for `name` in `parent` without a lock. The caller validates `parent` afterwards, and the child by what it
    /// does with it next.
    ///
    /// Kernel: fs/dcache.c `__d_lookup_rcu()`.
    #[inline(always)]
    pub(crate) fn d_lookup_rcu(self, parent: Handle, name: Name<'_>) -> Look {
        let c = name.component;
        let mut walk = self.chains.walk(bucket_hash(parent, c.hash));
        while let Some(at) = walk.node() {
            // The inode is mostly asked next, and lies in the same slot unless this is a further link: the two cache misses
            // of a cold file overlap.
            self.slots.prefetch(at, std::mem::offset_of!(Slot, inode));
            let d = &self.slots.get(at).dentry;
            // First the count, then what it covers: a dentry that changes under our eyes fails its validation later.
            let seq = d.seq.begin();
            let meta = Meta(d.meta.get());
            if d.parent.get() == parent
                && meta.is_hashed_with_len(c.len)
                && d.name[0].get() == c.first
                && (c.len <= 8 || self.store.rest_eq(at, name.path, name.start, c.len))
            {
                return Look::Hit(Seen { dentry: at, seq, meta });
            }
            walk.step(&d.next);
        }
        if walk.missed() { Look::Miss } else { Look::Astray }
    }

    /// Whether `seen` is not any more what was seen.
    #[inline(always)]
    pub(crate) fn retry(self, seen: Seen) -> bool {
        self.slots.get(seen.dentry).dentry.seq.retry(seen.seq)
    }
}

/// How often a look that renames disturb is made again before they have to wait.
const TRIES: u32 = 4;

impl Store {
    /// Whether `dentry` is `above`, or lies below it; for callers that hold the lock, or repeat.
    ///
    /// Kernel: fs/dcache.c `is_subdir()`.
    pub(crate) fn is_subdir(&self, dentry: Handle, above: Handle) -> bool {
        let mut at = dentry;
        while at != above {
            let parent = self.dentry(at).parent.get();
            if parent == at {
                return false;
            }
            at = parent;
        }
        true
    }

    /// [`is_subdir`](Self::is_subdir), of a directory that is held, for callers without the lock. However deep it lies, nobody waits but who
    /// renames directories.
    ///
    /// Kernel: fs/dcache.c `is_subdir()`.
    pub(crate) fn is_subdir_now(&self, dentry: Handle, above: Handle) -> bool {
        for _ in 0..TRIES {
            let renames = self.rename_seq.begin();
            let below = self.is_subdir(dentry, above);
            if !self.rename_seq.retry(renames) {
                return below;
            }
        }
        let _moves = self.lock_moves();
        self.is_subdir(dentry, above)
    }

    /// The entry of directory `above` that `dentry`, which is held, is or lies below.
    ///
    /// Kernel: fs/dcache.c `d_ancestor()`.
    pub(crate) fn ancestor(&self, _: &MovesGuard<'_>, dentry: Handle, above: Handle) -> Option<Handle> {
        let mut at = dentry;
        loop {
            let parent = self.dentry(at).parent.get();
            if parent == at {
                return None;
            }
            if parent == above {
                return Some(at);
            }
            at = parent;
        }
    }

    /// [`Tree::d_lookup_rcu`].
    pub(crate) fn d_lookup_rcu(&self, parent: Handle, name: Name<'_>) -> Look {
        self.tree().d_lookup_rcu(parent, name)
    }

    /// Whether the name of dentry `at`, whose length `len` and first word are those of the name that begins at byte
    /// `start` of `path`, equals it wholly. Out of line: the hot loop needs its registers.
    #[inline(never)]
    fn rest_eq(&self, at: Handle, path: &[u8], start: usize, len: u32) -> bool {
        let d = self.dentry(at);
        if len as usize <= INLINE_NAME {
            return name::words(path, start, len, 1)
                .zip(&d.name[1..])
                .all(|(word, stored)| word == stored.get());
        }
        let blob = d.name[1].get() as Handle;
        (1..).zip(name::words(path, start, len, 1)).all(|(i, word)| word == self.blobs.word(blob, i))
    }

    /// The name of `dentry`; the caller holds the name space lock, or validates.
    pub(crate) fn d_name(&self, dentry: Handle) -> Vec<u8> {
        let mut out = Vec::new();
        self.append_name(dentry, &mut out);
        out
    }

    /// Appends the name of `dentry`, as [`d_name`](Self::d_name) gives it.
    pub(crate) fn append_name(&self, dentry: Handle, out: &mut Vec<u8>) {
        let d = self.dentry(dentry);
        let len = Meta(d.meta.get()).name_len();
        if len > INLINE_NAME {
            // Fails only without memory, and then leaves an empty name: callers that show names cannot do better.
            let _ = self.blobs.read(d.name[1].get() as Handle, out);
        } else {
            out.extend(d.name.iter().flat_map(|word| word.get().to_le_bytes()).take(len));
        }
    }

    /// Takes a reference to `seen` if it is still what was seen.
    ///
    /// Kernel: fs/namei.c `legitimize_path()`.
    #[inline]
    #[must_use]
    pub(crate) fn legitimize(&self, seen: Seen) -> bool {
        if !self.links(seen.dentry).count.get_not_zero() {
            return false;
        }
        // The reference keeps the slot from being used again, so what the count says now stays true.
        let stale = step!("legitimize", self.dentry(seen.dentry).seq.retry(seen.seq));
        if stale {
            self.dput(seen.dentry);
        }
        !stale
    }

    /// `dentry` as it is now, for a caller that holds a reference or the name space lock.
    pub(crate) fn see(&self, dentry: Handle) -> Seen {
        let d = self.dentry(dentry);
        loop {
            let seq = d.seq.wait();
            let meta = Meta(d.meta.get());
            if !d.seq.retry(seq) {
                return Seen { dentry, seq, meta };
            }
        }
    }

    /// Notes whether something is mounted over `dentry`.
    pub(crate) fn set_mounted(&self, ns: &Namespace, dentry: Handle, yes: bool) {
        let d = self.dentry(dentry);
        let _change = self.open_dentry(ns, dentry);
        d.meta.set(Meta(d.meta.get()).with_mounted(yes).0);
    }

    /// Notes that paths of the whole-path table turn at a link, or at a directory that they leave by `..`. That is no change
    /// of the dentry: only who holds the name space lock asks for it.
    pub(crate) fn set_remembered(&self, _: &Namespace, turn: Handle) {
        let d = self.dentry(turn);
        d.meta.set(Meta(d.meta.get()).with_remembered().0);
    }

    /// Gives a reference back, and frees the dentry, and its inode with it, if it was the last.
    ///
    /// Kernel: fs/dcache.c `dput()`.
    #[inline]
    pub(crate) fn dput(&self, dentry: Handle) {
        if self.links(dentry).count.put() {
            let mut ns = self.lock();
            self.dentry_free(&mut ns, dentry);
        }
    }
}
