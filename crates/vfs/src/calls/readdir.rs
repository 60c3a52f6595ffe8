//! Reading directories.
//!
//! Kernel: fs/readdir.c, and fs/libfs.c `offset_readdir()`.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::*;
use crate::dcache::Meta;
use crate::dcache::children::{DIR_OFFSET_EOD, DIR_OFFSET_FIRST};
use crate::dcache::inode::flags;
use crate::dcache::store::Store;
use crate::file::File;
use crate::kernel::Kernel;
use crate::task::Task;
use rcuwalk_sync::Handle;
use rcuwalk_sync::lock::PoisonError;

const FIRST: u64 = DIR_OFFSET_FIRST as u64;
const EOD: u64 = DIR_OFFSET_EOD as u64;

/// How many entries are read at once. In between others get the name space lock, whatever room a reader has.
const BATCH: usize = 128;

/// Bytes of a `struct linux_dirent64` before the name.
const HEADER: usize = 19;

/// An entry as it is read. `off` is the position of the next one.
struct Entry<'a> {
    ino: u64,
    off: u64,
    kind: u8,
    name: &'a [u8],
}

/// Entries that were read under the lock, to be shown without it.
#[derive(Default)]
struct Batch {
    entries: Vec<Read>,
    names: Vec<u8>,
}

/// One of them: its own position, and where to find it there; where its name ends.
struct Read {
    pos: u64,
    at: Handle,
    ino: u64,
    off: u64,
    kind: u8,
    name_end: usize,
}

impl Task {
    /// Appends entries of the directory `fd` to `out`, at most `max`, from its position on, which advances; gives how many,
    /// 0 at the end. `.` and `..` come first, then the other names, the one that came to the directory last before the others.
    /// What comes meanwhile is not seen: it stands before the position. As on tmpfs, names can be seen again or missed if the very
    /// entry at the position is removed, renamed or replaced.
    ///
    /// # Errors
    ///
    /// `EBADF`, `ENOTDIR`, `ENOENT` (the directory was removed), `ENOMEM`.
    ///
    /// Kernel: fs/readdir.c `iterate_dir()`.
    pub fn getdents(&self, fd: i32, out: &mut Vec<Dirent>, max: usize) -> Result<usize> {
        let before = out.len();
        let mut no_memory = false;
        let read = self.iterate_dir(fd, max.saturating_add(1), |entry| {
            if out.len() - before == max {
                return false;
            }
            no_memory = out.try_reserve(1).is_err();
            if !no_memory {
                let Entry { ino, off, kind, name } = *entry;
                out.push(Dirent { ino, off: off as i64, kind, name: name.to_vec() });
            }
            !no_memory
        });
        match out.len() - before {
            0 if no_memory => Err(Errno::ENOMEM),
            0 => read.map(|()| 0),
            n => Ok(n),
        }
    }

    /// [`getdents`](Self::getdents) as the system call has it: fills `buf` with `struct linux_dirent64` records, whole ones
    /// from the position on, and gives their bytes, 0 at the end. A record has the inode number (8 bytes), the position
    /// of the next entry (8), its own length (2), the type (1), the name and at least one NUL, up to a multiple of 8 bytes.
    ///
    /// # Errors
    ///
    /// As [`getdents`](Self::getdents); `EINVAL` if the first record does not fit.
    ///
    /// Kernel: fs/readdir.c `getdents64()`, `filldir64()`.
    pub fn getdents64(&self, fd: i32, buf: &mut [u8]) -> Result<usize> {
        let (mut used, mut full) = (0, false);
        let read = self.iterate_dir(fd, buf.len() / (HEADER + 2) + 1, |entry| {
            let name_end = HEADER + entry.name.len();
            let len = (name_end + 1).next_multiple_of(8);
            let Some(record) = buf.get_mut(used..used + len) else {
                full = true;
                return false;
            };
            record[..8].copy_from_slice(&entry.ino.to_ne_bytes());
            record[8..16].copy_from_slice(&entry.off.to_ne_bytes());
            record[16..18].copy_from_slice(&(len as u16).to_ne_bytes());
            record[18] = entry.kind;
            record[HEADER..name_end].copy_from_slice(entry.name);
            record[name_end..].fill(0);
            used += len;
            true
        });
        match used {
            0 if full => Err(Errno::EINVAL),
            0 => read.map(|()| 0),
            used => Ok(used),
        }
    }

    /// All entries of the directory `path` but `.` and `..`, in the order of [`getdents`](Self::getdents).
    ///
    /// # Errors
    ///
    /// Those of opening it for reading, and of [`getdents`](Self::getdents).
    pub fn readdir(&self, path: &[u8]) -> Result<Vec<Dirent>> {
        let fd = self.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)?;
        let mut all = Vec::new();
        let result = loop {
            match self.getdents(fd, &mut all, 1024) {
                Ok(0) => break Ok(()),
                Ok(_) => {}
                Err(errno) => break Err(errno),
            }
        };
        self.close(fd)?;
        result?;
        all.retain(|entry| entry.name != b"." && entry.name != b"..");
        Ok(all)
    }

    /// Shows entries to `emit` until it does not take one, or there are no more. It will not take more than `most`.
    fn iterate_dir(&self, fd: i32, most: usize, mut emit: impl FnMut(&Entry<'_>) -> bool) -> Result<()> {
        let file = self.file(fd)?;
        let _position = file.seek.lock().unwrap_or_else(PoisonError::into_inner);
        let mut batch = Batch::default();
        while self.kernel.iterate_batch(&file, most.min(BATCH), &mut batch, &mut emit)? {}
        if file.flags.get() as i32 & O_NOATIME == 0 {
            self.kernel.touch_atime(file.path.mnt, file.inode);
        }
        Ok(())
    }
}

impl Kernel {
    /// Shows so many entries at most to `emit`, and leaves the position at the first that it did not take. Whether it took all of
    /// them, and there are more.
    fn iterate_batch(
        &self,
        file: &File,
        most: usize,
        batch: &mut Batch,
        emit: &mut impl FnMut(&Entry<'_>) -> bool,
    ) -> Result<bool> {
        let end = self.read_batch(file, most, batch)?;
        let mut name = 0;
        for read in &batch.entries {
            let Read { pos, at, ino, off, kind, name_end } = *read;
            if !emit(&Entry { ino, off, kind, name: &batch.names[name..name_end] }) {
                file.pos.set(pos);
                file.cursor.set(at);
                return Ok(false);
            }
            name = name_end;
        }
        file.pos.set(end.0);
        file.cursor.set(end.1);
        Ok(end.0 != EOD)
    }

    /// Reads entries from the position on; gives the position behind them, and what is there.
    fn read_batch(&self, file: &File, most: usize, batch: &mut Batch) -> Result<(u64, Handle)> {
        let store = &self.store;
        batch.entries.clear();
        batch.names.clear();
        let ns = store.lock();
        let mode = store.inode(file.inode).mode.get();
        if mode & S_IFMT != S_IFDIR {
            return Err(Errno::ENOTDIR);
        }
        if mode & flags::DEAD != 0 {
            return Err(Errno::ENOENT);
        }
        let ino = |dentry: Handle| store.inode(store.d_inode(dentry)).ino.get();
        let position = |at: Handle| if at == 0 { EOD } else { u64::from(store.dentry_offset(at)) };
        let first = store.inode_rest(file.inode).first_child.get();
        let mut pos = file.pos.get();
        while pos < FIRST {
            let (off, name, of): (_, &[u8], _) = match pos {
                0 => (1, b".", file.path.dentry),
                _ => (position(first), b"..", store.dentry(file.path.dentry).parent.get()),
            };
            batch.names.extend_from_slice(name);
            let name_end = batch.names.len();
            batch.entries.push(Read { pos, at: first, ino: ino(of), off, kind: DT_DIR, name_end });
            pos = off;
        }
        let mut at = match pos {
            EOD => 0,
            FIRST => first,
            pos if is_at(store, file, pos) => file.cursor.get(),
            pos => match store.child_up_to(&ns, file.inode, pos.min(EOD) as u32) {
                0 => first,
                child => child,
            },
        };
        while at != 0 && batch.entries.len() < most {
            let next = store.links(at).sib_next.get();
            store.append_name(at, &mut batch.names);
            let kind = mode_to_dt(Meta(store.dentry(at).meta.get()).file_type());
            let (pos, off, name_end) = (position(at), position(next), batch.names.len());
            batch.entries.push(Read { pos, at, ino: ino(at), off, kind, name_end });
            at = next;
        }
        Ok((position(at), at))
    }
}

/// Whether the cursor of `file` is the entry at position `pos`.
fn is_at(store: &Store, file: &File, pos: u64) -> bool {
    let cursor = file.cursor.get();
    cursor != 0
        && store.dentry(cursor).parent.get() == file.path.dentry
        && u64::from(store.dentry_offset(cursor)) == pos
}
