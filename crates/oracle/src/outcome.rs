//! What a call answered.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::args::Dev;
use crate::text;
use crate::words::CapSet;

/// What kind of answer a successful call gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing beyond success.
    Done,
    /// A number.
    Number,
    /// A descriptor.
    Fd,
    /// `struct stat`.
    Stat,
    /// `struct statx`.
    Statx,
    /// Bytes: a link's body, file contents, a value.
    Bytes,
    /// Names of extended attributes, in the order given.
    Names,
    /// Directory entries.
    Entries,
    /// Ids.
    Ids,
    /// Capability sets.
    Caps,
    /// A program was executed.
    Exec,
}

/// The answer to one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The call failed with this error number.
    Error(i32),
    /// Success.
    Done,
    /// Success with a number.
    Number(i64),
    /// A descriptor.
    Fd(i32),
    /// Attributes (stat or statx).
    Stat(Box<Stat>),
    /// Bytes.
    Bytes(#[serde(with = "crate::packed")] Vec<u8>),
    /// Attribute names in the order given.
    Names(Vec<Vec<u8>>),
    /// Directory entries in the order given.
    Entries(Vec<DirEntry>),
    /// Ids.
    Ids(Vec<u32>),
    /// Effective, permitted, inheritable sets.
    Caps([u64; 3]),
    /// What the executed program saw.
    Exec(Box<Exec>),
    /// The backend failed, not the call: never what a row expects.
    Broken(String),
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DirEntry {
    /// The name.
    pub name: Vec<u8>,
    /// The type, `DT_*`.
    pub kind: u8,
    /// The position of the next entry.
    pub off: i64,
}

impl DirEntry {
    /// Whether it is `.` or `..`.
    pub(crate) fn is_dot(&self) -> bool {
        matches!(&*self.name, b"." | b"..")
    }
}

/// The records of getdents64.
pub(crate) fn dirents(mut out: &[u8]) -> Vec<DirEntry> {
    let mut entries = Vec::new();
    while out.len() > 19 {
        let len = usize::from(u16::from_ne_bytes([out[16], out[17]]));
        let name = &out[19..len];
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        let mut off = [0; 8];
        off.copy_from_slice(&out[8..16]);
        entries.push(DirEntry { name: name[..end].to_vec(), kind: out[18], off: i64::from_ne_bytes(off) });
        out = &out[len..];
    }
    entries
}

/// A point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Time {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds.
    pub nsec: u32,
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::print_time(self.sec, i64::from(self.nsec)))
    }
}

/// Attributes of an object, from stat or statx.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// Device, encoded as `st_dev`.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// Number of names.
    pub nlink: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, encoded as `st_rdev`.
    pub rdev: u64,
    /// Size in bytes.
    pub size: i64,
    /// Preferred block size.
    pub blksize: i64,
    /// Blocks of 512 bytes.
    pub blocks: i64,
    /// Last access.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// What only statx gives.
    pub extra: Option<StatxExtra>,
}

/// What statx gives beyond stat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatxExtra {
    /// Result mask.
    pub mask: u32,
    /// Attributes.
    pub attributes: u64,
    /// Attributes that the file system knows.
    pub attributes_mask: u64,
    /// Creation.
    pub btime: Time,
}

/// Names of file types by their bits in a mode.
pub const TYPES: [(u32, &str); 7] = [
    (0o010000, "fifo"),
    (0o020000, "char"),
    (0o040000, "dir"),
    (0o060000, "block"),
    (0o100000, "file"),
    (0o120000, "symlink"),
    (0o140000, "socket"),
];

/// Name of the type in `mode`.
pub fn type_name(mode: u32) -> &'static str {
    TYPES.iter().find(|(bits, _)| *bits == mode & 0o170000).map_or("unknown", |(_, name)| name)
}

/// Name of a `DT_*` type.
pub fn entry_type_name(kind: u8) -> &'static str {
    type_name(u32::from(kind) << 12)
}

impl Stat {
    /// Device and inode number.
    pub fn identity(&self) -> (u64, u64) {
        (self.dev, self.ino)
    }

    /// Reads the x86-64 `struct stat`.
    pub fn from_stat(b: &[u8]) -> Stat {
        let word = |at: usize| u64::from_ne_bytes(b[at..at + 8].try_into().expect("eight bytes"));
        let half = |at: usize| u32::from_ne_bytes(b[at..at + 4].try_into().expect("four bytes"));
        let time = |at: usize| Time { sec: word(at) as i64, nsec: word(at + 8) as u32 };
        Stat {
            dev: word(0),
            ino: word(8),
            nlink: word(16),
            mode: half(24),
            uid: half(28),
            gid: half(32),
            rdev: word(40),
            size: word(48) as i64,
            blksize: word(56) as i64,
            blocks: word(64) as i64,
            atime: time(72),
            mtime: time(88),
            ctime: time(104),
            extra: None,
        }
    }

    /// Reads `struct statx`.
    pub fn from_statx(b: &[u8]) -> Stat {
        let word = |at: usize| u64::from_ne_bytes(b[at..at + 8].try_into().expect("eight bytes"));
        let half = |at: usize| u32::from_ne_bytes(b[at..at + 4].try_into().expect("four bytes"));
        let time = |at: usize| Time { sec: word(at) as i64, nsec: half(at + 8) };
        let dev = |at: usize| Dev { major: half(at), minor: half(at + 4) }.encode();
        Stat {
            dev: dev(0x88),
            ino: word(0x20),
            nlink: u64::from(half(0x10)),
            mode: u32::from(u16::from_ne_bytes([b[0x1c], b[0x1d]])),
            uid: half(0x14),
            gid: half(0x18),
            rdev: dev(0x80),
            size: word(0x28) as i64,
            blksize: i64::from(half(0x04)),
            blocks: word(0x30) as i64,
            atime: time(0x40),
            mtime: time(0x70),
            ctime: time(0x60),
            extra: Some(StatxExtra {
                mask: half(0),
                attributes: word(0x08),
                attributes_mask: word(0x38),
                btime: time(0x50),
            }),
        }
    }
}

impl fmt::Display for Stat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {:04o} {}:{} nlink={} size={} ino={}",
            type_name(self.mode),
            self.mode & 0o7777,
            self.uid,
            self.gid,
            self.nlink,
            self.size,
            self.ino
        )
    }
}

/// What an executed program saw of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// Argument vector.
    pub argv: Vec<Vec<u8>>,
    /// Environment.
    pub envp: Vec<Vec<u8>>,
    /// `AT_EXECFN`.
    pub execfn: Vec<u8>,
    /// Real, effective, saved, filesystem user id.
    pub uids: [u32; 4],
    /// Real, effective, saved, filesystem group id.
    pub gids: [u32; 4],
    /// Effective, permitted, inheritable capabilities.
    pub caps: [u64; 3],
    /// `AT_SECURE`.
    pub secure: bool,
}

/// Bytes for a person.
pub fn show(bytes: &[u8]) -> String {
    const SHOWN: usize = 200;
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]);
    let mut out = format!("{shown:?}");
    if bytes.len() > SHOWN {
        out.push_str(&format!("… ({} bytes)", bytes.len()));
    }
    out
}

/// A list of byte strings for a person.
pub fn show_list(list: &[Vec<u8>]) -> String {
    format!("[{}]", list.iter().map(|b| show(b)).collect::<Vec<_>>().join(", "))
}

impl fmt::Display for Exec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = |bits| CapSet(bits).text();
        write!(
            f,
            "argv={} uids={:?} gids={:?} permitted={} effective={} secure={}",
            show_list(&self.argv),
            self.uids,
            self.gids,
            set(self.caps[1]),
            set(self.caps[0]),
            self.secure
        )
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Error(errno) => f.write_str(&crate::errno::name(*errno)),
            Outcome::Done => f.write_str("ok"),
            Outcome::Number(n) => write!(f, "{n}"),
            Outcome::Fd(fd) => write!(f, "fd {fd}"),
            Outcome::Stat(stat) => write!(f, "{stat}"),
            Outcome::Bytes(bytes) => match text::acl_from_xattr(bytes) {
                Some(acl) => write!(f, "acl {acl}"),
                None => f.write_str(&show(bytes)),
            },
            Outcome::Names(names) => f.write_str(&show_list(names)),
            Outcome::Entries(entries) => {
                let one = |e: &DirEntry| {
                    format!("{} {}, next at {}", show(&e.name), entry_type_name(e.kind), e.off)
                };
                write!(f, "[{}]", entries.iter().map(one).collect::<Vec<_>>().join("; "))
            }
            Outcome::Ids(ids) => write!(f, "{ids:?}"),
            Outcome::Caps([e, p, i]) => {
                let set = |bits| CapSet(bits).text();
                write!(f, "effective={} permitted={} inheritable={}", set(*e), set(*p), set(*i))
            }
            Outcome::Exec(exec) => write!(f, "{exec}"),
            Outcome::Broken(why) => write!(f, "backend failed: {why}"),
        }
    }
}
