//! Records into an engine, and an engine's changes into records.

use crate::error::{Fault, Outcome};
use crate::record::{
    CHUNK_PAGES, ChunkPage, Kind, NameRecord, NodeRecord, State, chunk_key, chunk_pages, decode,
    decode_chunk, describe, encode, encode_chunk, encode_inline, name_key, node_key, seal_of, unseal,
};
use crate::store::{Op, Reader};
use rcuwalk::changes::{Change, Node, ROOT_KEY};
use rcuwalk::changes::{MAX_FILE_SIZE, PAGE_SIZE};
use rcuwalk::perm::IFLAGS_KEPT;
use rcuwalk::uapi::{
    NAME_MAX, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, Timespec, XATTR_SIZE_MAX, s_isdir, s_isreg,
};
use rcuwalk::{Errno, Loader, NewInode, NodeId};
use std::collections::{HashMap, VecDeque};

/// Says what has to become of the records after a change.
pub(crate) fn record(change: Change<'_>, out: &mut impl FnMut(Op)) {
    match change {
        Change::Gone(key) => {
            out(Op::Delete(Kind::Node, node_key(key)));
            for kind in [Kind::Name, Kind::Chunk] {
                out(Op::DeleteRange(kind, node_key(key), node_key(key + 1)));
            }
        }
        Change::Name { dir, name, to: Some((node, order)) } => {
            out(Op::Put(Kind::Name, name_key(dir, name), encode(&NameRecord { node, order })));
        }
        Change::Name { dir, name, to: None } => out(Op::Delete(Kind::Name, name_key(dir, name))),
        Change::Node(node) => record_node(&node, out),
    }
}

fn record_node(node: &Node<'_>, out: &mut impl FnMut(Op)) {
    let inode = &node.inode;
    let time = |t: Timespec| (t.sec, t.nsec);
    let inline = node.data().and_then(encode_inline);
    let record = NodeRecord {
        mode: inode.mode,
        uid: inode.uid,
        gid: inode.gid,
        rdev: inode.rdev,
        size: inode.size,
        blocks: inode.blocks.unwrap_or(0),
        ino: inode.ino.unwrap_or(0),
        nlink: node.nlink,
        iflags: inode.iflags,
        times: [inode.atime, inode.mtime, inode.ctime, inode.btime].map(time),
        unread: node.unread,
        symlink: inode.symlink,
        xattrs: inode.xattrs.to_vec(),
        inline: inline.as_deref(),
    };
    out(Op::Put(Kind::Node, node_key(node.key), encode(&record)));
    if node.changed_pages().is_empty() {
        return;
    }
    // Whether the first chunk has a record of its own depends on all pages.
    let mut begin = 0;
    for range in std::iter::once(&(0..1)).chain(node.changed_pages()) {
        let (from, to) = ((range.start / CHUNK_PAGES).max(begin), range.end.div_ceil(CHUNK_PAGES));
        if from >= to {
            continue;
        }
        begin = to;
        if !node.fresh {
            out(Op::DeleteRange(Kind::Chunk, chunk_key(node.key, from), chunk_key(node.key, to)));
        }
        if let (Some(data), None) = (node.data(), &inline) {
            let mut last = None;
            data.for_each_page(chunk_pages(from).start..to.saturating_mul(CHUNK_PAGES), |page, _| {
                let chunk = page / CHUNK_PAGES;
                if last.replace(chunk) != Some(chunk)
                    && let Some(bytes) = encode_chunk(data, chunk)
                {
                    out(Op::Put(Kind::Chunk, chunk_key(node.key, chunk), bytes));
                }
            });
        }
    }
}

/// A node that was loaded.
struct Loaded {
    node: NodeId,
    nlink: u32,
    names: u32,
    is_dir: bool,
}

/// What to do with the contents of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Keep them in memory.
    Keep,
    /// Check them and leave them: files cannot be read then (`ENODATA`).
    Leave,
}

/// What a tree consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Inventory {
    /// Directories, the root included.
    pub dirs: u64,
    /// Regular files.
    pub files: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, FIFOs and sockets.
    pub specials: u64,
    /// Further names of what has one.
    pub hard_links: u64,
    /// Extended attributes, ACLs among them.
    pub xattrs: u64,
    /// Sum of the sizes of the regular files.
    pub size_bytes: u64,
    /// Bytes of contents, holes left out.
    pub content_bytes: u64,
}

/// Loads trees; adds up what it reads on the way.
struct Load<'l, 'v> {
    reader: &'l Reader,
    loader: &'l mut Loader<'v>,
    keep: Contents,
    inventory: Inventory,
    nodes: HashMap<u64, Loaded>,
    counts: [u64; 3],
    sum: u64,
}

/// Loads the whole tree into an empty file system; gives the nodes with their keys.
///
/// A record is believed if its checksum agrees, and the tree if every record is part of it: one parent for each directory, a name
/// for each node, a file for each chunk, and sums as the state has them.
pub(crate) fn load(
    reader: &Reader,
    state: &State,
    loader: &mut Loader<'_>,
    keep: Contents,
) -> Outcome<(Vec<(NodeId, u64)>, Inventory)> {
    let mut load = Load {
        reader,
        loader,
        keep,
        inventory: Inventory::default(),
        nodes: HashMap::new(),
        counts: [0; 3],
        sum: 0,
    };
    load.root()?;
    let mut dirs = VecDeque::from([ROOT_KEY]);
    while let Some(dir) = dirs.pop_front() {
        load.dir(dir, &mut dirs)?;
    }
    load.finish(state)
}

impl Load<'_, '_> {
    fn count(&mut self, kind: Kind, value: &[u8]) {
        self.counts[kind as usize] += 1;
        self.sum = self.sum.wrapping_add(seal_of(value));
    }

    fn root(&mut self) -> Outcome<()> {
        let top = self.loader.root();
        self.node(ROOT_KEY, |loader, inode| {
            if !s_isdir(inode.mode) {
                return Err(Errno::ENOTDIR);
            }
            loader.set_root(inode).map(|()| top)
        })
    }

    /// Reads a node and makes it.
    fn node(
        &mut self,
        key: u64,
        make: impl FnOnce(&mut Loader<'_>, &NewInode<'_>) -> rcuwalk::Result<NodeId>,
    ) -> Outcome<()> {
        let number = node_key(key);
        let what = || describe(Kind::Node, &number);
        let reader = self.reader;
        let made = reader.get(Kind::Node, &number, |value| {
            self.count(Kind::Node, value);
            let record: NodeRecord<'_> = decode(Kind::Node, &number, value)?;
            check(&record).map_err(|reason| Fault::corrupt(what(), reason))?;
            let made = make(self.loader, &new_inode(&record));
            let node = made.map_err(|errno| refused(what(), errno))?;
            let is_dir = s_isdir(record.mode);
            self.inventory.count(&record);
            self.nodes.insert(key, Loaded { node, nlink: record.nlink, names: 0, is_dir });
            self.contents(key, node, &record)
        })?;
        made.ok_or_else(|| Fault::corrupt(what(), "a name leads to it, and it is missing"))
    }

    /// The names of a directory, in their order, and what they lead to.
    fn dir(&mut self, dir: u64, dirs: &mut VecDeque<u64>) -> Outcome<()> {
        let Some(parent) = self.nodes.get(&dir).map(|loaded| loaded.node) else { return Ok(()) };
        let mut names = Vec::new();
        self.reader.each(Kind::Name, dir, |key, value| {
            let record: NameRecord = decode(Kind::Name, key, value)?;
            names.push((record, key.to_vec(), seal_of(value)));
            Ok(())
        })?;
        names.sort_unstable_by_key(|(record, ..)| record.order);
        // Older programs counted from 2.
        let shift = names.first().map_or(0, |(record, ..)| u32::from(record.order == 2));
        self.counts[Kind::Name as usize] += names.len() as u64;
        for (record, key, seal) in names {
            self.sum = self.sum.wrapping_add(seal);
            let name = &key[8..];
            let wrong = |reason: &str| Fault::corrupt(describe(Kind::Name, &key), reason);
            if name.len() > NAME_MAX {
                return Err(wrong("it is too long"));
            }
            match self.nodes.get(&record.node) {
                Some(loaded) if loaded.is_dir => {
                    return Err(wrong("it leads to a directory that has a name already"));
                }
                Some(loaded) => {
                    let target = loaded.node;
                    self.inventory.hard_links += 1;
                    self.loader
                        .link(parent, name, target)
                        .and_then(|node| self.loader.set_offset(node, record.order.saturating_add(shift)))
                        .map_err(|errno| refused(describe(Kind::Name, &key), errno))?;
                }
                None => {
                    self.node(record.node, |loader, inode| {
                        let node = loader.add(parent, name, inode)?;
                        loader.set_offset(node, record.order.saturating_add(shift)).map(|()| node)
                    })?;
                    if self.nodes.get(&record.node).is_some_and(|loaded| loaded.is_dir) {
                        dirs.push_back(record.node);
                    }
                }
            }
            self.nodes.entry(record.node).and_modify(|loaded| loaded.names += 1);
        }
        Ok(())
    }

    /// The contents of a file.
    fn contents(&mut self, key: u64, node: NodeId, record: &NodeRecord<'_>) -> Outcome<()> {
        if !s_isreg(record.mode) {
            return Ok(());
        }
        if !record.unread && self.keep == Contents::Keep {
            self.loader.has_contents(node)?;
        }
        if let Some(chunk) = record.inline {
            self.chunk(node, record.size, 0, chunk, &|| describe(Kind::Node, &node_key(key)))?;
        }
        let reader = self.reader;
        reader.each(Kind::Chunk, key, |at, value| {
            self.count(Kind::Chunk, value);
            let bytes = unseal(Kind::Chunk, at, value)?;
            let what = || describe(Kind::Chunk, at);
            let number = at.get(8..).and_then(|at| at.try_into().ok()).map(u64::from_be_bytes);
            let number = number.ok_or_else(|| Fault::corrupt(what(), "its key is no number"))?;
            if record.unread || record.inline.is_some() {
                return Err(Fault::corrupt(what(), "the file has no chunks"));
            }
            self.chunk(node, record.size, number, bytes, &what)
        })
    }

    fn chunk(
        &mut self,
        node: NodeId,
        size: u64,
        chunk: u64,
        bytes: &[u8],
        what: &dyn Fn() -> String,
    ) -> Outcome<()> {
        let wrong = |reason: &str| Fault::corrupt(what(), reason);
        let pages = decode_chunk(bytes).ok_or_else(|| wrong("its length does not agree with its pages"))?;
        for (page, state) in pages {
            let start = chunk_pages(chunk).start.saturating_add(page).checked_mul(PAGE_SIZE as u64);
            let start = start.filter(|&start| start < MAX_FILE_SIZE);
            let start = start.ok_or_else(|| wrong("it lies beyond the largest file"))?;
            match state {
                ChunkPage::Data(data) if start >= size || size - start < data.len() as u64 => {
                    return Err(wrong("it has data beyond the end of its file"));
                }
                ChunkPage::Data(data) => self.inventory.content_bytes += data.len() as u64,
                ChunkPage::Reserved(_) => {}
            }
            match (self.keep, state) {
                (Contents::Leave, _) => {}
                (_, ChunkPage::Reserved(times)) => {
                    // The very last page of the largest file is a byte short.
                    let len = (PAGE_SIZE as u64).min(MAX_FILE_SIZE - start);
                    (0..times).try_for_each(|_| self.loader.reserve(node, start, len))?;
                }
                // The page exists even if nothing but zeros is in it.
                (_, ChunkPage::Data([])) => self.loader.write(node, start, &[0])?,
                (_, ChunkPage::Data(data)) => self.loader.write(node, start, data)?,
            }
        }
        Ok(())
    }

    /// Whether that was all.
    fn finish(self, state: &State) -> Outcome<(Vec<(NodeId, u64)>, Inventory)> {
        for kind in Kind::ALL {
            let (found, counted) = (self.counts[kind as usize], state.counts[kind as usize]);
            if found == counted && found == self.reader.count(kind)? {
                continue;
            }
            let is_home = |number: u64| {
                self.nodes.get(&number).is_some_and(|node| match kind {
                    Kind::Node => true,
                    Kind::Name => node.is_dir,
                    Kind::Chunk => !node.is_dir,
                })
            };
            let what = match self.reader.stranger(kind, is_home)? {
                Some(stranger) => return Err(Fault::corrupt(stranger, "it belongs to nothing in the tree")),
                None => kind.table(),
            };
            return Err(Fault::corrupt(what, format!("there are {found}, and the state counts {counted}")));
        }
        if self.sum != state.sum {
            return Err(Fault::corrupt("the records", "their checksums do not add up to that of the state"));
        }
        for (&key, loaded) in &self.nodes {
            let what = || describe(Kind::Node, &node_key(key));
            if key >= state.next_key {
                return Err(Fault::corrupt(what(), "its number was never given"));
            }
            if loaded.nlink < loaded.names.max(1) {
                return Err(Fault::corrupt(what(), "it has more names than links"));
            }
            self.loader.set_nlink(loaded.node, loaded.nlink);
        }
        self.loader.skip_inos(state.next_ino);
        Ok((self.nodes.into_iter().map(|(key, loaded)| (loaded.node, key)).collect(), self.inventory))
    }
}

impl Inventory {
    fn count(&mut self, record: &NodeRecord<'_>) {
        self.xattrs += record.xattrs.len() as u64;
        match record.mode & S_IFMT {
            S_IFDIR => self.dirs += 1,
            S_IFLNK => self.symlinks += 1,
            S_IFREG => {
                self.files += 1;
                self.size_bytes = self.size_bytes.saturating_add(record.size);
            }
            _ => self.specials += 1,
        }
    }
}

/// What the engine does not look at itself.
fn check(record: &NodeRecord<'_>) -> Result<(), &'static str> {
    match () {
        _ if record.mode > 0xffff => Err("its mode is none"),
        _ if record.size > MAX_FILE_SIZE => Err("it is larger than a file can be"),
        _ if record.times.iter().any(|&(_, nsec)| nsec >= 1_000_000_000) => Err("a time of it is none"),
        _ if record.iflags & !IFLAGS_KEPT != 0 => Err("it has a flag that means nothing"),
        _ if record.inline.is_some() && (!s_isreg(record.mode) || record.unread) => Err("it has contents"),
        _ if record.mode & S_IFMT != S_IFLNK && !record.symlink.is_empty() => {
            Err("it leads on, and is no link")
        }
        _ if record.xattrs.iter().any(|(_, value)| value.len() > XATTR_SIZE_MAX) => {
            Err("an extended attribute is too long")
        }
        () => Ok(()),
    }
}

fn new_inode<'r>(record: &'r NodeRecord<'r>) -> NewInode<'r> {
    let [atime, mtime, ctime, btime] = record.times.map(|(sec, nsec)| Timespec { sec, nsec });
    NewInode::new(record.mode)
        .with_uid(record.uid)
        .with_gid(record.gid)
        .with_rdev(record.rdev)
        .with_size(record.size)
        .with_blocks(Some(record.blocks))
        .with_ino(Some(record.ino))
        .with_atime(atime)
        .with_mtime(mtime)
        .with_ctime(ctime)
        .with_btime(btime)
        .with_iflags(record.iflags)
        .with_symlink(record.symlink)
        .with_xattrs(&record.xattrs)
}

/// What the engine refuses is damaged, unless it is full.
fn refused(what: String, errno: Errno) -> Fault {
    match errno {
        Errno::ENOSPC | Errno::ENOMEM => Fault::Engine(errno),
        errno => Fault::corrupt(what, format!("the engine refuses it: {errno}")),
    }
}
