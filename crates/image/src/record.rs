//! What stands in an image: records, their keys and their checksums.
//!
//! `docs/image.md` describes the format; a change here is a new version there.

use crate::error::{Fault, Outcome};
// Pages of a chunk: with key and checksum that many fill eight pages of the store nearly, which gives values room by powers of two.
pub(crate) use rcuwalk::changes::CHUNK_PAGES;
use rcuwalk::changes::{FileData, PAGE_SIZE, PageState};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use twox_hash::XxHash3_64;

/// What begins the record of the state.
pub(crate) const FORMAT: &str = "rcuwalk tree image";
/// The version of the format.
pub(crate) const VERSION: u32 = 1;
/// Contents whose encoding is no longer lie in the node's own record.
const INLINE_MAX: usize = 1024;
const SUM_SIZE: usize = size_of::<u64>();

/// The tables of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// By key.
    Node,
    /// By the directory's key and the name.
    Name,
    /// By the file's key and the number of the chunk.
    Chunk,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Node, Kind::Name, Kind::Chunk];

    pub(crate) const fn table(self) -> &'static str {
        match self {
            Kind::Node => "nodes",
            Kind::Name => "names",
            Kind::Chunk => "chunks",
        }
    }
}

/// An inode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeRecord<'a> {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u64,
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    pub(crate) ino: u64,
    pub(crate) nlink: u32,
    pub(crate) iflags: u32,
    /// Access, modification, change of status, birth: seconds and nanoseconds.
    pub(crate) times: [(i64, u32); 4],
    pub(crate) unread: bool,
    #[serde(borrow)]
    pub(crate) symlink: &'a [u8],
    #[serde(borrow)]
    pub(crate) xattrs: Vec<(&'a [u8], &'a [u8])>,
    /// Chunk 0, if it is all there is, and short.
    #[serde(borrow)]
    pub(crate) inline: Option<&'a [u8]>,
}

/// Where a name leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NameRecord {
    pub(crate) node: u64,
    /// The offset at which getdents(2) finds the name.
    pub(crate) order: u32,
}

/// What is true of the image as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) format: String,
    pub(crate) version: u32,
    /// How often it was committed.
    pub(crate) commit: u64,
    /// When it was: seconds since 1970, and nanoseconds.
    pub(crate) time: (i64, u32),
    pub(crate) next_key: u64,
    pub(crate) next_ino: u64,
    /// Records by [`Kind`].
    pub(crate) counts: [u64; 3],
    /// The checksums of all records, added.
    pub(crate) sum: u64,
}

impl Default for State {
    fn default() -> State {
        State {
            format: FORMAT.into(),
            version: VERSION,
            commit: 0,
            time: (0, 0),
            next_key: rcuwalk::changes::ROOT_KEY + 1,
            next_ino: 1,
            counts: [0; 3],
            sum: 0,
        }
    }
}

/// The checksum of a record: of what it says, where it stands and in which table.
fn sum(kind: Kind, key: &[u8], payload: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot_with_seed(kind as u64, key), payload)
}

/// Adds its checksum to a record.
pub(crate) fn seal(kind: Kind, key: &[u8], payload: &[u8]) -> Vec<u8> {
    [payload, &sum(kind, key, payload).to_le_bytes()].concat()
}

/// The checksum that a sealed record has.
pub(crate) fn seal_of(value: &[u8]) -> u64 {
    value.last_chunk().map_or(0, |sum| u64::from_le_bytes(*sum))
}

/// A record that its checksum agrees with.
pub(crate) fn unseal<'v>(kind: Kind, key: &[u8], value: &'v [u8]) -> Outcome<&'v [u8]> {
    match value.split_last_chunk::<SUM_SIZE>() {
        Some((payload, stored)) if u64::from_le_bytes(*stored) == sum(kind, key, payload) => Ok(payload),
        _ => Err(Fault::corrupt(describe(kind, key), "its checksum does not agree")),
    }
}

/// A record for people.
pub(crate) fn describe(kind: Kind, key: &[u8]) -> String {
    let number = key.first_chunk().map_or(0, |number| u64::from_be_bytes(*number));
    let rest = key.get(8..).unwrap_or_default();
    match kind {
        Kind::Node => format!("node {number}"),
        Kind::Name => format!("name '{}' in directory {number}", rest.escape_ascii()),
        Kind::Chunk => {
            format!("chunk {} of file {number}", rest.first_chunk().map_or(0, |at| u64::from_be_bytes(*at)))
        }
    }
}

/// Writes a record down.
pub(crate) fn encode(record: &impl Serialize) -> Vec<u8> {
    // Nothing but memory is asked for, and without memory the process ends anyway.
    postcard::to_allocvec(record).unwrap_or_default()
}

/// Reads a record, all of it.
pub(crate) fn decode<'v, T: Deserialize<'v>>(kind: Kind, key: &[u8], value: &'v [u8]) -> Outcome<T> {
    let wrong = |reason: &str| Fault::corrupt(describe(kind, key), reason);
    match postcard::take_from_bytes(unseal(kind, key, value)?) {
        Ok((record, [])) => Ok(record),
        Ok(_) => Err(wrong("it is longer than what it says")),
        Err(e) => Err(wrong(&e.to_string())),
    }
}

pub(crate) fn node_key(key: u64) -> Vec<u8> {
    key.to_be_bytes().to_vec()
}

pub(crate) fn name_key(dir: u64, name: &[u8]) -> Vec<u8> {
    [&dir.to_be_bytes(), name].concat()
}

pub(crate) fn chunk_key(file: u64, chunk: u64) -> Vec<u8> {
    [file.to_be_bytes(), chunk.to_be_bytes()].concat()
}

/// A page of a chunk, in two bits.
const HOLE: u16 = 0;
const RESERVED: u16 = 1;
const ZEROED: u16 = 2;
const DATA: u16 = 3;

/// The pages of a chunk.
pub(crate) fn chunk_pages(chunk: u64) -> Range<u64> {
    let start = chunk.saturating_mul(CHUNK_PAGES);
    start..start.saturating_add(CHUNK_PAGES)
}

/// A chunk of contents: what its pages are, then those with data, zeros at the end left out. `None` if all is hole.
pub(crate) fn encode_chunk(data: &FileData, chunk: u64) -> Option<Vec<u8>> {
    let pages = chunk_pages(chunk);
    let mut states = 0_u16;
    let mut out = vec![0; 2];
    data.for_each_page(pages.clone(), |page, state| {
        let state = match state {
            PageState::Reserved => RESERVED,
            PageState::Zeroed => ZEROED,
            PageState::Data(bytes) => {
                out.extend_from_slice(bytes);
                DATA
            }
        };
        states |= state << (2 * (page - pages.start));
    });
    if states == 0 {
        return None;
    }
    out[..2].copy_from_slice(&states.to_le_bytes());
    let zeros = out[2..].iter().rev().take_while(|&&byte| byte == 0).count();
    out.truncate(out.len() - zeros);
    Some(out)
}

/// The contents that lie in the node's own record: a short first page that is the only one.
pub(crate) fn encode_inline(data: &FileData) -> Option<Vec<u8>> {
    let mut first = false;
    if data.pages() == 1 {
        data.for_each_page(0..1, |_, _| first = true);
    }
    first.then(|| encode_chunk(data, 0)).flatten().filter(|chunk| chunk.len() <= INLINE_MAX)
}

/// What a page of a chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkPage<'c> {
    /// To be reserved so often.
    Reserved(u32),
    /// Zeros behind its end are left out.
    Data(&'c [u8]),
}

/// Reads a chunk: what is there, by page.
pub(crate) fn decode_chunk(chunk: &[u8]) -> Option<Vec<(u64, ChunkPage<'_>)>> {
    let (states, mut bytes) = chunk.split_first_chunk::<2>()?;
    let states = u16::from_le_bytes(*states);
    let mut pages = Vec::new();
    for page in 0..CHUNK_PAGES {
        match states >> (2 * page) & 3 {
            HOLE => continue,
            RESERVED => pages.push((page, ChunkPage::Reserved(1))),
            ZEROED => pages.push((page, ChunkPage::Reserved(2))),
            _ => {
                let (data, rest) = bytes.split_at(bytes.len().min(PAGE_SIZE));
                bytes = rest;
                pages.push((page, ChunkPage::Data(data)));
            }
        }
    }
    let beyond = states >> (2 * CHUNK_PAGES) != 0;
    (bytes.is_empty() && !beyond && !pages.is_empty()).then_some(pages)
}
