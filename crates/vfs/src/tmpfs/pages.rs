//! The contents of a regular file, as tmpfs keeps them: pages that exist, and holes.
//!
//! [`FileData`] is a radix tree of pages of 4096 bytes, 64 children to a node, no deeper than the file needs: a page is
//! found in one step per 64-fold of size (three for a gigabyte). It knows three kinds of place: a hole; a page with
//! contents; and a page that fallocate(2) *reserved*, which counts as allocated, reads as zeros and is a hole to
//! `SEEK_DATA` until it is written, or reserved once more.
//!
//! **Invariant.** Bytes of a page at and beyond the size of the file are zero, so growing a file needs no work.
//!
//! Pages are counted against a [`PageBudget`], the size limit of the filesystem, which each call that allocates or frees
//! takes: [`FileData::clear`] must give them back before a file is dropped.

use crate::base::errno::{Errno, Result};
use rcuwalk_sync::Budget;
use rcuwalk_sync::fill::{self, Site};
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of a page.
pub const PAGE_SIZE: usize = 4096;
/// Pages that a [`Backing`](crate::kernel::watch::Backing) writes together, and counts for together.
pub const CHUNK_PAGES: u64 = 7;
const PAGE_SHIFT: u32 = PAGE_SIZE.trailing_zeros();
/// The largest size of a file in bytes: what `loff_t` can say, and tmpfs's `s_maxbytes`.
pub const MAX_FILE_SIZE: u64 = i64::MAX as u64;

const FANOUT_SHIFT: u32 = 6;
const FANOUT: usize = 1 << FANOUT_SHIFT;

/// Reading holes.
static HOLES: Site = Site::new("pages: hole");
/// Cutting pages short.
static PARTS: Site = Site::new("pages: part of a page");

/// How many pages the files of one filesystem may have together.
#[derive(Debug)]
pub(crate) struct PageBudget(Budget);

impl PageBudget {
    /// A budget of `limit` pages; `u64::MAX` is as good as none.
    pub(crate) fn new(limit: u64) -> PageBudget {
        PageBudget(Budget::new(limit))
    }

    /// The most pages that may exist.
    pub(crate) fn limit(&self) -> u64 {
        self.0.limit()
    }

    /// Pages that exist.
    pub(crate) fn used(&self) -> u64 {
        self.0.used()
    }

    /// Sets the most pages that may exist, unless there are more.
    pub(crate) fn set_limit(&self, pages: u64) -> bool {
        self.0.set_limit(pages)
    }

    /// Takes `pages` or none.
    fn charge(&self, pages: u64) -> Result<()> {
        if self.0.charge(pages) { Ok(()) } else { Err(Errno::ENOSPC) }
    }

    fn release(&self, pages: u64) {
        self.0.release(pages);
    }
}

type Page = Box<[u8; PAGE_SIZE]>;

/// A place in the tree.
#[derive(Debug, Default)]
enum Slot {
    /// A hole of whatever size the level has.
    #[default]
    Hole,
    /// Allocated, never written.
    Reserved,
    /// Allocated more than once: contents, all zero.
    Zeroed,
    Data(Page),
    Node(Box<[Slot; FANOUT]>),
}

const _: () = assert!(size_of::<Slot>() == 16, "a node is 1 KiB");

/// The contents of one regular file, as of the moment they are told of.
#[derive(Debug, Default)]
pub struct FileData {
    size: u64,
    /// Allocated pages, reserved ones included.
    pages: u64,
    root: Slot,
    /// Levels of nodes above the pages.
    height: u32,
    /// Which pages changed, if anybody wants to know.
    changed: Option<Box<Changed>>,
}

impl FileData {
    /// An empty file.
    pub(crate) const fn new() -> FileData {
        FileData { size: 0, pages: 0, root: Slot::Hole, height: 0, changed: None }
    }

    /// Size in bytes.
    #[inline]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Allocated pages; st_blocks is eight times that.
    #[inline]
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Copies what stands at `offset` into `buf`; returns how many bytes, fewer than asked only at the end of the file.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> usize {
        let left = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = buf.len().min(left);
        let mut done = 0;
        while done < len {
            let (index, start) = locate(offset + done as u64);
            let part = (PAGE_SIZE - start).min(len - done);
            let target = &mut buf[done..done + part];
            match self.find(index) {
                Slot::Data(page) => target.copy_from_slice(&page[start..start + part]),
                _ => fill::zero(target, &HOLES),
            }
            done += part;
        }
        len
    }

    /// Writes `data` at `offset`; returns how many bytes, fewer than given only when the space ran out on the way.
    ///
    /// # Errors
    ///
    /// `EINVAL`: would end beyond [`MAX_FILE_SIZE`]. `ENOSPC`: the budget or the memory is exhausted, and nothing was
    /// written.
    pub(crate) fn write_at(&mut self, budget: &PageBudget, offset: u64, data: &[u8]) -> Result<usize> {
        let end = offset.checked_add(data.len() as u64).filter(|&end| end <= MAX_FILE_SIZE);
        if end.is_none() {
            return Err(Errno::EINVAL);
        }
        let mut done = 0;
        while done < data.len() {
            let (index, start) = locate(offset + done as u64);
            let part = (PAGE_SIZE - start).min(data.len() - done);
            match self.write_page(budget, index, start, &data[done..done + part]) {
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
                Ok(()) => done += part,
            }
        }
        if done > 0 {
            let end = offset + done as u64;
            self.mark(offset >> PAGE_SHIFT..end.div_ceil(PAGE_SIZE as u64));
            self.size = self.size.max(end);
        }
        Ok(done)
    }

    /// Writes nothing at `offset`, as a write does that cannot read its buffer: the page is allocated by then, and the file ends
    /// at `offset` at least.
    ///
    /// # Errors
    ///
    /// As [`write_at`](Self::write_at).
    ///
    /// Kernel: mm/filemap.c `generic_perform_write()`, mm/shmem.c `shmem_write_end()`.
    pub(crate) fn write_fault_at(&mut self, budget: &PageBudget, offset: u64) -> Result<()> {
        let (index, start) = locate(offset);
        self.write_page(budget, index, start, &[])?;
        self.mark(index..index + 1);
        self.size = self.size.max(offset);
        Ok(())
    }

    /// Writes within one page.
    fn write_page(&mut self, budget: &PageBudget, index: u64, start: usize, data: &[u8]) -> Result<()> {
        let reserved = match self.find_mut(index) {
            Some(Slot::Data(page)) => {
                page[start..start + data.len()].copy_from_slice(data);
                return Ok(());
            }
            Some(Slot::Reserved | Slot::Zeroed) => true,
            _ => false,
        };
        // Page and budget come first: a write that fails for want of them must not leave nodes behind, or failing writes
        // could use up memory that nobody counts.
        let page = new_page(start, data)?;
        let charged = if reserved { 0 } else { 1 };
        budget.charge(charged)?;
        match self.make(index) {
            Ok(slot) => *slot = Slot::Data(page),
            Err(errno) => {
                budget.release(charged);
                return Err(errno);
            }
        }
        self.pages += charged;
        Ok(())
    }

    /// Sets the size. Pages beyond it are freed and the rest of the last page is zeroed; growing makes a hole, but keeps
    /// pages that fallocate put there.
    ///
    /// # Errors
    ///
    /// `EFBIG` beyond [`MAX_FILE_SIZE`].
    pub(crate) fn truncate(&mut self, budget: &PageBudget, size: u64) -> Result<()> {
        if size > MAX_FILE_SIZE {
            return Err(Errno::EFBIG);
        }
        if size <= self.size {
            self.drop_bytes(budget, size..u64::MAX);
        }
        self.size = size;
        Ok(())
    }

    /// Frees every page and sets the size to zero.
    pub(crate) fn clear(&mut self, budget: &PageBudget) {
        self.drop_bytes(budget, 0..u64::MAX);
        self.size = 0;
    }

    /// Makes the bytes from `offset` on, `len` of them, a hole as far as whole pages go, and zeroes the rest. The size
    /// stays. Kernel: `FALLOC_FL_PUNCH_HOLE` of `shmem_fallocate()`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: `len` is 0. `EFBIG`: ends beyond [`MAX_FILE_SIZE`].
    pub(crate) fn punch_hole(&mut self, budget: &PageBudget, offset: u64, len: u64) -> Result<()> {
        let range = checked_range(offset, len)?;
        self.drop_bytes(budget, range);
        Ok(())
    }

    /// Reserves the pages that hold `len` bytes from `offset` on, all or none, and grows the file unless `keep_size`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: `len` is 0. `EFBIG`: ends beyond [`MAX_FILE_SIZE`]. `ENOSPC`: the budget is too small, or the memory.
    ///
    /// Kernel: `shmem_fallocate()`. Differs: takes no memory for a reserved page until it is written.
    pub(crate) fn fallocate(
        &mut self,
        budget: &PageBudget,
        offset: u64,
        len: u64,
        keep_size: bool,
    ) -> Result<()> {
        let range = checked_range(offset, len)?;
        let pages = range.start >> PAGE_SHIFT..range.end.div_ceil(PAGE_SIZE as u64);
        let wanted = pages.end - pages.start;
        if wanted > budget.limit() {
            return Err(Errno::ENOSPC);
        }
        let missing = wanted - count_allocated(&self.root, self.height, 0, &pages);
        budget.charge(missing)?;
        self.mark(pages.clone());
        let mut added = 0;
        for index in pages {
            match self.make(index) {
                Ok(slot @ Slot::Hole) => {
                    *slot = Slot::Reserved;
                    added += 1;
                }
                // Asked for once more, it counts as written. Kernel: `SGP_FALLOC` of a folio that is not up to date.
                Ok(slot @ Slot::Reserved) => *slot = Slot::Zeroed,
                Ok(_) => {}
                Err(errno) => {
                    // No memory for a node. What is reserved so far stays: nothing tells it from older reservations.
                    self.pages += added;
                    budget.release(missing - added);
                    return Err(errno);
                }
            }
        }
        self.pages += added;
        if !keep_size {
            self.size = self.size.max(range.end);
        }
        Ok(())
    }

    /// The first offset from `offset` on that has contents. Page by page, as tmpfs answers.
    ///
    /// # Errors
    ///
    /// `ENXIO`: negative, at or beyond the end, or nothing but holes up to the end.
    ///
    /// Kernel: `SEEK_DATA` of `shmem_file_llseek()`.
    pub(crate) fn seek_data(&self, offset: i64) -> Result<i64> {
        let offset = self.seekable(offset)?;
        let page = next(&self.root, self.height, 0, offset >> PAGE_SHIFT, Find::Data).ok_or(Errno::ENXIO)?;
        let found = offset.max(page << PAGE_SHIFT);
        if found < self.size { Ok(found as i64) } else { Err(Errno::ENXIO) }
    }

    /// The first offset from `offset` on that is in a hole; the end of the file counts as one.
    ///
    /// # Errors
    ///
    /// `ENXIO`: negative, at or beyond the end.
    ///
    /// Kernel: `SEEK_HOLE` of `shmem_file_llseek()`.
    pub(crate) fn seek_hole(&self, offset: i64) -> Result<i64> {
        let offset = self.seekable(offset)?;
        let index = offset >> PAGE_SHIFT;
        let page =
            next(&self.root, self.height, 0, index, Find::Hole).unwrap_or(index.max(span(self.height)));
        Ok(offset.max(page << PAGE_SHIFT).min(self.size) as i64)
    }

    /// Shows every allocated page in a range of pages, ascending.
    pub fn for_each_page(&self, pages: Range<u64>, mut show: impl FnMut(u64, PageState<'_>)) {
        show_pages(&self.root, self.height, 0, &pages, &mut show);
    }

    /// Remembers from now on which pages change.
    pub(crate) fn track(&mut self) {
        self.changed.get_or_insert_default();
    }

    pub(crate) fn is_tracked(&self) -> bool {
        self.changed.is_some()
    }

    /// Remembers that these pages changed.
    #[inline]
    pub(crate) fn mark(&mut self, pages: Range<u64>) {
        if let Some(changed) = &mut self.changed {
            changed.mark(pages);
        }
    }

    /// Bytes of pages that changed, those beyond the end left out, and in how many chunks a backing writes them at most.
    pub(crate) fn unsaved(&self) -> (u64, u64) {
        self.changed.as_ref().map_or((0, 0), |changed| (changed.pages << PAGE_SHIFT, changed.chunks))
    }

    /// The pages that changed since this was last asked, ascending.
    pub(crate) fn take_changed(&mut self) -> Vec<Range<u64>> {
        let changed = self.changed.as_mut().map(|changed| std::mem::take(&mut **changed));
        changed
            .map_or(Vec::new(), |changed| changed.ranges.into_iter().map(|(start, end)| start..end).collect())
    }

    /// Where a seek starts, if it may.
    fn seekable(&self, offset: i64) -> Result<u64> {
        u64::try_from(offset).ok().filter(|&offset| offset < self.size).ok_or(Errno::ENXIO)
    }

    /// Frees the pages that lie within a range of bytes and zeroes the part of it that lies in others.
    fn drop_bytes(&mut self, budget: &PageBudget, range: Range<u64>) {
        self.mark(range.start >> PAGE_SHIFT..range.end.div_ceil(PAGE_SIZE as u64));
        let whole = range.start.div_ceil(PAGE_SIZE as u64)..range.end >> PAGE_SHIFT;
        let (first, head) = locate(range.start);
        let (last, tail) = locate(range.end);
        if first == last {
            self.zero(first, head..tail);
            return;
        }
        if head > 0 {
            self.zero(first, head..PAGE_SIZE);
        }
        self.zero(last, 0..tail);
        let freed = remove(&mut self.root, self.height, 0, &whole);
        self.pages -= freed;
        budget.release(freed);
        self.shrink();
    }

    /// Zeroes a part of a page, if it has contents.
    fn zero(&mut self, index: u64, part: Range<usize>) {
        if let Some(Slot::Data(page)) = self.find_mut(index) {
            fill::zero(&mut page[part], &PARTS);
        }
    }

    /// The place of a page.
    fn find(&self, index: u64) -> &Slot {
        if index >= span(self.height) {
            return &Slot::Hole;
        }
        let (mut slot, mut height) = (&self.root, self.height);
        while let Slot::Node(node) = slot {
            height -= 1;
            slot = &node[child(index, height)];
        }
        slot
    }

    /// The place of a page, unless a whole subtree is missing around it.
    fn find_mut(&mut self, index: u64) -> Option<&mut Slot> {
        if index >= span(self.height) {
            return None;
        }
        let (mut slot, mut height) = (&mut self.root, self.height);
        while height > 0 {
            let Slot::Node(node) = slot else { return None };
            height -= 1;
            slot = &mut node[child(index, height)];
        }
        Some(slot)
    }

    /// The place of a page, with the nodes above it made as needed.
    fn make(&mut self, index: u64) -> Result<&mut Slot> {
        while index >= span(self.height) {
            if !matches!(self.root, Slot::Hole) {
                let mut node = new_node()?;
                node[0] = std::mem::take(&mut self.root);
                self.root = Slot::Node(node);
            }
            self.height += 1;
        }
        let (mut slot, mut height) = (&mut self.root, self.height);
        while height > 0 {
            if matches!(slot, Slot::Hole) {
                *slot = Slot::Node(new_node()?);
            }
            let Slot::Node(node) = slot else { unreachable!("pages are at height 0 only") };
            height -= 1;
            slot = &mut node[child(index, height)];
        }
        Ok(slot)
    }

    /// Takes away levels that only a larger file needs.
    fn shrink(&mut self) {
        while self.height > 0 {
            match &mut self.root {
                Slot::Hole => self.height = 0,
                Slot::Node(node) if node[1..].iter().all(|slot| matches!(slot, Slot::Hole)) => {
                    self.root = std::mem::take(&mut node[0]);
                    self.height -= 1;
                }
                _ => return,
            }
        }
    }
}

/// What an allocated page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageState<'a> {
    /// Nothing yet: it was reserved.
    Reserved,
    /// Zeros: it was reserved more than once.
    Zeroed,
    /// These bytes.
    Data(&'a [u8; PAGE_SIZE]),
}

/// Pages that changed: ranges that neither overlap nor touch, by their start. There are few of them: where many are wanted,
/// they grow until they meet.
#[derive(Debug, Default)]
struct Changed {
    ranges: BTreeMap<u64, u64>,
    /// Ranges begin and end at multiples of this power of two.
    grain: u32,
    /// How many pages, ranges without an end left out.
    pages: u64,
    /// Chunks that the ranges touch, counted for each.
    chunks: u64,
}

/// The most ranges of pages of one file.
const MAX_RANGES: usize = 512;

impl Changed {
    fn mark(&mut self, pages: Range<u64>) {
        if pages.is_empty() {
            return;
        }
        self.insert(pages);
        while self.ranges.len() > MAX_RANGES {
            self.grain += 1;
            (self.pages, self.chunks) = (0, 0);
            for (start, end) in std::mem::take(&mut self.ranges) {
                self.insert(start..end);
            }
        }
    }

    fn insert(&mut self, pages: Range<u64>) {
        let low = (1 << self.grain) - 1;
        let (mut start, mut end) = (pages.start & !low, pages.end.saturating_add(low) & !low);
        // Those that overlap or touch; the one before first.
        while let Some((&from, &to)) = self.ranges.range(..=end).next_back().filter(|&(_, &to)| to >= start) {
            self.ranges.remove(&from);
            self.pages -= counted(from, to);
            self.chunks -= chunks(from, to);
            (start, end) = (start.min(from), end.max(to));
        }
        self.ranges.insert(start, end);
        self.pages += counted(start, end);
        self.chunks += chunks(start, end);
    }
}

/// The pages of a range, if it has an end that a file can have.
fn counted(start: u64, end: u64) -> u64 {
    if end > MAX_FILE_SIZE >> PAGE_SHIFT { 0 } else { end - start }
}

/// The chunks that it touches; of a range without an end the one where it begins, since the others go.
fn chunks(start: u64, end: u64) -> u64 {
    if counted(start, end) == 0 { 1 } else { end.div_ceil(CHUNK_PAGES) - start / CHUNK_PAGES }
}

/// Page and offset within it.
#[inline]
fn locate(offset: u64) -> (u64, usize) {
    (offset >> PAGE_SHIFT, offset as usize % PAGE_SIZE)
}

/// A range of bytes that a file can have.
fn checked_range(offset: u64, len: u64) -> Result<Range<u64>> {
    if len == 0 {
        return Err(Errno::EINVAL);
    }
    let end = offset.checked_add(len).filter(|&end| end <= MAX_FILE_SIZE).ok_or(Errno::EFBIG)?;
    Ok(offset..end)
}

/// Pages under a slot of this height.
#[inline]
fn span(height: u32) -> u64 {
    1 << (FANOUT_SHIFT * height)
}

const _: () =
    assert!((MAX_FILE_SIZE >> PAGE_SHIFT) < 1 << (FANOUT_SHIFT * 9), "at most nine levels: span() fits");

/// Which child of a node holds a page; `height` is the child's.
#[inline]
fn child(index: u64, height: u32) -> usize {
    (index >> (FANOUT_SHIFT * height)) as usize % FANOUT
}

/// A page with `data` at `start` and zeros around it.
fn new_page(start: usize, data: &[u8]) -> Result<Page> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(PAGE_SIZE).map_err(|_| Errno::ENOSPC)?;
    bytes.resize(start, 0);
    bytes.extend_from_slice(data);
    bytes.resize(PAGE_SIZE, 0);
    bytes.into_boxed_slice().try_into().map_err(|_| Errno::ENOSPC)
}

/// A node without children.
fn new_node() -> Result<Box<[Slot; FANOUT]>> {
    let mut slots = Vec::new();
    slots.try_reserve_exact(FANOUT).map_err(|_| Errno::ENOSPC)?;
    slots.resize_with(FANOUT, Slot::default);
    slots.into_boxed_slice().try_into().map_err(|_| Errno::ENOSPC)
}

/// The children of a node at `height` that overlap a range of pages, each with its first page; `base` is the node's.
fn overlapping(height: u32, base: u64, pages: &Range<u64>) -> impl Iterator<Item = (usize, u64)> + use<> {
    let width = span(height - 1);
    let first = pages.start.saturating_sub(base) / width;
    let end = pages.end.saturating_sub(base).div_ceil(width).min(FANOUT as u64);
    (first..end).map(move |i| (i as usize, base + i * width))
}

/// Allocated pages in a range.
fn count_allocated(slot: &Slot, height: u32, base: u64, pages: &Range<u64>) -> u64 {
    match slot {
        Slot::Hole => 0,
        Slot::Reserved | Slot::Zeroed | Slot::Data(_) => u64::from(pages.contains(&base)),
        Slot::Node(node) => overlapping(height, base, pages)
            .map(|(i, child_base)| count_allocated(&node[i], height - 1, child_base, pages))
            .sum(),
    }
}

/// Frees the pages in a range, and the nodes that then have no page; returns how many pages.
fn remove(slot: &mut Slot, height: u32, base: u64, pages: &Range<u64>) -> u64 {
    match slot {
        Slot::Hole => 0,
        Slot::Reserved | Slot::Zeroed | Slot::Data(_) => {
            let inside = pages.contains(&base);
            if inside {
                *slot = Slot::Hole;
            }
            u64::from(inside)
        }
        Slot::Node(node) => {
            let mut freed = 0;
            for (i, child_base) in overlapping(height, base, pages) {
                freed += remove(&mut node[i], height - 1, child_base, pages);
            }
            if freed > 0 && node.iter().all(|slot| matches!(slot, Slot::Hole)) {
                *slot = Slot::Hole;
            }
            freed
        }
    }
}

/// Shows the allocated pages in a range.
fn show_pages(
    slot: &Slot,
    height: u32,
    base: u64,
    pages: &Range<u64>,
    show: &mut impl FnMut(u64, PageState<'_>),
) {
    let state = match slot {
        Slot::Hole => return,
        Slot::Reserved => PageState::Reserved,
        Slot::Zeroed => PageState::Zeroed,
        Slot::Data(page) => PageState::Data(page),
        Slot::Node(node) => {
            for (i, child_base) in overlapping(height, base, pages) {
                show_pages(&node[i], height - 1, child_base, pages, show);
            }
            return;
        }
    };
    if pages.contains(&base) {
        show(base, state);
    }
}

/// What [`next`] looks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Find {
    /// A page with contents.
    Data,
    /// A page without: missing or only reserved.
    Hole,
}

/// The first page from `from` on, under this slot, that is what we look for.
fn next(slot: &Slot, height: u32, base: u64, from: u64, find: Find) -> Option<u64> {
    if from >= base + span(height) {
        return None;
    }
    match slot {
        Slot::Hole | Slot::Reserved => (find == Find::Hole).then_some(from.max(base)),
        Slot::Zeroed | Slot::Data(_) => (find == Find::Data).then_some(base),
        Slot::Node(node) => overlapping(height, base, &(from..base + span(height)))
            .find_map(|(i, child_base)| next(&node[i], height - 1, child_base, from, find)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perm::acl::tests::XorShift;

    const P: u64 = PAGE_SIZE as u64;

    #[derive(Clone, Copy, PartialEq)]
    enum State {
        Hole,
        Reserved,
        Data,
    }

    /// The naive version: all bytes in a row, and a state per page.
    struct Model {
        bytes: Vec<u8>,
        size: usize,
        states: Vec<State>,
    }

    impl Model {
        const PAGES: usize = 200;

        fn new() -> Model {
            let bytes = vec![0; Model::PAGES * PAGE_SIZE];
            Model { bytes, size: 0, states: vec![State::Hole; Model::PAGES] }
        }

        fn used(&self) -> u64 {
            self.states.iter().filter(|&&state| state != State::Hole).count() as u64
        }

        fn write(&mut self, limit: u64, offset: usize, data: &[u8]) -> Result<usize> {
            let mut done = 0;
            for (i, &byte) in data.iter().enumerate() {
                let page = (offset + i) / PAGE_SIZE;
                if self.states[page] == State::Hole && self.used() == limit {
                    break;
                }
                self.states[page] = State::Data;
                self.bytes[offset + i] = byte;
                done = i + 1;
            }
            if done > 0 {
                self.size = self.size.max(offset + done);
            }
            if done == 0 && !data.is_empty() { Err(Errno::ENOSPC) } else { Ok(done) }
        }

        fn punch(&mut self, range: Range<usize>) {
            self.bytes[range.clone()].fill(0);
            for page in 0..Model::PAGES {
                if page * PAGE_SIZE >= range.start && (page + 1) * PAGE_SIZE <= range.end {
                    self.states[page] = State::Hole;
                }
            }
        }

        fn truncate(&mut self, size: usize) {
            if size <= self.size {
                self.punch(size..Model::PAGES * PAGE_SIZE);
            }
            self.size = size;
        }

        fn fallocate(&mut self, limit: u64, range: Range<usize>, keep_size: bool) -> Result<()> {
            let pages = range.start / PAGE_SIZE..range.end.div_ceil(PAGE_SIZE);
            let missing = pages.clone().filter(|&page| self.states[page] == State::Hole).count() as u64;
            if self.used() + missing > limit {
                return Err(Errno::ENOSPC);
            }
            for state in &mut self.states[pages] {
                *state = match *state {
                    State::Hole => State::Reserved,
                    State::Reserved | State::Data => State::Data,
                };
            }
            if !keep_size {
                self.size = self.size.max(range.end);
            }
            Ok(())
        }

        fn seek(&self, offset: usize, data: bool) -> Result<i64> {
            let is_data = |o: usize| self.states[o / PAGE_SIZE] == State::Data;
            if offset >= self.size {
                return Err(Errno::ENXIO);
            }
            match (offset..self.size).find(|&o| is_data(o) == data) {
                Some(found) => Ok(found as i64),
                None if data => Err(Errno::ENXIO),
                None => Ok(self.size as i64),
            }
        }
    }

    fn check(data: &FileData, model: &Model, budget: &PageBudget, rng: &mut XorShift) {
        assert_eq!(data.size(), model.size as u64);
        assert_eq!(data.pages(), model.used());
        assert_eq!(budget.used(), model.used());
        let start = rng.below(model.size as u32 + 10) as usize;
        let mut buf = vec![0xee; rng.below(3 * PAGE_SIZE as u32) as usize];
        let n = data.read_at(start as u64, &mut buf);
        assert_eq!(n, buf.len().min(model.size.saturating_sub(start)));
        assert_eq!(buf[..n], model.bytes[start..start + n]);
        assert_eq!(data.seek_data(start as i64), model.seek(start, true));
        assert_eq!(data.seek_hole(start as i64), model.seek(start, false));
    }

    #[test]
    fn random_operations_agree_with_the_model() {
        for (seed, limit) in [(1, 1000), (2, 40), (3, 7), (4, 0), (5, 100)] {
            let mut rng = XorShift(seed * 0x9e37_79b9_7f4a);
            let budget = PageBudget::new(limit);
            let (mut data, mut model) = (FileData::new(), Model::new());
            let max = (Model::PAGES * PAGE_SIZE) as u64;
            for _ in 0..2000 {
                let aligned = if rng.below(4) == 0 { P - 1 } else { 0 };
                let offset = u64::from(rng.below(max as u32)) & !aligned;
                let len = u64::from(1 + rng.below(4 * PAGE_SIZE as u32)).min(max - offset);
                let (o, l) = (offset as usize, len as usize);
                match rng.below(10) {
                    0..4 => {
                        let bytes: Vec<u8> = (0..l).map(|_| rng.below(256) as u8).collect();
                        assert_eq!(data.write_at(&budget, offset, &bytes), model.write(limit, o, &bytes));
                    }
                    4 => {
                        let size =
                            if rng.below(2) == 0 { offset } else { data.size() + u64::from(rng.below(2)) };
                        data.truncate(&budget, size.min(max)).unwrap();
                        model.truncate(size.min(max) as usize);
                    }
                    5..8 => {
                        data.punch_hole(&budget, offset, len).unwrap();
                        model.punch(o..o + l);
                    }
                    _ => {
                        let keep = rng.below(2) == 0;
                        let got = data.fallocate(&budget, offset, len, keep);
                        assert_eq!(got, model.fallocate(limit, o..o + l, keep));
                    }
                }
                check(&data, &model, &budget, &mut rng);
            }
            data.clear(&budget);
            assert_eq!((data.size(), data.pages(), budget.used(), data.height), (0, 0, 0, 0));
            assert!(matches!(data.root, Slot::Hole), "no node left");
        }
    }

    /// The same sequence gave these answers on tmpfs.
    #[test]
    fn seeks_as_tmpfs_answers() {
        let budget = PageBudget::new(u64::MAX);
        let mut data = FileData::new();
        let seeks = |data: &FileData, at: i64| (data.seek_data(at), data.seek_hole(at));
        assert_eq!(seeks(&data, 0), (Err(Errno::ENXIO), Err(Errno::ENXIO)));
        assert_eq!(data.seek_data(-1), Err(Errno::ENXIO));
        data.fallocate(&budget, 0, 20_000, false).unwrap();
        assert_eq!((data.size(), data.pages()), (20_000, 5));
        assert_eq!(seeks(&data, 0), (Err(Errno::ENXIO), Ok(0)), "reserved pages are holes");
        data.write_at(&budget, 5000, b"x").unwrap();
        assert_eq!(seeks(&data, 0), (Ok(4096), Ok(0)));
        assert_eq!(seeks(&data, 5000), (Ok(5000), Ok(8192)));
        assert_eq!(seeks(&data, 19_999), (Err(Errno::ENXIO), Ok(19_999)));
        assert_eq!(seeks(&data, 20_000), (Err(Errno::ENXIO), Err(Errno::ENXIO)));
        data.punch_hole(&budget, 4096, 100).unwrap();
        assert_eq!((data.pages(), data.seek_data(0)), (5, Ok(4096)), "no whole page");
        data.punch_hole(&budget, 4000, 5000).unwrap();
        assert_eq!((data.pages(), data.seek_data(0)), (4, Err(Errno::ENXIO)));
        data.truncate(&budget, 0).unwrap();
        data.truncate(&budget, 3 * P + 10).unwrap();
        data.write_at(&budget, 2 * P, b"y").unwrap();
        assert_eq!(seeks(&data, 2 * P as i64), (Ok(8192), Ok(12_288)));
        data.write_at(&budget, 3 * P, b"z").unwrap();
        assert_eq!(data.seek_hole(2 * P as i64), Ok(12_298), "the end is a hole");
        data.fallocate(&budget, 100_000, 5000, true).unwrap();
        assert_eq!((data.size(), data.pages()), (12_298, 4));
        data.truncate(&budget, 12_298).unwrap();
        assert_eq!(data.pages(), 2, "truncation to the same size frees what lies beyond");
    }

    #[test]
    fn growing_shows_zeros_not_what_was_cut_off() {
        let budget = PageBudget::new(10);
        let mut data = FileData::new();
        data.write_at(&budget, 0, &[b'q'; 100]).unwrap();
        data.truncate(&budget, 50).unwrap();
        data.truncate(&budget, 100).unwrap();
        let mut buf = [1; 10];
        assert_eq!(data.read_at(45, &mut buf), 10);
        assert_eq!(&buf, b"qqqqq\0\0\0\0\0");
    }

    #[test]
    fn far_ends_of_the_largest_file() {
        let budget = PageBudget::new(5);
        let mut data = FileData::new();
        assert_eq!(data.truncate(&budget, MAX_FILE_SIZE + 1), Err(Errno::EFBIG));
        data.truncate(&budget, MAX_FILE_SIZE).unwrap();
        assert_eq!(data.seek_hole(i64::MAX - 1), Ok(i64::MAX - 1));
        data.write_at(&budget, 0, b"start").unwrap();
        assert_eq!(data.write_at(&budget, MAX_FILE_SIZE - 3, b"end"), Ok(3));
        assert_eq!(data.write_at(&budget, MAX_FILE_SIZE - 3, b"end!"), Err(Errno::EINVAL));
        assert_eq!(data.write_at(&budget, MAX_FILE_SIZE, b""), Ok(0));
        assert_eq!(data.height, 9);
        assert_eq!(data.seek_data(4096), Ok((MAX_FILE_SIZE - (P - 1)) as i64));
        assert_eq!(data.seek_hole((MAX_FILE_SIZE - 3) as i64), Ok(i64::MAX));
        let mut buf = [0; 8];
        assert_eq!(data.read_at(MAX_FILE_SIZE - 3, &mut buf), 3);
        assert_eq!(&buf[..3], b"end");
        assert_eq!(data.read_at(u64::MAX, &mut buf), 0);
        assert_eq!(data.fallocate(&budget, MAX_FILE_SIZE, 1, false), Err(Errno::EFBIG));
        assert_eq!(data.fallocate(&budget, 0, 0, false), Err(Errno::EINVAL));
        assert_eq!(data.punch_hole(&budget, u64::MAX, 1), Err(Errno::EFBIG));
        data.truncate(&budget, 2).unwrap();
        assert_eq!((data.height, data.pages(), budget.used()), (0, 1, 1), "shallow again");
    }

    #[test]
    fn failing_writes_leave_nothing_behind() {
        let budget = PageBudget::new(1);
        let mut data = FileData::new();
        data.write_at(&budget, 0, b"x").unwrap();
        for shift in 12..60 {
            assert_eq!(data.write_at(&budget, 1 << shift, b"y"), Err(Errno::ENOSPC));
        }
        assert_eq!((data.height, data.size()), (0, 1));
        assert_eq!(data.write_at(&budget, P - 1, b"ab"), Ok(1), "short, then nothing");
        assert_eq!(data.write_at(&budget, P, b"b"), Err(Errno::ENOSPC));
        assert_eq!(data.fallocate(&budget, 0, P + 1, false), Err(Errno::ENOSPC));
        data.fallocate(&budget, 0, P, false).unwrap();
    }
}
