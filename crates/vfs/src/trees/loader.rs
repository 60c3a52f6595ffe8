//! Adding whole trees.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::*;
use crate::calls::dirops::SHORT_SYMLINK;
use crate::cred::userns::{MountIdmap, UserNamespace};
use crate::dcache::children::{DIR_OFFSET_EOD, DIR_OFFSET_MIN};
use crate::dcache::inode::{Times, flags};
use crate::dcache::store::InodeInit;
use crate::kernel::Kernel;
use crate::kernel::mount_lock::MountGuard;
use crate::kernel::vfs::{MountOptions, Vfs};
use crate::mount::{self, Path, ROOT_MOUNT, ROOT_SB};
use crate::perm;
use crate::perm::acl::{
    Acl, XATTR_NAME_POSIX_ACL_ACCESS, XATTR_NAME_POSIX_ACL_DEFAULT, posix_acl_from_xattr,
};
use crate::perm::setattr::AclType;
use crate::tmpfs::ispace::InodeSpace;
use crate::tmpfs::pages::{FileData, PageBudget};
use rcuwalk_sync::Handle;
use std::sync::Arc;

/// A node of the tree, as a [`Loader`] knows it. Meaningless to another file system, or once it was removed.
///
/// Its dentry, and the file system that it is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(Handle, u32);

impl NodeId {
    pub(crate) fn handle(self) -> Handle {
        self.0
    }
}

/// What a node is made of: whatever its source says, unchecked against any credential.
///
/// ```
/// use rcuwalk::{NewInode, Vfs, Cred};
/// let vfs = Vfs::new()?;
/// let mut loader = vfs.loader();
/// let dir = loader.add(loader.root(), b"etc", &NewInode::new(0o040755))?;
/// loader.add(dir, b"shadow", &NewInode::new(0o100640).with_gid(42).with_size(1200))?;
/// drop(loader);
/// let shadow = vfs.task(Cred::user(1000, 1000, &[42])).access(b"/etc/shadow", 4);
/// assert_eq!(shadow, Ok(()));
/// # Ok::<(), rcuwalk::Errno>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct NewInode<'a> {
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Of a device: which, as in `st_rdev`.
    pub rdev: u64,
    /// Bytes, as in `st_size`. Of a link, the length of its body counts instead.
    pub size: u64,
    /// Units of 512 bytes, as in `st_blocks`; `None` derives them from the size.
    pub blocks: Option<u64>,
    /// The inode number; `None` gives the next free one.
    pub ino: Option<u64>,
    /// Last access.
    pub atime: Timespec,
    /// Last modification.
    pub mtime: Timespec,
    /// Last change of status.
    pub ctime: Timespec,
    /// Birth.
    pub btime: Timespec,
    /// `IFLAG_IMMUTABLE`, `IFLAG_APPEND`, `IFLAG_NOATIME`, `IFLAG_NODUMP`.
    pub iflags: u32,
    /// The body of a link.
    pub symlink: &'a [u8],
    /// Extended attributes, names and values as the kernel has them; ACLs among them.
    pub xattrs: &'a [(&'a [u8], &'a [u8])],
}

impl<'a> NewInode<'a> {
    /// An inode of this type with these permissions, as in `st_mode`; root's, empty, of 1970.
    pub fn new(mode: u32) -> NewInode<'a> {
        NewInode { mode, ..NewInode::default() }
    }

    setters! {
        with_mode mode: u32;
        with_uid uid: u32;
        with_gid gid: u32;
        with_rdev rdev: u64;
        with_size size: u64;
        with_blocks blocks: Option<u64>;
        with_ino ino: Option<u64>;
        with_atime atime: Timespec;
        with_mtime mtime: Timespec;
        with_ctime ctime: Timespec;
        with_btime btime: Timespec;
        with_iflags iflags: u32;
        with_symlink symlink: &'a [u8];
        with_xattrs xattrs: &'a [(&'a [u8], &'a [u8])];
    }
}

/// A mount, as a [`Loader`] knows it, with a file system of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MountId(Handle);

/// What a mount is made of.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct NewMount<'a> {
    /// What it forbids.
    pub options: MountOptions,
    /// The superblock is read-only, too.
    pub sb_read_only: bool,
    /// How ids look through it; `None` shows them as they are stored.
    pub idmap: Option<MountIdmap>,
    /// Whether its file system opts in to the "may search" bit; `None` does as [`VfsBuilder::fastperm`] says.
    ///
    /// [`VfsBuilder::fastperm`]: crate::VfsBuilder::fastperm
    pub fastperm: Option<bool>,
    /// Its root directory, or the file that is its root.
    pub root: NewInode<'a>,
}

impl<'a> NewMount<'a> {
    /// A mount that forbids nothing, with this root.
    pub fn new(root: NewInode<'a>) -> NewMount<'a> {
        NewMount { root, ..NewMount::default() }
    }

    setters! {
        with_options options: MountOptions;
        with_sb_read_only sb_read_only: bool;
        with_idmap idmap: Option<MountIdmap>;
        with_fastperm fastperm: Option<bool>;
        with_root root: NewInode<'a>;
    }
}

/// Adds nodes to a [`Vfs`] without the cost of walking to each. Nobody else can change the tree while it
/// lives; lookups go on, and see each node as soon as it is added.
///
/// Unlike the system calls it changes no directory's size or times: those are what their source says. Link counts of
/// directories count their subdirectories until [`set_nlink`](Loader::set_nlink) says otherwise.
#[derive(Debug)]
pub struct Loader<'a> {
    kernel: &'a Kernel,
    ns: MountGuard<'a>,
}

/// The ACLs among a node's attributes, and what remains.
struct Parsed<'a> {
    /// What the access ACL says of the mode.
    permissions: Option<u32>,
    access: Option<Acl>,
    default: Option<Acl>,
    plain: Vec<(&'a [u8], &'a [u8])>,
}

impl Vfs {
    /// Adds whole trees; holds the lock of the tree while it lives.
    pub fn loader(&self) -> Loader<'_> {
        Loader::new(&self.0)
    }
}

impl<'a> Loader<'a> {
    pub(crate) fn new(kernel: &'a Kernel) -> Self {
        Loader { kernel, ns: kernel.lock_mounts() }
    }

    /// What it works on.
    pub(crate) fn parts(&mut self) -> (&'a Kernel, &mut MountGuard<'a>) {
        (self.kernel, &mut self.ns)
    }

    /// The root directory.
    pub fn root(&self) -> NodeId {
        NodeId(self.kernel.root().dentry, ROOT_SB)
    }

    /// The mount that [`root`](Self::root) is the root of.
    pub fn root_mount(&self) -> MountId {
        MountId(ROOT_MOUNT)
    }

    /// The number of a mount, as statx(2) gives it with `STATX_MNT_ID_UNIQUE`.
    pub fn mount_number(&self, mount: MountId) -> u64 {
        self.kernel.mount(mount.0).id.get()
    }

    /// Mounts a new file system over `at`, a node of the mount `on`; gives the mount and its root, below which nodes can be
    /// added. What was below `at` is covered.
    ///
    /// # Errors
    ///
    /// `ENOTDIR` (a directory over something else, or the other way round), `EINVAL` (a link; as [`add`](Self::add)),
    /// `ENOSPC` (too many mounts).
    ///
    /// ```
    /// use rcuwalk::{Cred, Errno, MountOptions, NewInode, NewMount, Vfs};
    /// let vfs = Vfs::new()?;
    /// let mut loader = vfs.loader();
    /// let dir = NewInode::new(0o040755);
    /// let media = loader.add(loader.root(), b"media", &dir)?;
    /// let options = MountOptions::default().with_read_only(true);
    /// let (_, root) = loader.mount(loader.root_mount(), media, &NewMount::new(dir).with_options(options))?;
    /// loader.add(root, b"film", &NewInode::new(0o100644))?;
    /// drop(loader);
    /// assert_eq!(vfs.task(Cred::root()).unlink(b"/media/film"), Err(Errno::EROFS));
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn mount(&mut self, on: MountId, at: NodeId, new: &NewMount<'_>) -> Result<(MountId, NodeId)> {
        let kernel = self.kernel;
        if s_islnk(new.root.mode) {
            return Err(Errno::EINVAL);
        }
        if self.is_dir(at) != s_isdir(new.root.mode) {
            return Err(Errno::ENOTDIR);
        }
        let dev = self.ns.mnt.new_dev();
        let limits = (PageBudget::new(u64::MAX), InodeSpace::new(0));
        let fastperm = new.fastperm.unwrap_or(kernel.fastperm);
        let sb = self.ns.mnt.new_super(dev, UserNamespace::init(), limits.0, limits.1, fastperm)?;
        let mounted = self.make(sb, &new.root).and_then(|root| {
            if let Some(super_block) = self.ns.mnt.supers.get_mut(sb) {
                super_block.root = root;
            }
            kernel.mount_new(&mut self.ns, sb, root, new.options.flags()).map(|mnt| (mnt, root))
        });
        let (mnt, root) = match mounted {
            Ok(mounted) => mounted,
            Err(errno) => {
                kernel.drop_super(&mut self.ns, sb);
                return Err(errno);
            }
        };
        if new.sb_read_only {
            kernel.set_sb_flags(&mut self.ns, sb, mount::flags::SB_RDONLY, mount::flags::SB_RDONLY);
        }
        if let Some(idmap) = &new.idmap {
            match kernel.idmap_views(&mut self.ns, &[mnt], idmap) {
                Ok(views) => views.into_iter().for_each(|view| kernel.set_idmap(&mut self.ns, mnt, view)),
                Err(errno) => {
                    kernel.mntput_locked(&mut self.ns, mnt);
                    return Err(errno);
                }
            }
        }
        kernel.set_mount_ns(&mut self.ns, mnt, mount::INIT_MNT_NS);
        kernel.attach(&mut self.ns, mnt, Path { mnt: on.0, dentry: at.0 });
        Ok((MountId(mnt), NodeId(root, sb)))
    }

    /// Replaces the metadata of the root directory.
    ///
    /// # Errors
    ///
    /// As [`dir_meta`](Self::dir_meta).
    pub fn set_root(&mut self, inode: &NewInode<'_>) -> Result<()> {
        self.dir_meta(self.root(), inode)
    }

    /// Adds a node to a directory, before those that are there, as getdents(2) gives them.
    ///
    /// # Errors
    ///
    /// `ENOTDIR` (the parent), `EINVAL` (an empty name, `.`, `..`, a slash or NUL in it; an unknown type; malformed
    /// ACL), `ENAMETOOLONG`, `EEXIST`, `ENOSPC` (the file system is full), `ENOMEM`.
    pub fn add(&mut self, parent: NodeId, name: &[u8], inode: &NewInode<'_>) -> Result<NodeId> {
        self.check_name(parent, name)?;
        let dentry = self.make(parent.1, inode)?;
        self.attach(parent, name, dentry)
    }

    /// Adds a further name of a node that is no directory.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add); `EPERM` for a directory, `EXDEV` for a node of another file system.
    pub fn link(&mut self, parent: NodeId, name: &[u8], target: NodeId) -> Result<NodeId> {
        self.check_name(parent, name)?;
        let store = &self.kernel.store;
        let inode = store.d_inode(target.0);
        if s_isdir(store.inode(inode).attr().mode) {
            return Err(Errno::EPERM);
        }
        if target.1 != parent.1 {
            return Err(Errno::EXDEV);
        }
        store.charge_name(&self.ns, parent.1)?;
        let dentry =
            store.new_dentry(&mut self.ns, inode).inspect_err(|_| store.release_name(&self.ns, parent.1))?;
        let node = self.attach(parent, name, dentry)?;
        let i = store.inode(inode);
        let _change = store.open_inode(&mut self.ns, inode);
        i.nlink.set(i.nlink.get().saturating_add(1));
        Ok(node)
    }

    /// Gives the name that was added to its directory last an offset, at which getdents(2) finds it: at least 3, and greater than
    /// those of the others.
    ///
    /// # Errors
    ///
    /// `EINVAL` for any other name and any other offset.
    pub fn set_offset(&mut self, node: NodeId, offset: u32) -> Result<()> {
        let store = &self.kernel.store;
        let dir = store.d_inode(store.dentry(node.0).parent.get());
        let mut newest = store.children(dir);
        let least = match (newest.next(), newest.next()) {
            (Some(first), second) if first == node.0 => {
                second.map_or(DIR_OFFSET_MIN, |second| store.dentry_offset(second) + 1)
            }
            _ => return Err(Errno::EINVAL),
        };
        if !(least..DIR_OFFSET_EOD).contains(&offset) {
            return Err(Errno::EINVAL);
        }
        store.remove_child(&mut self.ns, dir, node.0);
        store.set_next_offset(&mut self.ns, dir, offset + 1);
        store.add_child(&mut self.ns, dir, node.0, offset);
        Ok(())
    }

    /// The entry `name` of a directory.
    pub fn lookup(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        let store = &self.kernel.store;
        let found = store.d_lookup(&self.ns, parent.0, store.name(name))?;
        Some(NodeId(found, parent.1))
    }

    /// Whether the node is a directory.
    pub fn is_dir(&self, node: NodeId) -> bool {
        self.kernel.store.see(node.0).meta.is_dir()
    }

    /// The directory that a node is in; the root is in itself.
    pub fn parent(&self, node: NodeId) -> NodeId {
        NodeId(self.kernel.store.dentry(node.0).parent.get(), node.1)
    }

    /// The entries of a directory, in the order in which they were added; none of anything else.
    pub fn children(&self, node: NodeId) -> Vec<NodeId> {
        let store = &self.kernel.store;
        if !self.is_dir(node) {
            return Vec::new();
        }
        store.children_oldest_first(store.d_inode(node.0)).map(|child| NodeId(child, node.1)).collect()
    }

    /// Whether the node is a directory without entries.
    pub fn is_empty_dir(&self, node: NodeId) -> bool {
        let store = &self.kernel.store;
        self.is_dir(node) && store.inode_rest(store.d_inode(node.0)).first_child.get() == 0
    }

    /// The body of a symbolic link; `None` for anything else.
    pub fn link_body(&self, node: NodeId) -> Option<Vec<u8>> {
        let store = &self.kernel.store;
        let inode = store.d_inode(node.0);
        let mut body = Vec::new();
        let is_link = s_islnk(store.inode(inode).attr().mode);
        (is_link && store.link_body(inode, &mut body).is_ok()).then_some(body)
    }

    /// Removes a node, and everything below it.
    ///
    /// # Errors
    ///
    /// `EBUSY` for the root of a file system.
    pub fn remove(&mut self, node: NodeId) -> Result<()> {
        if self.parent(node) == node {
            return Err(Errno::EBUSY);
        }
        // Down to a leaf, then up again: no recursion, however deep the tree.
        let store = &self.kernel.store;
        let mut at = node.0;
        loop {
            let inode = store.d_inode(at);
            if s_isdir(store.inode(inode).attr().mode) {
                let child = store.inode_rest(inode).first_child.get();
                if child != 0 {
                    at = child;
                    continue;
                }
            }
            let parent = store.dentry(at).parent.get();
            self.remove_leaf(NodeId(at, node.1));
            if at == node.0 {
                return Ok(());
            }
            at = parent;
        }
    }

    fn remove_leaf(&mut self, NodeId(dentry, sb): NodeId) {
        let store = &self.kernel.store;
        let (inode, dir) = (store.d_inode(dentry), store.d_inode(store.dentry(dentry).parent.get()));
        let is_dir = s_isdir(store.inode(inode).attr().mode);
        {
            let d = store.inode(dir);
            let _open = store.open_inode(&mut self.ns, dir);
            store.d_drop(&mut self.ns, dentry);
            d.nlink.set(d.nlink.get().saturating_sub(u32::from(is_dir)));
        }
        {
            let i = store.inode(inode);
            let _change = store.open_inode(&mut self.ns, inode);
            let gone = if is_dir { flags::DEAD } else { 0 };
            i.mode.set(i.mode.get() | gone);
            i.nlink.set(if is_dir { 0 } else { i.nlink.get().saturating_sub(1) });
        }
        store.put_locked(&mut self.ns, dentry);
        store.release_name(&self.ns, sb);
    }

    /// Reserves the pages of a regular file that hold `len` bytes from `offset` on, also beyond its size, as fallocate(2)
    /// does; those that are reserved already count as written from then on.
    ///
    /// # Errors
    ///
    /// `EINVAL` (not a regular file, `len` is 0), `EFBIG` (beyond the largest file), `ENOSPC`.
    pub fn reserve(&mut self, node: NodeId, offset: u64, len: u64) -> Result<()> {
        self.edit(node, |pages, budget| pages.fallocate(budget, offset, len, true))
    }

    /// Sees to it that no number below `ino` is given to an inode that is made from now on.
    pub fn skip_inos(&mut self, ino: u64) {
        self.ns.mnt.skip_inos(ROOT_SB, ino);
    }

    /// The number that the next inode gets unless it brings one.
    pub fn next_ino(&self) -> u64 {
        self.ns.mnt.supers.get(ROOT_SB).map_or(1, |sb| sb.next_ino)
    }

    /// Writes contents into a regular file, whose size was given when it was added. What is not written is a hole.
    ///
    /// # Errors
    ///
    /// `EINVAL` (not a regular file), `EFBIG` (beyond the file's size), `ENOSPC`.
    pub fn write(&mut self, node: NodeId, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
        let store = &self.kernel.store;
        if end > store.inode(store.d_inode(node.0)).size.get() {
            return Err(Errno::EFBIG);
        }
        self.edit(node, |pages, budget| {
            let mut done = 0;
            while done < data.len() {
                done += pages.write_at(budget, offset + done as u64, &data[done..])?;
            }
            Ok(())
        })
    }

    /// Changes the contents of a regular file, which are known from then on.
    fn edit(
        &mut self,
        node: NodeId,
        edit: impl FnOnce(&mut FileData, &PageBudget) -> Result<()>,
    ) -> Result<()> {
        let store = &self.kernel.store;
        let inode = store.d_inode(node.0);
        let i = store.inode(inode);
        if !s_isreg(i.attr().mode) {
            return Err(Errno::EINVAL);
        }
        let sb = self.ns.mnt.supers.get(node.1).ok_or(Errno::ESTALE)?;
        let budget = Arc::clone(&sb.budget);
        let contents = store.contents(&mut self.ns, inode, &budget)?;
        // Nobody waits for the name space lock with these contents locked: nobody has the file open yet.
        let mut pages = contents.data.write().unwrap_or_else(rcuwalk_sync::lock::PoisonError::into_inner);
        edit(&mut pages, &budget)?;
        let _change = store.open_inode(&mut self.ns, inode);
        i.mode.set(i.mode.get() & !flags::NO_CONTENT);
        Ok(())
    }

    /// Says that a regular file's contents are complete: what was not written is a hole. A file of which nothing was
    /// written and nothing said cannot be read (`ENODATA`).
    ///
    /// # Errors
    ///
    /// `EINVAL` (not a regular file).
    pub fn has_contents(&mut self, node: NodeId) -> Result<()> {
        let store = &self.kernel.store;
        let inode = store.d_inode(node.0);
        let i = store.inode(inode);
        if !s_isreg(i.attr().mode) {
            return Err(Errno::EINVAL);
        }
        let _change = store.open_inode(&mut self.ns, inode);
        i.mode.set(i.mode.get() & !flags::NO_CONTENT);
        Ok(())
    }

    /// Replaces the metadata of a directory, for sources that tell of it after its entries.
    ///
    /// # Errors
    ///
    /// `ENOTDIR`, `EINVAL` (malformed ACL), `ENOSPC`, `ENOMEM`.
    pub fn dir_meta(&mut self, node: NodeId, new: &NewInode<'_>) -> Result<()> {
        let (kernel, store) = (self.kernel, &self.kernel.store);
        let inode = store.d_inode(node.0);
        if !s_isdir(new.mode) || !self.is_dir(node) {
            return Err(Errno::ENOTDIR);
        }
        let parsed = parse_xattrs(new)?;
        for (ty, acl) in [(AclType::Access, &parsed.access), (AclType::Default, &parsed.default)] {
            kernel.set_acl(&mut self.ns, inode, ty, mode_of(new, &parsed), acl.as_ref())?;
        }
        store.change_inode(&mut self.ns, inode, |i, ns| {
            let stored = if new.blocks.is_some() { flags::BLOCKS_STORED } else { 0 };
            let kept = i.mode.get() & (flags::WIDE_TIMES | flags::FASTPERM);
            i.mode.set(mode_of(new, &parsed) | iflags_of(new) | stored | kept);
            i.uid.set(new.uid);
            i.gid.set(new.gid);
            i.size.set(new.size);
            store.inode_rest(inode).blocks.set(new.blocks.unwrap_or(0));
            if let Some(ino) = new.ino {
                i.ino.set(ino);
            }
            store.set_times(ns, inode, times_of(new));
        });
        self.store_xattrs(node.1, inode, &parsed)
    }

    /// Gives a node an ACL, for sources that name users before they say which numbers these have. `name` names the
    /// attribute, and an access ACL sets the permission bits.
    ///
    /// # Errors
    ///
    /// `EINVAL` (a malformed ACL, a default ACL for what is no directory), `EOPNOTSUPP` (another attribute), `ENOSPC`, `ENOMEM`.
    pub fn set_acl(&mut self, node: NodeId, name: &[u8], value: &[u8]) -> Result<()> {
        let (kernel, store) = (self.kernel, &self.kernel.store);
        let inode = store.d_inode(node.0);
        let xattrs = [(name, value)];
        let new = NewInode::new(store.inode(inode).attr().mode).with_xattrs(&xattrs);
        let parsed = parse_xattrs(&new)?;
        let (ty, acl) = match name {
            XATTR_NAME_POSIX_ACL_ACCESS => (AclType::Access, &parsed.access),
            XATTR_NAME_POSIX_ACL_DEFAULT => (AclType::Default, &parsed.default),
            _ => return Err(Errno::EOPNOTSUPP),
        };
        let mode = mode_of(&new, &parsed);
        kernel.set_acl(&mut self.ns, inode, ty, mode, acl.as_ref())?;
        store.change_inode(&mut self.ns, inode, |i, _| {
            i.mode.set(i.mode.get() & !S_IRWXUGO | mode & S_IRWXUGO);
        });
        Ok(())
    }

    /// Sets the link count: of a file some of whose names lie outside what is loaded, or of a directory from a file system
    /// that does not count subdirectories.
    pub fn set_nlink(&mut self, node: NodeId, nlink: u32) {
        let store = &self.kernel.store;
        let inode = store.d_inode(node.0);
        let _change = store.open_inode(&mut self.ns, inode);
        store.inode(inode).nlink.set(nlink);
    }

    fn check_name(&self, parent: NodeId, name: &[u8]) -> Result<()> {
        if !self.is_dir(parent) {
            return Err(Errno::ENOTDIR);
        }
        if matches!(name, b"" | b"." | b"..") || name.iter().any(|&b| b == b'/' || b == 0) {
            return Err(Errno::EINVAL);
        }
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if self.lookup(parent, name).is_some() { Err(Errno::EEXIST) } else { Ok(()) }
    }

    fn make(&mut self, sb: u32, new: &NewInode<'_>) -> Result<Handle> {
        let kind = new.mode & S_IFMT;
        if !matches!(kind, S_IFREG | S_IFDIR | S_IFLNK | S_IFIFO | S_IFSOCK | S_IFCHR | S_IFBLK) {
            return Err(Errno::EINVAL);
        }
        if kind == S_IFLNK
            && (new.symlink.is_empty() || new.symlink.len() >= PATH_MAX || new.symlink.contains(&0))
        {
            return Err(Errno::EINVAL);
        }
        let parsed = parse_xattrs(new)?;
        if let Some(ino) = new.ino.filter(|&ino| ino < 1 << 62) {
            // What is made later must not have the same.
            self.ns.mnt.skip_inos(sb, ino + 1);
        }
        let unread = if kind == S_IFREG && new.size != 0 { flags::NO_CONTENT } else { 0 };
        let dentry = self.kernel.store.new_inode(
            &mut self.ns,
            &InodeInit {
                sb,
                mode: mode_of(new, &parsed),
                iflags: iflags_of(new) | unread,
                uid: new.uid,
                gid: new.gid,
                nlink: if kind == S_IFDIR { 2 } else { 1 },
                rdev: if matches!(kind, S_IFCHR | S_IFBLK) { new.rdev as u32 } else { 0 },
                size: if kind == S_IFLNK { new.symlink.len() as u64 } else { new.size },
                blocks: stored_blocks(new),
                ino: new.ino,
                times: times_of(new),
                body: new.symlink,
                access_acl: parsed.access.as_ref().map(Acl::entries),
                default_acl: parsed.default.as_ref().map(Acl::entries),
            },
        )?;
        let stored = self.store_xattrs(sb, self.kernel.store.d_inode(dentry), &parsed);
        if let Err(errno) = stored {
            self.kernel.store.put_locked(&mut self.ns, dentry);
            self.kernel.store.release_name(&self.ns, sb);
            return Err(errno);
        }
        Ok(dentry)
    }

    fn store_xattrs(&mut self, sb: u32, inode: Handle, parsed: &Parsed<'_>) -> Result<()> {
        parsed
            .plain
            .iter()
            .try_for_each(|(name, value)| self.kernel.store_xattr(&mut self.ns, sb, inode, name, value))
    }

    /// Names a dentry, or frees it if that fails.
    fn attach(&mut self, parent: NodeId, name: &[u8], dentry: Handle) -> Result<NodeId> {
        let store = &self.kernel.store;
        let is_dir = store.see(dentry).meta.is_dir();
        let added = {
            let dir = store.d_inode(parent.0);
            let d = store.inode(dir);
            let _open = store.open_inode(&mut self.ns, dir);
            d.nlink.set(d.nlink.get().saturating_add(u32::from(is_dir)));
            store.d_add(&mut self.ns, dentry, parent.0, store.name(name))
        };
        if let Err(errno) = added {
            store.put_locked(&mut self.ns, dentry);
            store.release_name(&self.ns, parent.1);
            return Err(errno);
        }
        Ok(NodeId(dentry, parent.1))
    }
}

/// Blocks that have to be stored because they do not follow from type and size.
fn stored_blocks(new: &NewInode<'_>) -> Option<u64> {
    let derived = match new.mode & S_IFMT {
        S_IFREG | S_IFDIR => crate::dcache::inode::blocks_of_size(new.size),
        _ => 0,
    };
    // As on tmpfs, a body that does not fit into the inode takes a page.
    let long_link = new.mode & S_IFMT == S_IFLNK && new.symlink.len() >= SHORT_SYMLINK;
    new.blocks.or(long_link.then_some(8)).filter(|&blocks| blocks != derived)
}

/// The mode with the permissions of the access ACL, if there is one, which it must agree with.
fn mode_of(new: &NewInode<'_>, parsed: &Parsed<'_>) -> u32 {
    let mode = new.mode & 0xffff;
    parsed.permissions.map_or(mode, |bits| mode & !S_IRWXUGO | bits)
}

fn iflags_of(new: &NewInode<'_>) -> u32 {
    (new.iflags & perm::IFLAGS_KEPT) << 16
}

fn times_of(new: &NewInode<'_>) -> Times {
    Times { atime: new.atime, mtime: new.mtime, ctime: new.ctime, btime: new.btime }
}

/// Takes the ACLs out of a node's attributes. A minimal access ACL says what the mode says, and is not kept.
fn parse_xattrs<'a>(new: &NewInode<'a>) -> Result<Parsed<'a>> {
    let mut parsed = Parsed { permissions: None, access: None, default: None, plain: Vec::new() };
    let init = crate::cred::userns::UserNamespace::init();
    let read = |value: &[u8]| -> Result<Option<Acl>> {
        posix_acl_from_xattr(value, |uid| uid, |gid| gid)?.map(|acl| acl.validate(&init)).transpose()
    };
    for &(name, value) in new.xattrs {
        match name {
            XATTR_NAME_POSIX_ACL_ACCESS => {
                let acl = read(value)?;
                parsed.permissions = acl.as_ref().map(|acl| acl.equiv_mode().0);
                parsed.access = acl.filter(|acl| acl.equiv_mode().1);
            }
            XATTR_NAME_POSIX_ACL_DEFAULT if s_isdir(new.mode) => parsed.default = read(value)?,
            XATTR_NAME_POSIX_ACL_DEFAULT => return Err(Errno::EINVAL),
            _ if name.is_empty() || name.len() > XATTR_NAME_MAX || name.contains(&0) => {
                return Err(Errno::EINVAL);
            }
            _ => parsed.plain.push((name, value)),
        }
    }
    Ok(parsed)
}
