//! The engine of this project.

use std::ffi::CStr;
use std::hint::black_box;

use rcuwalk::errno::Errno;
use rcuwalk::uapi::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, O_RDONLY, R_OK, STATX_BASIC_STATS, STATX_BTIME};
use rcuwalk::{Task, Vfs, WalkMode};
use rcuwalk_host::Identity;
use rcuwalk_measure::attr::Attr;
use rcuwalk_measure::engines::{Engine, Value, attr_value, error_value, unit_value};
use rcuwalk_measure::identity::{Caps, cred};

use crate::check::{Follow, Subject};

/// One process of the engine. Its path calls may run on many threads at once.
pub struct Rcuwalk {
    task: Task,
    mode: WalkMode,
}

impl Rcuwalk {
    /// A process with root and working directory at the top of `vfs`, which walks paths in this mode.
    ///
    /// # Errors
    ///
    /// As [`cred`].
    pub fn new(vfs: &Vfs, who: &Identity, caps: Caps, mode: WalkMode) -> rcuwalk::errno::Result<Rcuwalk> {
        Ok(Rcuwalk { task: vfs.task(cred(who, caps)?), mode })
    }
}

impl Engine for Rcuwalk {
    fn name(&self) -> &'static str {
        if self.mode == WalkMode::Direct { "rcuwalk" } else { "walk" }
    }

    fn prepare(&self) {
        self.task.vfs().set_walk_mode(self.mode);
    }

    #[inline(always)]
    fn stat(&self, path: &CStr) -> Value {
        match &self.task.stat(path.to_bytes()) {
            Ok(st) => {
                let st = black_box(st);
                attr_value(st.ino, st.size as u64, st.mode)
            }
            Err(errno) => error_value(errno.raw()),
        }
    }

    #[inline(always)]
    fn statx(&self, path: &CStr) -> Value {
        match &self.task.statx(AT_FDCWD, path.to_bytes(), 0, STATX_BASIC_STATS) {
            Ok(stx) => {
                let stx = black_box(stx);
                attr_value(stx.ino, stx.size, stx.mode.into())
            }
            Err(errno) => error_value(errno.raw()),
        }
    }

    #[inline(always)]
    fn access(&self, path: &CStr) -> Value {
        unit_value(self.task.access(path.to_bytes(), R_OK), Errno::raw)
    }

    #[inline(always)]
    fn open_close(&self, path: &CStr) -> Value {
        let closed = self.task.open(path.to_bytes(), O_RDONLY, 0).and_then(|fd| self.task.close(fd));
        unit_value(closed, Errno::raw)
    }
}

fn flags(follow: Follow) -> i32 {
    match follow {
        Follow::Yes => 0,
        Follow::No => AT_SYMLINK_NOFOLLOW,
    }
}

impl Subject for Rcuwalk {
    fn stat(&self, path: &[u8], follow: Follow) -> Result<Attr, i32> {
        self.task.newfstatat(AT_FDCWD, path, flags(follow)).map(|st| Attr::from(&st)).map_err(Errno::raw)
    }

    fn statx(&self, path: &[u8], follow: Follow) -> Result<Attr, i32> {
        self.task
            .statx(AT_FDCWD, path, flags(follow), STATX_BASIC_STATS | STATX_BTIME)
            .map(|stx| Attr::from(&stx))
            .map_err(Errno::raw)
    }

    fn access(&self, path: &[u8], mode: i32) -> i32 {
        self.task.access(path, mode).map_or_else(Errno::raw, |()| 0)
    }

    fn names(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, i32> {
        let entries = self.task.readdir(path).map_err(Errno::raw)?;
        let mut names: Vec<Vec<u8>> = entries.into_iter().map(|entry| entry.name).collect();
        names.retain(|name| name != b"." && name != b"..");
        names.sort_unstable();
        Ok(names)
    }
}
