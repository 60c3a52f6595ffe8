//! What is asked: a system call, for the engine to answer and, as a check, for the host.

use rcuwalk::perm::{MAY_EXEC, MAY_READ, MAY_WRITE};
use rcuwalk::uapi::*;
use rcuwalk::{Errno, Exec, OpenHow, Task};
use rcuwalk_host::strace;

/// A system call with a path. Relative ones start at the current directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// faccessat2(2): path, `*_OK`, `AT_*`.
    Access(Vec<u8>, i32, i32),
    /// newfstatat(2): path, `AT_*`.
    Stat(Vec<u8>, i32),
    /// readlink(2).
    Readlink(Vec<u8>),
    /// openat(2): path, `O_*`, mode.
    Open(Vec<u8>, i32, u32),
    /// openat2(2): path, flags, mode, `RESOLVE_*`.
    Open2(Vec<u8>, u64, u64, u64),
    /// mkdir(2): path, mode.
    Mkdir(Vec<u8>, u32),
    /// mknod(2): path, mode, device.
    Mknod(Vec<u8>, u32, u64),
    /// symlink(2): body, path.
    Symlink(Vec<u8>, Vec<u8>),
    /// linkat(2): old, new, `AT_*`.
    Link(Vec<u8>, Vec<u8>, i32),
    /// unlink(2).
    Unlink(Vec<u8>),
    /// rmdir(2).
    Rmdir(Vec<u8>),
    /// renameat2(2): old, new, `RENAME_*`.
    Rename(Vec<u8>, Vec<u8>, u32),
    /// execve(2).
    Exec(Vec<u8>),
    /// chdir(2).
    Chdir(Vec<u8>),
    /// chmod(2): path, mode.
    Chmod(Vec<u8>, u32),
    /// fchownat(2): path, user, group, `AT_*`.
    Chown(Vec<u8>, u32, u32, i32),
    /// truncate(2): path, bytes.
    Truncate(Vec<u8>, i64),
    /// utimensat(2): path, times, `AT_*`.
    Utimes(Vec<u8>, SetTimes, i32),
    /// connect(2) to a Unix socket at this path.
    Connect(Vec<u8>),
    /// setxattr(2): path, name, `XATTR_*`. The value is empty.
    Setxattr(Vec<u8>, Vec<u8>, i32),
}

/// What utimensat(2) is to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTimes {
    /// Both times to the present: the owner may, and who may write.
    Now,
    /// Anything else: the owner alone may.
    Given,
}

impl SetTimes {
    fn times(self) -> Option<[Timespec; 2]> {
        match self {
            SetTimes::Now => None,
            SetTimes::Given => Some([Timespec::default(); 2]),
        }
    }
}

/// What a user wants to do with a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Read it: open(2) for reading, connect(2) to a socket.
    Read,
    /// Write it: open(2) for writing, connect(2) to a socket, adding and removing names in a directory.
    Write,
    /// Execute it, or search it if it is a directory: access(2). [`What::Exec`] asks whether the program runs.
    Execute,
    /// access(2) with effective ids and these `*_OK`.
    Access(i32),
    /// Reach it: stat(2).
    Stat,
    /// Create it: open(2) with `O_CREAT | O_EXCL`.
    Create,
    /// Delete it: unlink(2), or rmdir(2) of a directory.
    Delete,
    /// Rename it to this.
    RenameTo(Vec<u8>),
    /// Run it: execve(2), with its interpreters, its loader and the shared libraries that it needs to start.
    Exec,
    /// Connect to it: connect(2) to a Unix socket.
    Connect,
    /// Set its extended attribute of this name: setxattr(2).
    SetXattr(Vec<u8>),
    /// Make a device, fifo or socket of it: mknod(2) with type and permissions, and device.
    Mknod(u32, u64),
    /// Make this call.
    Call(Call),
}

impl What {
    /// The word for it in a report.
    pub fn word(&self) -> &'static str {
        match self {
            What::Read => "read",
            What::Write => "write",
            What::Execute => "execute",
            What::Access(_) => "access",
            What::Stat => "stat",
            What::Create => "create",
            What::Delete => "delete",
            What::RenameTo(_) => "rename",
            What::Exec => "exec",
            What::Connect => "connect",
            What::SetXattr(_) => "setxattr",
            What::Mknod(..) => "mknod",
            What::Call(_) => "call",
        }
    }

    /// Whether which call it is hangs on the type of what a last link leads to, and not on that of the link.
    pub(crate) fn follows(&self) -> bool {
        matches!(self, What::Read | What::Write)
    }

    /// The call that does it. `kind` is the type of what the path leads to, if something is there; see
    /// [`follows`](Self::follows).
    pub(crate) fn call(&self, path: &[u8], kind: Option<u32>) -> Call {
        let path = path.to_vec();
        match self {
            What::Read | What::Write if kind == Some(S_IFSOCK) => Call::Connect(path),
            What::Read => Call::Open(path, O_RDONLY, 0),
            What::Write if kind == Some(S_IFDIR) => Call::Access(path, W_OK | X_OK, AT_EACCESS),
            What::Write => Call::Open(path, O_WRONLY, 0),
            What::Execute => Call::Access(path, X_OK, AT_EACCESS),
            What::Access(mode) => Call::Access(path, *mode, AT_EACCESS),
            What::Stat => Call::Stat(path, 0),
            What::Create => Call::Open(path, O_CREAT | O_EXCL | O_WRONLY, 0o666),
            What::Delete if kind == Some(S_IFDIR) => Call::Rmdir(path),
            What::Delete => Call::Unlink(path),
            What::RenameTo(new) => Call::Rename(path, new.clone(), 0),
            What::Exec => Call::Exec(path),
            What::Connect => Call::Connect(path),
            What::SetXattr(name) => Call::Setxattr(path, name.clone(), 0),
            What::Mknod(mode, dev) => Call::Mknod(path, *mode, *dev),
            What::Call(call) => call.clone(),
        }
    }
}

/// What a call came to, if it succeeded.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The new program.
    pub(crate) exec: Option<Exec>,
}

impl Call {
    /// Makes the call.
    pub(crate) fn run(&self, task: &mut Task) -> Result<Outcome, Errno> {
        let done = |result: Result<(), Errno>| result.map(|()| Outcome::default());
        match self {
            Call::Exec(path) => {
                let exec = task.execve(path, &[path.as_slice()], &[])?;
                Ok(Outcome { exec: Some(exec) })
            }
            Call::Access(path, mode, flags) => done(task.faccessat2(AT_FDCWD, path, *mode, *flags)),
            Call::Stat(path, flags) => done(task.newfstatat(AT_FDCWD, path, *flags).map(drop)),
            Call::Readlink(path) => done(task.readlink(path).map(drop)),
            Call::Open(path, flags, mode) => done(task.open(path, *flags, *mode).map(drop)),
            Call::Open2(path, flags, mode, resolve) => {
                let how = OpenHow::default().with_flags(*flags).with_mode(*mode).with_resolve(*resolve);
                done(task.openat2(AT_FDCWD, path, &how).map(drop))
            }
            Call::Mkdir(path, mode) => done(task.mkdir(path, *mode)),
            Call::Mknod(path, mode, dev) => done(task.mknod(path, *mode, *dev)),
            Call::Symlink(body, path) => done(task.symlink(body, path)),
            Call::Link(old, new, flags) => done(task.linkat(AT_FDCWD, old, AT_FDCWD, new, *flags)),
            Call::Unlink(path) => done(task.unlink(path)),
            Call::Rmdir(path) => done(task.rmdir(path)),
            Call::Rename(old, new, flags) => done(task.renameat2(AT_FDCWD, old, AT_FDCWD, new, *flags)),
            Call::Chdir(path) => done(task.chdir(path)),
            Call::Chmod(path, mode) => done(task.chmod(path, *mode)),
            Call::Chown(path, uid, gid, flags) => done(task.fchownat(AT_FDCWD, path, *uid, *gid, *flags)),
            Call::Truncate(path, len) => done(task.truncate(path, *len)),
            Call::Utimes(path, times, flags) => {
                done(task.utimensat(AT_FDCWD, Some(path), times.times(), *flags))
            }
            Call::Connect(path) => done(connect(task, path)),
            Call::Setxattr(path, name, flags) => done(task.setxattr(path, name, b"", *flags)),
        }
    }

    /// Goes wherever the call would go, and changes nothing; for a tree without restrictions. What it answers does not
    /// matter: what it misses is what the caller wants to know.
    pub(crate) fn visit(&self, task: &mut Task) {
        let _ = match self {
            Call::Exec(path) => task.execve(path, &[path.as_slice()], &[]).map(drop),
            Call::Open(path, flags, _) => visit_open(task, path, *flags, 0),
            Call::Open2(path, flags, _, resolve) => visit_open(task, path, *flags as i32, *resolve),
            Call::Access(path, _, flags)
            | Call::Stat(path, flags)
            | Call::Chown(path, _, _, flags)
            | Call::Utimes(path, _, flags) => {
                task.newfstatat(AT_FDCWD, path, flags & AT_SYMLINK_NOFOLLOW).map(drop)
            }
            Call::Chdir(path)
            | Call::Chmod(path, _)
            | Call::Truncate(path, _)
            | Call::Connect(path)
            | Call::Setxattr(path, ..) => task.stat(path).map(drop),
            Call::Link(old, new, flags) => {
                let follow = flags & AT_SYMLINK_FOLLOW != 0;
                let _ = if follow { task.stat(old) } else { task.lstat(old) };
                task.lstat(trimmed(new)).map(drop)
            }
            Call::Rename(old, new, _) => {
                let _ = task.lstat(trimmed(old));
                task.lstat(trimmed(new)).map(drop)
            }
            Call::Mkdir(path, _)
            | Call::Mknod(path, ..)
            | Call::Symlink(_, path)
            | Call::Unlink(path)
            | Call::Rmdir(path) => task.lstat(trimmed(path)).map(drop),
            Call::Readlink(path) => task.lstat(path).map(drop),
        };
    }

    /// Whether it opens what the path leads to, which asks its file system or driver, too.
    pub(crate) fn opens(&self) -> bool {
        match self {
            Call::Open(_, flags, _) => flags & O_PATH == 0,
            Call::Open2(_, flags, ..) => *flags as i32 & O_PATH == 0,
            Call::Exec(_) => true,
            _ => false,
        }
    }

    /// Whether it opens the object, or asks whether that may be done with it.
    pub(crate) fn uses_contents(&self) -> bool {
        self.opens()
            || matches!(self, Call::Access(_, mode, _) if *mode != 0)
            || matches!(self, Call::Truncate(..))
    }

    /// What it wants to do with the contents of an object that is there, as permission bits.
    pub(crate) fn wants(&self) -> u32 {
        let of_flags = |flags: i32| match flags & O_ACCMODE {
            _ if flags & O_PATH != 0 => 0,
            O_RDONLY if flags & O_TRUNC == 0 => MAY_READ,
            O_WRONLY => MAY_WRITE,
            _ => MAY_READ | MAY_WRITE,
        };
        match self {
            Call::Open(_, flags, _) => of_flags(*flags),
            Call::Open2(_, flags, ..) => of_flags(*flags as i32),
            Call::Access(_, mode, _) => *mode as u32 & (MAY_READ | MAY_WRITE),
            Call::Truncate(..) => MAY_WRITE,
            _ => 0,
        }
    }

    /// Whether it changes the size of what is there.
    pub(crate) fn cuts(&self) -> bool {
        match self {
            Call::Open(_, flags, _) => flags & O_TRUNC != 0,
            Call::Open2(_, flags, ..) => *flags as i32 & O_TRUNC != 0,
            Call::Truncate(..) => true,
            _ => false,
        }
    }

    /// Whether it needs the file system to store an attribute of this name.
    pub(crate) fn attribute(&self) -> Option<&[u8]> {
        if let Call::Setxattr(_, name, _) = self { Some(name) } else { None }
    }

    /// Whether Landlock can have rules for it; it has none for access(2), stat(2), chmod(2) and the like.
    pub(crate) fn meets_landlock(&self) -> bool {
        match self {
            Call::Open(..) | Call::Open2(..) => self.opens(),
            Call::Access(..)
            | Call::Stat(..)
            | Call::Readlink(_)
            | Call::Chdir(_)
            | Call::Chmod(..)
            | Call::Chown(..)
            | Call::Utimes(..)
            | Call::Connect(_)
            | Call::Setxattr(..) => false,
            _ => true,
        }
    }

    /// Whether the mount must map the caller's ids: it makes an inode, a name or an owner.
    pub(crate) fn creates(&self) -> bool {
        match self {
            Call::Open(_, flags, _) => flags & (O_CREAT | __O_TMPFILE) != 0,
            Call::Open2(_, flags, ..) => *flags as i32 & (O_CREAT | __O_TMPFILE) != 0,
            Call::Mkdir(..)
            | Call::Mknod(..)
            | Call::Symlink(..)
            | Call::Link(..)
            | Call::Rename(..)
            | Call::Chown(..) => true,
            _ => false,
        }
    }

    /// The path that the call is about.
    pub(crate) fn path(&self) -> &[u8] {
        match self {
            Call::Access(path, ..)
            | Call::Stat(path, _)
            | Call::Readlink(path)
            | Call::Open(path, ..)
            | Call::Open2(path, ..)
            | Call::Mkdir(path, _)
            | Call::Mknod(path, ..)
            | Call::Symlink(_, path)
            | Call::Link(path, ..)
            | Call::Unlink(path)
            | Call::Rmdir(path)
            | Call::Rename(path, ..)
            | Call::Exec(path)
            | Call::Chdir(path)
            | Call::Chmod(path, _)
            | Call::Chown(path, ..)
            | Call::Utimes(path, ..)
            | Call::Connect(path)
            | Call::Setxattr(path, ..)
            | Call::Truncate(path, _) => path,
        }
    }

    /// Every path of the call.
    pub(crate) fn paths(&self) -> Vec<&[u8]> {
        match self {
            Call::Link(old, new, _) | Call::Rename(old, new, _) => vec![old, new],
            call => vec![call.path()],
        }
    }

    /// Calls that ask the same permissions and change nothing: where one of them says no, so does the call itself. `None`
    /// if there are none. `exists` says whether a path, its last link not followed, is there, and a directory.
    ///
    /// What deletes asks for permission before it looks whether the object is a directory: so rmdir(2) of a file is
    /// `ENOTDIR`, and unlink(2) of a directory `EISDIR`, exactly where the other call would go on. (An empty directory that
    /// takes the place of a file between the look and the call would be removed.) What makes a device asks
    /// for the directory's permission before it asks for `CAP_MKNOD`, which the twin does without.
    pub(crate) fn twins(&self, exists: &dyn Fn(&[u8]) -> Option<bool>) -> Option<Vec<Twin>> {
        let plain = |call: Call| Twin { call, without_mknod: false };
        let makes = |path: &[u8]| Twin {
            call: Call::Mknod(path.to_vec(), S_IFCHR | 0o600, makedev(1, 3)),
            without_mknod: true,
        };
        let deletes = |path: &[u8], is_dir: bool| {
            let path = trimmed(path).to_vec();
            plain(if is_dir { Call::Unlink(path) } else { Call::Rmdir(path) })
        };
        // unlink(2) of a name with a slash behind it removes nothing, whatever has come to be there.
        let missing = |path: &[u8]| plain(Call::Unlink([trimmed(path), b"/"].concat()));
        Some(match self {
            Call::Access(..) | Call::Stat(..) | Call::Readlink(_) | Call::Chdir(_) | Call::Exec(_) => {
                vec![plain(self.clone())]
            }
            Call::Open(path, flags, _) if flags & O_CREAT != 0 && exists(path).is_none() => vec![makes(path)],
            Call::Open(_, flags, _) if flags & (O_TRUNC | __O_TMPFILE) == 0 => vec![plain(self.clone())],
            Call::Open2(_, flags, ..) if *flags as i32 & (O_CREAT | O_TRUNC | __O_TMPFILE) == 0 => {
                vec![plain(self.clone())]
            }
            Call::Mkdir(path, _) | Call::Mknod(path, ..) | Call::Symlink(_, path) => vec![makes(path)],
            Call::Unlink(path) | Call::Rmdir(path) => {
                vec![exists(path).map_or_else(|| missing(path), |is_dir| deletes(path, is_dir))]
            }
            Call::Connect(path) => vec![plain(Call::Access(path.clone(), W_OK, AT_EACCESS))],
            Call::Setxattr(path, name, _) if name.starts_with(b"user.") || name.starts_with(b"trusted.") => {
                // The permission hangs on the first part of the name alone, and an attribute that is not there is not
                // replaced.
                let prefix = name.split_inclusive(|&byte| byte == b'.').next().unwrap_or_default();
                let none = [prefix, b"rcuwalk.is-not-there"].concat();
                vec![plain(Call::Setxattr(path.clone(), none, XATTR_REPLACE))]
            }
            Call::Rename(old, new, 0) => {
                let from = exists(old).map_or_else(|| missing(old), |is_dir| deletes(old, is_dir));
                let to = exists(new).map_or_else(|| makes(trimmed(new)), |is_dir| deletes(new, is_dir));
                vec![from, to]
            }
            _ => return None,
        })
    }
}

/// See [`Call::twins`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Twin {
    pub(crate) call: Call,
    /// Made without `CAP_MKNOD`.
    pub(crate) without_mknod: bool,
}

/// The longest path in the address of a Unix socket, in bytes.
const MOST_SOCKET_PATH: usize = 107;

/// What connect(2) asks of a path: to write to the socket there.
///
/// Kernel: net/unix/af_unix.c `unix_find_bsd()`.
fn connect(task: &Task, path: &[u8]) -> Result<(), Errno> {
    if path.len() > MOST_SOCKET_PATH {
        return Err(Errno::EINVAL);
    }
    task.faccessat2(AT_FDCWD, path, W_OK, AT_EACCESS)?;
    if task.stat(path)?.mode & S_IFMT == S_IFSOCK { Ok(()) } else { Err(Errno::ECONNREFUSED) }
}

fn visit_open(task: &Task, path: &[u8], flags: i32, resolve: u64) -> Result<(), Errno> {
    let create = flags & O_CREAT != 0;
    // A directory of that name must not end the visit before the name was looked up.
    let flags = O_PATH | flags & O_NOFOLLOW | if create && flags & O_EXCL != 0 { O_NOFOLLOW } else { 0 };
    let how = OpenHow::new(flags).with_resolve(resolve & !RESOLVE_CACHED);
    task.openat2(AT_FDCWD, if create { trimmed(path) } else { path }, &how).map(drop)
}

/// A path without the slashes at its end, which would have the last component followed.
pub(crate) fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(path.len().min(1), |at| at + 1);
    &path[..end]
}

/// The letters of a mask: `rwx`, `-w-`, and so on.
pub fn mask_letters(mask: u32) -> String {
    let letter = |bit: u32, letter| if mask & bit != 0 { letter } else { '-' };
    [letter(4, 'r'), letter(2, 'w'), letter(MAY_EXEC, 'x')].iter().collect()
}

/// As strace(1) writes it.
impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let q = |path: &[u8]| format!("\"{}\"", path.escape_ascii());
        match self {
            Call::Access(path, mode, flags) => {
                let (mode, flags) =
                    (strace::flags(i64::from(*mode), strace::ACCESS, "F_OK"), at_text(*flags));
                write!(f, "faccessat2(AT_FDCWD, {}, {mode}, {flags})", q(path))
            }
            Call::Stat(path, flags) => write!(f, "newfstatat(AT_FDCWD, {}, {})", q(path), at_text(*flags)),
            Call::Readlink(path) => write!(f, "readlink({})", q(path)),
            Call::Open(path, flags, mode) => {
                write!(f, "openat(AT_FDCWD, {}, {}", q(path), open_text(*flags))?;
                if flags & (O_CREAT | __O_TMPFILE) != 0 { write!(f, ", {mode:#o})") } else { write!(f, ")") }
            }
            Call::Open2(path, flags, mode, resolve) => {
                let (flags, resolve) =
                    (open_text(*flags as i32), strace::flags(*resolve as i64, strace::RESOLVE, "0"));
                write!(
                    f,
                    "openat2(AT_FDCWD, {}, {{flags={flags}, mode={mode:#o}, resolve={resolve}}})",
                    q(path)
                )
            }
            Call::Mkdir(path, mode) => write!(f, "mkdir({}, {mode:#o})", q(path)),
            Call::Mknod(path, mode, dev) => write!(f, "mknod({}, {mode:#o}, {dev:#x})", q(path)),
            Call::Symlink(body, path) => write!(f, "symlink({}, {})", q(body), q(path)),
            Call::Link(old, new, flags) => {
                write!(f, "linkat(AT_FDCWD, {}, AT_FDCWD, {}, {})", q(old), q(new), at_text(*flags))
            }
            Call::Unlink(path) => write!(f, "unlink({})", q(path)),
            Call::Rmdir(path) => write!(f, "rmdir({})", q(path)),
            Call::Rename(old, new, 0) => write!(f, "rename({}, {})", q(old), q(new)),
            Call::Rename(old, new, flags) => {
                let flags = strace::flags(i64::from(*flags), strace::RENAME, "0");
                write!(f, "renameat2(AT_FDCWD, {}, AT_FDCWD, {}, {flags})", q(old), q(new))
            }
            Call::Exec(path) => write!(f, "execve({})", q(path)),
            Call::Chdir(path) => write!(f, "chdir({})", q(path)),
            Call::Chmod(path, mode) => write!(f, "chmod({}, {mode:#o})", q(path)),
            Call::Chown(path, uid, gid, flags) => {
                let (uid, gid) = (*uid as i32, *gid as i32);
                write!(f, "fchownat(AT_FDCWD, {}, {uid}, {gid}, {})", q(path), at_text(*flags))
            }
            Call::Truncate(path, len) => write!(f, "truncate({}, {len})", q(path)),
            Call::Utimes(path, times, flags) => {
                let times = if *times == SetTimes::Now { "NULL" } else { "[...]" };
                write!(f, "utimensat(AT_FDCWD, {}, {times}, {})", q(path), at_text(*flags))
            }
            Call::Connect(path) => write!(f, "connect(3, {{sa_family=AF_UNIX, sun_path={}}})", q(path)),
            Call::Setxattr(path, name, flags) => {
                let flags = if *flags == XATTR_REPLACE { "XATTR_REPLACE" } else { "0" };
                write!(f, "setxattr({}, {}, \"\", 0, {flags})", q(path), q(name))
            }
        }
    }
}

/// `AT_EACCESS` has the value of `AT_REMOVEDIR`, and is the one that calls here know.
fn at_text(flags: i32) -> String {
    let rest = strace::flags(i64::from(flags & !AT_EACCESS), strace::AT, "");
    match (flags & AT_EACCESS != 0, rest.as_str()) {
        (true, "") => "AT_EACCESS".to_owned(),
        (true, rest) => format!("AT_EACCESS|{rest}"),
        (false, "") => "0".to_owned(),
        (false, rest) => rest.to_owned(),
    }
}

fn open_text(flags: i32) -> String {
    let read = if flags & O_ACCMODE == O_RDONLY { "O_RDONLY" } else { "" };
    match (read, strace::flags(i64::from(flags), strace::OPEN, "")) {
        ("", rest) => rest,
        (read, rest) if rest.is_empty() => read.to_owned(),
        (read, rest) => format!("{read}|{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_at_the_end_are_taken_off() {
        assert_eq!(trimmed(b"/a//"), b"/a");
        assert_eq!(trimmed(b"///"), b"/");
        assert_eq!(trimmed(b""), b"");
    }

    #[test]
    fn twins_change_nothing() {
        let file = |_: &[u8]| Some(false);
        let none = |_: &[u8]| None;
        let twins = |call: Call, exists: &dyn Fn(&[u8]) -> Option<bool>| {
            call.twins(exists).map(|twins| twins.into_iter().map(|twin| twin.call).collect::<Vec<_>>())
        };
        let path = b"/f".to_vec();
        assert_eq!(twins(Call::Unlink(path.clone()), &file), Some(vec![Call::Rmdir(path.clone())]));
        assert_eq!(twins(Call::Rmdir(path.clone()), &|_| Some(true)), Some(vec![Call::Unlink(path.clone())]));
        let created = twins(Call::Open(path.clone(), O_CREAT | O_WRONLY, 0), &none).unwrap();
        assert!(matches!(created[..], [Call::Mknod(..)]));
        assert_eq!(twins(Call::Open(path.clone(), O_TRUNC | O_WRONLY, 0), &file), None);
        assert_eq!(twins(Call::Chmod(path, 0), &file), None);
    }
}
