//! The memory of the program that makes the calls, and how names and structures get out of it.
//!
//! Kernel: lib/strncpy_from_user.c, include/linux/uaccess.h, fs/namei.c `getname()`.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::PATH_MAX;
use crate::base::variants::NameBuffer;
use crate::kernel::names::{EMBEDDED_NAME_MAX, Names};
use crate::namei::getname::{NAME_FAULT, NAME_NO_MEMORY};
use memchr::memchr;
use rcuwalk_sync::slab::{Buffer, Cache};
use std::ops::Deref;
use std::sync::Arc;

/// Memory is readable and writable by whole pages, so a copy that fails is tried again up to where a page ends.
const PAGE: u64 = 4096;

/// The end of what a program on x86-64 can address, with page tables of four levels. Kernel: `TASK_SIZE_MAX`.
pub const TASK_SIZE_MAX: u64 = (1 << 47) - PAGE;

/// The memory of the program that makes the calls: a slice ([`SliceMemory`]), another process, callbacks.
///
/// The engine holds none of its locks while it uses it. An implementation may be slow, lie, or change what it shows from
/// one copy to the next; each structure is therefore copied once, and whole.
pub trait UserMemory {
    /// Fills `to` with what is at address `from`.
    ///
    /// # Errors
    ///
    /// `EFAULT`: some of it cannot be read; what `to` then has is unspecified.
    fn copy_from_user(&mut self, to: &mut [u8], from: u64) -> Result<()>;

    /// Puts `from` at address `to`.
    ///
    /// # Errors
    ///
    /// `EFAULT`: some of it cannot be written; how much then was, is unspecified.
    fn copy_to_user(&mut self, to: u64, from: &[u8]) -> Result<()>;

    /// Whether a program may name `len` bytes at `address` at all; nothing is read. Calls that move contents ask for the
    /// whole size that they were given before they move any of it, and answer `EFAULT` if not.
    ///
    /// Unless an implementation says otherwise, a program has the addresses below [`TASK_SIZE_MAX`].
    ///
    /// Kernel: arch/x86/include/asm/uaccess_64.h `__access_ok()`.
    fn access_ok(&self, address: u64, len: u64) -> bool {
        address.checked_add(len).is_some_and(|end| end <= TASK_SIZE_MAX)
    }

    /// The byte at address `from`.
    ///
    /// # Errors
    ///
    /// `EFAULT`: it cannot be read.
    fn get_user(&mut self, from: u64) -> Result<u8> {
        let mut byte = [0];
        self.copy_from_user(&mut byte, from)?;
        Ok(byte[0])
    }

    /// Copies the string at address `from` into `to`, up to and without its NUL; gives its length, or the length of `to` if
    /// there is no NUL within it.
    ///
    /// # Errors
    ///
    /// `EFAULT`: the memory ends before a NUL, and before `to` was full.
    fn strncpy_from_user(&mut self, to: &mut [u8], from: u64) -> Result<usize> {
        let mut done = 0;
        while done < to.len() {
            let at = from.checked_add(done as u64).ok_or(Errno::EFAULT)?;
            let piece = (to.len() - done).min((PAGE - at % PAGE) as usize);
            let room = &mut to[done..done + piece];
            if self.copy_from_user(room, at).is_err() {
                // Not every memory ends where a page does.
                self.copy_from_user(&mut room[..1], at)?;
                if room[0] == 0 {
                    return Ok(done);
                }
                done += 1;
                continue;
            }
            match memchr(0, room) {
                Some(nul) => return Ok(done + nul),
                None => done += piece,
            }
        }
        Ok(done)
    }
}

/// Slices as memory: at each base address one of them, and nothing elsewhere.
///
/// ```
/// use rcuwalk::syscall::{SliceMemory, UserMemory, nr};
/// use rcuwalk::{Cred, Errno, Vfs};
///
/// let vfs = Vfs::new()?;
/// let mut task = vfs.task(Cred::root());
/// let mut bytes = *b"/srv\0";
/// let mut memory = SliceMemory::new(0x1000, &mut bytes);
/// assert_eq!(task.syscall(&mut memory, nr::MKDIR, [0x1000, 0o755, 0, 0, 0, 0]), 0);
/// assert_eq!(task.syscall(&mut memory, nr::RMDIR, [0x2000, 0, 0, 0, 0, 0]), -14, "EFAULT");
/// assert!(task.stat(b"/srv").is_ok());
/// # Ok::<(), Errno>(())
/// ```
#[derive(Debug, Default)]
pub struct SliceMemory<'a> {
    /// In the order of their addresses.
    regions: Vec<(u64, &'a mut [u8])>,
}

impl<'a> SliceMemory<'a> {
    /// Memory with `bytes` at address `base`.
    pub fn new(base: u64, bytes: &'a mut [u8]) -> SliceMemory<'a> {
        SliceMemory::default().with(base, bytes)
    }

    /// The same memory with `bytes` at address `base` as well. Where slices overlap, the one with the higher base counts.
    #[must_use]
    pub fn with(mut self, base: u64, bytes: &'a mut [u8]) -> SliceMemory<'a> {
        let at = self.regions.partition_point(|(other, _)| *other <= base);
        self.regions.insert(at, (base, bytes));
        self
    }

    /// What there is from `address` on, as far as one slice reaches; never empty.
    fn at(&mut self, address: u64) -> Result<&mut [u8]> {
        let after = self.regions.partition_point(|(base, _)| *base <= address);
        let (base, bytes) = after.checked_sub(1).map(|i| &mut self.regions[i]).ok_or(Errno::EFAULT)?;
        let offset = usize::try_from(address - *base).map_err(|_| Errno::EFAULT)?;
        bytes.get_mut(offset..).filter(|rest| !rest.is_empty()).ok_or(Errno::EFAULT)
    }
}

impl UserMemory for SliceMemory<'_> {
    fn copy_from_user(&mut self, to: &mut [u8], from: u64) -> Result<()> {
        let mut done = 0;
        while done < to.len() {
            let here = self.at(from.checked_add(done as u64).ok_or(Errno::EFAULT)?)?;
            let n = here.len().min(to.len() - done);
            to[done..done + n].copy_from_slice(&here[..n]);
            done += n;
        }
        Ok(())
    }

    fn copy_to_user(&mut self, to: u64, from: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < from.len() {
            let here = self.at(to.checked_add(done as u64).ok_or(Errno::EFAULT)?)?;
            let n = here.len().min(from.len() - done);
            here[..n].copy_from_slice(&from[done..done + n]);
            done += n;
        }
        Ok(())
    }

    fn get_user(&mut self, from: u64) -> Result<u8> {
        Ok(self.at(from)?[0])
    }

    fn strncpy_from_user(&mut self, to: &mut [u8], from: u64) -> Result<usize> {
        let mut done = 0;
        while done < to.len() {
            let here = self.at(from.checked_add(done as u64).ok_or(Errno::EFAULT)?)?;
            let here = &here[..here.len().min(to.len() - done)];
            let nul = memchr(0, here);
            let n = nul.unwrap_or(here.len());
            to[done..done + n].copy_from_slice(&here[..n]);
            done += n;
            if nul.is_some() {
                break;
            }
        }
        Ok(done)
    }
}

/// Copies as much of `to` from address `from` as can be read; gives how many bytes that is.
pub(super) fn copy_in(mem: &mut dyn UserMemory, to: &mut [u8], from: u64) -> usize {
    if mem.copy_from_user(to, from).is_ok() {
        return to.len();
    }
    by_pieces(to.len(), from, |at, range| mem.copy_from_user(&mut to[range], at))
}

/// Copies as much of `from` to address `to` as can be written; gives how many bytes that is.
pub(super) fn copy_out(mem: &mut dyn UserMemory, to: u64, from: &[u8]) -> usize {
    if mem.copy_to_user(to, from).is_ok() {
        return from.len();
    }
    by_pieces(from.len(), to, |at, range| mem.copy_to_user(at, &from[range]))
}

/// Copies `len` bytes up to the ends of pages, then by single bytes, until one cannot be copied.
fn by_pieces(
    len: usize,
    address: u64,
    mut copy: impl FnMut(u64, std::ops::Range<usize>) -> Result<()>,
) -> usize {
    let (mut done, mut bytewise) = (0, false);
    while done < len {
        let Some(at) = address.checked_add(done as u64) else { break };
        let piece = if bytewise { 1 } else { (len - done).min((PAGE - at % PAGE) as usize) };
        match copy(at, done..done + piece) {
            Ok(()) => done += piece,
            Err(_) if bytewise => break,
            Err(_) => bytewise = true,
        }
    }
    done
}

/// A name as it was found in memory. What is wrong with it shows only where the name is used, as in the kernel, whose
/// calls check their flags first: a name that could not be read stands for [`NAME_FAULT`].
///
/// Most names are copied into the 192 bytes that lie here, which a few constant stores clear. Only a longer one gets a buffer
/// of [`PATH_MAX`] bytes, of a cache that opted out of clearing (S2): no more of it is looked at than was copied into it.
///
/// Kernel: `struct filename`.
pub(super) struct Name {
    at: Place,
    embedded: [u8; EMBEDDED_NAME_MAX],
}

/// Where a name is, and how long.
enum Place {
    Embedded(usize),
    /// All of a buffer of [`PATH_MAX`] bytes if it is too long.
    Buffer(Buffer<Arc<Cache>>, usize),
    /// One of the names that stand for an error.
    Failed(&'static [u8]),
}

impl Name {
    /// Copies the name at `address`. Kernel: fs/namei.c `getname_flags()`.
    #[inline(always)]
    pub(super) fn get(mem: &mut dyn UserMemory, address: u64, names: &Names, buffer: NameBuffer) -> Name {
        let mut name = Name::empty();
        if buffer != NameBuffer::Embedded {
            name.at = in_buffer(mem, address, names, buffer);
            return name;
        }
        name.at = match mem.strncpy_from_user(&mut name.embedded, address) {
            Ok(len) if len < EMBEDDED_NAME_MAX => Place::Embedded(len),
            Ok(_) => large(mem, address, &name.embedded, names),
            Err(_) => Place::Failed(&NAME_FAULT),
        };
        name
    }

    /// The empty name, which a null pointer stands for in some calls.
    pub(super) fn empty() -> Name {
        Name { at: Place::Embedded(0), embedded: [0; EMBEDDED_NAME_MAX] }
    }
}

/// A name that begins with `start` and goes on behind it. What was read is not read again: it might have changed.
#[cold]
fn large(mem: &mut dyn UserMemory, address: u64, start: &[u8], names: &Names) -> Place {
    let Ok(mut buffer) = names.whole.alloc_shared() else { return Place::Failed(&NAME_NO_MEMORY) };
    buffer[..start.len()].copy_from_slice(start);
    let rest = address
        .checked_add(start.len() as u64)
        .and_then(|rest| mem.strncpy_from_user(&mut buffer[start.len()..], rest).ok());
    match rest {
        Some(len) => Place::Buffer(buffer, (start.len() + len).min(PATH_MAX)),
        None => Place::Failed(&NAME_FAULT),
    }
}

/// The old ways to keep a name (S2).
#[cold]
fn in_buffer(mem: &mut dyn UserMemory, address: u64, names: &Names, buffer: NameBuffer) -> Place {
    if buffer == NameBuffer::Whole {
        return large(mem, address, &[], names);
    }
    let Ok(mut small) = names.small().alloc_shared() else { return Place::Failed(&NAME_NO_MEMORY) };
    match mem.strncpy_from_user(&mut small, address) {
        Ok(len) if len < EMBEDDED_NAME_MAX => Place::Buffer(small, len),
        Ok(_) => large(mem, address, &small, names),
        Err(_) => Place::Failed(&NAME_FAULT),
    }
}

impl Deref for Name {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.at {
            Place::Embedded(len) => &self.embedded[..*len],
            Place::Buffer(buffer, len) => &buffer[..*len],
            Place::Failed(error) => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InitOnAlloc;

    /// Memory that offers only what the trait demands.
    struct Plain<'a>(SliceMemory<'a>);

    impl UserMemory for Plain<'_> {
        fn copy_from_user(&mut self, to: &mut [u8], from: u64) -> Result<()> {
            self.0.copy_from_user(to, from)
        }

        fn copy_to_user(&mut self, to: u64, from: &[u8]) -> Result<()> {
            self.0.copy_to_user(to, from)
        }
    }

    #[test]
    fn strings_end_at_their_nul_wherever_memory_ends() {
        for base in [0, 0x1000, 0x1ffd, 0x1fff, u64::MAX - 6] {
            let (mut one, mut two) = (*b"abc\0de", *b"abc\0de");
            let memories: [&mut dyn UserMemory; 2] =
                [&mut SliceMemory::new(base, &mut one), &mut Plain(SliceMemory::new(base, &mut two))];
            for mem in memories {
                let mut to = [b'?'; 8];
                assert_eq!(mem.strncpy_from_user(&mut to, base), Ok(3), "at {base:#x}");
                assert_eq!(&to[..3], b"abc");
                assert_eq!(mem.strncpy_from_user(&mut to[..2], base), Ok(2), "no room for the NUL");
                assert_eq!(mem.strncpy_from_user(&mut to, base + 4), Err(Errno::EFAULT), "no NUL");
                assert_eq!(mem.strncpy_from_user(&mut to, base.wrapping_sub(1)), Err(Errno::EFAULT));
            }
        }
    }

    #[test]
    fn adjacent_slices_are_one_memory() {
        let (mut one, mut two, mut far) = (*b"ab", *b"cd\0", *b"x");
        let mut mem = SliceMemory::new(0x1002, &mut two).with(0x1000, &mut one).with(0x9000, &mut far);
        let mut to = [0; 5];
        assert_eq!(mem.copy_from_user(&mut to, 0x1000), Ok(()));
        assert_eq!(&to, b"abcd\0");
        assert_eq!(mem.copy_to_user(0x1001, b"BC"), Ok(()));
        assert_eq!(mem.copy_from_user(&mut to, 0x1001), Err(Errno::EFAULT));
        assert_eq!(copy_in(&mut mem, &mut to, 0x1001), 4);
        assert_eq!(&to[..4], b"BCd\0");
        assert_eq!(copy_out(&mut mem, 0x1003, b"123"), 2);
        assert_eq!(mem.copy_from_user(&mut to[..1], u64::MAX), Err(Errno::EFAULT));
    }

    #[test]
    fn a_name_carries_what_is_wrong_with_it() {
        let mut bytes = vec![b'x'; 2 * PATH_MAX];
        bytes[10] = 0;
        let end = 0x1000 + bytes.len() as u64;
        let mut mem = SliceMemory::new(0x1000, &mut bytes);
        let names = Names::new(InitOnAlloc::On);
        let mut get = |address| Name::get(&mut mem, address, &names, NameBuffer::Embedded);
        assert_eq!(&*get(0x1000), b"xxxxxxxxxx");
        assert_eq!(get(0x1010).len(), PATH_MAX, "too long for the call that uses it");
        let faulted = get(end - 5);
        assert_eq!(crate::namei::getname::check_name(&faulted, true), Err(Errno::EFAULT));
        let faulted = get(end - 1000);
        assert_eq!(crate::namei::getname::check_name(&faulted, true), Err(Errno::EFAULT), "a long one");
        assert_eq!(&*get(0x1005), b"xxxxx");
        assert_eq!(names.whole.info().fresh, 1, "a buffer used again, and only for long names");
    }

    #[test]
    fn names_of_every_length_around_the_embedded_size() {
        let names = Names::new(InitOnAlloc::On);
        for len in [0, 1, 190, 191, 192, 193, 500, PATH_MAX - 1, PATH_MAX, PATH_MAX + 1] {
            let mut bytes: Vec<u8> = (0..len).map(|i| b'a' + (i % 26) as u8).collect();
            bytes.push(0);
            let expected = bytes[..len.min(PATH_MAX)].to_vec();
            // Where the memory ends must not matter.
            for base in [0x1000, 0x1fff_u64.wrapping_sub(len as u64), u64::MAX - len as u64] {
                for buffer in [NameBuffer::Embedded, NameBuffer::Small, NameBuffer::Whole] {
                    let mut copy = bytes.clone();
                    let mut mem = SliceMemory::new(base, &mut copy);
                    let name = Name::get(&mut mem, base, &names, buffer);
                    assert_eq!(&*name, expected, "{len} at {base:#x}, {buffer:?}");
                }
            }
        }
    }

    #[test]
    fn the_operator_can_have_long_names_cleared() {
        for (policy, clears) in [
            (InitOnAlloc::On, false),
            (InitOnAlloc::Skip(vec!["names".into()]), false),
            (InitOnAlloc::Skip(vec![]), true),
            (InitOnAlloc::Force, true),
            (InitOnAlloc::Off, false),
        ] {
            let names = Names::new(policy.clone());
            for cache in [&names.whole, names.small()] {
                cache.alloc().expect("memory").fill(b'?');
                let left = cache.alloc().expect("memory").contains(&b'?');
                assert_eq!((cache.info().clears, left), (clears, !clears), "{policy:?}");
            }
        }
    }
}
