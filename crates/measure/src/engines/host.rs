//! The running kernel, through its system calls.

use std::ffi::{CStr, CString};
use std::hint::black_box;
use std::time::Instant;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use super::{Contender, Engine, Op, Timed, Value, attr_value, error_value, nanos_since, unit_value};

/// The kernel. Calls go straight to the system call instruction, without a C library in between, into a buffer on the
/// stack.
#[derive(Debug, Clone, Copy, Default)]
pub struct Host;

impl Engine for Host {
    fn name(&self) -> &'static str {
        "host"
    }

    #[inline(always)]
    fn stat(&self, path: &CStr) -> Value {
        match rustix::fs::stat(path) {
            Ok(st) => {
                let st = black_box(&st);
                attr_value(st.st_ino, st.st_size as u64, st.st_mode)
            }
            Err(errno) => error_value(errno.raw_os_error()),
        }
    }

    #[inline(always)]
    fn statx(&self, path: &CStr) -> Value {
        match rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS) {
            Ok(stx) => {
                let stx = black_box(&stx);
                attr_value(stx.stx_ino, stx.stx_size, stx.stx_mode.into())
            }
            Err(errno) => error_value(errno.raw_os_error()),
        }
    }

    #[inline(always)]
    fn access(&self, path: &CStr) -> Value {
        unit_value(rustix::fs::access(path, Access::READ_OK), Errno::raw_os_error)
    }

    #[inline(always)]
    fn open_close(&self, path: &CStr) -> Value {
        match rustix::fs::open(path, OFlags::RDONLY, Mode::empty()) {
            Ok(fd) => {
                drop(fd);
                1
            }
            Err(errno) => error_value(errno.raw_os_error()),
        }
    }
}

/// The cheapest system call there is: what entering and leaving the kernel costs without doing anything in it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Getppid;

impl Contender for Getppid {
    fn name(&self) -> &'static str {
        "getppid"
    }

    fn batch(&self, _op: Op, _paths: &[CString], _start: usize, count: usize) -> Timed {
        let clock = Instant::now();
        for _ in 0..count {
            black_box(rustix::process::getppid());
        }
        Timed { nanos: nanos_since(clock), sum: 0 }
    }

    fn answer(&self, _op: Op, _path: &CStr) -> Option<Value> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_the_kernels() {
        let host = Host;
        assert_eq!(host.access(c"/"), 1);
        assert_eq!(host.access(c"/nowhere"), error_value(2));
        assert_eq!(host.open_close(c"/nowhere"), error_value(2));
        assert_eq!(host.open_close(c"/"), 1);
        assert_eq!(host.stat(c"/"), host.statx(c"/"));
        let paths = [c"/".to_owned(), c"/nowhere".to_owned()];
        let one = host.batch(Op::Stat, &paths, 1, 5);
        let two = host.batch(Op::StatChained, &paths, 1, 5);
        let expected = host.stat(c"/").wrapping_mul(2).wrapping_add(error_value(2).wrapping_mul(3));
        assert_eq!((one.sum, two.sum), (expected, expected));
        assert!(Getppid.batch(Op::Stat, &paths, 0, 100).nanos > 0);
    }
}
