//! What else may forbid what permission bits allow: a hook, as security modules of the kernel have one.
//!
//! Kernel: security/security.c `security_inode_permission()`.

use crate::base::errno::Result;
use crate::cred::Cred;
use crate::dcache::inode::Inode;
use crate::kernel::Kernel;
use crate::mount::flags;
use rcuwalk_sync::Handle;

/// An inode, as a [`Security`] hook is shown it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct SecurityInode {
    /// The device number of its file system.
    pub dev: u64,
    /// Its number.
    pub ino: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner, as the file system stores it.
    pub uid: u32,
    /// Group, likewise.
    pub gid: u32,
}

/// A hook that is asked after every permission check of a file system made with [`VfsBuilder::security`] that said yes: to
/// search each directory of a path, also where anybody may search it, and for what the path leads to.
///
/// It can only forbid. With a hook no answer comes from the whole-path table, and the "may search" bit
/// spares the check of permission bits but not the hook. Without one nothing is asked, and that costs nothing.
///
/// ```
/// use rcuwalk::{Cred, Errno, Result, Security, SecurityInode, Vfs};
///
/// /// Nobody gets to inodes of root's but root.
/// struct Confined;
///
/// impl Security for Confined {
///     fn inode_permission(&self, cred: &Cred, inode: &SecurityInode, _mask: u32) -> Result<()> {
///         if inode.uid == 0 && cred.fsuid() != 0 { Err(Errno::EACCES) } else { Ok(()) }
///     }
/// }
///
/// let vfs = Vfs::builder().security(Box::new(Confined)).build()?;
/// assert!(vfs.task(Cred::root()).stat(b"/").is_ok());
/// vfs.task(Cred::root()).mkdir(b"/d", 0o777)?;
/// assert_eq!(vfs.task(Cred::user(1000, 1000, &[])).stat(b"/d"), Err(Errno::EACCES), "the root may be searched by bits");
/// # Ok::<(), Errno>(())
/// ```
///
/// [`VfsBuilder::security`]: crate::VfsBuilder::security
pub trait Security: Send + Sync {
    /// Whether `cred` may do `mask` ([`MAY_READ`](crate::perm::MAY_READ), [`MAY_WRITE`](crate::perm::MAY_WRITE),
    /// [`MAY_EXEC`](crate::perm::MAY_EXEC), and what else a check says of itself) to `inode`.
    ///
    /// It is called in the middle of lockless walks, while others change the inode: it may see a state that never was, and is
    /// then asked again; and under the engine's locks: it must not block, and must make no call of the same file system.
    ///
    /// It is asked where the kernel calls `security_inode_permission()`: to search a directory, to open, truncate by path, read a
    /// directory or execute, by `access`, to change what is in a directory, to read and write `user.*` attributes, to set times to
    /// the present on the strength of write permission, to enter a directory. Of the kernel's other hooks on these paths there is
    /// none: not those of attributes (`inode_setattr`: chmod, chown, times, size; `inode_getattr`: stat), of extended attributes
    /// and ACLs by name (`inode_setxattr` and its like, `inode_set_acl`), of links (`inode_readlink`, `inode_follow_link`), of
    /// entries (`inode_create` to `inode_rename`, which come after the question about the directory), of open files (`file_open`,
    /// `file_permission`, `file_lock`), of mounts and of programs. Nor do [surveys](crate::Vfs::survey) ask, which are about
    /// credentials at large.
    ///
    /// # Errors
    ///
    /// What the call then answers; `EACCES` or `EPERM` as a rule.
    fn inode_permission(&self, cred: &Cred, inode: &SecurityInode, mask: u32) -> Result<()>;
}

impl Kernel {
    /// Whether there is a hook.
    #[inline(always)]
    pub(crate) fn is_hooked(&self) -> bool {
        self.security.is_some()
    }

    /// Whether walks search directories as they do by default, do not count, and ask no hook.
    #[inline(always)]
    pub(crate) fn plain_search(&self) -> bool {
        self.variants.plain_search() && !self.is_hooked()
    }

    /// The flag of new mounts, by which a permission check sees in the one word it reads that there is a hook.
    pub(crate) fn hooked_flag(&self) -> u32 {
        if self.is_hooked() { flags::HOOKED } else { 0 }
    }

    /// Asks the hook, if there is one, what bits and ACL did not forbid.
    #[inline(always)]
    pub(crate) fn security_inode_permission(
        &self,
        mnt: Handle,
        inode: &Inode,
        cred: &Cred,
        mask: u32,
    ) -> Result<()> {
        match &self.security {
            None => Ok(()),
            Some(hook) => self.ask_hook(hook.as_ref(), mnt, inode, cred, mask),
        }
    }

    #[cold]
    fn ask_hook(
        &self,
        hook: &dyn Security,
        mnt: Handle,
        inode: &Inode,
        cred: &Cred,
        mask: u32,
    ) -> Result<()> {
        let attr = inode.attr();
        let shown = SecurityInode {
            dev: self.mount(mnt).dev.get(),
            ino: inode.ino.get(),
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
        };
        hook.inode_permission(cred, &shown, mask)
    }
}
