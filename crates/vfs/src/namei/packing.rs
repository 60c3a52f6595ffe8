//! Results of out-of-line functions, packed into registers.

use super::{Position, Stop, Walk};
use crate::base::errno::Errno;
use crate::dcache::{Meta, Seen};
use crate::kernel::Bail;

/// Four words in two registers. As a structure they would be returned by way of memory: stored one by one and loaded in pairs,
/// which waits until the stores are done.
#[derive(Clone, Copy)]
pub(super) struct Words(u64, u64);

impl Words {
    #[inline(always)]
    fn new([a, b, c, d]: [u32; 4]) -> Words {
        Words(u64::from(a) | u64::from(b) << 32, u64::from(c) | u64::from(d) << 32)
    }

    #[inline(always)]
    fn get(self) -> [u32; 4] {
        [self.0 as u32, (self.0 >> 32) as u32, self.1 as u32, (self.1 >> 32) as u32]
    }
}

/// A [`Walk<Position>`] that an out-of-line function returns.
#[derive(Clone, Copy)]
pub(super) struct Ended(Words);

impl Ended {
    #[inline(always)]
    pub(super) fn of(walk: impl FnOnce() -> Walk<Position>) -> Ended {
        Ended(Words::new(match walk() {
            Ok(Position { mnt, seen }) => [mnt, seen.dentry, seen.seq, seen.meta.0],
            // No mount has number 0.
            Err(Stop::Fail(errno)) => [0, 0, 0, errno.raw() as u32],
            Err(Stop::Retry(bail)) => [0, 1, 0, bail as u32],
        }))
    }

    #[inline(always)]
    pub(super) fn walk(self) -> Walk<Position> {
        match self.0.get() {
            [0, kind, _, why] => Err(Ended::stop(kind, why)),
            [mnt, dentry, seq, meta] => Ok(Position { mnt, seen: Seen { dentry, seq, meta: Meta(meta) } }),
        }
    }

    #[cold]
    fn stop(kind: u32, why: u32) -> Stop {
        match Errno::from_raw(why as i32) {
            Some(errno) if kind == 0 => Stop::Fail(errno),
            _ => Stop::Retry(Bail::ALL[why as usize].0),
        }
    }
}

/// Why `Walker::walk_names` went no further.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Halt {
    /// The next component takes more than looking it up.
    Undecided,
    /// The path ended, at a dentry that is yet to be validated.
    Found,
    /// The last name was not found, which is yet to be proved.
    Missing,
}

/// How far the plain part of a path led: to `at`, with the component at `start` still to be walked.
#[derive(Clone, Copy)]
pub(super) struct Stretch {
    pub(super) at: Seen,
    pub(super) start: usize,
    pub(super) halt: Halt,
}

impl Stretch {
    /// For the way to or from an out-of-line function.
    #[inline(always)]
    pub(super) fn words(self) -> Words {
        let Stretch { at, start, halt } = self;
        // A path has at most PATH_MAX bytes.
        Words::new([start as u32 * 4 + halt as u32, at.dentry, at.seq, at.meta.0])
    }
}

impl From<Words> for Stretch {
    #[inline(always)]
    fn from(words: Words) -> Stretch {
        let [stand, dentry, seq, meta] = words.get();
        let halt = match stand % 4 {
            0 => Halt::Undecided,
            1 => Halt::Found,
            _ => Halt::Missing,
        };
        Stretch { at: Seen { dentry, seq, meta: Meta(meta) }, start: (stand / 4) as usize, halt }
    }
}
