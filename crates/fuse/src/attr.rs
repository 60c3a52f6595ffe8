//! Attributes and times between the engine's types and those of messages.

use rcuwalk::uapi::*;
use rcuwalk::{Stat, Timespec};

use crate::protocol::{Attr, AttrOut, EntryOut, SetattrIn, StatfsOut, fattr};

/// What stat(2) tells, as replies carry it.
pub(crate) fn attr(st: &Stat) -> Attr {
    Attr {
        ino: st.ino,
        size: st.size as u64,
        blocks: st.blocks as u64,
        atime: st.atime.sec,
        mtime: st.mtime.sec,
        ctime: st.ctime.sec,
        atimensec: st.atime.nsec,
        mtimensec: st.mtime.nsec,
        ctimensec: st.ctime.nsec,
        mode: st.mode,
        nlink: st.nlink as u32,
        uid: st.uid,
        gid: st.gid,
        rdev: st.rdev as u32,
        blksize: st.blksize as u32,
        flags: 0,
    }
}

/// Attributes that the kernel may keep for `valid` seconds.
pub(crate) fn attr_out(st: &Stat, valid: u64) -> AttrOut {
    AttrOut { attr_valid: valid, attr: attr(st), ..AttrOut::default() }
}

/// An entry whose name the kernel may keep for `entry_valid` seconds, and its attributes for `attr_valid`.
pub(crate) fn entry_out(st: &Stat, entry_valid: u64, attr_valid: u64) -> EntryOut {
    EntryOut { nodeid: st.ino, entry_valid, attr_valid, attr: attr(st), ..EntryOut::default() }
}

/// What statfs(2) tells.
pub(crate) fn statfs_out(s: &rcuwalk::Statfs) -> StatfsOut {
    StatfsOut {
        blocks: s.blocks,
        bfree: s.bfree,
        bavail: s.bavail,
        files: s.files,
        ffree: s.ffree,
        bsize: s.bsize as u32,
        namelen: s.namelen as u32,
        frsize: s.frsize as u32,
        ..StatfsOut::default()
    }
}

/// The times of a SETATTR request, as utimensat takes them.
pub(crate) fn wanted_times(new: &SetattrIn) -> [Timespec; 2] {
    let time = |set: u32, now: u32, sec: i64, nsec: u32| match new.valid {
        valid if valid & now != 0 => Timespec { sec: 0, nsec: UTIME_NOW },
        valid if valid & set != 0 => Timespec { sec, nsec },
        _ => Timespec { sec: 0, nsec: UTIME_OMIT },
    };
    [
        time(fattr::ATIME, fattr::ATIME_NOW, new.atime, new.atimensec),
        time(fattr::MTIME, fattr::MTIME_NOW, new.mtime, new.mtimensec),
    ]
}
