//! The store: slots, names, and the one lock under which they change.
//!
//! Readers never take the lock. It serialises everything that changes a name, an attribute or the shape of the tree:
//! the kernel's `i_rwsem`s, `rename_lock` and `d_lock`s in one (`docs/locking.md` says why, and what it costs).

use crate::base::errno::{Errno, Result};
use crate::base::table::Table;
use crate::base::uapi::{S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, Timespec};
use crate::dcache::children::{DIR_OFFSET_MIN, OffsetIndex};
use crate::dcache::feed::Feed;
use crate::dcache::inode::{Inode, InodeRest, Times, Touch, flags};
use crate::dcache::pathtable::PathTable;
use crate::dcache::remains::{NsGuard, Remains};
use crate::dcache::stamps::Stamps;
use crate::dcache::{Dentry, DentryLinks, INLINE_NAME, Meta, Name, Tree};
use crate::mount::MountState;
use crate::perm::acl::{Acl, AclEntry};
use crate::tmpfs::ispace::{CountedXattrs, Xattrs};
use crate::tmpfs::pages::{FileData, PAGE_SIZE, PageBudget};
use rcuwalk_sync::lock::{FairMutex, MutexGuard, PoisonError, RwLock, TryLockError};
use rcuwalk_sync::name::{self, Component};
use rcuwalk_sync::{
    AllocError, Arena, Blobs, Budget, Chains, ChainsWriter, Handle, MODELLED, Racy32, SeqCount, SeqWrite,
    step, type_stable,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

type_stable! {
    /// One dentry, and the inode that was made with it: two neighbouring cache lines.
    ///
    /// A further name of an inode takes a slot whose inode half stays idle, and an inode whose first name is gone keeps
    /// its half; the slot is free when both halves are.
    pub(crate) struct Slot {
        pub(crate) dentry: Dentry,
        pub(crate) inode: Inode,
    }
}

type_stable! {
    /// The colder half of a [`Slot`], at the same index.
    pub(crate) struct Rest {
        pub(crate) links: DentryLinks,
        pub(crate) inode: InodeRest,
    }
}

const _: () = assert!(
    MODELLED || size_of::<Slot>() == 128 && size_of::<Rest>() == 64,
    "192 bytes an entry, and its hash bucket"
);

/// What a slot counts for as memory: its halves, what it has besides, two buckets of the hash table, and its places in the maps of
/// what few inodes have; bytes.
const SLOT_BYTES: u64 = (size_of::<Slot>() + size_of::<Rest>() + 8 + 120) as u64;

/// What the contents of a file count for as memory, pages and nodes left out; bytes.
const CONTENTS_BYTES: usize = 256;

/// Chunks of slots that are kept though nobody uses them, for names that come and go; or so many as a sixteenth of what is in use.
const KEEP_CHUNKS: u32 = 64;

/// The contents of one regular file, which outlive its names while the file is open.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) data: RwLock<FileData>,
    pub(crate) budget: Arc<PageBudget>,
}

impl Drop for Contents {
    fn drop(&mut self) {
        self.data.get_mut().unwrap_or_else(PoisonError::into_inner).clear(&self.budget);
        self.budget.release_memory(1, CONTENTS_BYTES);
    }
}

/// What only the holder of the name space lock may touch.
#[derive(Debug)]
pub(crate) struct Namespace {
    chains: ChainsWriter,
    /// Contents of regular files; index 0 is never used.
    pub(crate) contents: Table<Arc<Contents>>,
    /// Extended attributes other than ACLs; index 0 is never used.
    pub(crate) xattrs: Table<CountedXattrs>,
    /// Entries of large directories by offset; index 0 is never used.
    pub(crate) offsets: Table<OffsetIndex>,
    // Trees: a hash table of what tenants make would be laid out anew, all at once, where it grows.
    pub(crate) wide_times: BTreeMap<Handle, Times>,
    /// Inodes without a name that are still held, and the file system they keep from becoming read-only. Kernel:
    /// `s_remove_count`.
    pub(crate) nameless: BTreeMap<Handle, u32>,
    /// Inodes that a handle was given for, and the device number of their file system, which no later one has: no others can be found
    /// by handle. Kernel: the inodes of a tmpfs that are hashed.
    pub(crate) exported: BTreeMap<Handle, u64>,
    pub(crate) remains: Remains,
    /// Mounts and file systems.
    pub(crate) mnt: MountState,
    /// What changed, for a program that keeps the tree elsewhere.
    pub(crate) feed: Option<Box<Feed>>,
}

/// How many objects a store is made for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capacity {
    /// Names; inodes included.
    pub(crate) objects: u32,
    /// Words of long names, link bodies and ACLs.
    pub(crate) blob_words: u32,
}

/// No directory gets another name or parent.
#[derive(Debug)]
pub(crate) struct MovesGuard<'a>(#[expect(dead_code, reason = "it is held")] MutexGuard<'a, ()>);

/// Everything that a lockless walker reads.
#[derive(Debug)]
pub(crate) struct Store {
    slots: Arena<Slot>,
    rest: Arena<Rest>,
    /// Above all counts that stood in slots whose memory was given back; changes under the lock.
    retired: Racy32,
    pub(crate) blobs: Blobs,
    pub(crate) chains: Chains,
    /// Changes with every rename, for lookups that must not see one.
    pub(crate) rename_seq: SeqCount,
    /// Changes with all that can turn a walk aside on its way, or forbid it: a directory's name, parent, mode, owner or
    /// ACL, the name of a link or the end of a directory that remembered paths turn at.
    pub(crate) path_seq: SeqCount,
    pub(crate) stamps: Stamps,
    /// Where paths led that were walked before.
    pub(crate) paths: PathTable,
    /// Keys the name hash.
    seed: u64,
    /// Held, outside of the lock of the name space, by all who give a directory another name or parent: its holder goes up a deep tree
    /// without the lock. Kernel: `s_vfs_rename_mutex`.
    moves: FairMutex<()>,
    ns: FairMutex<Namespace>,
}

/// What a new inode is made of.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InodeInit<'a> {
    /// Type and permissions.
    pub(crate) mode: u32,
    pub(crate) iflags: u32,
    /// The file system, whose next inode number it gets unless it brings one.
    pub(crate) sb: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) nlink: u32,
    pub(crate) rdev: u32,
    pub(crate) size: u64,
    pub(crate) blocks: Option<u64>,
    pub(crate) ino: Option<u64>,
    pub(crate) times: Times,
    /// The body of a symlink.
    pub(crate) body: &'a [u8],
    pub(crate) access_acl: Option<&'a [AclEntry]>,
    pub(crate) default_acl: Option<&'a [AclEntry]>,
}

impl From<AllocError> for Errno {
    fn from(error: AllocError) -> Errno {
        match error {
            AllocError::NoMemory => Errno::ENOMEM,
            AllocError::Full => Errno::ENOSPC,
        }
    }
}

/// Address space for a [`Store`].
#[derive(Debug)]
pub(crate) struct Room {
    slots: Arena<Slot>,
    rest: Arena<Rest>,
    blobs: Blobs,
    chains: (Chains, ChainsWriter),
}

impl Room {
    /// Room for so much.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: the system refuses it.
    pub(crate) fn new(capacity: Capacity, memory: Option<&Arc<Budget>>) -> Result<Room> {
        Ok(Room {
            slots: Arena::counted(capacity.objects, memory.cloned(), SLOT_BYTES)?,
            rest: Arena::new(capacity.objects)?,
            blobs: Blobs::counted(capacity.blob_words, memory.cloned())?,
            chains: Chains::new(capacity.objects.saturating_mul(2))?,
        })
    }

    /// Room for so much, or for as much less as leaves half of what the system allows to others (`RLIMIT_AS`).
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no room for a few thousand names, either.
    pub(crate) fn at_most(mut capacity: Capacity, memory: Option<&Arc<Budget>>) -> Result<Room> {
        const LEAST: u32 = 1 << 12;
        if let Ok(room) = Room::new(capacity, memory) {
            return Ok(room);
        }
        loop {
            capacity = Capacity { objects: capacity.objects / 2, blob_words: capacity.blob_words / 2 };
            let room = Room::new(capacity, memory);
            if room.is_ok() || capacity.objects < LEAST {
                drop(room?);
                let half = Capacity { objects: capacity.objects / 2, blob_words: capacity.blob_words / 2 };
                return Room::new(half, memory);
            }
        }
    }
}

impl Store {
    /// An empty store without any inode.
    pub(crate) fn new(room: Room, seed: u64, mnt: MountState, paths: PathTable) -> Store {
        let Room { slots, rest, blobs, chains: (chains, writer) } = room;
        let ns = Namespace {
            chains: writer,
            contents: Table::default(),
            xattrs: Table::default(),
            offsets: Table::default(),
            wide_times: BTreeMap::new(),
            nameless: BTreeMap::new(),
            exported: BTreeMap::new(),
            remains: Remains::default(),
            mnt,
            feed: None,
        };
        Store {
            slots,
            rest,
            blobs,
            retired: Racy32::default(),
            chains,
            rename_seq: SeqCount::default(),
            path_seq: SeqCount::default(),
            stamps: Stamps::default(),
            paths,
            seed,
            moves: FairMutex::new(()),
            ns: FairMutex::new(ns),
        }
    }

    /// The most names and inodes there can be.
    pub(crate) fn capacity(&self) -> u32 {
        self.slots.capacity()
    }

    /// What lockless looks need.
    #[inline(always)]
    pub(crate) fn tree(&self) -> Tree<'_> {
        Tree { slots: self.slots.view(), chains: self.chains.view(), store: self }
    }

    #[inline(always)]
    pub(crate) fn dentry(&self, handle: Handle) -> &Dentry {
        &self.slots.get(handle).dentry
    }

    #[inline(always)]
    pub(crate) fn inode(&self, handle: Handle) -> &Inode {
        &self.slots.get(handle).inode
    }

    #[inline(always)]
    pub(crate) fn links(&self, handle: Handle) -> &DentryLinks {
        &self.rest.get(handle).links
    }

    #[inline(always)]
    pub(crate) fn inode_rest(&self, handle: Handle) -> &InodeRest {
        &self.rest.get(handle).inode
    }

    /// Has the processor fetch a slot that will be read soon: 0 is none.
    #[inline(always)]
    pub(crate) fn prefetch(&self, handle: Handle) {
        let view = self.slots.view();
        view.prefetch(handle, 0);
        view.prefetch(handle, std::mem::offset_of!(Slot, inode));
        self.rest.view().prefetch(handle, 0);
    }

    /// The inode of a dentry; fixed for the dentry's life.
    #[inline(always)]
    pub(crate) fn d_inode(&self, dentry: Handle) -> Handle {
        self.dentry(dentry).inode.get()
    }

    /// What keys the name hash.
    #[inline(always)]
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// The component of `path` that starts at `start`.
    #[inline(always)]
    pub(crate) fn component(&self, path: &[u8], start: usize) -> Component {
        name::component(path, start, self.seed)
    }

    /// A name by itself, as the hash table is asked for it.
    pub(crate) fn name<'a>(&self, bytes: &'a [u8]) -> Name<'a> {
        Name { path: bytes, start: 0, component: self.component(bytes, 0) }
    }

    /// Keeps all directories where they are.
    pub(crate) fn lock_moves(&self) -> MovesGuard<'_> {
        MovesGuard(self.moves.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the name space lock.
    pub(crate) fn lock(&self) -> NsGuard<'_> {
        NsGuard::new(self, self.lock_raw())
    }

    pub(crate) fn lock_raw(&self) -> MutexGuard<'_, Namespace> {
        // A panic under the lock is a bug of ours; what it left behind is still type-stable, so others may go on.
        self.ns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the name space lock, if that takes no waiting.
    pub(crate) fn try_lock(&self) -> Option<NsGuard<'_>> {
        match self.ns.try_lock() {
            Ok(ns) => Some(NsGuard::new(self, ns)),
            Err(TryLockError::Poisoned(poisoned)) => Some(NsGuard::new(self, poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Has memory for names that are soon to be made; called without the lock.
    #[inline]
    pub(crate) fn prepare(&self) {
        self.slots.prepare();
    }

    /// Names in use, and bytes of the blob store in use.
    pub(crate) fn usage(&self) -> (u32, u64) {
        (self.slots.in_use(), self.blobs.bytes_in_use())
    }

    /// Looks for `name` in `parent` under the lock: the answer is certain.
    ///
    /// Kernel: fs/dcache.c `d_lookup()`.
    pub(crate) fn d_lookup(&self, _: &Namespace, parent: Handle, name: Name<'_>) -> Option<Handle> {
        match self.d_lookup_rcu(parent, name) {
            crate::dcache::Look::Hit(seen) => Some(seen.dentry),
            crate::dcache::Look::Miss => None,
            crate::dcache::Look::Astray => unreachable!("nothing moves under the lock"),
        }
    }

    /// Makes an inode together with the dentry that will name it, not hashed yet and held once, by the caller. It is counted
    /// against what `init.sb` may have; a caller that frees it without naming it calls [`release_name`](Self::release_name).
    pub(crate) fn new_inode(&self, ns: &mut Namespace, init: &InodeInit<'_>) -> Result<Handle> {
        self.charge_name(ns, init.sb)?;
        self.new_slot(ns, init).inspect_err(|_| self.release_name(ns, init.sb))
    }

    /// Counts a name of an inode against what the file system may have.
    ///
    /// # Errors
    ///
    /// `ENOSPC`.
    pub(crate) fn charge_name(&self, ns: &Namespace, sb: u32) -> Result<()> {
        ns.mnt.supers.get(sb).map_or(Ok(()), |sb| sb.space.charge_name())
    }

    /// Counts one less. A file system that is unmounted has nothing to count any more.
    pub(crate) fn release_name(&self, ns: &Namespace, sb: u32) {
        if let Some(sb) = ns.mnt.supers.get(sb) {
            sb.space.release_name();
        }
    }

    fn new_slot(&self, ns: &mut Namespace, init: &InodeInit<'_>) -> Result<Handle> {
        let pack = |acl: Option<&[AclEntry]>| match acl {
            Some(entries) => self.blobs.alloc(&pack_acl(entries)).map_err(Errno::from),
            None => Ok(0),
        };
        // Whatever can fail comes before anything that would have to be undone.
        let blobs = [
            pack(init.access_acl),
            pack(init.default_acl),
            if init.mode & S_IFMT == S_IFLNK {
                self.blobs.alloc(init.body).map_err(Errno::from)
            } else {
                Ok(0)
            },
        ];
        let slot = self.slot_alloc();
        let (Ok(slot), [Ok(acl), Ok(default_acl), Ok(body)]) = (slot, blobs) else {
            if let Ok(slot) = slot {
                self.slots.free(slot, u32::MAX);
            }
            blobs.iter().flatten().filter(|&&blob| blob != 0).for_each(|&blob| self.blobs.free(blob));
            return Err(slot.err().or_else(|| blobs.iter().find_map(|b| b.err())).unwrap_or(Errno::ENOMEM));
        };
        self.inode_init(ns, slot, init, acl);
        let rest = self.inode_rest(slot);
        rest.default_acl.set(default_acl);
        rest.data.set(if init.mode & S_IFMT == S_IFLNK { body } else { init.rdev });
        self.dentry_init(ns, slot, slot);
        Ok(slot)
    }

    /// Fills the inode half of a fresh slot.
    fn inode_init(&self, ns: &mut Namespace, slot: Handle, init: &InodeInit<'_>, acl: Handle) {
        let ino = init.ino.unwrap_or_else(|| ns.mnt.next_ino(init.sb));
        let (i, rest) = (self.inode(slot), self.inode_rest(slot));
        let _change = self.open_inode(ns, slot);
        let stored = if init.blocks.is_some() { flags::BLOCKS_STORED } else { 0 };
        let opted_in = ns.mnt.supers.get(init.sb).is_some_and(|sb| sb.fastperm);
        let fastperm = if opted_in && init.mode & S_IFMT == S_IFDIR { flags::FASTPERM } else { 0 };
        i.mode.set(init.mode | init.iflags | stored | fastperm);
        i.uid.set(init.uid);
        i.gid.set(init.gid);
        i.nlink.set(init.nlink);
        i.acl.set(acl);
        i.size.set(init.size);
        i.ino.set(ino);
        rest.count.set(0);
        rest.xattrs.set(0);
        rest.blocks.set(init.blocks.unwrap_or(0));
        rest.first_child.set(0);
        rest.last_child.set(0);
        rest.next_offset.set(DIR_OFFSET_MIN);
        rest.alias.set(slot);
        self.set_times(ns, slot, init.times);
    }

    /// A further dentry for `inode`, not hashed yet and held once, by the caller.
    pub(crate) fn new_dentry(&self, ns: &mut Namespace, inode: Handle) -> Result<Handle> {
        let slot = self.slot_alloc()?;
        self.dentry_init(ns, slot, inode);
        Ok(slot)
    }

    /// Fills the dentry half of a slot: nameless, its own parent.
    fn dentry_init(&self, ns: &Namespace, slot: Handle, inode: Handle) {
        let (d, i) = (self.dentry(slot), self.inode(inode));
        {
            let _change = self.open_dentry(ns, slot);
            let mode = i.mode.get();
            d.parent.set(slot);
            d.hash.set(0);
            d.inode.set(inode);
            let open = mode & S_IFMT == S_IFDIR && i.everyone_may_search();
            d.meta.set(Meta::new(0, mode).with_may_search(open).0);
            d.name.iter().for_each(|word| word.set(0));
        }
        let rest = self.inode_rest(inode);
        rest.count.set(rest.count.get() + 1);
        self.links(slot).count.init();
    }

    /// Names `dentry` and makes it findable in `parent`, whose count of changes the caller has opened, so that a lockless
    /// miss in `parent` is thrown away. The caller's reference becomes the tree's.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if a long name finds no room; nothing changed then.
    ///
    /// Kernel: fs/dcache.c `d_add()`.
    pub(crate) fn d_add(
        &self,
        ns: &mut Namespace,
        dentry: Handle,
        parent: Handle,
        name: Name<'_>,
    ) -> Result<()> {
        let (dir, inode) = (self.d_inode(parent), self.d_inode(dentry));
        let words = self.name_words(name)?;
        let offset = self.next_offset(ns, dir).inspect_err(|_| self.free_words(name.component, words))?;
        self.links(parent).count.get();
        self.d_place(ns, dentry, parent, name, words, offset);
        if ns.feed.as_mut().is_some_and(|feed| feed.linked(dir, inode)) {
            // It may have been written to before it had a name.
            let pages = self.inode_rest(inode).blocks.get() / 8;
            self.spend_on_record(ns, inode, pages * PAGE_SIZE as u64);
        }
        Ok(())
    }

    /// The words that go into a dentry of this name. A long name is stored first, and is to be freed if it is not used.
    fn name_words(&self, name: Name<'_>) -> Result<[u64; INLINE_NAME / 8]> {
        let mut words = [0; INLINE_NAME / 8];
        let c = name.component;
        if c.len as usize > INLINE_NAME {
            words[0] = c.first;
            words[1] = u64::from(self.blobs.alloc(name.bytes())?);
        } else {
            words
                .iter_mut()
                .zip(name::words(name.path, name.start, c.len, 0))
                .for_each(|(to, word)| *to = word);
        }
        Ok(words)
    }

    /// Writes name and parent into a dentry that is in no chain and no list, and puts it into both.
    fn d_place(
        &self,
        ns: &mut Namespace,
        dentry: Handle,
        parent: Handle,
        name: Name<'_>,
        words: [u64; INLINE_NAME / 8],
        offset: u32,
    ) {
        if ns.feed.is_some() {
            let taken = self.d_lookup(ns, parent, name).is_some();
            ns.feed.iter_mut().for_each(|feed| feed.named(self.d_inode(parent), name.bytes(), taken));
        }
        let (d, c) = (self.dentry(dentry), name.component);
        let change = self.open_dentry(ns, dentry);
        d.parent.set(parent);
        d.hash.set(c.hash);
        d.name.iter().zip(words).for_each(|(to, word)| to.set(word));
        d.meta.set(Meta(d.meta.get()).with_name_len(c.len as usize).with_hashed(true).0);
        ns.chains.insert(&self.chains, self, dentry);
        drop(change);
        self.add_child(ns, self.d_inode(parent), dentry, offset);
    }

    /// Makes `dentry` unfindable. It keeps its name and parent, as `getcwd` and `..` of a removed directory need them.
    /// The tree's reference passes to the caller.
    ///
    /// Kernel: fs/dcache.c `d_drop()`.
    pub(crate) fn d_drop(&self, ns: &mut Namespace, dentry: Handle) {
        // A directory that is dropped is empty: paths can only have left it again.
        let turned_at = Meta(self.dentry(dentry).meta.get()).is_remembered();
        let _paths = turned_at.then(|| self.open_paths(ns));
        self.d_unhash(ns, dentry);
        if let Some(feed) = &mut ns.feed {
            feed.unlinked(self.d_inode(dentry));
        }
    }

    fn d_unhash(&self, ns: &mut Namespace, dentry: Handle) {
        let d = self.dentry(dentry);
        {
            let _change = self.open_dentry(ns, dentry);
            d.meta.set(Meta(d.meta.get()).with_hashed(false).0);
            ns.chains.remove(&self.chains, self, dentry);
        }
        if ns.feed.is_some() {
            let (parent, name) = (d.parent.get(), self.d_name(dentry));
            let taken = self.d_lookup(ns, parent, self.name(&name)).is_some();
            ns.feed.iter_mut().for_each(|feed| feed.unnamed(self.d_inode(parent), &name, taken));
        }
        self.remove_child(ns, self.d_inode(d.parent.get()), dentry);
    }

    /// Gives `dentry` another name, parent and offset. `over` had them until now: it leaves the list of the directory, and the
    /// caller drops it. The caller has opened the counts of changes of both directories.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if a long name finds no room; nothing changed then.
    ///
    /// Kernel: fs/dcache.c `d_move()`.
    pub(crate) fn d_move(
        &self,
        ns: &mut Namespace,
        dentry: Handle,
        parent: Handle,
        name: Name<'_>,
        offset: u32,
        over: Option<Handle>,
    ) -> Result<()> {
        let words = self.name_words(name)?;
        let _rename = self.rename_seq.write();
        let _paths = self.leads_on(dentry).then(|| self.open_paths(ns));
        if let Some(over) = over {
            self.remove_child(ns, self.d_inode(parent), over);
        }
        self.d_remake(ns, dentry, parent, name, words, offset);
        Ok(())
    }

    fn d_remake(
        &self,
        ns: &mut Namespace,
        dentry: Handle,
        parent: Handle,
        name: Name<'_>,
        words: [u64; INLINE_NAME / 8],
        offset: u32,
    ) {
        let d = self.dentry(dentry);
        let (old_parent, old_meta, old_blob) = (d.parent.get(), Meta(d.meta.get()), d.name[1].get());
        self.links(parent).count.get();
        // Unfindable for a moment: a walker that misses it now also sees that the directory changed.
        self.d_unhash(ns, dentry);
        self.d_place(ns, dentry, parent, name, words, offset);
        if old_meta.name_len() > INLINE_NAME {
            self.blobs.free(old_blob as Handle);
        }
        self.put_locked(ns, old_parent);
    }

    /// Exchanges name, parent and offset of two dentries. The caller has opened the counts of changes of both directories.
    ///
    /// Kernel: fs/dcache.c `d_exchange()`.
    pub(crate) fn d_exchange(&self, ns: &mut Namespace, a: Handle, b: Handle) -> Result<()> {
        let place = |dentry: Handle| (self.dentry(dentry).parent.get(), self.d_name(dentry));
        let ((parent_a, name_a), (parent_b, name_b)) = (place(a), place(b));
        let (name_a, name_b) = (self.name(&name_a), self.name(&name_b));
        let words_a = self.name_words(name_a)?;
        let words_b = self.name_words(name_b).inspect_err(|_| self.free_words(name_a.component, words_a))?;
        let _rename = self.rename_seq.write();
        let _paths = (self.leads_on(a) || self.leads_on(b)).then(|| self.open_paths(ns));
        let [offset_a, offset_b] = [a, b].map(|dentry| self.dentry_offset(dentry));
        self.remove_child(ns, self.d_inode(parent_a), a);
        self.remove_child(ns, self.d_inode(parent_b), b);
        // The first of the two is the first in the list in the end.
        self.d_remake(ns, b, parent_a, name_a, words_a, offset_a);
        self.d_remake(ns, a, parent_b, name_b, words_b, offset_b);
        Ok(())
    }

    /// Starts a change of what remembered paths lead through, which ends when the guard is dropped.
    pub(crate) fn open_paths(&self, ns: &Namespace) -> SeqWrite<'_> {
        let change = self.path_seq.write();
        self.paths.forget_round(ns, change.after());
        change
    }

    /// Whether remembered paths may lead through this dentry.
    fn leads_on(&self, dentry: Handle) -> bool {
        let meta = Meta(self.dentry(dentry).meta.get());
        meta.is_dir() || meta.is_remembered()
    }

    fn free_words(&self, c: Component, words: [u64; INLINE_NAME / 8]) {
        if c.len as usize > INLINE_NAME {
            self.blobs.free(words[1] as Handle);
        }
    }

    /// Gives a reference back while the lock is held.
    pub(crate) fn put_locked(&self, ns: &mut Namespace, dentry: Handle) {
        if self.links(dentry).count.put() {
            self.dentry_free(ns, dentry);
        }
    }

    /// Frees a dentry that nobody refers to, and its inode if this was its last dentry. Gives its parent, if nobody refers to that
    /// any more.
    pub(crate) fn free_one(&self, ns: &mut Namespace, at: Handle) -> Option<Handle> {
        let d = self.dentry(at);
        let (parent, inode, meta) = (d.parent.get(), d.inode.get(), Meta(d.meta.get()));
        debug_assert!(meta.is_live() && !meta.is_hashed());
        {
            let _change = self.open_dentry(ns, at);
            d.meta.set(0);
        }
        if meta.name_len() > INLINE_NAME {
            self.blobs.free(d.name[1].get() as Handle);
        }
        let rest = self.inode_rest(inode);
        rest.count.set(rest.count.get() - 1);
        if rest.count.get() == 0 {
            self.inode_free(ns, inode);
        }
        if inode != at {
            self.slot_free_if_idle(at);
        }
        (parent != at && self.links(parent).count.put()).then_some(parent)
    }

    /// Frees an inode that no dentry leads to.
    fn inode_free(&self, ns: &mut Namespace, inode: Handle) {
        let (i, rest) = (self.inode(inode), self.inode_rest(inode));
        let (mode, acl) = (i.mode.get(), i.acl.get());
        {
            let _change = self.open_inode(ns, inode);
            i.acl.set(0);
            i.mode.set(0);
            i.nlink.set(0);
        }
        for blob in [acl, rest.default_acl.get()] {
            if blob != 0 {
                self.blobs.free(blob);
            }
        }
        match mode & S_IFMT {
            S_IFLNK => self.blobs.free(rest.data.get()),
            S_IFREG => self.drop_contents(ns, rest.data.get()),
            S_IFDIR => drop(ns.offsets.remove(rest.data.get())),
            _ => {}
        }
        self.drop_xattrs(ns, rest.xattrs.get());
        if !ns.nameless.is_empty()
            && let Some(sb) = ns.nameless.remove(&inode)
        {
            self.release_name(ns, sb);
        }
        if mode & flags::WIDE_TIMES != 0 {
            ns.wide_times.remove(&inode);
        }
        if !ns.exported.is_empty() {
            ns.exported.remove(&inode);
        }
        self.slot_free_if_idle(inode);
    }

    /// Frees a slot of which neither half is in use.
    fn slot_free_if_idle(&self, slot: Handle) {
        let dentry_idle = !Meta(self.dentry(slot).meta.get()).is_live();
        if dentry_idle && self.inode_rest(slot).count.get() == 0 {
            let keep = KEEP_CHUNKS.max(self.slots.in_use() / 1024);
            if self.slots.free(slot, keep) {
                self.slots.give_back(|slots| self.retire(slots));
            }
        }
    }

    /// A slot that nobody uses. If its memory was given back, its counts go on above those that it had, for readers and remembered
    /// paths hold it to them.
    fn slot_alloc(&self) -> Result<Handle> {
        let slot = self.slots.alloc()?;
        self.dentry(slot).seq.restart(self.retired.get());
        self.inode(slot).seq.restart(self.retired.get());
        Ok(slot)
    }

    /// Lets slots go that nobody uses, and what stands beside them; not when the counts come near their end.
    fn retire(&self, slots: Range<Handle>) -> bool {
        let counts = slots.clone().flat_map(|at| [self.dentry(at).seq.begin(), self.inode(at).seq.begin()]);
        let highest = counts.chain([self.retired.get()]).max().unwrap_or_default();
        if highest > u32::MAX / 2 {
            return false;
        }
        self.retired.set(highest + 2);
        self.rest.discard(slots);
        true
    }

    /// Changes permissions, owner or access ACL of an inode in one step, and with them the "may search" bit of a
    /// directory's dentry. `change` writes into the open inode; it gets the mode with its flags.
    pub(crate) fn change_inode(
        &self,
        ns: &mut Namespace,
        inode: Handle,
        change: impl FnOnce(&Inode, &mut Namespace),
    ) {
        let i = self.inode(inode);
        let is_dir = i.mode.get() & S_IFMT == S_IFDIR;
        let dentry = if is_dir { self.inode_rest(inode).alias.get() } else { 0 };
        let alias = self.dentry(dentry);
        // The bit and what it is derived from change under both counts at once: a reader that validates either sees both.
        let _paths = step!("change-paths", is_dir).then(|| self.open_paths(ns));
        let _bit = is_dir.then(|| self.open_dentry(ns, dentry));
        let _inode = self.open_inode(ns, inode);
        change(i, ns);
        if step!("change-bit", is_dir) {
            let open = i.everyone_may_search();
            alias.meta.set(Meta(alias.meta.get()).with_may_search(open).0);
        }
    }

    /// Reads a stored ACL back; for callers that hold the lock.
    pub(crate) fn acl(&self, blob: Handle) -> Result<Acl> {
        let words = self.blobs.len(blob) as u32 / 8;
        Acl::from_words((0..words).map(|i| self.blobs.word(blob, i)))
    }

    /// The contents of a regular file, made if it has none yet: a hole of its size.
    pub(crate) fn contents(
        &self,
        ns: &mut Namespace,
        inode: Handle,
        budget: &Arc<PageBudget>,
    ) -> Result<Arc<Contents>> {
        let (i, rest) = (self.inode(inode), self.inode_rest(inode));
        if let Some(contents) = ns.contents.get(rest.data.get()) {
            return Ok(Arc::clone(contents));
        }
        let mut data = FileData::new();
        data.truncate(budget, i.size.get())?;
        if ns.feed.is_some() {
            data.track();
        }
        budget.charge_memory(1, CONTENTS_BYTES)?;
        let contents = Arc::new(Contents { data: RwLock::new(data), budget: Arc::clone(budget) });
        rest.data.set(ns.contents.insert(Arc::clone(&contents))?);
        Ok(contents)
    }

    /// Notes that an inode changes, for the change feed.
    #[inline]
    pub(crate) fn note_change(&self, ns: &mut Namespace, inode: Handle) {
        if ns.feed.as_mut().is_some_and(|feed| feed.changed(inode)) {
            self.spend_on_record(ns, inode, 0);
        }
    }

    /// Counts what telling of an inode costs beside what every record does.
    #[cold]
    fn spend_on_record(&self, ns: &Namespace, inode: Handle, contents: u64) {
        let bytes = contents.saturating_add(self.xattr_bytes(ns, inode));
        ns.feed.iter().for_each(|feed| feed.spend(bytes));
    }

    /// What the extended attributes of an inode other than ACLs take; bytes.
    pub(crate) fn xattr_bytes(&self, ns: &Namespace, inode: Handle) -> u64 {
        let xattrs = self.xattrs(ns, inode).into_iter().flatten();
        xattrs.map(|(name, value)| (name.len() + value.len()) as u64).sum()
    }

    /// The extended attributes of an inode other than ACLs, if it ever had any.
    pub(crate) fn xattrs<'n>(&self, ns: &'n Namespace, inode: Handle) -> Option<&'n Xattrs> {
        ns.xattrs.get(self.inode_rest(inode).xattrs.get()).map(CountedXattrs::all)
    }

    /// The same, to change them.
    pub(crate) fn xattrs_mut<'n>(
        &self,
        ns: &'n mut Namespace,
        inode: Handle,
    ) -> Option<&'n mut CountedXattrs> {
        self.note_change(ns, inode);
        ns.xattrs.get_mut(self.inode_rest(inode).xattrs.get())
    }

    /// The same, made for the file system `sb` if there are none.
    pub(crate) fn make_xattrs<'n>(
        &self,
        ns: &'n mut Namespace,
        inode: Handle,
        sb: u32,
    ) -> Result<&'n mut CountedXattrs> {
        let rest = self.inode_rest(inode);
        if rest.xattrs.get() == 0 {
            let space = Arc::clone(&ns.mnt.supers.get(sb).ok_or(Errno::ESTALE)?.space);
            rest.xattrs.set(ns.xattrs.insert(CountedXattrs::new(space))?);
        }
        self.xattrs_mut(ns, inode).ok_or(Errno::ENOMEM)
    }

    /// Counts a writer of a regular file, unless it is being executed. Kernel: `get_write_access()`.
    pub(crate) fn get_write_access(&self, _: &Namespace, inode: Handle) -> Result<()> {
        let count = self.write_count(inode);
        match count.get() as i32 {
            n if n < 0 => Err(Errno::ETXTBSY),
            n => {
                count.set(n as u32 + 1);
                Ok(())
            }
        }
    }

    /// Kernel: `put_write_access()`.
    pub(crate) fn put_write_access(&self, _: &Namespace, inode: Handle) {
        let count = self.write_count(inode);
        count.set(count.get().wrapping_sub(1));
    }

    /// Counts an execution of a regular file, unless it is open for writing. Kernel: `exe_file_deny_write_access()`.
    pub(crate) fn deny_write_access(&self, _: &Namespace, inode: Handle) -> Result<()> {
        let count = self.write_count(inode);
        match count.get() as i32 {
            n if n > 0 => Err(Errno::ETXTBSY),
            n => {
                count.set((n - 1) as u32);
                Ok(())
            }
        }
    }

    /// Kernel: `exe_file_allow_write_access()`.
    pub(crate) fn allow_write_access(&self, _: &Namespace, inode: Handle) {
        let count = self.write_count(inode);
        count.set(count.get().wrapping_add(1));
    }

    /// Writers of a regular file, or, negative, those who deny writing. Lies where directories have their children.
    fn write_count(&self, inode: Handle) -> &Racy32 {
        debug_assert_eq!(self.inode(inode).mode.get() & S_IFMT, S_IFREG);
        &self.inode_rest(inode).first_child
    }

    /// How many have a fifo open for reading, and for writing. Lies where directories have the ends of their list.
    pub(crate) fn fifo_ends(&self, _: &Namespace, inode: Handle) -> [u32; 2] {
        debug_assert_eq!(self.inode(inode).mode.get() & S_IFMT, S_IFIFO);
        let rest = self.inode_rest(inode);
        [rest.first_child.get(), rest.last_child.get()]
    }

    /// Adds `by` to those counts of [`fifo_ends`](Self::fifo_ends) that `open` says.
    pub(crate) fn count_fifo_ends(&self, ns: &Namespace, inode: Handle, open: [bool; 2], by: i32) {
        let [readers, writers] = self.fifo_ends(ns, inode);
        let rest = self.inode_rest(inode);
        if open[0] {
            rest.first_child.set(readers.saturating_add_signed(by));
        }
        if open[1] {
            rest.last_child.set(writers.saturating_add_signed(by));
        }
    }

    /// Stores an access or default ACL for later use in [`change_inode`](Self::change_inode).
    pub(crate) fn store_acl(&self, entries: &[AclEntry]) -> Result<Handle> {
        Ok(self.blobs.alloc(&pack_acl(entries))?)
    }

    /// Adds a name to a directory, or takes one away, as far as the directory's own attributes go: `change` runs while
    /// its count is open, so that no lockless miss in it is believed.
    pub(crate) fn change_dir<R>(
        &self,
        ns: &mut Namespace,
        dir: Handle,
        now: Timespec,
        change: impl FnOnce(&mut Namespace) -> Result<R>,
    ) -> Result<R> {
        let _open = self.open_inode(ns, dir);
        let value = change(ns)?;
        self.touch(ns, dir, Touch::MC, now);
        Ok(value)
    }
}

/// An ACL as the blob that [`crate::dcache::inode::RacyAcl`] reads.
fn pack_acl(entries: &[AclEntry]) -> Vec<u8> {
    entries.iter().flat_map(|entry| entry.to_word().to_le_bytes()).collect()
}
