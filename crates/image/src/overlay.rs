//! A file that is read, and written to in memory only: an image that is looked at stays as it is, even if the store wants to
//! repair it first.

use redb::StorageBackend;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

const BLOCK: u64 = 4096;

#[derive(Debug)]
pub(crate) struct Overlay {
    file: File,
    /// Bytes of the file; what is beyond is zero.
    file_len: u64,
    written: Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    len: u64,
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl Overlay {
    pub(crate) fn new(file: File) -> io::Result<Overlay> {
        let len = file.metadata()?.len();
        Ok(Overlay { file, file_len: len, written: Mutex::new(Written { len, blocks: BTreeMap::new() }) })
    }

    fn written(&self) -> std::sync::MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads from the file, and zeros beyond its end.
    fn read_below(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there = self.file_len.saturating_sub(offset).min(out.len() as u64) as usize;
        self.file.read_exact_at(&mut out[..there], offset)?;
        out[there..].fill(0);
        Ok(())
    }
}

/// The blocks of a range of bytes: number, where it begins in the range, and the part of the block.
fn blocks(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let start = (at % BLOCK) as usize;
        let part = (BLOCK as usize - start).min(len - done);
        (part > 0).then(|| {
            done += part;
            (at / BLOCK, done - part, start..start + part)
        })
    })
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.written().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let written = self.written();
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > written.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read_below(offset, out)?;
        for (block, at, part) in blocks(offset, out.len()) {
            if let Some(bytes) = written.blocks.get(&block) {
                out[at..at + part.len()].copy_from_slice(&bytes[part]);
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut written = self.written();
        if len < self.file_len {
            // Shorter than the file would have to be remembered; nothing asks for it but compaction.
            return Err(io::ErrorKind::Unsupported.into());
        }
        written.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut written = self.written();
        for (block, at, part) in blocks(offset, data.len()) {
            let bytes = match written.blocks.entry(block) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let mut bytes = vec![0; BLOCK as usize].into_boxed_slice();
                    self.read_below(block * BLOCK, &mut bytes)?;
                    entry.insert(bytes)
                }
            };
            bytes[part.clone()].copy_from_slice(&data[at..at + part.len()]);
        }
        Ok(())
    }
}
