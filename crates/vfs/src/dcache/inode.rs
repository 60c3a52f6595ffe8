//! Inodes: what a name leads to.
//!
//! The 64 bytes that `stat` and a permission check read change only under the inode's sequence count; what is asked for
//! rarely lies apart in [`InodeRest`].

use crate::base::errno::{Errno, Result};
use crate::base::uapi::{S_IFDIR, S_IFMT, S_IFREG, Timespec};
use crate::dcache::stamps::SlotSeq;
use crate::dcache::store::{Namespace, Store};
use crate::mount::views::View;
use crate::perm::acl::{ACL_GROUP, ACL_USER, AclEntry};
use crate::perm::{self, AclSource, InodeAttr};
use rcuwalk_sync::{Handle, MODELLED, Racy32, Racy64, type_stable};
use std::sync::Arc;

type_stable! {
    /// The fields of `stat`. Written under `seq` and the name space lock.
    pub(crate) struct Inode {
        pub(crate) seq: SlotSeq,
        /// The mode in the low 16 bits; [`flags`] above them.
        pub(crate) mode: Racy32,
        pub(crate) uid: Racy32,
        pub(crate) gid: Racy32,
        pub(crate) nlink: Racy32,
        /// The blob with the access ACL, one word an entry; 0 if there is none.
        pub(crate) acl: Racy32,
        /// Bytes.
        pub(crate) size: Racy64,
        pub(crate) ino: Racy64,
        /// Packed by [`pack_time`].
        pub(crate) atime: Racy64,
        pub(crate) mtime: Racy64,
        pub(crate) ctime: Racy64,
    }
}

type_stable! {
    /// What an inode has besides; under the same locks.
    pub(crate) struct InodeRest {
        /// Dentries that lead here, hashed or not.
        pub(crate) count: Racy32,
        /// The blob with the default ACL; 0 if there is none.
        pub(crate) default_acl: Racy32,
        /// Other extended attributes: an index into [`Namespace::xattrs`], 0 if there are none.
        pub(crate) xattrs: Racy32,
        /// By type: the blob of a link's body, the contents of a file (an index into [`Namespace::contents`], 0 if it has
        /// none), the index of a directory ([`Namespace::offsets`], likewise), the device number.
        pub(crate) data: Racy32,
        pub(crate) btime: Racy64,
        /// 512-byte units, where [`flags::BLOCKS_STORED`] says so.
        pub(crate) blocks: Racy64,
        /// Directories: the ends of the list of children. Files keep their count of writers in `first_child`.
        pub(crate) first_child: Racy32,
        pub(crate) last_child: Racy32,
        /// Directories: the offset of the next entry.
        pub(crate) next_offset: Racy32,
        /// Directories: the one dentry.
        pub(crate) alias: Racy32,
    }
}

const _: () = assert!(MODELLED || size_of::<Inode>() == 64, "stat reads one cache line beside the dentry's");

/// Bits of [`Inode::mode`] above the mode; the lower ones are `IFLAG_*` of [`crate::perm`], shifted.
pub(crate) mod flags {
    /// chattr +i.
    pub(crate) const IMMUTABLE: u32 = crate::perm::IFLAG_IMMUTABLE << 16;
    /// chattr +a.
    pub(crate) const APPEND: u32 = crate::perm::IFLAG_APPEND << 16;
    /// chattr +A.
    pub(crate) const NOATIME: u32 = crate::perm::IFLAG_NOATIME << 16;
    /// A directory that was removed.
    pub(crate) const DEAD: u32 = crate::perm::IFLAG_DEAD << 16;
    /// Made by `O_TMPFILE` without `O_EXCL`: may be linked although it has no name.
    pub(crate) const LINKABLE: u32 = 1 << 20;
    /// Imported without its contents, which cannot be read therefore.
    pub(crate) const NO_CONTENT: u32 = 1 << 21;
    /// The blocks are in [`super::InodeRest::blocks`]; otherwise they follow from the size.
    pub(crate) const BLOCKS_STORED: u32 = 1 << 22;
    /// The times do not fit a word each: they are in [`super::Namespace::wide_times`].
    pub(crate) const WIDE_TIMES: u32 = 1 << 23;
    /// chattr +d. Means nothing here, and is kept.
    pub(crate) const NODUMP: u32 = crate::perm::IFLAG_NODUMP << 16;
    /// The file system of the directory lets it have the "may search" bit. Kernel: `IOP_FASTPERM_MAY_EXEC`.
    pub(crate) const FASTPERM: u32 = 1 << 25;
    /// What `F_SET_RW_HINT` said, three bits. Kernel: `inode.i_write_hint`.
    pub(crate) const WRITE_HINT: u32 = 7 << WRITE_HINT_SHIFT;
    pub(crate) const WRITE_HINT_SHIFT: u32 = 26;
    /// What an object has from the directory it is made in. Kernel: include/linux/shmem_fs.h `SHMEM_FL_INHERITED`.
    pub(crate) const INHERITED: u32 = NOATIME | NODUMP;
}

/// The four times of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Times {
    pub(crate) atime: Timespec,
    pub(crate) mtime: Timespec,
    pub(crate) ctime: Timespec,
    pub(crate) btime: Timespec,
}

/// Everything `stat` and `statx` tell of an inode, from one instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kstat {
    pub(crate) ino: u64,
    pub(crate) mode: u32,
    pub(crate) iflags: u32,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    pub(crate) times: Times,
}

/// A time in one word: 34 bits of seconds, signed, so 1697 to 2242, and 30 of nanoseconds. Times beyond are kept whole
/// elsewhere.
pub(crate) fn pack_time(t: Timespec) -> Option<u64> {
    let fits = (-(1 << 33)..1 << 33).contains(&t.sec);
    fits.then_some((t.sec as u64) << 30 | u64::from(t.nsec))
}

#[inline(always)]
pub(crate) fn unpack_time(word: u64) -> Timespec {
    Timespec { sec: word as i64 >> 30, nsec: (word & ((1 << 30) - 1)) as u32 }
}

/// The blocks of a file or directory that owns just the pages its size needs.
#[inline(always)]
pub(crate) fn blocks_of_size(size: u64) -> u64 {
    // Sizes are `loff_t`s; what is no size is read of an inode that changes, and not believed.
    (size.wrapping_add(4095) >> 12) << 3
}

/// The access ACL of an inode, read entry by entry from shared words; the caller validates the inode's count.
pub(crate) struct RacyAcl<'a> {
    pub(crate) store: &'a Store,
    pub(crate) blob: Handle,
    /// How ids look through the mount, if not as they are stored.
    pub(crate) view: Option<Arc<View>>,
}

impl<'a> AclSource for RacyAcl<'a> {
    type Entries = RacyAclEntries<'a>;

    #[inline]
    fn access_acl(&self) -> Option<RacyAclEntries<'a>> {
        let words = self.store.blobs.len(self.blob) / 8;
        let entries = RacyAclEntries {
            store: self.store,
            blob: self.blob,
            view: self.view.clone(),
            range: 0..words as u32,
        };
        (self.blob != 0).then_some(entries)
    }
}

/// See [`RacyAcl`].
pub(crate) struct RacyAclEntries<'a> {
    store: &'a Store,
    blob: Handle,
    view: Option<Arc<View>>,
    range: std::ops::Range<u32>,
}

impl Iterator for RacyAclEntries<'_> {
    type Item = AclEntry;

    fn next(&mut self) -> Option<AclEntry> {
        let mut entry = AclEntry::from_word(self.store.blobs.word(self.blob, self.range.next()?));
        if let Some(view) = &self.view {
            match entry.tag {
                ACL_USER => entry.id = view.get().make_vfsuid(entry.id),
                ACL_GROUP => entry.id = view.get().make_vfsgid(entry.id),
                _ => {}
            }
        }
        Some(entry)
    }
}

impl Inode {
    /// Whether this directory may have the "may search" bit, and anybody may search it (S9).
    #[inline(always)]
    pub(crate) fn everyone_may_search(&self) -> bool {
        let mode = self.mode.get();
        mode & flags::FASTPERM != 0 && perm::everyone_may_search(mode, self.acl.get() != 0)
    }

    /// What a permission check needs, as it is at this moment.
    #[inline(always)]
    pub(crate) fn attr(&self) -> InodeAttr {
        let mode = self.mode.get();
        InodeAttr { mode: mode & 0xffff, uid: self.uid.get(), gid: self.gid.get(), iflags: mode >> 16 }
    }

    /// [`Store::fill_kstat`] from the inode's one cache line, and whether that was all of it, at one moment.
    #[inline(always)]
    pub(crate) fn fill_kstat_fast(&self, want_btime: bool) -> (Kstat, bool) {
        let seq = self.seq.begin();
        let mode = self.mode.get();
        let size = self.size.get();
        let stat = Kstat {
            ino: self.ino.get(),
            mode: mode & 0xffff,
            iflags: mode & !0xffff,
            nlink: self.nlink.get(),
            uid: self.uid.get(),
            gid: self.gid.get(),
            rdev: 0,
            size,
            blocks: blocks_of_size(size),
            times: Times {
                atime: unpack_time(self.atime.get()),
                mtime: unpack_time(self.mtime.get()),
                ctime: unpack_time(self.ctime.get()),
                btime: Timespec::default(),
            },
        };
        let whole = !self.seq.retry(seq) && is_whole(mode) && !want_btime;
        (stat, whole)
    }

    /// Whether `stat` asks no more of this inode than its one cache line, and permission no more than its mode and owner:
    /// most are like that.
    pub(crate) fn is_plain(&self) -> bool {
        is_whole(self.mode.get()) && self.acl.get() == 0
    }

    /// Makes this a copy of `other`, which nobody changes meanwhile.
    pub(crate) fn copy_from(&self, other: &Inode) {
        for (to, from) in [
            (&self.mode, &other.mode),
            (&self.uid, &other.uid),
            (&self.gid, &other.gid),
            (&self.nlink, &other.nlink),
            (&self.acl, &other.acl),
        ] {
            to.set(from.get());
        }
        for (to, from) in [
            (&self.size, &other.size),
            (&self.ino, &other.ino),
            (&self.atime, &other.atime),
            (&self.mtime, &other.mtime),
            (&self.ctime, &other.ctime),
        ] {
            to.set(from.get());
        }
    }
}

/// Whether the cache line of an inode with this mode is all that `stat` asks of it, but for its time of birth.
#[inline(always)]
fn is_whole(mode: u32) -> bool {
    mode & (flags::BLOCKS_STORED | flags::WIDE_TIMES) == 0 && matches!(mode & S_IFMT, S_IFREG | S_IFDIR)
}

impl Store {
    /// Runs `read` on the inode until nothing changed meanwhile.
    #[inline(always)]
    pub(crate) fn read_inode<R>(&self, inode: Handle, mut read: impl FnMut(&Inode) -> R) -> R {
        let i = self.inode(inode);
        loop {
            let seq = i.seq.wait();
            let value = read(i);
            if !i.seq.retry(seq) {
                return value;
            }
        }
    }

    /// Fills in everything `stat` tells, in one consistent copy.
    ///
    /// Kernel: fs/stat.c `generic_fillattr()`.
    pub(crate) fn fill_kstat(&self, inode: Handle, want_btime: bool) -> Kstat {
        match self.inode(inode).fill_kstat_fast(want_btime) {
            (stat, true) => stat,
            (_, false) => self.fill_kstat_slow(inode),
        }
    }

    /// [`fill_kstat`](Self::fill_kstat) where something lies apart.
    #[cold]
    fn fill_kstat_slow(&self, inode: Handle) -> Kstat {
        let stat = self.fill_kstat_apart(inode);
        if stat.iflags & flags::WIDE_TIMES == 0 {
            return stat;
        }
        // Times before 1697 or after 2242 are kept whole under the lock, where nothing else changes either.
        let ns = self.lock();
        Kstat { times: self.times(&ns, inode), ..stat }
    }

    /// [`fill_kstat`](Self::fill_kstat) with the time of birth; for callers that hold the lock.
    pub(crate) fn fill_kstat_held(&self, ns: &Namespace, inode: Handle) -> Kstat {
        Kstat { times: self.times(ns, inode), ..self.fill_kstat_apart(inode) }
    }

    /// Everything but times that do not fit a word each.
    #[inline(always)]
    fn fill_kstat_apart(&self, inode: Handle) -> Kstat {
        self.read_inode(inode, |i| {
            let rest = self.inode_rest(inode);
            let (mode, size) = (i.mode.get(), i.size.get());
            let kind = mode & S_IFMT;
            let blocks = match kind {
                _ if mode & flags::BLOCKS_STORED != 0 => rest.blocks.get(),
                S_IFREG | S_IFDIR => blocks_of_size(size),
                _ => 0,
            };
            let device = matches!(kind, crate::base::uapi::S_IFCHR | crate::base::uapi::S_IFBLK);
            Kstat {
                ino: i.ino.get(),
                mode: mode & 0xffff,
                iflags: mode & !0xffff,
                nlink: i.nlink.get(),
                uid: i.uid.get(),
                gid: i.gid.get(),
                rdev: if device { rest.data.get() } else { 0 },
                size,
                blocks,
                times: Times {
                    atime: unpack_time(i.atime.get()),
                    mtime: unpack_time(i.mtime.get()),
                    ctime: unpack_time(i.ctime.get()),
                    btime: unpack_time(rest.btime.get()),
                },
            }
        })
    }

    /// The four times of an inode; for callers that hold the lock.
    pub(crate) fn times(&self, ns: &Namespace, inode: Handle) -> Times {
        let i = self.inode(inode);
        ns.wide_times.get(&inode).copied().unwrap_or_else(|| Times {
            atime: unpack_time(i.atime.get()),
            mtime: unpack_time(i.mtime.get()),
            ctime: unpack_time(i.ctime.get()),
            btime: unpack_time(self.inode_rest(inode).btime.get()),
        })
    }

    /// Replaces the times of an inode, whose count the caller has opened.
    pub(crate) fn set_times(&self, ns: &mut Namespace, inode: Handle, times: Times) {
        let i = self.inode(inode);
        let packed = [times.atime, times.mtime, times.ctime, times.btime].map(pack_time);
        let mode = i.mode.get();
        if let [Some(atime), Some(mtime), Some(ctime), Some(btime)] = packed {
            i.atime.set(atime);
            i.mtime.set(mtime);
            i.ctime.set(ctime);
            self.inode_rest(inode).btime.set(btime);
            if mode & flags::WIDE_TIMES != 0 {
                i.mode.set(mode & !flags::WIDE_TIMES);
                ns.wide_times.remove(&inode);
            }
        } else {
            i.mode.set(mode | flags::WIDE_TIMES);
            ns.wide_times.insert(inode, times);
        }
    }

    /// Stamps the chosen times of an inode, whose count the caller has opened, with `now`.
    pub(crate) fn touch(&self, ns: &mut Namespace, inode: Handle, which: Touch, now: Timespec) {
        let i = self.inode(inode);
        match pack_time(now) {
            Some(word) if i.mode.get() & flags::WIDE_TIMES == 0 => {
                if which.atime {
                    i.atime.set(word);
                }
                if which.mtime {
                    i.mtime.set(word);
                }
                if which.ctime {
                    i.ctime.set(word);
                }
            }
            _ => {
                let mut times = self.times(ns, inode);
                for (chosen, time) in [
                    (which.atime, &mut times.atime),
                    (which.mtime, &mut times.mtime),
                    (which.ctime, &mut times.ctime),
                ] {
                    if chosen {
                        *time = now;
                    }
                }
                self.set_times(ns, inode, times);
            }
        }
    }

    /// The body of a symlink; for callers that validate, or hold the lock or a reference.
    pub(crate) fn link_body(&self, inode: Handle, out: &mut Vec<u8>) -> Result<()> {
        self.blobs.read(self.inode_rest(inode).data.get(), out).map_err(|_| Errno::ENOMEM)
    }
}

/// Which times an operation stamps.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Touch {
    pub(crate) atime: bool,
    pub(crate) mtime: bool,
    pub(crate) ctime: bool,
}

impl Touch {
    /// The status changed.
    pub(crate) const C: Touch = Touch { atime: false, mtime: false, ctime: true };
    /// The contents changed.
    pub(crate) const MC: Touch = Touch { atime: false, mtime: true, ctime: true };
    /// The contents were read.
    pub(crate) const A: Touch = Touch { atime: true, mtime: false, ctime: false };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_pack_and_unpack() {
        let edge = 1 << 33;
        for t in [(0, 0), (-1, 999_999_999), (1_700_000_000, 5), (edge - 1, 999_999_999), (-edge, 1)] {
            let t = Timespec { sec: t.0, nsec: t.1 };
            assert_eq!(unpack_time(pack_time(t).unwrap()), t);
        }
        assert_eq!(pack_time(Timespec { sec: edge, nsec: 0 }), None);
        assert_eq!(pack_time(Timespec { sec: -edge - 1, nsec: 0 }), None);
    }
}
