//! Opening, reading and writing.

use super::PyTask;
use crate::args::{Data, PathArg, Room};
use crate::error::Answer;
use crate::faults::Object;
use crate::gate;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rcuwalk::uapi::{O_CLOEXEC, SEEK_CUR};
use rcuwalk::{Errno, OpenHow, Result, Task};
use std::io::{IoSlice, IoSliceMut};

/// From this many bytes on, copying them is worth giving the interpreter lock back.
const LONG: usize = 1 << 14;

/// How many of `wanted` bytes can be there to read at the position, or at `offset`: room for more would be wasted.
fn available(task: &Task, fd: i32, wanted: usize, offset: Option<i64>) -> usize {
    if wanted <= LONG {
        return wanted;
    }
    let at = offset.map_or_else(|| task.lseek(fd, 0, SEEK_CUR), Ok);
    match (task.fstat(fd), at) {
        (Ok(stat), Ok(at)) => wanted.min(usize::try_from(stat.size.saturating_sub(at)).unwrap_or(0)),
        _ => wanted.min(LONG),
    }
}

/// Room for that many bytes.
fn room_for(bytes: usize) -> Result<Vec<u8>> {
    let mut room = Vec::new();
    room.try_reserve_exact(bytes).map_err(|_| Errno::ENOMEM)?;
    room.resize(bytes, 0);
    Ok(room)
}

/// Reads up to `wanted` bytes.
fn read_some(task: &Task, fd: i32, wanted: usize, offset: Option<i64>) -> Result<Vec<u8>> {
    let mut data = room_for(available(task, fd, wanted, offset))?;
    let n = match offset {
        Some(offset) => task.pread(fd, &mut data, offset)?,
        None => task.read(fd, &mut data)?,
    };
    data.truncate(n);
    Ok(data)
}

impl PyTask {
    /// Reads, without the interpreter lock if it is much.
    fn get(&self, py: Python<'_>, fd: i32, wanted: usize, offset: Option<i64>) -> PyResult<Vec<u8>> {
        let fd = self.fd_in(fd);
        let objects = [Object::Fd(fd)];
        let read = |task: &Task| read_some(task, fd, wanted, offset);
        if wanted < LONG {
            return self.look("read", &objects, read).plain(py);
        }
        self.change(py, "read", &objects, read).plain(py)
    }

    /// Writes, without the interpreter lock.
    fn put(&self, py: Python<'_>, fd: i32, data: &[u8], offset: Option<i64>) -> PyResult<usize> {
        self.put_with(py, fd, data, |task, fd, data| match offset {
            Some(offset) => task.pwrite(fd, data, offset),
            None => task.write(fd, data),
        })
    }

    /// [`put`](Self::put) by `write`.
    fn put_with(
        &self,
        py: Python<'_>,
        fd: i32,
        data: &[u8],
        write: impl FnOnce(&Task, i32, &[u8]) -> Result<usize> + Send,
    ) -> PyResult<usize> {
        let fd = self.fd_in(fd);
        let written = py.detach(|| {
            let _gate = gate::enter();
            let task = self.held();
            let faults = &self.shared.faults;
            let fit = match faults.armed() {
                true => faults.check(&task, "write", &[Object::Fd(fd)], data.len())?,
                false => data.len(),
            };
            write(&task, fd, &data[..fit])
        });
        written.plain(py)
    }

    /// Fills buffers one after the other, from the position on for an offset of -1.
    fn get_all(
        &self,
        py: Python<'_>,
        fd: i32,
        rooms: &Bound<'_, PyAny>,
        offset: i64,
        flags: i32,
    ) -> PyResult<usize> {
        let rooms: Vec<Room<'_>> =
            rooms.try_iter()?.map(|room| Room::new(&room?)).collect::<PyResult<_>>()?;
        let wanted = rooms.iter().map(Room::len).fold(0, usize::saturating_add);
        let fd = self.fd_in(fd);
        let read = self.change(py, "read", &[Object::Fd(fd)], |task| {
            let mut data = room_for(available(task, fd, wanted, (offset != -1).then_some(offset)))?;
            let n = task.preadv2(fd, &mut [IoSliceMut::new(&mut data)], offset, flags)?;
            data.truncate(n);
            Ok(data)
        });
        let data = read.plain(py)?;
        let mut rest = &data[..];
        for room in &rooms {
            let (filled, behind) = rest.split_at(rest.len().min(room.len()));
            room.fill(filled)?;
            rest = behind;
        }
        Ok(data.len())
    }

    /// The bytes of several buffers.
    fn joined(buffers: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
        buffers.try_iter()?.try_fold(Vec::new(), |mut all, buffer| {
            all.extend_from_slice(Data::new(&buffer?)?.bytes());
            Ok(all)
        })
    }
}

fn length(n: isize) -> PyResult<usize> {
    usize::try_from(n).map_err(|_| PyValueError::new_err("negative count"))
}

#[pymethods]
impl PyTask {
    /// `os.open`: the descriptor is not inherited by programs.
    #[pyo3(signature = (path, flags, mode=0o777, *, dir_fd=None))]
    fn open(&self, path: &Bound<'_, PyAny>, flags: i32, mode: u32, dir_fd: Option<i32>) -> PyResult<i32> {
        let path = PathArg::new("open", path)?;
        let fd = self.at(&path, ("open", dir_fd, true), |task, dir, path| {
            task.openat(dir, path, flags | O_CLOEXEC, mode)
        })?;
        Ok(self.fd_out(fd))
    }

    /// openat2(2): `os.open` with `RESOLVE_*`, and without unknown flags.
    #[pyo3(signature = (path, flags=0, mode=0, resolve=0, *, dir_fd=None))]
    fn openat2(
        &self,
        path: &Bound<'_, PyAny>,
        flags: u64,
        mode: u64,
        resolve: u64,
        dir_fd: Option<i32>,
    ) -> PyResult<i32> {
        let path = PathArg::new("openat2", path)?;
        let how = OpenHow::default().with_flags(flags).with_mode(mode).with_resolve(resolve);
        let fd = self.at(&path, ("open", dir_fd, true), |task, dir, path| task.openat2(dir, path, &how))?;
        Ok(self.fd_out(fd))
    }

    /// `os.read`
    fn read<'py>(&self, py: Python<'py>, fd: i32, length: isize) -> PyResult<Bound<'py, PyBytes>> {
        let data = PyTask::get(self, py, fd, self::length(length)?, None)?;
        Ok(PyBytes::new(py, &data))
    }

    /// `os.pread`
    fn pread<'py>(
        &self,
        py: Python<'py>,
        fd: i32,
        length: isize,
        offset: i64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let data = PyTask::get(self, py, fd, self::length(length)?, Some(offset))?;
        Ok(PyBytes::new(py, &data))
    }

    /// Reads into a buffer from the position, or at `offset`; gives how much.
    #[pyo3(signature = (fd, buffer, offset=None))]
    fn readinto(
        &self,
        py: Python<'_>,
        fd: i32,
        buffer: &Bound<'_, PyAny>,
        offset: Option<i64>,
    ) -> PyResult<usize> {
        let room = Room::new(buffer)?;
        let data = PyTask::get(self, py, fd, room.len(), offset)?;
        room.fill(&data)?;
        Ok(data.len())
    }

    /// Reads everything from the position to the end.
    fn readall<'py>(&self, py: Python<'py>, fd: i32) -> PyResult<Bound<'py, PyBytes>> {
        let mut all = PyTask::get(self, py, fd, usize::MAX >> 1, None)?;
        loop {
            let more = PyTask::get(self, py, fd, LONG, None)?;
            if more.is_empty() {
                return Ok(PyBytes::new(py, &all));
            }
            all.extend_from_slice(&more);
        }
    }

    /// `os.readv`
    fn readv(&self, py: Python<'_>, fd: i32, buffers: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.get_all(py, fd, buffers, -1, 0)
    }

    /// `os.preadv`: from the position on for an offset of -1, as the kernel has it.
    #[pyo3(signature = (fd, buffers, offset, flags=0))]
    fn preadv(
        &self,
        py: Python<'_>,
        fd: i32,
        buffers: &Bound<'_, PyAny>,
        offset: i64,
        flags: i32,
    ) -> PyResult<usize> {
        self.get_all(py, fd, buffers, offset, flags)
    }

    /// `os.write`
    fn write(&self, py: Python<'_>, fd: i32, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.put(py, fd, Data::new(data)?.bytes(), None)
    }

    /// `os.pwrite`
    fn pwrite(&self, py: Python<'_>, fd: i32, buffer: &Bound<'_, PyAny>, offset: i64) -> PyResult<usize> {
        self.put(py, fd, Data::new(buffer)?.bytes(), Some(offset))
    }

    /// `os.writev`
    fn writev(&self, py: Python<'_>, fd: i32, buffers: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.put(py, fd, &PyTask::joined(buffers)?, None)
    }

    /// `os.pwritev`: at the position for an offset of -1.
    #[pyo3(signature = (fd, buffers, offset, flags=0))]
    fn pwritev(
        &self,
        py: Python<'_>,
        fd: i32,
        buffers: &Bound<'_, PyAny>,
        offset: i64,
        flags: i32,
    ) -> PyResult<usize> {
        self.put_with(py, fd, &PyTask::joined(buffers)?, |task, fd, data| {
            task.pwritev2(fd, &[IoSlice::new(data)], offset, flags)
        })
    }

    /// `os.lseek`
    fn lseek(&self, py: Python<'_>, fd: i32, position: i64, whence: i32) -> PyResult<i64> {
        let fd = self.fd_in(fd);
        self.look("lseek", &[Object::Fd(fd)], |task| task.lseek(fd, position, whence)).plain(py)
    }

    /// `os.posix_fallocate`
    fn posix_fallocate(&self, py: Python<'_>, fd: i32, offset: i64, length: i64) -> PyResult<()> {
        self.on(py, "fallocate", fd, |task, fd| task.fallocate(fd, 0, offset, length))
    }

    /// `os.posix_fadvise`: advice is taken note of, and nothing comes of it.
    fn posix_fadvise(&self, py: Python<'_>, fd: i32, offset: i64, length: i64, advice: i32) -> PyResult<()> {
        let _ = (offset, length, advice);
        self.on(py, "fadvise", fd, |task, fd| task.fstat(fd).map(drop))
    }

    /// `os.sendfile`
    fn sendfile(
        &self,
        py: Python<'_>,
        out_fd: i32,
        in_fd: i32,
        offset: Option<i64>,
        count: isize,
    ) -> PyResult<usize> {
        let (to, from) = (self.fd_in(out_fd), self.fd_in(in_fd));
        let mut offset = offset;
        // A count that is no size is too large for any file.
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let sent = self.change(py, "sendfile", &[Object::Fd(to), Object::Fd(from)], |task| {
            task.sendfile(to, from, offset.as_mut(), count)
        });
        sent.plain(py)
    }

    /// `os.copy_file_range`
    #[pyo3(signature = (src, dst, count, offset_src=None, offset_dst=None))]
    fn copy_file_range(
        &self,
        py: Python<'_>,
        src: i32,
        dst: i32,
        count: isize,
        offset_src: Option<i64>,
        offset_dst: Option<i64>,
    ) -> PyResult<usize> {
        let text = "negative value for 'count' not allowed";
        let count = usize::try_from(count).map_err(|_| PyValueError::new_err(text))?;
        let (mut offset_src, mut offset_dst) = (offset_src, offset_dst);
        let (from, to) = (self.fd_in(src), self.fd_in(dst));
        let objects = [Object::Fd(from), Object::Fd(to)];
        let copied = self.change(py, "copy_file_range", &objects, |task| {
            task.copy_file_range(from, offset_src.as_mut(), to, offset_dst.as_mut(), count, 0)
        });
        copied.plain(py)
    }
}
