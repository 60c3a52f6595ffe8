//! What scanning threads hand to the inserting thread: many entries in a few flat buffers.
//!
//! A message per entry, or an allocation per name, would cost more than reading the entry's attributes does. A batch
//! holds some hundred entries of one or several directories; names, link bodies, attribute values and file contents
//! stand in one byte buffer, and everything else refers to it by [`Span`].

use std::ops::Range;

use rcuwalk::{NewInode, Timespec};

use crate::outcome::Problem;

/// Stands for a directory, or a file whose contents follow, until the inserting thread knows its node.
pub(crate) type Token = u32;

/// The token of the imported root.
pub(crate) const ROOT: Token = 0;

/// A range of [`Batch::bytes`], or of [`Batch::xattrs`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    pub(crate) fn new(range: Range<usize>) -> Span {
        // A batch is sent long before it grows to 4 GiB; see `FULL_BYTES` in `scan`.
        debug_assert!(range.end <= u32::MAX as usize);
        Span { start: range.start as u32, end: range.end as u32 }
    }

    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// The attributes of one inode of the running machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) nlink: u32,
    pub(crate) iflags: u32,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) rdev: u64,
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    pub(crate) atime: Timespec,
    pub(crate) mtime: Timespec,
    pub(crate) ctime: Timespec,
    pub(crate) btime: Timespec,
}

impl Meta {
    /// The form that the engine takes.
    pub(crate) fn new_inode<'a>(
        &self,
        symlink: &'a [u8],
        xattrs: &'a [(&'a [u8], &'a [u8])],
    ) -> NewInode<'a> {
        NewInode::new(self.mode)
            .with_uid(self.uid)
            .with_gid(self.gid)
            .with_rdev(self.rdev)
            .with_size(self.size)
            .with_blocks(Some(self.blocks))
            .with_ino(Some(self.ino))
            .with_atime(self.atime)
            .with_mtime(self.mtime)
            .with_ctime(self.ctime)
            .with_btime(self.btime)
            .with_iflags(self.iflags)
            .with_symlink(symlink)
            .with_xattrs(xattrs)
    }
}

/// A directory that entries of the batch lie in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dir {
    pub(crate) token: Token,
    /// Its path on the running machine, for messages.
    pub(crate) path: Span,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Index into [`Batch::dirs`].
    pub(crate) dir: u32,
    /// Present if later entries or writes refer to this one.
    pub(crate) token: Option<Token>,
    pub(crate) name: Span,
    pub(crate) symlink: Span,
    pub(crate) xattrs: Span,
    pub(crate) meta: Meta,
}

/// New attributes of a directory that was sent before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refresh {
    pub(crate) token: Token,
    /// Its path on the running machine, for messages.
    pub(crate) path: Span,
    pub(crate) xattrs: Span,
    pub(crate) meta: Meta,
}

/// A piece of a file's contents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) token: Token,
    /// Its path on the running machine, for messages.
    pub(crate) path: Span,
    pub(crate) offset: u64,
    pub(crate) data: Span,
}

/// One message; its parts are applied in the order of the fields.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) dirs: Vec<Dir>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) refreshes: Vec<Refresh>,
    pub(crate) writes: Vec<Write>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) vanished: u64,
    pub(crate) mount_points: u64,
    /// Name and value of each extended attribute.
    pub(crate) xattrs: Vec<(Span, Span)>,
    pub(crate) bytes: Vec<u8>,
}

impl Batch {
    /// Whether there is nothing to apply.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
            && self.refreshes.is_empty()
            && self.writes.is_empty()
            && self.problems.is_empty()
            && self.vanished == 0
            && self.mount_points == 0
    }

    /// Copies `bytes` in.
    pub(crate) fn store(&mut self, bytes: &[u8]) -> Span {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        Span::new(start..self.bytes.len())
    }

    /// What a span of [`Batch::bytes`] stands for.
    pub(crate) fn get(&self, span: Span) -> &[u8] {
        &self.bytes[span.range()]
    }

    /// The directory that an entry lies in.
    pub(crate) fn parent(&self, entry: &Entry) -> Token {
        self.dirs[entry.dir as usize].token
    }

    /// The path of an entry, for messages.
    pub(crate) fn path(&self, entry: &Entry) -> Vec<u8> {
        join(self.get(self.dirs[entry.dir as usize].path), self.get(entry.name))
    }

    /// Names and values of a span of [`Batch::xattrs`].
    pub(crate) fn get_xattrs(&self, span: Span) -> Vec<(&[u8], &[u8])> {
        self.xattrs[span.range()].iter().map(|&(name, value)| (self.get(name), self.get(value))).collect()
    }
}

/// Appends a name to a path.
pub(crate) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(path.len() + 1 + name.len());
    joined.extend_from_slice(path);
    if path.last().is_some_and(|&b| b != b'/') {
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    joined
}
