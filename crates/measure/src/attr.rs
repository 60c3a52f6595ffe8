//! The attributes of one inode, from either side.

use std::ffi::CStr;
use std::fmt::Write as _;

use rcuwalk::perm::{IFLAG_APPEND, IFLAG_IMMUTABLE};
use rcuwalk::uapi::{XATTR_LIST_MAX, XATTR_SIZE_MAX};
use rcuwalk::{NewInode, Stat, Statx, Timespec};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

/// Seconds and nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Stamp {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nsec: u32,
}

/// What `statx(2)` says about an inode, without the fields that differ by nature: `dev` (the engine is another file
/// system), `blksize` (a preference of that file system) and the mount id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: u64,
    /// Links.
    pub nlink: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Major number of a device node.
    pub rdev_major: u32,
    /// Minor number of a device node.
    pub rdev_minor: u32,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Stamp,
    /// Last change of contents.
    pub mtime: Stamp,
    /// Last change of the inode.
    pub ctime: Stamp,
    /// Birth, where the source knows it.
    pub btime: Option<Stamp>,
}

impl Attr {
    /// The names and values of the fields in which `self` and `other` differ, as `size 5 != 7`; empty when equal.
    ///
    /// A birth time counts only where both sides know one. `skip` names fields to leave out.
    pub fn differences(&self, other: &Attr, skip: &[&str]) -> String {
        let mut out = String::new();
        let mut field = |name: &str, a: &dyn std::fmt::Debug, b: &dyn std::fmt::Debug, same: bool| {
            if !same && !skip.contains(&name) {
                let gap = if out.is_empty() { "" } else { ", " };
                let _ = write!(out, "{gap}{name} {a:?} != {b:?}");
            }
        };
        macro_rules! compare {
            ($($name:ident)*) => { $(field(stringify!($name), &self.$name, &other.$name, self.$name == other.$name);)* };
        }
        compare!(ino nlink mode uid gid rdev_major rdev_minor size blocks atime mtime ctime);
        if let (Some(mine), Some(theirs)) = (self.btime, other.btime) {
            field("btime", &mine, &theirs, mine == theirs);
        }
        out
    }

    /// True for a directory.
    pub fn is_dir(&self) -> bool {
        self.mode & rcuwalk::uapi::S_IFMT == rcuwalk::uapi::S_IFDIR
    }

    /// True for a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.mode & rcuwalk::uapi::S_IFMT == rcuwalk::uapi::S_IFLNK
    }

    /// True for a regular file.
    pub fn is_file(&self) -> bool {
        self.mode & rcuwalk::uapi::S_IFMT == rcuwalk::uapi::S_IFREG
    }
}

impl From<&rustix::fs::Statx> for Attr {
    fn from(stx: &rustix::fs::Statx) -> Attr {
        let stamp = |t: &rustix::fs::StatxTimestamp| Stamp { sec: t.tv_sec, nsec: t.tv_nsec };
        Attr {
            ino: stx.stx_ino,
            nlink: stx.stx_nlink.into(),
            mode: stx.stx_mode.into(),
            uid: stx.stx_uid,
            gid: stx.stx_gid,
            rdev_major: stx.stx_rdev_major,
            rdev_minor: stx.stx_rdev_minor,
            size: stx.stx_size,
            blocks: stx.stx_blocks,
            atime: stamp(&stx.stx_atime),
            mtime: stamp(&stx.stx_mtime),
            ctime: stamp(&stx.stx_ctime),
            btime: (stx.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| stamp(&stx.stx_btime)),
        }
    }
}

impl From<&Statx> for Attr {
    fn from(stx: &Statx) -> Attr {
        let stamp = |sec, nsec| Stamp { sec, nsec };
        Attr {
            ino: stx.ino,
            nlink: stx.nlink.into(),
            mode: stx.mode.into(),
            uid: stx.uid,
            gid: stx.gid,
            rdev_major: stx.rdev_major,
            rdev_minor: stx.rdev_minor,
            size: stx.size,
            blocks: stx.blocks,
            atime: stamp(stx.atime.sec, stx.atime.nsec),
            mtime: stamp(stx.mtime.sec, stx.mtime.nsec),
            ctime: stamp(stx.ctime.sec, stx.ctime.nsec),
            btime: (stx.mask & rcuwalk::uapi::STATX_BTIME != 0).then(|| stamp(stx.btime.sec, stx.btime.nsec)),
        }
    }
}

impl From<&Stat> for Attr {
    fn from(st: &Stat) -> Attr {
        let stamp = |t: rcuwalk::Timespec| Stamp { sec: t.sec, nsec: t.nsec };
        Attr {
            ino: st.ino,
            nlink: st.nlink,
            mode: st.mode,
            uid: st.uid,
            gid: st.gid,
            rdev_major: rustix::fs::major(st.rdev),
            rdev_minor: rustix::fs::minor(st.rdev),
            size: st.size as u64,
            blocks: st.blocks as u64,
            atime: stamp(st.atime),
            mtime: stamp(st.mtime),
            ctime: stamp(st.ctime),
            btime: None,
        }
    }
}

/// The kernel's answer about `path`, following a final link only if `follow`.
///
/// # Errors
///
/// The error number of `statx(2)`.
pub fn host_attr(path: &CStr, follow: bool) -> Result<Attr, i32> {
    let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    statx(CWD, path, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
        .map(|stx| Attr::from(&stx))
        .map_err(rustix::io::Errno::raw_os_error)
}

/// Reads what the attributes have not: extended ones, flags.
pub fn with_inode<T>(
    path: &CStr,
    attr: &Attr,
    body: Option<&[u8]>,
    make: impl FnOnce(&NewInode<'_>) -> T,
) -> T {
    let own = xattrs(path);
    let xattrs: Vec<(&[u8], &[u8])> = own.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    let known = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty());
    let flags = known.map_or(StatxAttributes::empty(), |stx| stx.stx_attributes);
    let flag = |host, ours| if flags.contains(host) { ours } else { 0 };
    let time = |stamp: Stamp| Timespec { sec: stamp.sec, nsec: stamp.nsec };
    make(
        &NewInode::new(attr.mode)
            .with_uid(attr.uid)
            .with_gid(attr.gid)
            .with_rdev(rustix::fs::makedev(attr.rdev_major, attr.rdev_minor))
            .with_size(attr.size)
            .with_blocks(Some(attr.blocks))
            .with_ino(Some(attr.ino))
            .with_atime(time(attr.atime))
            .with_mtime(time(attr.mtime))
            .with_ctime(time(attr.ctime))
            .with_btime(time(attr.btime.unwrap_or_default()))
            .with_iflags(
                flag(StatxAttributes::IMMUTABLE, IFLAG_IMMUTABLE)
                    | flag(StatxAttributes::APPEND, IFLAG_APPEND),
            )
            .with_symlink(body.unwrap_or_default())
            .with_xattrs(&xattrs),
    )
}

/// The extended attributes that can be read, ACLs among them.
fn xattrs(path: &CStr) -> Vec<(Vec<u8>, Vec<u8>)> {
    if !rustix::fs::llistxattr_query(path).is_ok_and(|length| length > 0) {
        return Vec::new();
    }
    let mut names = vec![0; XATTR_LIST_MAX];
    let length = rustix::fs::llistxattr(path, &mut names).unwrap_or(0);
    let names = names[..length].split(|&b| b == 0).filter(|name| !name.is_empty());
    names
        .filter_map(|name| {
            let mut value = vec![0; XATTR_SIZE_MAX];
            let length = rustix::fs::lgetxattr(path, name, &mut value).ok()?;
            value.truncate(length);
            Some((name.to_vec(), value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_each_difference() {
        let one = host_attr(c"/", false).expect("the root can be read");
        assert_eq!(one.differences(&one, &[]), "");
        let two = Attr { size: one.size + 1, atime: Stamp { sec: 1, nsec: 2 }, btime: None, ..one };
        assert_eq!(one.differences(&two, &["atime"]), format!("size {} != {}", one.size, one.size + 1));
        assert!(one.differences(&two, &[]).contains("atime"));
        assert!(one.is_dir() && !one.is_symlink() && !one.is_file());
        assert_eq!(host_attr(c"/nowhere/at all", true), Err(2));
    }
}
