//! S7: statx in one copy.

use std::ffi::CStr;
use std::sync::atomic::AtomicU8;
use std::sync::{Mutex, PoisonError};

use rcuwalk::syscall::{SliceMemory, UserMemory, nr};
use rcuwalk::uapi::{AT_EMPTY_PATH, O_RDONLY, STATX_BASIC_STATS, Statx};
use rcuwalk::{Task, Variants, WalkMode};

use super::{Budget, Outcome, Row, Workload, side, world};
use rcuwalk_measure::Error;
use rcuwalk_measure::engines::Value;

use crate::sys::OwnCells;

/// The row.
pub(super) const ROW: Row = Row {
    id: "S7",
    title: "statx in one copy",
    published: "10 million calls: fstat 1.464 s; statx 5.530 s by fields to 1.573 s in one copy, from 3.8 to 1.07 times \
                fstat (linux-fsdevel, \"statx: optimize copy of struct statx to userspace\")",
    run,
};

/// Where the memory of the caller lies.
const NAME: u64 = 0x1000;
const BUFFER: u64 = 0x2000;

/// A process with a file open, and the memory it passes addresses of.
struct Caller<M> {
    task: Task,
    memory: M,
    name: u64,
    buffer: u64,
    fd: u64,
}

impl<M: UserMemory> Caller<M> {
    fn new(variants: Variants, memory: M, name: u64, buffer: u64) -> Result<Mutex<Caller<M>>, Error> {
        let task = world::tree(WalkMode::Direct, variants)?.task(world::user());
        let fd = world::made(world::FAVOURITE, task.open(world::FAVOURITE.as_bytes(), O_RDONLY, 0))?;
        Ok(Mutex::new(Caller { task, memory, name, buffer, fd: fd as u64 }))
    }

    /// statx(2) of the open file, with no path, as in the thread.
    fn statx(&mut self) -> i64 {
        self.statx_named(0)
    }

    /// The same with an empty path.
    fn statx_empty(&mut self) -> i64 {
        self.statx_named(self.name)
    }

    fn statx_named(&mut self, name: u64) -> i64 {
        let args = [self.fd, name, AT_EMPTY_PATH as u64, u64::from(STATX_BASIC_STATS), self.buffer, 0];
        self.task.syscall(&mut self.memory, nr::STATX, args)
    }

    /// fstat(2) of it.
    fn fstat(&mut self) -> i64 {
        self.task.syscall(&mut self.memory, nr::FSTAT, [self.fd, self.buffer, 0, 0, 0, 0])
    }

    /// What was stored in the words at `at`, read at once.
    fn stored(&mut self, [first, last]: [u64; 2]) -> Value {
        let mut bytes = [0; 48];
        let bytes = &mut bytes[..(last - first) as usize + 8];
        if self.memory.copy_from_user(bytes, self.buffer + first).is_err() {
            return Value::MAX;
        }
        let word = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |word| u64::from_le_bytes(*word));
        word(bytes.first_chunk()).wrapping_mul(3).wrapping_add(word(bytes.last_chunk()))
    }
}

/// Offsets of inode number and size in `struct statx` and `struct stat`.
const STATX_WORDS: [u64; 2] = [32, 40];
const STAT_WORDS: [u64; 2] = [8, 48];

fn call<M: UserMemory>(
    caller: &Mutex<Caller<M>>,
    call: impl Fn(&mut Caller<M>) -> i64,
    words: [u64; 2],
) -> Value {
    let mut caller = caller.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = call(&mut caller);
    caller.stored(words).wrapping_add(answer as u64)
}

fn run(budget: &Budget<'_>) -> Result<Outcome, Error> {
    let by_fields = Variants { field_by_field: true, ..Variants::default() };
    let mut bytes = [[0_u8; 2], [0; 2]];
    let mut buffers = [[0_u8; Statx::SIZE]; 2];
    let [name_a, name_b] = &mut bytes;
    let [buffer_a, buffer_b] = &mut buffers;
    let memory_a = SliceMemory::new(NAME, name_a).with(BUFFER, buffer_a);
    let memory_b = SliceMemory::new(NAME, name_b).with(BUFFER, buffer_b);
    let before = Caller::new(by_fields, memory_a, NAME, BUFFER)?;
    let after = Caller::new(Variants::default(), memory_b, NAME, BUFFER)?;
    let statx = |caller: &Mutex<Caller<SliceMemory<'_>>>| call(caller, Caller::statx, STATX_WORDS);
    let fields = side("field-by-field", |_: &CStr| statx(&before));
    let once = side("one copy", |_: &CStr| statx(&after));
    let fstat = side("fstat", |_: &CStr| call(&after, Caller::fstat, STAT_WORDS));
    let list = || vec![world::path("-")];
    let mut points = budget.compare(
        Workload::new("statx of an open file, a slice", list()).claims(1.2),
        &[&fields],
        &once,
    )?;
    let beside = Workload::new("fstat beside statx in one copy, a slice", list()).claims(1.0 / 1.1);
    points.extend(budget.compare(beside, &[&fstat], &once)?);
    let empty = side("one copy", |_: &CStr| call(&after, Caller::statx_empty, STATX_WORDS));
    let beside = Workload::new("the same, statx with an empty path", list());
    points.extend(budget.compare(beside, &[&fstat], &empty)?);

    // Cells: they are written behind the compiler's back.
    let (name, buffer) = ([const { AtomicU8::new(0) }; 2], [const { AtomicU8::new(0) }; Statx::SIZE]);
    let (name_at, buffer_at) = (name.as_ptr() as u64, buffer.as_ptr() as u64);
    let own = || OwnCells::new(&[&name, &buffer]);
    let before = Caller::new(by_fields, own(), name_at, buffer_at)?;
    let after = Caller::new(Variants::default(), own(), name_at, buffer_at)?;
    let statx = |caller: &Mutex<Caller<OwnCells<'_>>>| call(caller, Caller::statx, STATX_WORDS);
    let fields = side("field-by-field", |_: &CStr| statx(&before));
    let once = side("one copy", |_: &CStr| statx(&after));
    let fstat = side("fstat", |_: &CStr| call(&after, Caller::fstat, STAT_WORDS));
    let workload = Workload::new("statx of an open file, process_vm_writev", list()).claims(2.0);
    points.extend(budget.compare(workload, &[&fields], &once)?);
    let beside = Workload::new("fstat beside statx in one copy, process_vm_writev", list()).claims(1.0 / 1.1);
    points.extend(budget.compare(beside, &[&fstat], &once)?);
    let note = "A checked store into a slice costs a search for the slice and a bound, not the opening and closing of a \
                window onto user memory, so the gain is smaller than the kernel's; through process_vm_writev each store is \
                a system call. Reading back what was stored, to check it, is part of both sides: another system call there. \
                As in the thread, statx is called without a path; an empty one is a byte to be read first. It has 112 \
                bytes more than fstat to fill and to copy.";
    Ok(Outcome { points, note: note.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory that keeps account of what is stored in it.
    #[derive(Default)]
    struct Counting(Vec<usize>);

    impl UserMemory for Counting {
        fn copy_from_user(&mut self, to: &mut [u8], _: u64) -> rcuwalk::Result<()> {
            to.fill(0);
            Ok(())
        }

        fn copy_to_user(&mut self, _: u64, from: &[u8]) -> rcuwalk::Result<()> {
            self.0.push(from.len());
            Ok(())
        }
    }

    fn stores(variants: Variants, call: fn(&mut Caller<Counting>) -> i64) -> Vec<usize> {
        let caller = Caller::new(variants, Counting::default(), NAME, BUFFER).unwrap();
        let mut caller = caller.into_inner().unwrap();
        assert_eq!(call(&mut caller), 0);
        caller.memory.0
    }

    #[test]
    fn statx_is_one_copy_and_by_fields_many() {
        for call in [Caller::statx, Caller::statx_empty] {
            assert_eq!(stores(Variants::default(), call), [Statx::SIZE]);
            let by_fields = stores(Variants { field_by_field: true, ..Variants::default() }, call);
            // What is to be zero at the end is one field.
            let longer = by_fields.iter().filter(|&&bytes| bytes > 8).count();
            assert!(by_fields.len() > 30 && longer <= 1, "{by_fields:?}");
            assert_eq!(by_fields.iter().sum::<usize>(), Statx::SIZE, "each byte once");
        }
        assert_eq!(stores(Variants::default(), Caller::fstat).len(), 1);
    }
}
