//! What changes, for a program that keeps the tree elsewhere.
//!
//! A file system that is watched collects which inodes, names and contents changed since they were last asked for. The
//! values are read when they are asked for, so what changed ten times is told once. Nothing can be forgotten: an inode
//! changes under `Store::open_inode`, a name under `Store::d_place` and `Store::d_unhash`, contents
//! in [`FileData`]; there is no other way to change them.
//!
//! What is told is a state between whole calls. The name space lock makes one of almost every call; writing changes contents
//! first and attributes afterwards, and holds the *gate* shared meanwhile, which [`Changes::drain`] holds alone.
//!
//! Only the file system at the root of the tree is told of, and of it what has a name: each inode gets a *key*, which is
//! never used twice, when it is linked below the root, and loses it with its last name.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use crate::dcache::feed::{Feed, Tracked};
use crate::dcache::inode::flags;
use crate::dcache::remains::NsGuard;
use crate::dcache::store::{Contents, Namespace};
use crate::kernel::Kernel;
use crate::kernel::vfs::Vfs;
pub use crate::kernel::watch::Backing;
use crate::kernel::watch::Watch;
use crate::mount::ROOT_SB;
use crate::perm::IFLAGS_KEPT;
use crate::perm::acl::{XATTR_NAME_POSIX_ACL_ACCESS, XATTR_NAME_POSIX_ACL_DEFAULT};
pub use crate::tmpfs::pages::{CHUNK_PAGES, FileData, MAX_FILE_SIZE, PAGE_SIZE, PageState};
use crate::trees::loader::{Loader, NewInode, NodeId};
use rcuwalk_sync::Handle;
use rcuwalk_sync::lock::{PoisonError, TryLockError};
use std::ops::Range;
use std::sync::Arc;

/// One change.
#[derive(Debug)]
pub enum Change<'a> {
    /// What had this key is no more: of a directory, neither are its names.
    Gone(u64),
    /// An inode is new, or changed.
    Node(Node<'a>),
    /// The name `name` of the directory `dir`, a key, is new, leads elsewhere or is no more.
    Name {
        /// The directory's key.
        dir: u64,
        /// The name.
        name: &'a [u8],
        /// What it leads to: a key, and the [offset](Loader::set_offset) at which getdents(2) finds it.
        to: Option<(u64, u32)>,
    },
}

/// An inode that changed.
#[derive(Debug)]
#[non_exhaustive]
pub struct Node<'a> {
    /// Which.
    pub key: u64,
    /// What a [`Loader`] makes it of.
    pub inode: NewInode<'a>,
    /// Its link count.
    pub nlink: u32,
    /// Its contents are not known: it was imported without.
    pub unread: bool,
    /// Nothing was told of it before.
    pub fresh: bool,
    data: Option<&'a FileData>,
    changed: &'a [Range<u64>],
}

impl<'a> Node<'a> {
    /// The contents; `None` if there are none, or only a hole.
    pub fn data(&self) -> Option<&'a FileData> {
        self.data
    }

    /// Which pages of the contents changed, ascending; the last range may end anywhere beyond the end.
    pub fn changed_pages(&self) -> &'a [Range<u64>] {
        self.changed
    }
}

/// What else [`Changes::drain`] tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// No key from here on was given to anything.
    pub next_key: u64,
    /// As [`Loader::next_ino`].
    pub next_ino: u64,
    /// What the changes that were told cost on the disk at most; bytes.
    pub cost: u64,
}

/// The key of the root directory.
pub const ROOT_KEY: u64 = 1;

/// The watch over a [`Vfs`]: made by [`Loader::watch`], ended by dropping it.
///
/// ```
/// use rcuwalk::changes::Change;
/// use rcuwalk::{Cred, Vfs};
///
/// let vfs = Vfs::new()?;
/// let changes = vfs.loader().watch(&vfs, &[], 2)?;
/// let task = vfs.task(Cred::root());
/// task.mkdir(b"/srv", 0o755)?;
/// task.creat(b"/tmp", 0o600)?;
/// task.unlink(b"/tmp")?;
/// let mut names = Vec::new();
/// changes.drain(|change| {
///     if let Change::Name { name, to: Some(_), .. } = change {
///         names.push(name.to_vec());
///     }
/// });
/// assert_eq!(names, [b"srv"]);
/// # Ok::<(), rcuwalk::Errno>(())
/// ```
#[derive(Debug)]
pub struct Changes {
    vfs: Vfs,
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Loader<'_> {
    /// Begins to watch the file system at the root of the tree of `vfs`, whose loader this is. Nodes that are `known` have
    /// these keys, all below `next_key`, and are told of when they change; all others at once. The root has [`ROOT_KEY`].
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is watched already; `EINVAL` if the loader belongs to another file system, or a key does not lie between
    /// [`ROOT_KEY`] and `next_key`.
    pub fn watch(&mut self, vfs: &Vfs, known: &[(NodeId, u64)], next_key: u64) -> Result<Changes> {
        let (kernel, ns) = self.parts();
        if !std::ptr::eq(kernel, &*vfs.0) || known.iter().any(|&(_, key)| !(1..next_key).contains(&key)) {
            return Err(Errno::EINVAL);
        }
        if ns.feed.is_some() {
            return Err(Errno::EBUSY);
        }
        let store = &kernel.store;
        let costs = Arc::clone(&kernel.watch.costs);
        let mut feed = Feed { next_key: next_key.max(ROOT_KEY + 1), costs, ..Feed::default() };
        for &(node, key) in known {
            feed.node(store.d_inode(node.handle())).key = key;
        }
        let top = store.d_inode(kernel.root().dentry);
        let root = feed.node(top);
        root.names = 1;
        if root.key == 0 {
            (root.key, root.fresh) = (ROOT_KEY, true);
            feed.changed(top);
        }
        let mut dirs = vec![top];
        while let Some(dir) = dirs.pop() {
            for at in store.children_oldest_first(dir) {
                let inode = store.d_inode(at);
                if feed.key(inode).is_none() {
                    feed.linked(dir, inode);
                    feed.named(dir, &store.d_name(at), false);
                } else {
                    let node = feed.node(inode);
                    node.names += 1;
                    // A further name of what was not known either.
                    if node.fresh {
                        feed.named(dir, &store.d_name(at), false);
                    }
                }
                if store.inode(inode).mode.get() & S_IFMT == S_IFDIR {
                    dirs.push(inode);
                }
            }
        }
        for contents in ns.contents.iter() {
            // Contents that a task is writing to right now are reported whole, later.
            if let Ok(mut data) = contents.data.try_write() {
                data.track();
            }
        }
        ns.feed = Some(Box::new(feed));
        kernel.watch.unsaved.set(0);
        kernel.watch.limit.set(u64::MAX);
        kernel.watch.costs.left.set(u64::MAX);
        kernel.watch.on.set(1);
        Ok(Changes { vfs: vfs.clone() })
    }
}

impl Changes {
    /// Who makes changes durable from now on, for fsync(2) and its like.
    pub fn set_backing(&self, backing: Arc<dyn Backing>) {
        *self.watch().backing.lock().unwrap_or_else(PoisonError::into_inner) = Some(backing);
    }

    /// How many bytes of contents may have changed before a writer must make them durable; without limit at first.
    pub fn set_limit(&self, bytes: u64) {
        self.watch().limit.set(bytes);
    }

    /// How many bytes changes that were not told yet may cost on the disk; without limit at first. What takes more asks the
    /// backing to [make room](Backing::make_room).
    pub fn grant(&self, bytes: u64) {
        let _ns = self.vfs.0.store.lock();
        let costs = &self.watch().costs;
        costs.left.set(bytes.saturating_sub(costs.spent.get()));
    }

    /// Lowers what is granted to `bytes`, if no change waits and no call is under way; tells whether it did. A call that
    /// was let in keeps the room it was let in for.
    pub fn rest(&self, bytes: u64) -> bool {
        let _ns = self.vfs.0.store.lock();
        let watch = self.watch();
        let in_flight = watch.in_flight();
        let idle = *in_flight == 0 && watch.costs.spent.get() == 0;
        if idle {
            watch.costs.left.set(bytes);
        }
        idle
    }

    /// How many bytes changes that were not told yet, and calls under way, cost on the disk at most.
    pub fn needed(&self) -> u64 {
        let in_flight = self.watch().in_flight();
        self.watch().costs.spent.get().saturating_add(*in_flight)
    }

    /// What calls that take space fail with from now on.
    pub fn set_refusal(&self, errno: Option<Errno>) {
        self.watch().refusal.set(errno.map_or(0, Errno::raw) as u32);
    }

    /// Bytes of contents that changed and were not told yet.
    pub fn unsaved(&self) -> u64 {
        self.watch().unsaved.get()
    }

    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        let ns = self.vfs.0.store.lock();
        ns.feed.as_ref().is_none_or(|f| f.listed.is_empty() && f.names.is_empty() && f.gone.is_empty())
    }

    /// Ends the watch.
    pub fn stop(&self) {
        let watch = self.watch();
        let mut ns = self.vfs.0.store.lock();
        if ns.feed.take().is_some() {
            watch.on.set(0);
            watch.refusal.set(0);
            drop(ns);
            *watch.backing.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    fn watch(&self) -> &Watch {
        &self.vfs.0.watch
    }

    /// Tells what changed since this was last called, as it is at one moment between whole calls: what is gone, then inodes,
    /// then names. Nothing else can change until it returns; `tell` must not call into the file system.
    pub fn drain(&self, mut tell: impl FnMut(Change<'_>)) -> Drained {
        let kernel = &*self.vfs.0;
        loop {
            let _gate = kernel.watch.gate.write().unwrap_or_else(PoisonError::into_inner);
            let mut ns = kernel.store.lock();
            let Some(mut feed) = ns.feed.take() else {
                return Drained { next_key: ROOT_KEY + 1, next_ino: 1, cost: 0 };
            };
            if !feed.listed.iter().all(|&inode| is_quiet(kernel, &ns, inode)) {
                // A call that began before the watch is writing: it waits for the name space lock.
                ns.feed = Some(feed);
                drop(ns);
                std::thread::yield_now();
                continue;
            }
            feed.tell(kernel, &ns, &mut tell);
            kernel.watch.unsaved.set(0);
            let cost = kernel.watch.costs.spent.get();
            kernel.watch.costs.spent.set(0);
            let next_ino = ns.mnt.supers.get(ROOT_SB).map_or(1, |sb| sb.next_ino);
            let drained = Drained { next_key: feed.next_key, next_ino, cost };
            ns.feed = Some(feed);
            return drained;
        }
    }
}

impl Vfs {
    /// Whether a [`Backing`] keeps it, so that fsync(2) and its like have something to do.
    pub fn is_kept(&self) -> bool {
        self.0.watch.backing.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Waits until all that was done before is durable, if a [`Backing`] keeps it.
    ///
    /// # Errors
    ///
    /// As [`Backing::sync`].
    pub fn sync(&self) -> Result<()> {
        self.0.watch.sync()
    }
}

/// The contents of an inode, if it is a regular file and has any.
fn contents<'n>(kernel: &Kernel, ns: &'n Namespace, inode: Handle) -> Option<&'n Arc<Contents>> {
    let is_file = kernel.store.inode(inode).mode.get() & S_IFMT == S_IFREG;
    ns.contents.get(kernel.store.inode_rest(inode).data.get()).filter(|_| is_file)
}

/// Whether nobody is writing to an inode's contents.
fn is_quiet(kernel: &Kernel, ns: &Namespace, inode: Handle) -> bool {
    contents(kernel, ns, inode)
        .is_none_or(|contents| !matches!(contents.data.try_read(), Err(TryLockError::WouldBlock)))
}

impl Feed {
    fn tell(&mut self, kernel: &Kernel, ns: &NsGuard<'_>, tell: &mut impl FnMut(Change<'_>)) {
        self.gone.drain(..).for_each(|key| tell(Change::Gone(key)));
        for inode in std::mem::take(&mut self.listed) {
            let node = self.node(inode);
            node.listed = false;
            let Tracked { key, dirty, fresh, .. } = *node;
            if key != 0 && dirty {
                (node.dirty, node.fresh) = (false, false);
                tell_node(kernel, ns, inode, key, fresh, tell);
            }
        }
        for (dir, names) in std::mem::take(&mut self.names) {
            let Some(key) = self.key(dir) else { continue };
            let dentry = kernel.store.inode_rest(dir).alias.get();
            for name in names.keys() {
                let found = kernel.store.d_lookup(ns, dentry, kernel.store.name(name));
                let to = found.and_then(|child| {
                    let to = self.key(kernel.store.d_inode(child))?;
                    Some((to, kernel.store.dentry_offset(child)))
                });
                tell(Change::Name { dir: key, name, to });
            }
        }
    }
}

/// Tells of one inode; of a fresh one all contents.
fn tell_node(
    kernel: &Kernel,
    ns: &Namespace,
    inode: Handle,
    key: u64,
    fresh: bool,
    tell: &mut impl FnMut(Change<'_>),
) {
    let store = &kernel.store;
    let (i, rest) = (store.inode(inode), store.inode_rest(inode));
    let stat = store.fill_kstat_held(ns, inode);
    let mut acls = Vec::new();
    for (name, blob) in
        [(XATTR_NAME_POSIX_ACL_ACCESS, i.acl.get()), (XATTR_NAME_POSIX_ACL_DEFAULT, rest.default_acl.get())]
    {
        if let (true, Ok(acl)) = (blob != 0, store.acl(blob)) {
            acls.push((name, acl.to_xattr(|uid| uid, |gid| gid)));
        }
    }
    let mut xattrs: Vec<(&[u8], &[u8])> = acls.iter().map(|(name, value)| (*name, &value[..])).collect();
    let plain = store.xattrs(ns, inode).into_iter().flatten();
    xattrs.extend(plain.map(|(name, value)| (&name[..], &value[..])));
    let mut body = Vec::new();
    if stat.mode & S_IFMT == S_IFLNK {
        // Fails only without memory; the reader then refuses the empty body.
        let _ = store.link_body(inode, &mut body);
    }
    let device = matches!(stat.mode & S_IFMT, S_IFCHR | S_IFBLK);
    let new = NewInode {
        mode: stat.mode,
        uid: stat.uid,
        gid: stat.gid,
        rdev: if device { u64::from(stat.rdev) } else { 0 },
        size: stat.size,
        blocks: Some(stat.blocks),
        ino: Some(stat.ino),
        atime: stat.times.atime,
        mtime: stat.times.mtime,
        ctime: stat.times.ctime,
        btime: stat.times.btime,
        iflags: stat.iflags >> 16 & IFLAGS_KEPT,
        symlink: &body,
        xattrs: &xattrs,
    };
    let unread = stat.iflags & flags::NO_CONTENT != 0;
    // No holder waits for it: the gate keeps writers away, and readers take no lock meanwhile.
    let mut data =
        contents(kernel, ns, inode).map(|c| c.data.write().unwrap_or_else(PoisonError::into_inner));
    let mut changed = data.as_mut().map_or(Vec::new(), |data| data.take_changed());
    if fresh {
        changed.clear();
        changed.push(0..u64::MAX);
    }
    let data = data.as_deref();
    tell(Change::Node(Node { key, inode: new, nlink: stat.nlink, unread, fresh, data, changed: &changed }));
}
