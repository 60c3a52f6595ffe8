//! Attributes as text and as JSON.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use rcuwalk::uapi::*;
use serde::Serialize;

/// What `statx` says about an inode, for people and for programs.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Facts {
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) ino: u64,
    pub(crate) nlink: u32,
    /// Type and permission bits.
    pub(crate) mode: u32,
    /// As `ls -l` shows them.
    pub(crate) permissions: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    pub(crate) blksize: u32,
    /// Major and minor number of a device node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rdev: Option<(u32, u32)>,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    pub(crate) btime: Time,
}

/// A time stamp; JSON shows it as RFC 3339 in UTC with nine digits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time {
    sec: i64,
    nsec: u32,
}

impl Serialize for Time {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.timestamp() {
            Some(time) => serializer.collect_str(&format_args!("{time:.9}")),
            None => serializer.collect_str(&format_args!("@{}.{:09}", self.sec, self.nsec)),
        }
    }
}

impl Time {
    fn timestamp(self) -> Option<Timestamp> {
        Timestamp::new(self.sec, i32::try_from(self.nsec).ok()?).ok()
    }

    /// As `stat` prints it, in local time: `2026-01-31 12:00:00.123456789 +0100`.
    pub(crate) fn long(self) -> String {
        self.local("%Y-%m-%d %H:%M:%S.%9f %z")
    }

    /// As `ls -l --time-style=long-iso` prints it, in local time: `2026-01-31 12:00`.
    pub(crate) fn short(self) -> String {
        self.local("%Y-%m-%d %H:%M")
    }

    fn local(self, format: &str) -> String {
        match self.timestamp() {
            Some(time) => time.to_zoned(TimeZone::system()).strftime(format).to_string(),
            None => format!("@{}.{:09}", self.sec, self.nsec), // beyond the calendar
        }
    }
}

impl From<&Statx> for Facts {
    fn from(stx: &Statx) -> Facts {
        let mode = u32::from(stx.mode);
        let time = |t: StatxTimestamp| Time { sec: t.sec, nsec: t.nsec };
        let device = matches!(mode & S_IFMT, S_IFBLK | S_IFCHR);
        Facts {
            kind: kind(mode),
            ino: stx.ino,
            nlink: stx.nlink,
            mode,
            permissions: permissions(mode),
            uid: stx.uid,
            gid: stx.gid,
            size: stx.size,
            blocks: stx.blocks,
            blksize: stx.blksize,
            rdev: device.then_some((stx.rdev_major, stx.rdev_minor)),
            atime: time(stx.atime),
            mtime: time(stx.mtime),
            ctime: time(stx.ctime),
            btime: time(stx.btime),
        }
    }
}

impl Facts {
    /// The size column of a listing: bytes, or the numbers of a device.
    pub(crate) fn size_column(&self) -> String {
        match self.rdev {
            Some((major, minor)) => format!("{major}, {minor}"),
            None => self.size.to_string(),
        }
    }

    /// The block of lines that `stat` prints below the name.
    pub(crate) fn block(&self) -> String {
        let mut out = String::new();
        let rdev =
            self.rdev.map_or_else(String::new, |(major, minor)| format!("  Device type: {major},{minor}"));
        let _ = writeln!(
            out,
            "  Size: {:<15} Blocks: {:<10} IO Block: {:<6} {}",
            self.size, self.blocks, self.blksize, self.kind
        );
        let _ = writeln!(out, " Inode: {:<15} Links: {}{rdev}", self.ino, self.nlink);
        let _ = writeln!(
            out,
            "Access: ({:04o}/{})  Uid: {}   Gid: {}",
            self.mode & 0o7777,
            self.permissions,
            self.uid,
            self.gid
        );
        for (label, time) in
            [("Access", self.atime), ("Modify", self.mtime), ("Change", self.ctime), (" Birth", self.btime)]
        {
            let _ = writeln!(out, "{label}: {}", time.long());
        }
        out
    }
}

fn kind(mode: u32) -> &'static str {
    match mode & S_IFMT {
        S_IFDIR => "directory",
        S_IFREG => "regular file",
        S_IFLNK => "symbolic link",
        S_IFIFO => "fifo",
        S_IFSOCK => "socket",
        S_IFBLK => "block device",
        S_IFCHR => "character device",
        _ => "unknown",
    }
}

/// Ten characters as in `ls -l`.
pub(crate) fn permissions(mode: u32) -> String {
    let first = match mode & S_IFMT {
        S_IFDIR => 'd',
        S_IFREG => '-',
        S_IFLNK => 'l',
        S_IFIFO => 'p',
        S_IFSOCK => 's',
        S_IFBLK => 'b',
        S_IFCHR => 'c',
        _ => '?',
    };
    let mut out = String::from(first);
    for (shift, special, letter) in [(6, S_ISUID, 's'), (3, S_ISGID, 's'), (0, S_ISVTX, 't')] {
        let bits = mode >> shift;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    out
}

/// The usual colours of `ls`.
pub(crate) fn style(mode: u32) -> Style {
    match mode & S_IFMT {
        S_IFDIR => AnsiColor::Blue.on_default().bold(),
        S_IFLNK => AnsiColor::Cyan.on_default().bold(),
        S_IFIFO | S_IFBLK | S_IFCHR => AnsiColor::Yellow.on_default(),
        S_IFSOCK => AnsiColor::Magenta.on_default().bold(),
        S_IFREG if mode & (S_ISUID | S_ISGID) != 0 => AnsiColor::Red.on_default().bold(),
        S_IFREG if mode & 0o111 != 0 => AnsiColor::Green.on_default().bold(),
        _ => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_modes_as_ls_does() {
        assert_eq!(permissions(0o100_644), "-rw-r--r--");
        assert_eq!(permissions(0o041_777), "drwxrwxrwt");
        assert_eq!(permissions(0o104_755), "-rwsr-xr-x");
        assert_eq!(permissions(0o102_640), "-rw-r-S---");
        assert_eq!(permissions(0o020_620), "crw--w----");
        assert_eq!(permissions(0o041_770), "drwxrwx--T");
    }

    #[test]
    fn shows_times_in_and_beyond_the_calendar() {
        let json = |sec, nsec| serde_json::to_string(&Time { sec, nsec }).unwrap();
        assert_eq!(json(0, 5), "\"1970-01-01T00:00:00.000000005Z\"");
        assert_eq!(json(-1, 0), "\"1969-12-31T23:59:59.000000000Z\"");
        assert_eq!(json(i64::MAX, 1), format!("\"@{}.000000001\"", i64::MAX));
        assert_eq!(Time { sec: i64::MIN, nsec: 0 }.long(), format!("@{}.000000000", i64::MIN));
        assert_eq!(Time { sec: 0, nsec: 0 }.short().len(), "1970-01-01 00:00".len());
    }
}
