//! Calls on handles of objects.

use super::{Answer, Call, fd};
use crate::base::errno::{Errno, Result};
use crate::base::uapi::AT_HANDLE_MNT_ID_UNIQUE;
use crate::calls::handle::{FileHandle, MAX_HANDLE_SZ};

/// Bytes of `struct file_handle` before those that say which object: how many these are, and the type.
const HEADER: u64 = 8;
/// The type told where the room is too small. Kernel: `FILEID_INVALID`.
const FILEID_INVALID: i32 = 0xff;

impl Call<'_> {
    /// The size and the type at the beginning of a `struct file_handle`.
    fn handle_header(&mut self, address: u64) -> Result<(usize, i32)> {
        let [word] = self.words(address)?;
        Ok((word as u32 as usize, (word >> 32) as i32))
    }

    /// Kernel: fs/fhandle.c `do_sys_name_to_handle()`.
    pub(super) fn name_to_handle_at(&mut self) -> Answer {
        let flags = self.int(4);
        let path = self.name(1);
        let (handle, mount) = self.task.name_to_handle_at(self.int(0), &path, flags)?;
        let (room, _) = self.handle_header(self.args[2])?;
        if room > MAX_HANDLE_SZ {
            return Err(Errno::EINVAL);
        }
        let fits = handle.bytes.len() <= room;
        let kind = if fits { handle.kind } else { FILEID_INVALID };
        if flags & AT_HANDLE_MNT_ID_UNIQUE != 0 {
            self.put(3, &mount.to_ne_bytes())?;
        } else {
            self.put(3, &(mount as u32).to_ne_bytes())?;
        }
        let header = [handle.bytes.len() as u32, kind as u32].map(u32::to_ne_bytes);
        let bytes: &[u8] = if fits { &handle.bytes } else { &[] };
        self.put(2, &[header.as_flattened(), bytes].concat())?;
        if fits { Ok(0) } else { Err(Errno::EOVERFLOW) }
    }

    /// Kernel: fs/fhandle.c `handle_to_path()`.
    pub(super) fn open_by_handle_at(&mut self) -> Answer {
        let (mount_fd, at, flags) = (self.int(0), self.args[1], self.int(2));
        let (len, kind) = self.handle_header(at)?;
        self.task.check_handle(mount_fd, kind, len, flags)?;
        let mut bytes = vec![0; len];
        self.mem.copy_from_user(&mut bytes, at.checked_add(HEADER).ok_or(Errno::EFAULT)?)?;
        fd(self.task.open_by_handle_at(mount_fd, &FileHandle::new(kind, bytes), flags))
    }
}
