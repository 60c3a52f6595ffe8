//! Contents: read, write, lseek, truncate.
//!
//! Kernel: fs/read_write.c, fs/open.c `do_truncate()`.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::*;
use crate::calls::transfer::Rwf;
use crate::cred::Cred;
use crate::dcache::inode::{Inode, Touch, flags};
use crate::dcache::store::{Contents, Namespace};
use crate::file::File;
use crate::kernel::Kernel;
use crate::kernel::owners::FileRef;
use crate::mount::Path;
use crate::namei::{At, Lookup};
use crate::perm::setattr;
use crate::perm::{self, MAY_WRITE};
use crate::task::Task;
use crate::tmpfs::pages::{FileData, PageBudget};
use rcuwalk_sync::Handle;
use rcuwalk_sync::lock::PoisonError;
use std::sync::Arc;

/// The largest file: offsets are signed.
const MAX_FILE_SIZE: u64 = i64::MAX as u64;

/// The most bytes that one call moves. Kernel: `MAX_RW_COUNT`.
pub(crate) const MAX_RW_COUNT: usize = 0x7fff_f000;

/// Which way contents move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Read,
    Write,
}

impl Way {
    /// Whether the file was opened for it.
    fn allowed(self, file: &File) -> bool {
        match self {
            Way::Read => file.mode.read,
            Way::Write => file.mode.write,
        }
    }
}

impl Kernel {
    /// The contents of an open regular file; `None` if it is a hole throughout and `make` does not ask for more.
    ///
    /// # Errors
    ///
    /// `ENODATA` if the file was imported without its contents; `ENOMEM`.
    pub(crate) fn contents_of<'f>(&self, file: &'f File, make: bool) -> Result<Option<&'f Arc<Contents>>> {
        if let Some(contents) = file.contents.get() {
            return Ok(Some(contents));
        }
        let mut ns = self.store.lock();
        let i = self.store.inode(file.inode);
        if i.mode.get() & flags::NO_CONTENT != 0 && i.size.get() != 0 {
            return Err(Errno::ENODATA);
        }
        if !make && self.store.inode_rest(file.inode).data.get() == 0 {
            return Ok(None);
        }
        let budget = self.budget(&ns, file.path.mnt)?;
        let contents = self.store.contents(&mut ns, file.inode, &budget)?;
        Ok(Some(file.contents.get_or_init(|| contents)))
    }

    /// Reads from a regular file, which stamps its access time.
    ///
    /// # Errors
    ///
    /// `ENODATA` if the file was imported without its contents.
    pub(crate) fn read_at(&self, file: &File, buf: &mut [u8], offset: u64) -> Result<usize> {
        let n = match self.contents_of(file, false)? {
            Some(contents) => {
                contents.data.read().unwrap_or_else(PoisonError::into_inner).read_at(offset, buf)
            }
            None => {
                let size = self.store.inode(file.inode).size.get();
                let n = size.saturating_sub(offset).min(buf.len() as u64) as usize;
                buf[..n].fill(0);
                n
            }
        };
        // As on tmpfs, where also a read of nothing counts as one.
        if file.flags.get() as i32 & O_NOATIME == 0 {
            self.touch_atime(file.path.mnt, file.inode);
        }
        Ok(n)
    }

    /// How many bytes of a regular file from `offset` on are zeros that take no memory; some may lie beyond its end.
    ///
    /// # Errors
    ///
    /// As [`read_at`](Self::read_at).
    pub(crate) fn zeros_at(&self, file: &File, offset: u64) -> Result<u64> {
        let contents = self.contents_of(file, false)?;
        Ok(contents.map_or(u64::MAX, |contents| {
            contents.data.read().unwrap_or_else(PoisonError::into_inner).zeros_at(offset)
        }))
    }

    /// Changes the contents of a regular file by `edit`, then its size, blocks, times and set-id bits to match.
    pub(crate) fn edit_contents<R>(
        &self,
        mnt: Handle,
        inode: Handle,
        contents: &Contents,
        cred: &Cred,
        edit: impl FnOnce(&mut FileData) -> Result<R>,
    ) -> Result<R> {
        let _gate = self.watch.enter();
        // The contents' lock is taken before the name space lock, everywhere.
        let mut data = contents.data.write().unwrap_or_else(PoisonError::into_inner);
        let unsaved = data.unsaved();
        let value = edit(&mut data)?;
        let (now, mut ns) = (self.now(), self.store.lock());
        self.watch.edited(&ns, &mut data, unsaved);
        self.remove_privileges(&mut ns, mnt, inode, cred);
        let i = self.store.inode(inode);
        let _change = self.store.open_inode(&mut ns, inode);
        i.mode.set(i.mode.get() & !flags::NO_CONTENT | flags::BLOCKS_STORED);
        i.size.set(data.size());
        self.store.inode_rest(inode).blocks.set(data.pages() * 8);
        self.store.touch(&mut ns, inode, Touch::MC, now);
        Ok(value)
    }

    /// Takes set-id bits and file capabilities from a file that is written to.
    ///
    /// Kernel: fs/inode.c `file_remove_privs()`.
    fn remove_privileges(&self, ns: &mut Namespace, mnt: Handle, inode: Handle, cred: &Cred) {
        let i = self.store.inode(inode);
        let mode = setattr::mode_after_write(&self.attr(mnt, i), cred);
        let _change = self.store.open_inode(ns, inode);
        let acl_follows = i.acl.get() != 0 && mode != i.mode.get() & 0xffff;
        if self.remove_file_caps(ns, inode) || acl_follows {
            // The attribute's removal stamps, and so does an ACL made to agree with the mode, even where nothing else does.
            self.store.touch(ns, inode, Touch::C, self.now());
        }
        i.mode.set(i.mode.get() & !0xffff | mode);
    }

    /// Sets the size of a regular file.
    fn set_size(&self, mnt: Handle, inode: Handle, size: u64, cred: &Cred) -> Result<()> {
        let _room = self.watch.admit();
        let contents = {
            let mut ns = self.store.lock();
            let i = self.store.inode(inode);
            if size == 0 && i.mode.get() & flags::NO_CONTENT != 0 {
                // What is cut off need not be known.
                let _change = self.store.open_inode(&mut ns, inode);
                i.mode.set(i.mode.get() & !flags::NO_CONTENT);
                i.size.set(0);
            } else if i.mode.get() & flags::NO_CONTENT != 0 && i.size.get() != 0 {
                return Err(Errno::ENODATA);
            }
            let budget = self.budget(&ns, mnt)?;
            self.store.contents(&mut ns, inode, &budget)?
        };
        self.edit_contents(mnt, inode, &contents, cred, |data| data.truncate(&contents.budget, size))
    }
}

impl Task {
    /// Where a transfer begins, if the descriptor allows it: at `offset`, or at the file's position.
    ///
    /// # Errors
    ///
    /// `EBADF`, `ESPIPE` (an offset, and a fifo), `EINVAL` (a namespace, which has nothing to read).
    pub(crate) fn may_transfer(&self, fd: i32, way: Way, offset: Option<i64>) -> Result<u64> {
        let file = match way {
            Way::Read => self.file_to_read(fd)?,
            Way::Write => self.file_any(fd)?,
        };
        if file.mode.path && file.proc.is_none() {
            return Err(Errno::EBADF);
        }
        if offset.is_some() && file.proc.is_none() {
            self.positioned(&file)?;
        }
        if !way.allowed(&file) {
            return Err(Errno::EBADF);
        }
        Ok(offset.map_or(file.pos.get(), |offset| offset as u64))
    }

    /// The open file behind `fd`, to read from.
    ///
    /// # Errors
    ///
    /// `EBADF`, `EINVAL` (a namespace, which is open for reading and has nothing to read).
    ///
    /// Kernel: fs/read_write.c `vfs_read()`.
    pub(crate) fn file_to_read(&self, fd: i32) -> Result<FileRef<'_>> {
        let file = self.file_any(fd)?;
        match &file.proc {
            Some(_) if file.mode.read => Err(Errno::EINVAL),
            _ if file.mode.path => Err(Errno::EBADF),
            _ => Ok(file),
        }
    }

    /// A file that `len` bytes at `offset` may be read from or written to: not a directory, not a special file, and not
    /// beyond the last offset there can be.
    ///
    /// Kernel: fs/read_write.c `rw_verify_area()`, and what files without contents answer.
    fn regular(&self, file: &File, way: Way, offset: u64, len: usize) -> Result<()> {
        if !way.allowed(file) {
            return Err(Errno::EBADF);
        }
        if offset.saturating_add(len as u64) > MAX_FILE_SIZE {
            return Err(Errno::EINVAL);
        }
        match self.kernel.store.inode(file.inode).attr().mode & S_IFMT {
            S_IFREG => Ok(()),
            S_IFDIR => Err(Errno::EISDIR),
            S_IFIFO => Err(Errno::EAGAIN),
            _ => Err(Errno::EINVAL),
        }
    }

    /// No bytes of a fifo can be read and written without anybody at its other end.
    pub(crate) fn nothing_of_a_fifo(&self, file: &File, allowed: bool, len: usize) -> bool {
        allowed && len == 0 && self.kernel.store.inode(file.inode).attr().mode & S_IFMT == S_IFIFO
    }

    /// A fifo has no positions; that is told before whether it may be read or written.
    pub(crate) fn positioned(&self, file: &File) -> Result<()> {
        let mode = self.kernel.store.inode(file.inode).attr().mode;
        if mode & S_IFMT == S_IFIFO { Err(Errno::ESPIPE) } else { Ok(()) }
    }

    /// Reads from the position of `fd` and advances it; gives the number of bytes, 0 at the end.
    ///
    /// # Errors
    ///
    /// `EBADF` (not open for reading), `EINVAL` (beyond the last offset there can be; a namespace), `EISDIR`, `ENODATA` (the file was imported without its contents), `EAGAIN` (a fifo,
    /// which carries nothing here).
    pub fn read(&self, fd: i32, buf: &mut [u8]) -> Result<usize> {
        let file = self.file_to_read(fd)?;
        if self.nothing_of_a_fifo(&file, file.mode.read, buf.len()) {
            return Ok(0);
        }
        let _position = file.seek.lock().unwrap_or_else(PoisonError::into_inner);
        self.regular(&file, Way::Read, file.pos.get(), buf.len())?;
        let n = self.kernel.read_at(&file, buf, file.pos.get())?;
        file.pos.set(file.pos.get() + n as u64);
        Ok(n)
    }

    /// Reads at byte `offset`; the position stays.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); `EINVAL` (negative offset), `ESPIPE` (a fifo).
    pub fn pread(&self, fd: i32, buf: &mut [u8], offset: i64) -> Result<usize> {
        let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        let file = self.file_to_read(fd)?;
        self.positioned(&file)?;
        self.regular(&file, Way::Read, offset, buf.len())?;
        self.kernel.read_at(&file, buf, offset)
    }

    /// Writes at the position of `fd`, or at the end with `O_APPEND`, and advances it; gives the number of bytes.
    ///
    /// # Errors
    ///
    /// `EBADF` (not open for writing), `EINVAL` (beyond the last offset there can be), `EFBIG`, `ENOSPC`, `ENODATA` (the file was imported without its contents). Of a file
    /// that [`open_proc`](Self::open_proc) opened: `EINVAL` (what is written, or a second write), `EPERM` (there is a map
    /// already; opener or writer may not map these ids).
    pub fn write(&self, fd: i32, data: &[u8]) -> Result<usize> {
        self.write_with(fd, data, None, Rwf::default())
    }

    /// Writes at byte `offset`, or at the end with `O_APPEND`; the position stays.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write); `EINVAL` (negative offset), `ESPIPE` (a fifo).
    pub fn pwrite(&self, fd: i32, data: &[u8], offset: i64) -> Result<usize> {
        self.write_with(fd, data, Some(offset), Rwf::default())
    }

    /// Writes at the position of `fd`, or at byte `offset`.
    pub(crate) fn write_with(&self, fd: i32, data: &[u8], offset: Option<i64>, rwf: Rwf) -> Result<usize> {
        let Some(offset) = offset else { return self.write_on(fd, data, rwf) };
        let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        let Ok(file) = self.file(fd) else { return Err(self.node_without_offsets(fd)) };
        self.positioned(&file)?;
        self.regular(&file, Way::Write, offset, data.len())?;
        self.write_at(&file, data, offset, rwf).map(|(n, _)| n)
    }

    /// Writes at the position of `fd`, and advances it.
    fn write_on(&self, fd: i32, data: &[u8], rwf: Rwf) -> Result<usize> {
        let Ok(file) = self.file(fd) else { return self.write_node(fd, data) };
        if self.nothing_of_a_fifo(&file, file.mode.write, data.len()) {
            return Ok(0);
        }
        let _position = file.seek.lock().unwrap_or_else(PoisonError::into_inner);
        self.regular(&file, Way::Write, file.pos.get(), data.len())?;
        let (n, end) = self.write_at(&file, data, file.pos.get(), rwf)?;
        file.pos.set(end);
        Ok(n)
    }

    /// Gives the bytes written and where they end.
    pub(crate) fn write_at(&self, file: &File, data: &[u8], offset: u64, rwf: Rwf) -> Result<(usize, u64)> {
        if data.is_empty() {
            return Ok((0, offset));
        }
        self.change_at(file, offset, data.len(), rwf, |pages, budget, offset, room| {
            let n = data.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            let n = pages.write_at(budget, offset, &data[..n])?;
            Ok((n, offset + n as u64))
        })
    }

    /// As [`write_at`](Self::write_at), of `len` zeros, of which it may write fewer for no reason.
    pub(crate) fn write_zeros_at(&self, file: &File, len: usize, offset: u64) -> Result<usize> {
        self.change_at(file, offset, len, Rwf::default(), |pages, budget, offset, room| {
            pages.write_zeros_at(budget, offset, room.min(len as u64)).map(|n| n as usize)
        })
    }

    /// What a write leaves behind whose buffer cannot be read, at `offset` or at the file's position.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub(crate) fn write_fault(&self, fd: i32, offset: Option<i64>, rwf: Rwf) -> Result<()> {
        let file = self.file(fd)?;
        let offset = offset.map_or(file.pos.get(), |offset| offset as u64);
        self.regular(&file, Way::Write, offset, 1)?;
        self.change_at(&file, offset, 1, rwf, |pages, budget, offset, _| pages.write_fault_at(budget, offset))
    }

    /// Changes `len` bytes at most of what is at `offset`, or at the end with `O_APPEND`, where so many bytes have room before the limits.
    fn change_at<R>(
        &self,
        file: &File,
        offset: u64,
        len: usize,
        rwf: Rwf,
        change: impl FnOnce(&mut FileData, &PageBudget, u64, u64) -> Result<R>,
    ) -> Result<R> {
        let flags = file.flags.get() as i32;
        let append = rwf.append.unwrap_or(flags & O_APPEND != 0);
        let limit = self.fsize_limit().min(MAX_FILE_SIZE);
        let kernel = &*self.kernel;
        let _room = kernel.watch.admit_contents(len as u64)?;
        let contents = kernel.contents_of(file, true)?.ok_or(Errno::EIO)?;
        let changed = kernel.edit_contents(file.path.mnt, file.inode, contents, &self.cred, |pages| {
            let offset = if append { pages.size() } else { offset };
            let room = limit.checked_sub(offset).filter(|&room| room != 0).ok_or(Errno::EFBIG)?;
            change(pages, &contents.budget, offset, room)
        })?;
        if rwf.sync || flags & O_DSYNC != 0 {
            kernel.watch.sync()?;
        }
        Ok(changed)
    }

    /// Moves the position of `fd`; gives the new one. `whence`: `SEEK_SET`, `SEEK_CUR`, `SEEK_END`, `SEEK_DATA`,
    /// `SEEK_HOLE`. Of a directory, the position is one that [`getdents`](Self::getdents) gave.
    ///
    /// # Errors
    ///
    /// `EBADF`, `EINVAL` (whence; a result that is negative or beyond the last offset there can be), `ENXIO` (no data or hole from there on), `ESPIPE` (a fifo).
    pub fn lseek(&self, fd: i32, offset: i64, whence: i32) -> Result<i64> {
        let file = self.file(fd)?;
        let mode = self.kernel.store.inode(file.inode).attr().mode;
        if mode & S_IFMT == S_IFIFO {
            return Err(Errno::ESPIPE);
        }
        let _position = file.seek.lock().unwrap_or_else(PoisonError::into_inner);
        let size = || self.kernel.store.inode(file.inode).size.get() as i64;
        let to = match whence {
            SEEK_SET => offset,
            SEEK_CUR => (file.pos.get() as i64).checked_add(offset).ok_or(Errno::EINVAL)?,
            SEEK_END if s_isreg(mode) => size().checked_add(offset).ok_or(Errno::EINVAL)?,
            SEEK_DATA | SEEK_HOLE if s_isreg(mode) => self.seek_sparse(&file, offset, whence)?,
            _ => return Err(Errno::EINVAL),
        };
        if to < 0 {
            return Err(Errno::EINVAL);
        }
        file.pos.set(to as u64);
        Ok(to)
    }

    fn seek_sparse(&self, file: &File, offset: i64, whence: i32) -> Result<i64> {
        match self.kernel.contents_of(file, false)? {
            Some(contents) => {
                let data = contents.data.read().unwrap_or_else(PoisonError::into_inner);
                if whence == SEEK_DATA { data.seek_data(offset) } else { data.seek_hole(offset) }
            }
            None => {
                // All of it is one hole.
                let size = self.kernel.store.inode(file.inode).size.get() as i64;
                if offset < 0 || offset >= size || whence == SEEK_DATA {
                    Err(Errno::ENXIO)
                } else {
                    Ok(offset)
                }
            }
        }
    }

    /// Sets the size of the file `path` to `len` bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL` (negative length, not a regular file), those of the walk, `EISDIR`, `EACCES`, `EROFS`, `EPERM` (immutable
    /// or append-only), `ETXTBSY`, `EFBIG`, `ENODATA` (the file was imported without its contents, and `len` is not 0).
    ///
    /// Kernel: fs/open.c `vfs_truncate()`.
    pub fn truncate(&self, path: &[u8], len: i64) -> Result<()> {
        let len = u64::try_from(len).map_err(|_| Errno::EINVAL)?;
        let kernel = &*self.kernel;
        let place = self.lookup_held(At::Cwd, path, Lookup::FOLLOW, |p| match p.seen.meta.file_type() {
            S_IFDIR => Err(Errno::EISDIR),
            S_IFREG => {
                kernel.inode_permission(p.mnt, kernel.store.d_inode(p.seen.dentry), &self.cred, MAY_WRITE)
            }
            _ => Err(Errno::EINVAL),
        })?;
        let result = self.truncate_held(place, len);
        kernel.path_put(place);
        result
    }

    fn truncate_held(&self, place: Path, len: u64) -> Result<()> {
        let store = &self.kernel.store;
        let inode = store.d_inode(place.dentry);
        self.want_write(place)?;
        if store.read_inode(inode, Inode::attr).iflags & perm::IFLAG_APPEND != 0 {
            return Err(Errno::EPERM);
        }
        store.get_write_access(&store.lock(), inode)?;
        // Setting the size that a file without pages has already leaves its times alone.
        let idle =
            store.read_inode(inode, |i| i.size.get() == len) && store.fill_kstat(inode, false).blocks == 0;
        let result = if idle {
            self.kernel.remove_privileges(&mut store.lock(), place.mnt, inode, &self.cred);
            Ok(())
        } else {
            self.resize(place.mnt, inode, len)
        };
        store.put_write_access(&store.lock(), inode);
        result
    }

    /// Sets the size within the limits.
    fn resize(&self, mnt: Handle, inode: Handle, len: u64) -> Result<()> {
        let grows = len > self.kernel.store.inode(inode).size.get();
        if grows && len > self.fsize_limit() || len > MAX_FILE_SIZE {
            return Err(Errno::EFBIG);
        }
        self.kernel.set_size(mnt, inode, len, &self.cred)
    }

    /// What `O_TRUNC` does.
    pub(crate) fn handle_truncate(&self, mnt: Handle, inode: Handle) -> Result<()> {
        let store = &self.kernel.store;
        store.get_write_access(&store.lock(), inode)?;
        let result = self.kernel.set_size(mnt, inode, 0, &self.cred);
        store.put_write_access(&store.lock(), inode);
        result
    }

    /// Sets the size of the open file to `len` bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL` (negative length, not a regular file, not open for writing), `EBADF`, `EPERM` (append-only), `EFBIG`.
    pub fn ftruncate(&self, fd: i32, len: i64) -> Result<()> {
        let len = u64::try_from(len).map_err(|_| Errno::EINVAL)?;
        let file = self.file(fd)?;
        let attr = self.kernel.store.read_inode(file.inode, Inode::attr);
        if !s_isreg(attr.mode) || !file.mode.write {
            return Err(Errno::EINVAL);
        }
        if attr.iflags & perm::IFLAG_APPEND != 0 {
            return Err(Errno::EPERM);
        }
        self.resize(file.path.mnt, file.inode, len)
    }
}
