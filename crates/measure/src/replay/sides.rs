//! The two who are asked: the running kernel and the engine.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rcuwalk::uapi::{
    AT_EXECVE_CHECK, AT_FDCWD, O_DIRECTORY, O_NOCTTY, O_NONBLOCK, O_PATH, OpenHow, STATX_BASIC_STATS,
};
use rcuwalk::{Stat, Statx, Task};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use super::questions::{Kind, Question};
use crate::engines::{Value, attr_value, error_value, unit_value};
use crate::sys;

/// The kernel or the engine, which answers questions from the place where it stands.
pub(super) trait Side {
    /// Goes to a place, by its number.
    fn stand(&mut self, place: usize);

    /// Answers.
    fn ask(&mut self, question: &Question) -> Value;
}

/// Asks `questions` in turn, each from its place, and gives each answer to `take`. How long the answers took, without going
/// to the places.
pub(super) fn ask_all<S: Side>(
    side: &mut S,
    questions: &[Question],
    mut take: impl FnMut(Value),
) -> Duration {
    let mut spent = Duration::ZERO;
    for run in questions.chunk_by(|a, b| a.stands == b.stands && a.kind != Kind::Chdir) {
        side.stand(run[0].stands);
        let clock = Instant::now();
        run.iter().for_each(|question| take(side.ask(question)));
        spent += clock.elapsed();
    }
    spent
}

/// A digest of bytes, for comparing.
fn digest(bytes: &[u8]) -> Value {
    bytes.iter().fold(bytes.len() as u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into())) >> 1
}

/// Flags for opening, with what keeps an open from waiting or from getting a terminal, should the file have been replaced.
fn harmless(flags: i32) -> i32 {
    if flags & O_PATH != 0 { flags } else { flags | O_NONBLOCK | O_NOCTTY }
}

/// The running kernel, asked by this thread, which has a current directory of its own.
pub(super) struct Kernel {
    places: Vec<OwnedFd>,
    /// What was opened is looked at, and not only closed again.
    pub(super) identify: bool,
}

impl Kernel {
    /// Ready to stand where `places` are; nothing where one is no directory.
    pub(super) fn place(path: &[u8]) -> Option<OwnedFd> {
        rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
    }

    pub(super) fn new(places: Vec<OwnedFd>) -> Kernel {
        Kernel { places, identify: false }
    }
}

fn stat_value(stat: rustix::io::Result<rustix::fs::Stat>) -> Value {
    stat.map_or_else(failed, |st| attr_value(st.st_ino, st.st_size as u64, st.st_mode))
}

fn failed(errno: Errno) -> Value {
    error_value(errno.raw_os_error())
}

impl Side for Kernel {
    fn stand(&mut self, place: usize) {
        // Whether it worked shows in the answers.
        let _ = rustix::process::fchdir(&self.places[place]);
    }

    #[inline(always)]
    fn ask(&mut self, question: &Question) -> Value {
        let Question { kind, path, .. } = question;
        let dir: BorrowedFd<'_> = question.dir.map_or(CWD, |place| self.places[place].as_fd());
        let at = |flags: i32| AtFlags::from_bits_retain(flags as u32);
        match *kind {
            Kind::Stat { flags } => stat_value(rustix::fs::statat(dir, path, at(flags))),
            Kind::Statx { flags } => match rustix::fs::statx(dir, path, at(flags), StatxFlags::BASIC_STATS) {
                Ok(stx) => attr_value(stx.stx_ino, stx.stx_size, stx.stx_mode.into()),
                Err(errno) => failed(errno),
            },
            Kind::Access { mode, flags } => {
                let mode = Access::from_bits_retain(mode as u32);
                unit_value(rustix::fs::accessat(dir, path, mode, at(flags)), Errno::raw_os_error)
            }
            Kind::Open { flags, resolve } => {
                let flags = OFlags::from_bits_retain(harmless(flags) as u32);
                let opened = match resolve {
                    0 => rustix::fs::openat(dir, path, flags, Mode::empty()),
                    _ => {
                        let resolve = ResolveFlags::from_bits_retain(resolve);
                        rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve)
                    }
                };
                match opened {
                    Ok(fd) if self.identify => stat_value(rustix::fs::fstat(fd)),
                    Ok(_) => 1,
                    Err(errno) => failed(errno),
                }
            }
            Kind::Readlink => rustix::fs::readlinkat(dir, path, Vec::new())
                .map_or_else(failed, |body| digest(body.to_bytes())),
            Kind::Execve { flags } => unit_value(sys::may_execute(dir, path, flags), Errno::raw_os_error),
            Kind::Chdir => unit_value(rustix::process::chdir(path), Errno::raw_os_error),
        }
    }
}

/// The engine.
pub(super) struct Engine {
    task: Task,
    places: Vec<i32>,
    /// As [`Kernel::identify`].
    pub(super) identify: bool,
}

impl Engine {
    /// As `task`, ready to stand where `places` are.
    ///
    /// # Errors
    ///
    /// The place that is no directory, and why.
    pub(super) fn new(task: Task, places: &[Vec<u8>]) -> Result<Engine, (Vec<u8>, rcuwalk::Errno)> {
        let open =
            |path: &Vec<u8>| task.open(path, O_PATH | O_DIRECTORY, 0).map_err(|errno| (path.clone(), errno));
        let places = places.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Engine { task, places, identify: false })
    }
}

impl Side for Engine {
    fn stand(&mut self, place: usize) {
        let _ = self.task.fchdir(self.places[place]);
    }

    #[inline(always)]
    fn ask(&mut self, question: &Question) -> Value {
        let task = &mut self.task;
        let path = question.path.to_bytes();
        let dir = question.dir.map_or(AT_FDCWD, |place| self.places[place]);
        let failed = |errno: rcuwalk::Errno| error_value(errno.raw());
        let attr = |st: Stat| attr_value(st.ino, st.size as u64, st.mode);
        let unit = |answer| unit_value(answer, rcuwalk::Errno::raw);
        match question.kind {
            Kind::Stat { flags } => task.newfstatat(dir, path, flags).map_or_else(failed, attr),
            Kind::Statx { flags } => {
                let value = |stx: Statx| attr_value(stx.ino, stx.size, stx.mode.into());
                task.statx(dir, path, flags, STATX_BASIC_STATS).map_or_else(failed, value)
            }
            Kind::Access { mode, flags } => unit(task.faccessat2(dir, path, mode, flags)),
            Kind::Open { flags, resolve } => {
                let flags = harmless(flags);
                let opened = match resolve {
                    0 => task.openat(dir, path, flags, 0),
                    _ => task.openat2(dir, path, &OpenHow::new(flags).with_resolve(resolve)),
                };
                let close = |fd| match self.identify {
                    true => task.fstat(fd).and_then(|st| task.close(fd).map(|()| attr(st))),
                    false => task.close(fd).map(|()| 1),
                };
                opened.and_then(close).unwrap_or_else(failed)
            }
            Kind::Readlink => task.readlinkat(dir, path).map_or_else(failed, |body| digest(&body)),
            Kind::Execve { flags } => {
                unit(task.execveat(dir, path, &[path], &[], flags | AT_EXECVE_CHECK).map(drop))
            }
            Kind::Chdir => unit(task.chdir(path)),
        }
    }
}
