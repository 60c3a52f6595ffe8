//! Attributes, times and errors between the engine's types and fuser's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use rcuwalk::uapi::*;
use rcuwalk::{Errno, Stat, Timespec};

/// The error that a reply carries.
pub(crate) fn error(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw())
}

/// The type in a mode.
pub(crate) fn kind(mode: u32) -> FileType {
    match mode & S_IFMT {
        S_IFDIR => FileType::Directory,
        S_IFLNK => FileType::Symlink,
        S_IFIFO => FileType::NamedPipe,
        S_IFSOCK => FileType::Socket,
        S_IFCHR => FileType::CharDevice,
        S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

/// The type that a directory entry tells (`DT_*`), which is bits 12 to 15 of the mode.
pub(crate) fn kind_of_entry(dt: u8) -> FileType {
    kind(u32::from(dt) << 12)
}

/// What stat(2) tells, as replies carry it.
pub(crate) fn file_attr(st: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(st.ino),
        size: st.size as u64,
        blocks: st.blocks as u64,
        atime: system_time(st.atime),
        mtime: system_time(st.mtime),
        ctime: system_time(st.ctime),
        crtime: UNIX_EPOCH,
        kind: kind(st.mode),
        perm: (st.mode & S_IALLUGO) as u16,
        nlink: st.nlink as u32,
        uid: st.uid,
        gid: st.gid,
        rdev: st.rdev as u32,
        blksize: st.blksize as u32,
        flags: 0,
    }
}

fn system_time(t: Timespec) -> SystemTime {
    let seconds = Duration::from_secs(t.sec.unsigned_abs());
    let whole = if t.sec < 0 { UNIX_EPOCH - seconds } else { UNIX_EPOCH + seconds };
    whole + Duration::from_nanos(u64::from(t.nsec))
}

/// A time to be set. Before the epoch fuser 0.18 takes the nanoseconds off instead of adding them; that is undone here.
fn timespec(t: SystemTime) -> Timespec {
    match t.duration_since(UNIX_EPOCH) {
        Ok(d) => Timespec { sec: d.as_secs() as i64, nsec: d.subsec_nanos() },
        Err(before) => {
            let d = before.duration();
            Timespec { sec: -(d.as_secs() as i64), nsec: d.subsec_nanos() }
        }
    }
}

/// One of the times of a SETATTR request, as utimensat takes it.
pub(crate) fn wanted_time(t: Option<TimeOrNow>) -> Timespec {
    match t {
        None => Timespec { sec: 0, nsec: UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { sec: 0, nsec: UTIME_NOW },
        Some(TimeOrNow::SpecificTime(t)) => timespec(t),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_survive() {
        for (sec, nsec) in [(0, 0), (5, 7), (-1, 0), (-1, 999_999_999), (-2, 250_000_000)] {
            let t = system_time(Timespec { sec, nsec });
            let since = match t.duration_since(UNIX_EPOCH) {
                Ok(d) => d.as_nanos() as i128,
                Err(e) => -(e.duration().as_nanos() as i128),
            };
            assert_eq!(since, i128::from(sec) * 1_000_000_000 + i128::from(nsec));
        }
        // What fuser makes of -2 s and 250 ms.
        let odd = UNIX_EPOCH - Duration::new(2, 250_000_000);
        assert_eq!(timespec(odd), Timespec { sec: -2, nsec: 250_000_000 });
    }

    #[test]
    fn entry_types_are_those_of_modes() {
        for (dt, of) in
            [(DT_DIR, FileType::Directory), (DT_REG, FileType::RegularFile), (DT_LNK, FileType::Symlink)]
        {
            assert_eq!(kind_of_entry(dt), of);
        }
    }
}
