//! What the contents of files do.

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
    assert_eq!(data.nodes, nodes(&data.root), "nodes are counted as they come and go");
    let zeros = data.zeros_at(start as u64).min((model.bytes.len() - start.min(model.bytes.len())) as u64);
    assert!(model.bytes[start.min(model.bytes.len())..][..zeros as usize].iter().all(|&byte| byte == 0));
    assert_eq!(data.seek_data(start as i64), model.seek(start, true));
    assert_eq!(data.seek_hole(start as i64), model.seek(start, false));
}

fn nodes(slot: &Slot) -> u64 {
    match slot {
        Slot::Node(node) => 1 + node.iter().map(nodes).sum::<u64>(),
        _ => 0,
    }
}

#[test]
fn wide_ranges_take_no_memory_and_no_time() {
    let budget = PageBudget::new(u64::MAX);
    let mut data = FileData::new();
    data.fallocate(&budget, 5000, 64 << 40, false).unwrap();
    assert_eq!((data.pages(), data.size()), ((16 << 30) + 1, (64 << 40) + 5000));
    assert!(data.nodes < 20, "{} nodes", data.nodes);
    assert_eq!((data.seek_data(0), data.seek_hole(0)), (Err(Errno::ENXIO), Ok(0)));
    data.write_at(&budget, 1 << 40, b"x").unwrap();
    assert_eq!((data.pages(), data.seek_data(0)), ((16 << 30) + 1, Ok(1 << 40)), "it was reserved");
    assert_eq!((data.zeros_at(1 << 39), data.zeros_at(1 << 40)), (1 << 39, 0));
    data.punch_hole(&budget, P, 1 << 45).unwrap();
    assert_eq!((data.pages(), budget.used()), ((8 << 30) + 1, data.pages()));
    let mut copy = FileData::new();
    assert_eq!(copy.write_zeros_at(&budget, 0, 1 << 50), Ok(1 << 50));
    assert_eq!((copy.pages(), copy.seek_data(12345), copy.nodes), (1 << 38, Ok(12345), 1));
    data.truncate(&budget, 0).unwrap();
    copy.clear(&budget);
    assert_eq!((budget.used(), data.nodes, copy.pages()), (0, 0, 0));
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
                    let size = if rng.below(2) == 0 { offset } else { data.size() + u64::from(rng.below(2)) };
                    data.truncate(&budget, size.min(max)).unwrap();
                    model.truncate(size.min(max) as usize);
                }
                5..8 => {
                    data.punch_hole(&budget, offset, len).unwrap();
                    model.punch(o..o + l);
                }
                8 => {
                    let len = if rng.below(3) == 0 { max - offset } else { len };
                    let mut done = 0;
                    let end = loop {
                        match data.write_zeros_at(&budget, offset + done, len - done) {
                            Ok(n) if done + n < len => done += n,
                            Ok(n) => break Ok((done + n) as usize),
                            Err(errno) if done == 0 => break Err(errno),
                            Err(_) => break Ok(done as usize),
                        }
                    };
                    assert_eq!(end, model.write(limit, o, &vec![0; len as usize]));
                }
                _ => {
                    let (len, l) =
                        if rng.below(3) == 0 { (max - offset, max as usize - o) } else { (len, l) };
                    let keep = rng.below(2) == 0;
                    let got = data.fallocate(&budget, offset, len, keep);
                    assert_eq!(got, model.fallocate(limit, o..o + l, keep));
                }
            }
            check(&data, &model, &budget, &mut rng);
        }
        data.clear(&budget);
        assert_eq!((data.size(), data.pages(), budget.used(), data.height), (0, 0, 0, 0));
        assert_eq!(data.nodes, 0);
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
