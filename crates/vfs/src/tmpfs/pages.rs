//! The contents of a regular file, as tmpfs keeps them: pages that exist, and holes.
//!
//! [`FileData`] is a radix tree of pages of 4096 bytes, 64 children to a node, no deeper than the file needs: a page is
//! found in one step per 64-fold of size (three for a gigabyte). It knows four kinds of place: a hole; a page with
//! contents; a page that fallocate(2) *reserved*, which counts as allocated, reads as zeros and is a hole to
//! `SEEK_DATA` until it is written, or reserved once more; and a page of zeros that counts as written. All but the second
//! take no memory of their own and may be as wide as a level of the tree, so that 64 TiB are reserved at once.
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
use std::sync::Arc;

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

/// How many pages the files of one filesystem may have together, and the memory that all filesystems share.
#[derive(Debug)]
pub(crate) struct PageBudget {
    pages: Budget,
    memory: Option<Arc<Budget>>,
}

impl PageBudget {
    /// A budget of `limit` pages; `u64::MAX` is as good as none.
    pub(crate) fn new(limit: u64) -> PageBudget {
        PageBudget { pages: Budget::new(limit), memory: None }
    }

    /// The same, whose pages and the nodes above them count as memory too, allocated or not: what was reserved can be written.
    pub(crate) fn counted(self, memory: Option<Arc<Budget>>) -> PageBudget {
        PageBudget { memory, ..self }
    }

    /// The most pages that may exist.
    pub(crate) fn limit(&self) -> u64 {
        self.pages.limit()
    }

    /// Pages that exist.
    pub(crate) fn used(&self) -> u64 {
        self.pages.used()
    }

    /// Sets the most pages that may exist, unless there are more.
    pub(crate) fn set_limit(&self, pages: u64) -> bool {
        self.pages.set_limit(pages)
    }

    /// Takes `pages` or none.
    fn charge(&self, pages: u64) -> Result<()> {
        if !self.pages.charge(pages) {
            return Err(Errno::ENOSPC);
        }
        self.charge_memory(pages, PAGE_SIZE).inspect_err(|_| self.pages.release(pages))
    }

    fn release(&self, pages: u64) {
        self.pages.release(pages);
        self.release_memory(pages, PAGE_SIZE);
    }

    /// Takes memory alone.
    pub(crate) fn charge_memory(&self, count: u64, size: usize) -> Result<()> {
        match &self.memory {
            Some(memory) if !memory.charge(count.saturating_mul(size as u64)) => Err(Errno::ENOMEM),
            _ => Ok(()),
        }
    }

    pub(crate) fn release_memory(&self, count: u64, size: usize) {
        self.memory.iter().for_each(|memory| memory.release(count * size as u64));
    }
}

type Page = Box<[u8; PAGE_SIZE]>;

/// A place in the tree.
#[derive(Debug, Default)]
enum Slot {
    /// A hole of whatever size the level has.
    #[default]
    Hole,
    /// Allocated, never written; of whatever size the level has.
    Reserved,
    /// Contents, all zero; of whatever size the level has.
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
    /// Nodes of the tree, and those that the budget knows of.
    nodes: u64,
    paid: u64,
    root: Slot,
    /// Levels of nodes above the pages.
    height: u32,
    /// Which pages changed, if anybody wants to know.
    changed: Option<Box<Changed>>,
}

impl FileData {
    /// An empty file.
    pub(crate) const fn new() -> FileData {
        FileData { size: 0, pages: 0, nodes: 0, paid: 0, root: Slot::Hole, height: 0, changed: None }
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
    #[inline]
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
    #[inline]
    fn write_page(&mut self, budget: &PageBudget, index: u64, start: usize, data: &[u8]) -> Result<()> {
        if let Some(Slot::Data(page)) = self.find_mut(index) {
            page[start..start + data.len()].copy_from_slice(data);
            return Ok(());
        }
        let reserved = matches!(self.find(index), Slot::Reserved | Slot::Zeroed);
        // Page and budget come first: a write that fails for want of them must not leave nodes behind, or failing writes
        // could use up memory that nobody counts.
        let page = new_page(start, data)?;
        let charged = if reserved { 0 } else { 1 };
        budget.charge(charged)?;
        let made = self.make(index).map(|slot| *slot = Slot::Data(page));
        // What was reserved has paid for the nodes that come of it.
        let paid = self.pay(budget).or_else(|errno| if reserved { Ok(()) } else { Err(errno) });
        if let Err(errno) = made.and(paid) {
            budget.release(charged);
            if !reserved {
                remove(&mut self.root, self.height, 0, &(index..index + 1), &mut self.nodes);
            }
            self.shrink();
            let _ = self.pay(budget);
            return Err(errno);
        }
        self.pages += charged;
        Ok(())
    }

    /// Has the budget know how many nodes there are.
    fn pay(&mut self, budget: &PageBudget) -> Result<()> {
        if self.nodes > self.paid {
            budget.charge_memory(self.nodes - self.paid, size_of::<[Slot; FANOUT]>())?;
        } else {
            budget.release_memory(self.paid - self.nodes, size_of::<[Slot; FANOUT]>());
        }
        self.paid = self.nodes;
        Ok(())
    }

    /// Sets the size. Pages beyond it are freed and the rest of the last page is zeroed; growing makes a hole, but keeps
    /// pages that fallocate put there.
    ///
    /// # Errors
    ///
    /// `EFBIG` beyond [`MAX_FILE_SIZE`]. `ENOSPC`: no memory to cut a wide reservation in two.
    pub(crate) fn truncate(&mut self, budget: &PageBudget, size: u64) -> Result<()> {
        if size > MAX_FILE_SIZE {
            return Err(Errno::EFBIG);
        }
        if size <= self.size {
            self.drop_bytes(budget, size..u64::MAX)?;
        }
        self.size = size;
        Ok(())
    }

    /// Frees every page and sets the size to zero.
    pub(crate) fn clear(&mut self, budget: &PageBudget) {
        budget.release(self.pages);
        *self = FileData { changed: self.changed.take(), paid: self.paid, ..FileData::new() };
        let _ = self.pay(budget);
        self.mark(0..u64::MAX.div_ceil(PAGE_SIZE as u64));
    }

    /// Makes the bytes from `offset` on, `len` of them, a hole as far as whole pages go, and zeroes the rest. The size
    /// stays. Kernel: `FALLOC_FL_PUNCH_HOLE` of `shmem_fallocate()`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: `len` is 0. `EFBIG`: ends beyond [`MAX_FILE_SIZE`]. `ENOSPC`: as [`truncate`](Self::truncate).
    pub(crate) fn punch_hole(&mut self, budget: &PageBudget, offset: u64, len: u64) -> Result<()> {
        let range = checked_range(offset, len)?;
        self.drop_bytes(budget, range)
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
        self.fill(budget, &pages, Fill::Reserve)?;
        if !keep_size {
            self.size = self.size.max(range.end);
        }
        Ok(())
    }

    /// Writes zeros at `offset`, `len` bytes at most, which end within [`MAX_FILE_SIZE`]; returns how many: whole pages, which count
    /// as written and take no memory, or a part of the first.
    ///
    /// # Errors
    ///
    /// As [`write_at`](Self::write_at).
    pub(crate) fn write_zeros_at(&mut self, budget: &PageBudget, offset: u64, len: u64) -> Result<u64> {
        const ZEROS: [u8; PAGE_SIZE] = [0; PAGE_SIZE];
        let (first, start) = locate(offset);
        let whole = first..(offset + len) >> PAGE_SHIFT;
        // If the space does not suffice for all of it, a page is tried, and then the next.
        if start == 0 && !whole.is_empty() && self.fill(budget, &whole, Fill::Zero).is_ok() {
            self.size = self.size.max(whole.end << PAGE_SHIFT);
            return Ok((whole.end - whole.start) << PAGE_SHIFT);
        }
        let part = len.min((PAGE_SIZE - start) as u64) as usize;
        self.write_at(budget, offset, &ZEROS[..part]).map(|n| n as u64)
    }

    /// How many bytes from `offset` on are zeros that take no memory.
    pub(crate) fn zeros_at(&self, offset: u64) -> u64 {
        let page = next(&self.root, self.height, 0, offset >> PAGE_SHIFT, Find::Bytes);
        page.map_or(u64::MAX, |page| page << PAGE_SHIFT).saturating_sub(offset)
    }

    /// Changes a range of pages, all or none.
    fn fill(&mut self, budget: &PageBudget, pages: &Range<u64>, how: Fill) -> Result<()> {
        let missing = pages.end - pages.start - count_allocated(&self.root, self.height, 0, pages);
        budget.charge(missing)?;
        let ready = self.reach(pages.end - 1).and_then(|()| self.part(pages, true));
        if let Err(errno) = ready {
            budget.release(missing);
            return Err(errno);
        }
        fill(&mut self.root, self.height, 0, pages, how, &mut self.nodes);
        self.pages += missing;
        // Pages that take no memory have paid for nodes.
        let _ = self.pay(budget);
        self.mark(pages.clone());
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
    fn drop_bytes(&mut self, budget: &PageBudget, range: Range<u64>) -> Result<()> {
        let whole = range.start.div_ceil(PAGE_SIZE as u64)..range.end >> PAGE_SHIFT;
        self.part(&whole, false)?;
        self.mark(range.start >> PAGE_SHIFT..range.end.div_ceil(PAGE_SIZE as u64));
        let (first, head) = locate(range.start);
        let (last, tail) = locate(range.end);
        if first == last {
            self.zero(first, head..tail);
            return Ok(());
        }
        if head > 0 {
            self.zero(first, head..PAGE_SIZE);
        }
        self.zero(last, 0..tail);
        let freed = remove(&mut self.root, self.height, 0, &whole, &mut self.nodes);
        self.pages -= freed;
        budget.release(freed);
        self.shrink();
        let _ = self.pay(budget);
        Ok(())
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
        self.reach(index)?;
        let (mut slot, mut height) = (&mut self.root, self.height);
        while height > 0 {
            height -= 1;
            slot = &mut node_of(slot, &mut self.nodes)?[child(index, height)];
        }
        Ok(slot)
    }

    /// Adds levels until there is a place for a page.
    fn reach(&mut self, index: u64) -> Result<()> {
        while index >= span(self.height) {
            if !matches!(self.root, Slot::Hole) {
                let mut node = new_node(&Slot::Hole)?;
                node[0] = std::mem::take(&mut self.root);
                self.root = Slot::Node(node);
                self.nodes += 1;
            }
            self.height += 1;
        }
        Ok(())
    }

    /// Sees to it that every place lies in a range of pages or outside of it, so that a change of the range takes no memory. Holes
    /// too, if they are to be filled.
    fn part(&mut self, pages: &Range<u64>, holes: bool) -> Result<()> {
        for at in [pages.start, pages.end] {
            let (mut slot, mut height, mut base) = (&mut self.root, self.height, 0);
            // A place that ends or begins there needs no parting.
            while at > base && at - base < span(height) && (holes || !matches!(slot, Slot::Hole)) {
                height -= 1;
                let i = child(at - base, height);
                base += i as u64 * span(height);
                slot = &mut node_of(slot, &mut self.nodes)?[i];
            }
        }
        Ok(())
    }

    /// Takes away levels that only a larger file needs.
    fn shrink(&mut self) {
        while self.height > 0 {
            match &mut self.root {
                Slot::Hole => self.height = 0,
                Slot::Node(node) if node[1..].iter().all(|slot| matches!(slot, Slot::Hole)) => {
                    self.root = std::mem::take(&mut node[0]);
                    self.height -= 1;
                    self.nodes -= 1;
                }
                _ => return,
            }
        }
    }
}

/// What becomes of a range of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fill {
    /// They are allocated.
    Reserve,
    /// They are zeros, as if written.
    Zero,
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

/// A node that says of each of its parts what `all` says of the whole.
fn new_node(all: &Slot) -> Result<Box<[Slot; FANOUT]>> {
    let mut slots = Vec::new();
    slots.try_reserve_exact(FANOUT).map_err(|_| Errno::ENOSPC)?;
    slots.resize_with(FANOUT, || match all {
        Slot::Reserved => Slot::Reserved,
        Slot::Zeroed => Slot::Zeroed,
        _ => Slot::Hole,
    });
    slots.into_boxed_slice().try_into().map_err(|_| Errno::ENOSPC)
}

/// The node in a slot above the pages, made of what the slot says of all of them.
fn node_of<'s>(slot: &'s mut Slot, nodes: &mut u64) -> Result<&'s mut [Slot; FANOUT]> {
    if !matches!(slot, Slot::Node(_)) {
        *slot = Slot::Node(new_node(slot)?);
        *nodes += 1;
    }
    match slot {
        Slot::Node(node) => Ok(node),
        _ => unreachable!("made just now"),
    }
}

/// Changes the pages in a range, which has been [parted](FileData::part) from others.
fn fill(slot: &mut Slot, height: u32, base: u64, pages: &Range<u64>, how: Fill, nodes: &mut u64) {
    let inside = pages.start <= base && base + span(height) <= pages.end;
    match (&mut *slot, how) {
        (Slot::Node(node), _) if !inside || how == Fill::Reserve => {
            for (i, child_base) in overlapping(height, base, pages) {
                fill(&mut node[i], height - 1, child_base, pages, how, nodes);
            }
        }
        _ if !inside => {}
        (_, Fill::Zero) => {
            remove(slot, height, base, pages, nodes);
            *slot = Slot::Zeroed;
        }
        (Slot::Hole, Fill::Reserve) => *slot = Slot::Reserved,
        // Asked for once more, it counts as written. Kernel: `SGP_FALLOC` of a folio that is not up to date.
        (Slot::Reserved, Fill::Reserve) => *slot = Slot::Zeroed,
        (_, Fill::Reserve) => {}
    }
}

/// How many of the pages under a slot are in a range.
fn shared(height: u32, base: u64, pages: &Range<u64>) -> u64 {
    (base + span(height)).min(pages.end).saturating_sub(base.max(pages.start))
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
        Slot::Reserved | Slot::Zeroed | Slot::Data(_) => shared(height, base, pages),
        Slot::Node(node) => overlapping(height, base, pages)
            .map(|(i, child_base)| count_allocated(&node[i], height - 1, child_base, pages))
            .sum(),
    }
}

/// Frees the pages in a range, which has been [parted](FileData::part) from others, and the nodes that then have no page; returns
/// how many pages.
fn remove(slot: &mut Slot, height: u32, base: u64, pages: &Range<u64>, nodes: &mut u64) -> u64 {
    match slot {
        Slot::Hole => 0,
        Slot::Reserved | Slot::Zeroed | Slot::Data(_) => {
            let inside = shared(height, base, pages);
            if inside > 0 {
                *slot = Slot::Hole;
            }
            inside
        }
        Slot::Node(node) => {
            let mut freed = 0;
            for (i, child_base) in overlapping(height, base, pages) {
                freed += remove(&mut node[i], height - 1, child_base, pages, nodes);
            }
            if node.iter().all(|slot| matches!(slot, Slot::Hole)) {
                *slot = Slot::Hole;
                *nodes -= 1;
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
    for page in base.max(pages.start)..(base + span(height)).min(pages.end) {
        show(page, state);
    }
}

/// What [`next`] looks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Find {
    /// A page with contents.
    Data,
    /// A page without: missing or only reserved.
    Hole,
    /// A page that takes memory.
    Bytes,
}

/// The first page from `from` on, under this slot, that is what we look for.
fn next(slot: &Slot, height: u32, base: u64, from: u64, find: Find) -> Option<u64> {
    if from >= base + span(height) {
        return None;
    }
    match slot {
        Slot::Hole | Slot::Reserved => (find == Find::Hole).then_some(from.max(base)),
        Slot::Zeroed => (find == Find::Data).then_some(from.max(base)),
        Slot::Data(_) => (find != Find::Hole).then_some(base),
        Slot::Node(node) => overlapping(height, base, &(from..base + span(height)))
            .find_map(|(i, child_base)| next(&node[i], height - 1, child_base, from, find)),
    }
}

#[cfg(test)]
mod tests;
