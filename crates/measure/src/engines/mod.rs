//! The implementations that are timed side by side.
//!
//! An [`Engine`] answers one call at a time and boils each answer down to a number, so that answers can be summed and
//! the sums compared: an engine that is fast because it does less is found out. A [`Contender`] runs whole batches;
//! the loop is compiled once per engine and operation, with no dispatch inside.

pub mod host;

use std::ffi::{CStr, CString};
use std::hint::black_box;
use std::time::Instant;

/// One timed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// `stat`, following links.
    Stat,
    /// `stat` where each path depends on the answer before it: latency instead of throughput.
    StatChained,
    /// `statx` of the basic fields, following links.
    Statx,
    /// `access(path, R_OK)`.
    Access,
    /// `open(path, O_RDONLY)`, expected to fail.
    OpenFails,
    /// `open(path, O_RDONLY)` and `close`.
    OpenClose,
}

impl Op {
    /// System calls in one operation.
    pub fn calls(self) -> u32 {
        if self == Op::OpenClose { 2 } else { 1 }
    }
}

/// An answer as a number: two engines that agree on inode, size and mode, or on the error, agree on it.
pub type Value = u64;

/// The value of a `stat` or `statx` answer.
#[inline(always)]
pub fn attr_value(ino: u64, size: u64, mode: u32) -> Value {
    ino.wrapping_mul(3).wrapping_add(size).wrapping_add(u64::from(mode) << 40)
}

/// The value of an error.
#[inline(always)]
pub const fn error_value(errno: i32) -> Value {
    1 << 63 | errno as u64
}

/// The value of a call that returns nothing.
#[inline(always)]
pub fn unit_value<E>(result: Result<(), E>, errno: impl FnOnce(E) -> i32) -> Value {
    match result {
        Ok(()) => 1,
        Err(error) => error_value(errno(error)),
    }
}

/// An implementation of the timed calls.
pub trait Engine: Sync {
    /// The name in the `engine` column.
    fn name(&self) -> &'static str;
    /// Called before a batch, and before a single answer: two engines may share a tree that each wants set otherwise.
    fn prepare(&self) {}
    /// `stat`, following links.
    fn stat(&self, path: &CStr) -> Value;
    /// `statx` of the basic fields, following links.
    fn statx(&self, path: &CStr) -> Value;
    /// `access(path, R_OK)`.
    fn access(&self, path: &CStr) -> Value;
    /// `open(path, O_RDONLY)`, then `close` if that succeeded.
    fn open_close(&self, path: &CStr) -> Value;

    /// One operation, untimed.
    fn once(&self, op: Op, path: &CStr) -> Value {
        match op {
            Op::Stat | Op::StatChained => self.stat(path),
            Op::Statx => self.statx(path),
            Op::Access => self.access(path),
            Op::OpenFails | Op::OpenClose => self.open_close(path),
        }
    }
}

/// What a batch took and what it summed up to.
#[derive(Debug, Clone, Copy)]
pub struct Timed {
    /// Nanoseconds.
    pub nanos: u64,
    /// Wrapping sum of the values.
    pub sum: Value,
}

/// Something that can be timed in batches.
pub trait Contender: Sync {
    /// The name in the `engine` column.
    fn name(&self) -> &'static str;
    /// Runs `count` operations over `paths`, cyclically from `start`.
    fn batch(&self, op: Op, paths: &[CString], start: usize, count: usize) -> Timed;
    /// The value of one operation; `None` where there is no answer to check.
    fn answer(&self, op: Op, path: &CStr) -> Option<Value>;
}

impl<E: Engine> Contender for E {
    fn name(&self) -> &'static str {
        Engine::name(self)
    }

    fn batch(&self, op: Op, paths: &[CString], start: usize, count: usize) -> Timed {
        self.prepare();
        match op {
            Op::Stat => each(paths, start, count, |path| self.stat(path)),
            Op::StatChained => chained(paths, start, count, |path| self.stat(path)),
            Op::Statx => each(paths, start, count, |path| self.statx(path)),
            Op::Access => each(paths, start, count, |path| self.access(path)),
            Op::OpenFails | Op::OpenClose => each(paths, start, count, |path| self.open_close(path)),
        }
    }

    fn answer(&self, op: Op, path: &CStr) -> Option<Value> {
        self.prepare();
        Some(self.once(op, path))
    }
}

/// Independent operations: the processor may overlap them, as it does in a program that has other work.
#[inline(always)]
pub fn each<P>(paths: &[P], start: usize, count: usize, call: impl Fn(&P) -> Value) -> Timed {
    let mut at = start;
    let mut sum: Value = 0;
    let clock = Instant::now();
    for _ in 0..count {
        sum = sum.wrapping_add(call(black_box(&paths[at])));
        at += 1;
        if at == paths.len() {
            at = 0;
        }
    }
    let sum = black_box(sum);
    Timed { nanos: nanos_since(clock), sum }
}

/// As [`each`], with the index of the next path computed from the answer (by adding a zero that the compiler cannot
/// see), so that no lookup starts before the one ahead of it is done.
#[inline(always)]
pub(crate) fn chained(paths: &[CString], start: usize, count: usize, call: impl Fn(&CStr) -> Value) -> Timed {
    let zero = black_box(0_usize);
    let mut at = start;
    let mut sum: Value = 0;
    let clock = Instant::now();
    for _ in 0..count {
        let value = call(black_box(&paths[at]));
        sum = sum.wrapping_add(value);
        at += 1 + (value as usize & zero);
        if at >= paths.len() {
            at = 0;
        }
    }
    let sum = black_box(sum);
    Timed { nanos: nanos_since(clock), sum }
}

pub(crate) fn nanos_since(clock: Instant) -> u64 {
    u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
