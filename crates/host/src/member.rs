//! A tar stream as a sequence of members: ustar, GNU (long names, sparse files, binary numbers) and PAX.
//!
//! Headers are taken apart with the `tar` crate; what lies between them is read here, because an archive is hostile
//! until shown otherwise: an extension header is read only up to a limit, PAX records are split by their length (their
//! values are binary: a file capability may well hold a newline), and a PAX size counts when data is skipped.

use std::io::{self, Read};
use std::ops::Range;

use rcuwalk::uapi::{
    INVALID_ID, S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG, s_isblk, s_ischr, s_islnk, s_isreg,
};
use rcuwalk::{Errno, Timespec};

use crate::outcome::ImportError;
use crate::pax::{Pax, Sparse};

const BLOCK: usize = 512;
/// Pieces that a sparse file may be in.
const MAX_SEGMENTS: usize = 1 << 20;
/// What is read behind the end of an archive, so that a checksum at the end of a compressed one is looked at.
const MAX_TRAILER: u64 = 1 << 20;

/// One member, extension headers applied.
#[derive(Debug, Default)]
pub(crate) struct Member {
    pub(crate) path: Vec<u8>,
    /// Body of a symbolic link, or target of a hard link.
    pub(crate) link: Vec<u8>,
    /// Another name of the member `link`, not an inode of its own.
    pub(crate) is_link: bool,
    /// Type and permissions.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u64,
    /// Of a regular file, holes included.
    pub(crate) size: u64,
    pub(crate) mtime: Timespec,
    pub(crate) atime: Timespec,
    pub(crate) ctime: Timespec,
    pub(crate) btime: Timespec,
    pub(crate) iflags: u32,
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// ACLs as text that name users or groups, by the name of the attribute: archives hold what these are further behind.
    pub(crate) named_acls: Vec<(&'static [u8], Vec<u8>)>,
    /// Where the data of a regular file goes: offset and length, ascending.
    pub(crate) segments: Vec<(u64, u64)>,
    /// Parts of it that make no sense and were left out.
    pub(crate) flaws: Vec<(&'static str, Errno)>,
    /// Why it cannot be taken at all.
    pub(crate) refused: Option<(&'static str, Errno)>,
}

/// Reads members off a tar stream.
pub(crate) struct Members<R> {
    input: R,
    /// Bytes read.
    offset: u64,
    /// Bytes of the current member's data, and of padding behind it, that are still to come.
    data: u64,
    padding: u64,
    /// Records that hold for all members to come.
    global: Vec<u8>,
    max_bytes: u64,
    max_header: u64,
}

/// Whether a block can stand where a header is expected: a header, or the block of zeros that ends an archive.
pub(crate) fn is_header(block: &[u8; BLOCK]) -> bool {
    is_zero(block) || checksum_fits(block)
}

fn is_zero(block: &[u8; BLOCK]) -> bool {
    block.iter().all(|&b| b == 0)
}

fn checksum_fits(block: &[u8; BLOCK]) -> bool {
    let field = 148..156;
    let bytes = || block.iter().enumerate().map(|(i, &b)| if field.contains(&i) { b' ' } else { b });
    let unsigned: i64 = bytes().map(i64::from).sum();
    // Some old writers added up signed characters.
    let signed: i64 = bytes().map(|b| i64::from(b as i8)).sum();
    number(&block[field.clone()]).is_some_and(|sum| sum == unsigned || sum == signed)
}

/// A numeric header field: octal digits, blank for zero, or a binary number marked by the top bit.
fn number(field: &[u8]) -> Option<i64> {
    if let [first, rest @ ..] = field
        && first & 0x80 != 0
    {
        let negative = first & 0x40 != 0;
        let mut value = i128::from(if negative { i64::from(*first as i8) } else { i64::from(first & 0x3f) });
        for &b in rest {
            value = value.checked_mul(256)? + i128::from(b);
        }
        return value.try_into().ok();
    }
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    let digits = field[..end].trim_ascii();
    digits.iter().try_fold(0i64, |value, &b| match b {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(i64::from(b - b'0')),
        _ => None,
    })
}

/// Extension headers in front of a member.
#[derive(Default)]
struct Extensions {
    pax: Vec<u8>,
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
}

impl<R: Read> Members<R> {
    /// Reads `input`, at most `max_bytes` of it and extension headers of at most `max_header` bytes.
    pub(crate) fn new(input: R, max_bytes: u64, max_header: u64) -> Members<R> {
        Members { input, offset: 0, data: 0, padding: 0, global: Vec::new(), max_bytes, max_header }
    }

    /// The next member; `None` at the end of the archive.
    pub(crate) fn next(&mut self) -> Result<Option<Member>, ImportError> {
        self.skip_data()?;
        let mut extensions = Extensions::default();
        let mut pending = false;
        loop {
            let mut block = [0; BLOCK];
            let got = self.fill(&mut block)?;
            if got == 0 && !pending {
                return Ok(None);
            }
            if got < BLOCK {
                return Err(self.truncated());
            }
            if is_zero(&block) {
                if pending {
                    return Err(self.damaged("an extension header without a member"));
                }
                self.read_trailer()?;
                return Ok(None);
            }
            if !checksum_fits(&block) {
                self.offset -= BLOCK as u64;
                return Err(self.damaged("no tar header, or one with a wrong checksum"));
            }
            match block[156] {
                b'x' | b'X' => extensions.pax = self.read_extension(&block)?,
                b'L' => extensions.long_name = Some(self.read_long_name(&block)?),
                b'K' => extensions.long_link = Some(self.read_long_name(&block)?),
                b'g' => {
                    let more = self.read_extension(&block)?;
                    self.global.extend_from_slice(&more);
                    self.check_header_size(self.global.len() as u64)?;
                    continue;
                }
                // A volume label: neither a member nor anything that belongs to one.
                b'V' => {
                    self.start_data(&block)?;
                    self.skip_data()?;
                    continue;
                }
                _ => return self.member(&block, extensions).map(Some),
            }
            pending = true;
        }
    }

    /// Bytes of the stream that were read: behind a header, where the data of its member begins.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of the current member's data that are still to come.
    pub(crate) fn data_left(&self) -> u64 {
        self.data
    }

    /// Reads data of the current member; 0 only at its end, or if `buf` is empty.
    pub(crate) fn read_data(&mut self, buf: &mut [u8]) -> Result<usize, ImportError> {
        let want = usize::try_from(self.data).map_or(buf.len(), |left| left.min(buf.len()));
        let got = self.fill(&mut buf[..want])?;
        if got < want {
            return Err(self.truncated());
        }
        self.data -= got as u64;
        Ok(got)
    }

    /// Fills `buf`, or less at the end of the input.
    fn fill(&mut self, buf: &mut [u8]) -> Result<usize, ImportError> {
        if buf.len() as u64 > self.max_bytes - self.offset {
            return Err(ImportError::Limit { what: "bytes of unpacked data", limit: self.max_bytes });
        }
        let mut got = 0;
        while got < buf.len() {
            match self.input.read(&mut buf[got..]) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.unreadable(&e)),
            }
            // Not all readers can be trusted to keep to the buffer's size.
            got = got.min(buf.len());
        }
        self.offset += got as u64;
        Ok(got)
    }

    fn damaged(&self, reason: &str) -> ImportError {
        ImportError::Archive { offset: self.offset, reason: reason.to_owned() }
    }

    fn truncated(&self) -> ImportError {
        self.damaged("it ends within a member")
    }

    fn unreadable(&self, e: &io::Error) -> ImportError {
        ImportError::Archive { offset: self.offset, reason: e.to_string() }
    }

    fn check_header_size(&self, size: u64) -> Result<(), ImportError> {
        if size > self.max_header {
            return Err(ImportError::Limit { what: "bytes of extension headers", limit: self.max_header });
        }
        Ok(())
    }

    /// Notes the data behind a header.
    fn start_data(&mut self, block: &[u8; BLOCK]) -> Result<(), ImportError> {
        let size = number(&block[124..136]).and_then(|size| u64::try_from(size).ok());
        let size = size.ok_or_else(|| self.damaged("a size that is no number"))?;
        self.set_data(size);
        Ok(())
    }

    fn set_data(&mut self, size: u64) {
        self.data = size;
        self.padding = size.wrapping_neg() % BLOCK as u64;
    }

    /// Moves to the next header.
    fn skip_data(&mut self) -> Result<(), ImportError> {
        let mut left = self.data.saturating_add(self.padding);
        let mut buf = [0; 16 << 10];
        while left > 0 {
            let want = left.min(buf.len() as u64) as usize;
            if self.fill(&mut buf[..want])? < want {
                return Err(self.truncated());
            }
            left -= want as u64;
        }
        self.set_data(0);
        Ok(())
    }

    /// Reads what follows the end of an archive: padding, and in a compressed one a checksum.
    fn read_trailer(&mut self) -> Result<(), ImportError> {
        io::copy(&mut self.input.by_ref().take(MAX_TRAILER), &mut io::sink())
            .map(drop)
            .map_err(|e| self.unreadable(&e))
    }

    /// The data of an extension header.
    fn read_extension(&mut self, block: &[u8; BLOCK]) -> Result<Vec<u8>, ImportError> {
        self.start_data(block)?;
        self.check_header_size(self.data)?;
        let mut data = vec![0; self.data as usize];
        self.read_data(&mut data)?;
        self.skip_data()?;
        Ok(data)
    }

    fn read_long_name(&mut self, block: &[u8; BLOCK]) -> Result<Vec<u8>, ImportError> {
        let mut name = self.read_extension(block)?;
        name.truncate(name.iter().position(|&b| b == 0).unwrap_or(name.len()));
        Ok(name)
    }

    /// Puts a member together.
    fn member(&mut self, block: &[u8; BLOCK], extensions: Extensions) -> Result<Member, ImportError> {
        let mut pax = Pax::default();
        for records in [&self.global, &extensions.pax] {
            pax.read(records).map_err(|reason| self.damaged(reason))?;
        }
        match pax.size {
            Some(size) => self.set_data(size),
            None => self.start_data(block)?,
        }
        let header = tar::Header::from_byte_slice(block);
        let path = pax.sparse.name.take().or(pax.path.take()).or(extensions.long_name);
        let path = path.unwrap_or_else(|| header.path_bytes().into_owned());
        let link = pax.link.take().or(extensions.long_link);
        let link = link.unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned());

        let mut member = Member { path, link, ..Member::default() };
        member.mode = match block[156] {
            0 | b'0' | b'7' if member.path.ends_with(b"/") => S_IFDIR,
            0 | b'0' | b'7' | b'S' => S_IFREG,
            b'1' => {
                member.is_link = true;
                S_IFREG
            }
            b'2' => S_IFLNK,
            b'3' => S_IFCHR,
            b'4' => S_IFBLK,
            b'5' | b'D' => S_IFDIR,
            b'6' => S_IFIFO,
            _ => {
                member.refused = Some(("member type", Errno::EOPNOTSUPP));
                S_IFREG
            }
        };
        // These have no data, whatever the size says.
        if matches!(block[156], b'1'..=b'6') {
            self.set_data(0);
        }
        if s_isreg(member.mode) && !member.is_link {
            self.place_data(&mut member, header, &pax.sparse)?;
        }
        member.read_header(block, &pax);
        pax.attach_xattrs(&mut member);
        Ok(member)
    }

    /// Finds out the size of a regular file and where in it the data belongs.
    fn place_data(
        &mut self,
        member: &mut Member,
        header: &tar::Header,
        sparse: &Sparse,
    ) -> Result<(), ImportError> {
        let mut map = Vec::new();
        if let (b'S', Some(gnu)) = (header.as_old().linkflag[0], header.as_gnu()) {
            member.size = unsigned(&gnu.realsize);
            read_sparse(&gnu.sparse, &mut map);
            let mut more = gnu.isextended[0] == 1;
            while more {
                let mut block = tar::GnuExtSparseHeader::new();
                if self.fill(block.as_mut_bytes())? < BLOCK {
                    return Err(self.truncated());
                }
                read_sparse(block.sparse(), &mut map);
                more = block.isextended[0] == 1;
                check_map(&map)?;
            }
        } else if let Some(size) = sparse.size {
            member.size = size;
            if sparse.map_in_data {
                map = self.read_map()?;
            } else {
                map.extend_from_slice(&sparse.map);
                check_map(&map)?;
            }
        } else {
            member.size = self.data;
            map = vec![0, self.data];
        }
        member.segments = map.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        if !member.segments_fit(self.data) {
            member.refused = Some(("map of a sparse file", Errno::EINVAL));
        }
        if i64::try_from(member.size).is_err() {
            member.refused = Some(("size", Errno::EFBIG));
        }
        Ok(())
    }

    /// Reads the map that stands before the data in version 1.0 of PAX sparse files: one number a line, the first of
    /// them the number of pairs, filled up to a whole block.
    fn read_map(&mut self) -> Result<Vec<u64>, ImportError> {
        let mut map = Vec::new();
        let mut expected = None;
        let mut value = 0u64;
        let mut block = [0; BLOCK];
        loop {
            if self.read_data(&mut block)? < BLOCK {
                return Err(self.damaged("the map of a sparse file does not end"));
            }
            for b in block {
                match b {
                    b'0'..=b'9' => value = value.saturating_mul(10).saturating_add(u64::from(b - b'0')),
                    b'\n' => {
                        match expected {
                            None => expected = Some(value.saturating_mul(2)),
                            Some(_) => map.push(value),
                        }
                        value = 0;
                        if expected == Some(map.len() as u64) {
                            return Ok(map);
                        }
                        check_map(&map)?;
                    }
                    _ => return Err(self.damaged("the map of a sparse file is not made of numbers")),
                }
            }
        }
    }
}

/// Adds the used ones of a header's map entries, offset and length in turn.
fn read_sparse(entries: &[tar::GnuSparseHeader], map: &mut Vec<u64>) {
    let used = entries.iter().filter(|entry| entry.numbytes[0] != 0);
    map.extend(used.flat_map(|entry| [&entry.offset, &entry.numbytes]).map(|field| unsigned(field)));
}

fn check_map(map: &[u64]) -> Result<(), ImportError> {
    if map.len() > 2 * MAX_SEGMENTS {
        return Err(ImportError::Limit { what: "pieces of a sparse file", limit: MAX_SEGMENTS as u64 });
    }
    Ok(())
}

/// What is no number becomes one that no offset in a file can be.
fn unsigned(field: &[u8]) -> u64 {
    number(field).and_then(|n| u64::try_from(n).ok()).unwrap_or(u64::MAX)
}

impl Member {
    /// Whether the pieces are in order, within the file, and together as long as the data.
    fn segments_fit(&self, data: u64) -> bool {
        let mut end = 0;
        let mut total = 0u64;
        for &(offset, length) in &self.segments {
            match offset.checked_add(length) {
                Some(next) if offset >= end && next <= self.size => end = next,
                _ => return false,
            }
            total += length;
        }
        total == data
    }

    /// Takes permissions, ids, device number and times.
    fn read_header(&mut self, block: &[u8; BLOCK], pax: &Pax) {
        let refused = &mut self.refused;
        let mut field = |what: &'static str, pax: Option<u64>, range: Range<usize>| {
            let value = pax.or_else(|| number(&block[range]).and_then(|n| u64::try_from(n).ok()));
            value.and_then(|n| u32::try_from(n).ok()).filter(|&n| n != INVALID_ID).unwrap_or_else(|| {
                refused.get_or_insert((what, Errno::EINVAL));
                0
            })
        };
        let mode = field("mode", None, 100..108);
        self.uid = field("owner", pax.uid, 108..116);
        self.gid = field("group", pax.gid, 116..124);
        if s_ischr(self.mode) || s_isblk(self.mode) {
            let major = field("device number", pax.dev_major, 329..337);
            let minor = field("device number", pax.dev_minor, 337..345);
            self.rdev = rustix::fs::makedev(major, minor);
        }
        // The kernel gives every symbolic link these.
        self.mode |= if s_islnk(self.mode) { 0o777 } else { mode & 0o7777 };
        let mtime = || Timespec { sec: number(&block[136..148]).unwrap_or(0), nsec: 0 };
        self.mtime = pax.mtime.unwrap_or_else(mtime);
        self.atime = pax.atime.unwrap_or(self.mtime);
        self.ctime = pax.ctime.unwrap_or(self.mtime);
        self.btime = pax.btime.unwrap_or(self.mtime);
        self.iflags = pax.iflags;
    }
}
