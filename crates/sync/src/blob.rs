//! Byte strings in type-stable memory: long names, symlink bodies, ACLs, extended attributes.
//!
//! A string is written once, before its owner publishes its handle under the owner's sequence count. A reader copies the
//! words out and validates the owner's count; a string freed and used again meanwhile reads as garbage of a bounded
//! length, which the count then rejects.

use crate::lock::{Mutex, PoisonError};
use crate::{AllocError, Arena, Handle, Racy64};

/// The longest string: an extended attribute's value with its name, and room to spare.
pub const MAX_LEN: usize = 1 << 17;

/// Strings of any length up to [`MAX_LEN`], addressed by handle.
#[derive(Debug)]
pub struct Blobs {
    /// Word `h` holds the length of the string `h`; its bytes follow.
    words: Arena<Racy64>,
    free: Mutex<Free>,
}

#[derive(Debug)]
struct Free {
    next: Handle,
    /// Free blocks by size class.
    classes: Vec<Vec<Handle>>,
    in_use: u64,
}

/// The class of a block of `words` words, and the words a block of that class has: four classes to each power of two, so
/// that at most a quarter is wasted.
fn class(words: u32) -> (usize, u32) {
    if words <= 8 {
        return (words as usize, words);
    }
    let step = words.next_power_of_two().trailing_zeros() - 3;
    let quarters = words.div_ceil(1 << step);
    ((step * 8 + quarters) as usize, quarters << step)
}

impl Blobs {
    /// Reserves room for `words` eight-byte words.
    ///
    /// # Errors
    ///
    /// [`AllocError::NoMemory`] if the system refuses the address space.
    pub fn new(words: u32) -> Result<Self, AllocError> {
        let classes = (0..=class(MAX_LEN as u32 / 8 + 1).0).map(|_| Vec::new()).collect();
        Ok(Blobs { words: Arena::new(words)?, free: Mutex::new(Free { next: 1, classes, in_use: 0 }) })
    }

    /// Stores `bytes` and gives their handle, which is not zero.
    ///
    /// # Errors
    ///
    /// [`AllocError::Full`] when the reservation is used up, or `bytes` is longer than [`MAX_LEN`].
    pub fn alloc(&self, bytes: &[u8]) -> Result<Handle, AllocError> {
        if bytes.len() > MAX_LEN {
            return Err(AllocError::Full);
        }
        let (class, words) = class(1 + bytes.len().div_ceil(8) as u32);
        let handle = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            let handle = match free.classes[class].pop() {
                Some(handle) => handle,
                None if self.words.capacity() - free.next < words => return Err(AllocError::Full),
                None => {
                    free.next += words;
                    free.next - words
                }
            };
            free.in_use += u64::from(words);
            handle
        };
        // [BLB-1] pairs with the fence [SEQ-2] in `SeqCount::retry`: a reader that sees a word of the new string, through
        // the handle of the one that lay here before, also sees that the former owner's count moved on.
        // Model: models::blob_reuse_is_noticed.
        fence!("BLB-1", Release);
        self.words.get(handle).set(bytes.len() as u64);
        for (i, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.words.get(handle + 1 + i as u32).set(u64::from_le_bytes(word));
        }
        Ok(handle)
    }

    /// Gives a string's memory back. Readers may still hold the handle.
    pub fn free(&self, handle: Handle) {
        let (class, words) = class(1 + self.len(handle).div_ceil(8) as u32);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.in_use -= u64::from(words);
        // A list that cannot grow loses the block until the store is dropped: nothing else would be safe.
        if free.classes[class].try_reserve(1).is_ok() {
            free.classes[class].push(handle);
        }
    }

    /// The length in bytes; anything up to [`MAX_LEN`] if the string was freed.
    #[inline]
    pub fn len(&self, handle: Handle) -> usize {
        (self.words.get(handle).get() as usize).min(MAX_LEN)
    }

    /// Word `index` of the string, little endian, zero-padded at the end.
    #[inline]
    pub fn word(&self, handle: Handle, index: u32) -> u64 {
        self.words.get(handle.wrapping_add(1 + index)).get()
    }

    /// Appends the string to `out`.
    ///
    /// # Errors
    ///
    /// [`AllocError::NoMemory`] if `out` cannot grow.
    pub fn read(&self, handle: Handle, out: &mut Vec<u8>) -> Result<(), AllocError> {
        let len = self.len(handle);
        out.try_reserve(len).map_err(|_| AllocError::NoMemory)?;
        let end = out.len() + len;
        for index in 0..len.div_ceil(8) as u32 {
            let word = self.word(handle, index).to_le_bytes();
            out.extend_from_slice(&word[..word.len().min(end - out.len())]);
        }
        Ok(())
    }

    /// Bytes in use, headers and rounding included.
    pub fn bytes_in_use(&self) -> u64 {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).in_use * 8
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn strings_of_every_length_come_back() {
        let blobs = Blobs::new(1 << 20).unwrap();
        let longest = if cfg!(miri) { 300 } else { 70_000 };
        let text: Vec<u8> = (0..longest).map(|i| (i % 251) as u8).collect();
        let lens = (0..100).chain([255, 256, 4095, 65_535, 65_536, 70_000]);
        let lens: Vec<usize> = lens.filter(|&len| len <= longest).collect();
        let handles: Vec<_> = lens.iter().map(|&len| blobs.alloc(&text[..len]).unwrap()).collect();
        for (&len, &handle) in lens.iter().zip(&handles) {
            let mut out = b"kept".to_vec();
            blobs.read(handle, &mut out).unwrap();
            assert_eq!(out[..4], *b"kept");
            assert_eq!(out[4..], text[..len]);
        }
        let used = blobs.bytes_in_use();
        handles.iter().for_each(|&h| blobs.free(h));
        assert_eq!(blobs.bytes_in_use(), 0);
        lens.iter().for_each(|&len| assert!(handles.contains(&blobs.alloc(&text[..len]).unwrap())));
        assert_eq!(blobs.bytes_in_use(), used, "freed blocks are used again");
    }

    #[test]
    fn a_class_wastes_at_most_a_quarter() {
        for words in 1..=(MAX_LEN as u32 / 8 + 1) {
            let (_, size) = class(words);
            assert!(size >= words && size - words <= words / 4, "{words} -> {size}");
            assert_eq!(class(size), class(words), "{words}");
        }
    }

    #[test]
    fn a_full_store_is_an_error() {
        let blobs = Blobs::new(16).unwrap();
        assert_eq!(blobs.alloc(&[1; 200]), Err(AllocError::Full));
        assert!(blobs.alloc(&[1; 32]).is_ok());
        assert_eq!(blobs.alloc(&vec![0; MAX_LEN + 1]), Err(AllocError::Full));
    }
}
