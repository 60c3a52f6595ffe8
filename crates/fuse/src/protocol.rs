//! The messages of FUSE: what they are made of, and how requests are read from bytes.
//!
//! Sizes, fields and numbers are those of the kernel's include/uapi/linux/fuse.h, version 7.45. Requests come from the kernel,
//! but nothing here relies on that: whatever the bytes are, reading them ends, and within them.

use rcuwalk::{Dirent, Errno};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The version that is spoken, and the oldest that is understood (Linux 5.4).
pub(crate) const MAJOR: u32 = 7;
pub(crate) const MINOR: u32 = 45;
pub(crate) const OLDEST_MINOR: u32 = 31;

/// The most that one READ, WRITE or READDIR request is about: what the kernel allows unless `fs.fuse.max_pages_limit` was raised.
pub(crate) const MAX_PAGES: u16 = 256;
pub(crate) const MAX_DATA: usize = MAX_PAGES as usize * 4096;

/// What is agreed upon at the start, `FUSE_*` of `fuse_init_out`: the first 32 bits go into `flags`, the others into `flags2`.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const WRITEBACK_CACHE: u64 = 1 << 16;
    pub(crate) const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub(crate) const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const ALLOW_IDMAP: u64 = 1 << 40;
}

/// `FATTR_*`: which fields of [`SetattrIn`] count.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    /// Fields that an inode has.
    pub(crate) const ALL: u32 = MODE | UID | GID | SIZE | ATIME | MTIME | ATIME_NOW | MTIME_NOW;
    /// The caller has no `CAP_FSETID`: the change of size drops set-id bits.
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// `FOPEN_*`: what the kernel may do with an open file.
pub(crate) mod fopen {
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    pub(crate) const CACHE_DIR: u32 = 1 << 3;
    pub(crate) const NOFLUSH: u32 = 1 << 5;
}

/// `FUSE_WRITE_KILL_SUIDGID`: who writes has no `CAP_FSETID`.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `FUSE_SETXATTR_ACL_KILL_SGID`: who sets an ACL may not keep set-group-id.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;

/// `enum fuse_notify_code`: what the kernel is told unasked.
pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;
pub(crate) const NOTIFY_INVAL_ENTRY: i32 = 3;
pub(crate) const NOTIFY_INC_EPOCH: i32 = 8;
/// `FUSE_EXPIRE_ONLY`: the entry stays, and is asked for when it is used next.
pub(crate) const EXPIRE_ONLY: u32 = 1 << 0;

/// Structures that are read from requests.
macro_rules! received {
    ($($(#[$doc:meta])* $name:ident = $size:literal { $($field:ident: $type:ty,)* })*) => {
        $($(#[$doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, FromBytes, Immutable)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }
        const _: () = assert!(size_of::<$name>() == $size);)*
    };
}

/// Structures that replies are made of.
macro_rules! sent {
    ($($(#[$doc:meta])* $name:ident = $size:literal { $($field:ident: $type:ty,)* })*) => {
        $($(#[$doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, IntoBytes, Immutable)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }
        const _: () = assert!(size_of::<$name>() == $size);)*
    };
}

received! {
    /// `fuse_in_header`: what every request begins with.
    Header = 40 {
        len: u32,
        opcode: u32,
        unique: u64,
        nodeid: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        total_extlen: u16,
        _padding: u16,
    }
    InitIn = 16 { major: u32, minor: u32, max_readahead: u32, flags: u32, }
    /// `fuse_forget_one`.
    ForgetOne = 16 { nodeid: u64, nlookup: u64, }
    ForgetIn = 8 { nlookup: u64, }
    BatchForgetIn = 8 { count: u32, _dummy: u32, }
    StatxIn = 24 { _getattr_flags: u32, _reserved: u32, _fh: u64, sx_flags: u32, sx_mask: u32, }
    SetattrIn = 88 {
        valid: u32,
        _padding: u32,
        fh: u64,
        size: u64,
        _lock_owner: u64,
        atime: i64,
        mtime: i64,
        _ctime: i64,
        atimensec: u32,
        mtimensec: u32,
        _ctimensec: u32,
        mode: u32,
        _unused4: u32,
        uid: u32,
        gid: u32,
        _unused5: u32,
    }
    MknodIn = 16 { mode: u32, rdev: u32, umask: u32, _padding: u32, }
    MkdirIn = 8 { mode: u32, umask: u32, }
    RenameIn = 8 { newdir: u64, }
    Rename2In = 16 { newdir: u64, flags: u32, _padding: u32, }
    LinkIn = 8 { oldnodeid: u64, }
    OpenIn = 8 { flags: i32, _open_flags: u32, }
    /// `fuse_create_in`, of CREATE and TMPFILE.
    CreateIn = 16 { flags: i32, mode: u32, umask: u32, _open_flags: u32, }
    ReleaseIn = 24 { fh: u64, _flags: u32, _release_flags: u32, _lock_owner: u64, }
    /// `fuse_read_in`, of READ, READDIR and READDIRPLUS.
    ReadIn = 40 {
        fh: u64,
        offset: u64,
        size: u32,
        _read_flags: u32,
        _lock_owner: u64,
        flags: i32,
        _padding: u32,
    }
    WriteIn = 40 {
        fh: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        _lock_owner: u64,
        _flags: u32,
        _padding: u32,
    }
    SetxattrIn = 8 { size: u32, flags: i32, }
    /// The rest of `fuse_setxattr_in`, with `FUSE_SETXATTR_EXT`.
    SetxattrExt = 8 { setxattr_flags: u32, _padding: u32, }
    GetxattrIn = 8 { size: u32, _padding: u32, }
    AccessIn = 8 { mask: u32, _padding: u32, }
    IoctlIn = 32 { _fh: u64, _flags: u32, cmd: u32, _arg: u64, in_size: u32, out_size: u32, }
    FallocateIn = 32 { fh: u64, offset: u64, length: u64, mode: i32, _padding: u32, }
    LseekIn = 24 { fh: u64, offset: i64, whence: i32, _padding: u32, }
    CopyFileRangeIn = 56 {
        fh_in: u64,
        off_in: u64,
        nodeid_out: u64,
        fh_out: u64,
        off_out: u64,
        len: u64,
        _flags: u64,
    }
}

sent! {
    /// `fuse_out_header`: what every message to the kernel begins with.
    OutHeader = 16 { len: u32, error: i32, unique: u64, }
    InitOut = 64 {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        unused: [u32; 7],
    }
    /// `fuse_attr`.
    Attr = 88 {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }
    /// `fuse_entry_out`; node 0 says that there is nothing.
    EntryOut = 128 {
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: Attr,
    }
    AttrOut = 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr, }
    /// `fuse_statx_out` as far as the `struct statx` that ends it.
    StatxOut = 32 { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], }
    OpenOut = 16 { fh: u64, open_flags: u32, padding: u32, }
    /// `fuse_write_out`; COPY_FILE_RANGE has the same.
    WriteOut = 8 { size: u32, padding: u32, }
    /// `fuse_copy_file_range_out`.
    CopyFileRangeOut = 8 { bytes_copied: u64, }
    StatfsOut = 80 {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    }
    GetxattrOut = 8 { size: u32, padding: u32, }
    IoctlOut = 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, }
    LseekOut = 8 { offset: i64, }
    /// `fuse_dirent`; the name follows, and zeros up to a multiple of 8.
    DirentOut = 24 { ino: u64, off: u64, namelen: u32, kind: u32, }
    /// `fuse_notify_inval_entry_out`; the name follows, and a zero.
    NotifyInvalEntryOut = 16 { parent: u64, namelen: u32, flags: u32, }
    NotifyInvalInodeOut = 24 { ino: u64, off: i64, len: i64, }
}

impl Header {
    /// User and group of the caller. Where mounts may be idmapped, only requests that create something have them, mapped as the mount says.
    pub(crate) fn ids(&self) -> Option<(u32, u32)> {
        Some((self.uid, self.gid)).filter(|ids| *ids != (u32::MAX, u32::MAX))
    }
}

/// A request: a caller, and what it asks for.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) header: Header,
    /// `ENOSYS`: nothing that is known; `EINVAL`: not what the header says.
    pub(crate) operation: Result<Operation<'a>, Errno>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation<'a> {
    Lookup {
        name: &'a [u8],
    },
    Forget(ForgetOne),
    BatchForget(Forgets<'a>),
    Getattr,
    Statx(StatxIn),
    Setattr(SetattrIn),
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod(MknodIn, &'a [u8]),
    Mkdir(MkdirIn, &'a [u8]),
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        newdir: u64,
        newname: &'a [u8],
        flags: u32,
    },
    Link(LinkIn, &'a [u8]),
    Open(OpenIn),
    Opendir(OpenIn),
    Create(CreateIn, &'a [u8]),
    Tmpfile(CreateIn),
    Read(ReadIn),
    Readdir(ReadIn),
    Readdirplus(ReadIn),
    Write(WriteIn, &'a [u8]),
    Release(ReleaseIn),
    Releasedir(ReleaseIn),
    Fsync,
    Statfs,
    /// Of who sets an ACL the kernel may say whether they have to lose set-group-id.
    Setxattr {
        kill_sgid: Option<bool>,
        name: &'a [u8],
        value: &'a [u8],
        flags: i32,
    },
    Getxattr(GetxattrIn, &'a [u8]),
    Listxattr(GetxattrIn),
    Removexattr {
        name: &'a [u8],
    },
    Access(AccessIn),
    Ioctl(IoctlIn, &'a [u8]),
    Fallocate(FallocateIn),
    Lseek(LseekIn),
    CopyFileRange(CopyFileRangeIn),
    CopyFileRange64(CopyFileRangeIn),
    Init(InitIn, u32),
    Destroy,
}

/// References that the kernel gives up, one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Forgets<'a>(&'a [u8]);

impl Iterator for Forgets<'_> {
    type Item = ForgetOne;

    fn next(&mut self) -> Option<ForgetOne> {
        let (one, rest) = ForgetOne::read_from_prefix(self.0).ok()?;
        self.0 = rest;
        Some(one)
    }
}

impl<'a> Request<'a> {
    /// Reads a message. `setxattr_ext` says whether SETXATTR has its long form (`FUSE_SETXATTR_EXT`).
    ///
    /// `None`: there is not even a header, or it names another length than there is, so that no request could be answered.
    pub(crate) fn parse(message: &'a [u8], setxattr_ext: bool) -> Option<Request<'a>> {
        let (header, body) = Header::read_from_prefix(message).ok()?;
        if header.len as usize != message.len() {
            return None;
        }
        // Extensions follow the arguments; none is asked for.
        let operation = body
            .len()
            .checked_sub(8 * usize::from(header.total_extlen))
            .ok_or(Errno::EINVAL)
            .and_then(|end| Operation::parse(&header, Body(&body[..end]), setxattr_ext));
        Some(Request { header, operation })
    }

    /// Whether the kernel waits for no answer.
    pub(crate) fn is_one_way(&self) -> bool {
        matches!(self.header.opcode, opcode::FORGET | opcode::BATCH_FORGET)
    }
}

/// What has not been read yet of a request.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take<T: FromBytes + Immutable>(&mut self) -> Result<T, Errno> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| Errno::EINVAL)?;
        self.0 = rest;
        Ok(value)
    }

    /// A string without the NUL that ends it.
    fn name(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or(Errno::EINVAL)?;
        let name = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Ok(name)
    }

    fn bytes(&mut self, count: u32) -> Result<&'a [u8], Errno> {
        let (bytes, rest) = self.0.split_at_checked(count as usize).ok_or(Errno::EINVAL)?;
        self.0 = rest;
        Ok(bytes)
    }
}

/// `enum fuse_opcode`, as far as requests are answered.
mod opcode {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const READLINK: u32 = 5;
    pub(super) const SYMLINK: u32 = 6;
    pub(super) const MKNOD: u32 = 8;
    pub(super) const MKDIR: u32 = 9;
    pub(super) const UNLINK: u32 = 10;
    pub(super) const RMDIR: u32 = 11;
    pub(super) const RENAME: u32 = 12;
    pub(super) const LINK: u32 = 13;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const SETXATTR: u32 = 21;
    pub(super) const GETXATTR: u32 = 22;
    pub(super) const LISTXATTR: u32 = 23;
    pub(super) const REMOVEXATTR: u32 = 24;
    pub(super) const INIT: u32 = 26;
    pub(super) const OPENDIR: u32 = 27;
    pub(super) const READDIR: u32 = 28;
    pub(super) const RELEASEDIR: u32 = 29;
    pub(super) const FSYNCDIR: u32 = 30;
    pub(super) const ACCESS: u32 = 34;
    pub(super) const CREATE: u32 = 35;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const IOCTL: u32 = 39;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const FALLOCATE: u32 = 43;
    pub(super) const READDIRPLUS: u32 = 44;
    pub(super) const RENAME2: u32 = 45;
    pub(super) const LSEEK: u32 = 46;
    pub(super) const COPY_FILE_RANGE: u32 = 47;
    pub(super) const TMPFILE: u32 = 51;
    pub(super) const STATX: u32 = 52;
    pub(super) const COPY_FILE_RANGE_64: u32 = 53;
}

impl<'a> Operation<'a> {
    fn parse(header: &Header, mut body: Body<'a>, setxattr_ext: bool) -> Result<Operation<'a>, Errno> {
        let body = &mut body;
        Ok(match header.opcode {
            opcode::LOOKUP => Operation::Lookup { name: body.name()? },
            opcode::FORGET => {
                let ForgetIn { nlookup } = body.take()?;
                Operation::Forget(ForgetOne { nodeid: header.nodeid, nlookup })
            }
            opcode::BATCH_FORGET => {
                let count = body.take::<BatchForgetIn>()?.count;
                let size = count.checked_mul(size_of::<ForgetOne>() as u32).ok_or(Errno::EINVAL)?;
                Operation::BatchForget(Forgets(body.bytes(size)?))
            }
            opcode::GETATTR => Operation::Getattr,
            opcode::STATX => Operation::Statx(body.take()?),
            opcode::SETATTR => Operation::Setattr(body.take()?),
            opcode::READLINK => Operation::Readlink,
            opcode::SYMLINK => Operation::Symlink { name: body.name()?, target: body.name()? },
            opcode::MKNOD => Operation::Mknod(body.take()?, body.name()?),
            opcode::MKDIR => Operation::Mkdir(body.take()?, body.name()?),
            opcode::UNLINK => Operation::Unlink { name: body.name()? },
            opcode::RMDIR => Operation::Rmdir { name: body.name()? },
            opcode::RENAME => {
                let RenameIn { newdir } = body.take()?;
                Operation::Rename { name: body.name()?, newdir, newname: body.name()?, flags: 0 }
            }
            opcode::RENAME2 => {
                let Rename2In { newdir, flags, .. } = body.take()?;
                Operation::Rename { name: body.name()?, newdir, newname: body.name()?, flags }
            }
            opcode::LINK => Operation::Link(body.take()?, body.name()?),
            opcode::OPEN => Operation::Open(body.take()?),
            opcode::OPENDIR => Operation::Opendir(body.take()?),
            opcode::CREATE => Operation::Create(body.take()?, body.name()?),
            opcode::TMPFILE => Operation::Tmpfile(body.take()?),
            opcode::RELEASE => Operation::Release(body.take()?),
            opcode::RELEASEDIR => Operation::Releasedir(body.take()?),
            opcode::STATFS => Operation::Statfs,
            opcode::ACCESS => Operation::Access(body.take()?),
            opcode::INIT => {
                let init: InitIn = body.take()?;
                // The second half of the flags came later.
                Operation::Init(init, body.take().unwrap_or(0))
            }
            opcode::DESTROY => Operation::Destroy,
            _ => return Operation::parse_data(header, body, setxattr_ext),
        })
    }

    /// Those on contents and extended attributes.
    fn parse_data(header: &Header, body: &mut Body<'a>, setxattr_ext: bool) -> Result<Operation<'a>, Errno> {
        Ok(match header.opcode {
            opcode::READ => Operation::Read(body.take()?),
            opcode::READDIR => Operation::Readdir(body.take()?),
            opcode::READDIRPLUS => Operation::Readdirplus(body.take()?),
            opcode::WRITE => {
                let write: WriteIn = body.take()?;
                Operation::Write(write, body.bytes(write.size)?)
            }
            opcode::FSYNC | opcode::FSYNCDIR => Operation::Fsync,
            opcode::FALLOCATE => Operation::Fallocate(body.take()?),
            opcode::LSEEK => Operation::Lseek(body.take()?),
            opcode::COPY_FILE_RANGE => Operation::CopyFileRange(body.take()?),
            opcode::COPY_FILE_RANGE_64 => Operation::CopyFileRange64(body.take()?),
            opcode::SETXATTR => {
                let SetxattrIn { size, flags } = body.take()?;
                let kill_sgid = match setxattr_ext {
                    true => Some(body.take::<SetxattrExt>()?.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0),
                    false => None,
                };
                Operation::Setxattr { kill_sgid, name: body.name()?, value: body.bytes(size)?, flags }
            }
            opcode::GETXATTR => Operation::Getxattr(body.take()?, body.name()?),
            opcode::LISTXATTR => Operation::Listxattr(body.take()?),
            opcode::REMOVEXATTR => Operation::Removexattr { name: body.name()? },
            opcode::IOCTL => {
                let ioctl: IoctlIn = body.take()?;
                Operation::Ioctl(ioctl, body.bytes(ioctl.in_size)?)
            }
            _ => return Err(Errno::ENOSYS),
        })
    }
}

/// An answer, collected in a buffer that is used again and again.
#[derive(Debug)]
pub(crate) struct Reply {
    buffer: Vec<u8>,
    /// Of the buffer, how much belongs to this answer; the header has its room.
    len: usize,
}

impl Reply {
    const HEADER: usize = size_of::<OutHeader>();

    /// With room for `capacity` bytes; more is made where needed.
    pub(crate) fn new(capacity: usize) -> Reply {
        Reply { buffer: vec![0; Reply::HEADER + capacity], len: Reply::HEADER }
    }

    /// Bytes of the answer so far.
    pub(crate) fn len(&self) -> usize {
        self.len - Reply::HEADER
    }

    /// The next `size` bytes.
    fn room(&mut self, size: usize) -> &mut [u8] {
        let end = self.len + size;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        &mut self.buffer[self.len..end]
    }

    pub(crate) fn put(&mut self, part: &(impl IntoBytes + Immutable)) {
        self.extend(part.as_bytes());
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Has `fill` write at most `size` bytes and say how many they were.
    pub(crate) fn fill(
        &mut self,
        size: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<(), Errno> {
        self.len += fill(self.room(size))?.min(size);
        Ok(())
    }

    /// An entry of a directory, if the answer does not become longer than `size` by it: what READDIRPLUS says beside, the entry
    /// itself, its name, and zeros up to the next multiple of 8.
    pub(crate) fn dirent(&mut self, size: usize, plus: Option<&EntryOut>, entry: &Dirent) -> bool {
        let plus = plus.map_or(&[][..], IntoBytes::as_bytes);
        let used = plus.len() + size_of::<DirentOut>() + entry.name.len();
        let padding = used.next_multiple_of(8) - used;
        if self.len() + used + padding > size {
            return false;
        }
        self.extend(plus);
        self.put(&DirentOut {
            ino: entry.ino,
            off: entry.off as u64,
            namelen: entry.name.len() as u32,
            kind: u32::from(entry.kind),
        });
        self.extend(&entry.name);
        self.extend(&[0; 8][..padding]);
        true
    }

    /// The message that answers request `unique`; afterwards this is empty again. A failure tells nothing but the error.
    pub(crate) fn finish(&mut self, unique: u64, done: Result<(), Errno>) -> &[u8] {
        let len = if done.is_ok() { self.len } else { Reply::HEADER };
        let error = done.map_or_else(|errno| -errno.raw(), |()| 0);
        let header = OutHeader { len: len as u32, error, unique };
        self.buffer[..Reply::HEADER].copy_from_slice(header.as_bytes());
        self.len = Reply::HEADER;
        &self.buffer[..len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request as the kernel sends it.
    fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
        let mut message = vec![0; 40];
        message[..4].copy_from_slice(&(40 + body.len() as u32).to_ne_bytes());
        message[4..8].copy_from_slice(&opcode.to_ne_bytes());
        message[16..24].copy_from_slice(&7_u64.to_ne_bytes());
        message.extend_from_slice(body);
        message
    }

    fn parsed(message: &[u8]) -> Result<Operation<'_>, Errno> {
        Request::parse(message, true).expect("there is a header").operation
    }

    #[test]
    fn requests_are_read() {
        assert!(matches!(
            parsed(&message(opcode::LOOKUP, b"name\0")),
            Ok(Operation::Lookup { name: b"name" })
        ));
        assert!(matches!(
            parsed(&message(opcode::SYMLINK, b"l\0to\0")),
            Ok(Operation::Symlink { name: b"l", target: b"to" })
        ));
        let mut batch = vec![2, 0, 0, 0, 0, 0, 0, 0];
        for word in [5_u64, 1, 6, 2] {
            batch.extend_from_slice(&word.to_ne_bytes());
        }
        let message_ = message(opcode::BATCH_FORGET, &batch);
        let Ok(Operation::BatchForget(forgets)) = parsed(&message_) else { panic!("a list") };
        let pairs: Vec<(u64, u64)> = forgets.map(|one| (one.nodeid, one.nlookup)).collect();
        assert_eq!(pairs, [(5, 1), (6, 2)]);
        let mut write = vec![0; 40];
        write[16] = 3;
        write.extend_from_slice(b"abcd");
        let message_ = message(opcode::WRITE, &write);
        assert!(matches!(parsed(&message_), Ok(Operation::Write(_, b"abc"))));
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for (opcode, body) in [
            (opcode::LOOKUP, &b"no end"[..]),
            (opcode::MKDIR, b"short"),
            (opcode::RENAME, b"12345678one\0"),
            (opcode::BATCH_FORGET, &[255; 8]),
            (opcode::WRITE, &[255; 40]),
            (opcode::IOCTL, &[255; 40]),
        ] {
            assert!(matches!(parsed(&message(opcode, body)), Err(Errno::EINVAL)), "{opcode}");
        }
        assert!(matches!(parsed(&message(36, &[0; 8])), Err(Errno::ENOSYS)));
        let mut longer = message(opcode::GETATTR, &[0; 16]);
        longer.push(0);
        assert!(Request::parse(&longer, true).is_none());
        let mut extended = message(opcode::GETATTR, &[0; 16]);
        extended[36] = 3;
        assert!(matches!(parsed(&extended), Err(Errno::EINVAL)));
    }

    #[test]
    fn no_bytes_make_reading_fail_otherwise_than_by_an_error() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut understood = 0;
        for round in 0..200_000 {
            let mut bytes: Vec<u8> = (0..random() % 160).map(|_| random() as u8).collect();
            // Mostly with a header that is almost right, cut off anywhere.
            if round % 8 != 0 && bytes.len() >= 40 {
                let len = (bytes.len() as u32).to_ne_bytes();
                bytes[..4].copy_from_slice(&len);
                bytes[4..8].copy_from_slice(&((random() % 60) as u32).to_ne_bytes());
                bytes[36] &= 3;
                bytes[37] = 0;
            }
            let Some(request) = Request::parse(&bytes, round % 2 == 0) else { continue };
            match request.operation {
                Ok(Operation::BatchForget(forgets)) => assert!(forgets.count() <= bytes.len() / 16),
                Ok(_) => understood += 1,
                Err(errno) => assert!(matches!(errno, Errno::EINVAL | Errno::ENOSYS)),
            }
        }
        assert!(understood > 10_000, "{understood}");
    }

    #[test]
    fn answers_are_framed() {
        let mut reply = Reply::new(0);
        reply.put(&WriteOut { size: 5, padding: 0 });
        assert_eq!(
            reply.finish(9, Ok(())),
            [24, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]
        );
        reply.extend(b"half an answer");
        let failed = reply.finish(9, Err(Errno::ENOENT));
        assert_eq!(failed[..8], [16, 0, 0, 0, 254, 255, 255, 255]);
        assert_eq!((failed.len(), reply.len()), (16, 0));
        assert!(reply.fill(100, |bytes| Ok(bytes.len() / 2)).is_ok());
        assert_eq!(reply.len(), 50);
    }

    #[test]
    fn entries_fill_what_was_asked_for_and_no_more() {
        let mut reply = Reply::new(64);
        let entry = |name: &str| Dirent { ino: 1, off: 2, kind: 4, name: name.into() };
        assert!(reply.dirent(64, None, &entry("abc")) && reply.dirent(64, None, &entry("12345678")));
        assert_eq!(reply.len(), 64);
        assert!(!reply.dirent(64, None, &entry("")));
        assert!(!reply.dirent(200, Some(&EntryOut::default()), &entry("")));
        assert!(reply.dirent(216, Some(&EntryOut::default()), &entry("")));
    }
}
