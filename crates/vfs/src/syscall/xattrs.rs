//! Calls on extended attributes.

use super::memory::Name;
use super::{Answer, Call, done};
use crate::base::errno::{Errno, Result};
use crate::base::uapi::{
    AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, XATTR_CREATE, XATTR_LIST_MAX, XATTR_NAME_MAX,
    XATTR_REPLACE, XATTR_SIZE_MAX,
};
use crate::calls::fileattr::FileAttr;
use crate::task::Task;

/// Bytes of `struct file_attr`.
const FILE_ATTR_SIZE_VER0: u64 = 24;

/// The name of an attribute, as it was found in memory.
struct AttrName {
    bytes: [u8; XATTR_NAME_MAX + 1],
    len: usize,
}

impl AttrName {
    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// `struct xattr_args`.
struct XattrArgs {
    /// Where the value is, or is to go.
    value: u64,
    size: u64,
    flags: i32,
}

/// Path, name, value, flags.
type SetXattr = fn(&Task, &[u8], &[u8], &[u8], i32) -> Result<()>;
/// Path, name.
type GetXattr = fn(&Task, &[u8], &[u8]) -> Result<Vec<u8>>;

impl Call<'_> {
    /// Kernel: fs/xattr.c `import_xattr_name()`.
    fn attr_name(&mut self, i: usize) -> Result<AttrName> {
        let mut bytes = [0; XATTR_NAME_MAX + 1];
        let len = self.mem.strncpy_from_user(&mut bytes, self.args[i])?;
        if len == 0 || len > XATTR_NAME_MAX { Err(Errno::ERANGE) } else { Ok(AttrName { bytes, len }) }
    }

    pub(super) fn setxattr(&mut self) -> Answer {
        self.set_on_path(Task::setxattr)
    }

    pub(super) fn lsetxattr(&mut self) -> Answer {
        self.set_on_path(Task::lsetxattr)
    }

    fn set_on_path(&mut self, set: SetXattr) -> Answer {
        let (name, value) = self.new_value(self.int(4), (self.args[2], self.args[3]), 1)?;
        let path = self.name(0);
        done(set(self.task, &path, name.as_bytes(), &value, self.int(4)))
    }

    pub(super) fn fsetxattr(&mut self) -> Answer {
        let (name, value) = self.new_value(self.int(4), (self.args[2], self.args[3]), 1)?;
        done(self.task.fsetxattr(self.int(0), name.as_bytes(), &value, self.int(4)))
    }

    /// Kernel: fs/xattr.c `setxattrat()`, `path_setxattrat()`.
    pub(super) fn setxattrat(&mut self) -> Answer {
        let XattrArgs { value, size, flags } = self.xattr_args()?;
        let at_flags = self.at_flags()?;
        let (name, value) = self.new_value(flags, (value, size), 3)?;
        let path = self.maybe_null_name(1, at_flags);
        done(self.task.setxattrat(self.int(0), &path, at_flags, name.as_bytes(), &value, flags))
    }

    /// Name, in argument `i`, and value to set, which is where and as long as told. Kernel: fs/xattr.c `setxattr_copy()`.
    fn new_value(&mut self, flags: i32, (value, size): (u64, u64), i: usize) -> Result<(AttrName, Vec<u8>)> {
        if flags & !(XATTR_CREATE | XATTR_REPLACE) != 0 {
            return Err(Errno::EINVAL);
        }
        let name = self.attr_name(i)?;
        if size > XATTR_SIZE_MAX as u64 {
            return Err(Errno::E2BIG);
        }
        let mut bytes = vec![0; size as usize];
        self.mem.copy_from_user(&mut bytes, value)?;
        Ok((name, bytes))
    }

    /// The last two arguments of setxattrat(2) and getxattrat(2).
    fn xattr_args(&mut self) -> Result<XattrArgs> {
        const XATTR_ARGS_SIZE_VER0: u64 = 16;
        if self.args[5] < XATTR_ARGS_SIZE_VER0 {
            return Err(Errno::EINVAL);
        }
        let [value, rest] = self.extensible(self.args[4], self.args[5])?;
        Ok(XattrArgs { value, size: rest & 0xffff_ffff, flags: (rest >> 32) as i32 })
    }

    /// The flags of the *at calls, which come before anything that memory holds.
    fn at_flags(&self) -> Result<i32> {
        let flags = self.int(2);
        if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 { Err(Errno::EINVAL) } else { Ok(flags) }
    }

    /// The size of `struct file_attr` that the caller has, which comes behind the flags.
    fn file_attr_size(&self) -> Result<u64> {
        const PAGE: u64 = 4096;
        let size = self.args[3];
        if self.int(4) & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
            return Err(Errno::EINVAL);
        }
        match size {
            _ if size > PAGE => Err(Errno::E2BIG),
            FILE_ATTR_SIZE_VER0.. => Ok(size),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Kernel: fs/file_attr.c `file_getattr()`.
    pub(super) fn file_getattr(&mut self) -> Answer {
        let size = self.file_attr_size()?;
        let path = self.maybe_null_name(1, self.int(4));
        let attr = self.task.file_getattr(self.int(0), &path, self.int(4))?;
        let mut bytes = vec![0; size as usize];
        bytes[..8].copy_from_slice(&attr.xflags.to_ne_bytes());
        let rest = [attr.extsize, attr.nextents, attr.projid, attr.cowextsize];
        bytes[8..FILE_ATTR_SIZE_VER0 as usize].copy_from_slice(rest.map(u32::to_ne_bytes).as_flattened());
        self.put(2, &bytes)
    }

    /// Kernel: fs/file_attr.c `file_setattr()`.
    pub(super) fn file_setattr(&mut self) -> Answer {
        let size = self.file_attr_size()?;
        let [xflags, sizes, rest] = self.extensible(self.args[2], size)?;
        let attr = FileAttr::default().with_xflags(xflags).with_extsize(sizes as u32);
        let attr = attr.with_projid(rest as u32).with_cowextsize((rest >> 32) as u32);
        let path = self.maybe_null_name(1, self.int(4));
        done(self.task.file_setattr(self.int(0), &path, attr, self.int(4)))
    }

    pub(super) fn getxattr(&mut self) -> Answer {
        self.get_on_path(Task::getxattr)
    }

    pub(super) fn lgetxattr(&mut self) -> Answer {
        self.get_on_path(Task::lgetxattr)
    }

    fn get_on_path(&mut self, get: GetXattr) -> Answer {
        let name = self.attr_name(1)?;
        let path = self.name(0);
        let value = get(self.task, &path, name.as_bytes())?;
        self.put_whole((self.args[2], self.args[3]), &value, XATTR_SIZE_MAX)
    }

    pub(super) fn fgetxattr(&mut self) -> Answer {
        let name = self.attr_name(1)?;
        let value = self.task.fgetxattr(self.int(0), name.as_bytes())?;
        self.put_whole((self.args[2], self.args[3]), &value, XATTR_SIZE_MAX)
    }

    pub(super) fn getxattrat(&mut self) -> Answer {
        let XattrArgs { value, size, flags } = self.xattr_args()?;
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        let at_flags = self.at_flags()?;
        let name = self.attr_name(3)?;
        let path = self.maybe_null_name(1, at_flags);
        let found = self.task.getxattrat(self.int(0), &path, at_flags, name.as_bytes())?;
        self.put_whole((value, size), &found, XATTR_SIZE_MAX)
    }

    pub(super) fn listxattrat(&mut self) -> Answer {
        let at_flags = self.at_flags()?;
        let path = self.maybe_null_name(1, at_flags);
        let list = self.task.names_at(self.int(0), &path, at_flags)?;
        self.put_whole((self.args[3], self.args[4]), &list, XATTR_LIST_MAX)
    }

    pub(super) fn removexattrat(&mut self) -> Answer {
        let at_flags = self.at_flags()?;
        let name = self.attr_name(3)?;
        let path = self.maybe_null_name(1, at_flags);
        done(self.task.removexattrat(self.int(0), &path, at_flags, name.as_bytes()))
    }

    pub(super) fn listxattr(&mut self) -> Answer {
        let path = self.name(0);
        let list = self.task.names_at(AT_FDCWD, &path, 0)?;
        self.put_whole((self.args[1], self.args[2]), &list, XATTR_LIST_MAX)
    }

    pub(super) fn llistxattr(&mut self) -> Answer {
        let path = self.name(0);
        let list = self.task.names_at(AT_FDCWD, &path, AT_SYMLINK_NOFOLLOW)?;
        self.put_whole((self.args[1], self.args[2]), &list, XATTR_LIST_MAX)
    }

    pub(super) fn flistxattr(&mut self) -> Answer {
        let list = self.task.names_at(self.int(0), b"", AT_EMPTY_PATH)?;
        self.put_whole((self.args[1], self.args[2]), &list, XATTR_LIST_MAX)
    }

    /// Puts `bytes` to an address, if there is room for all of them; with no room at all, only tells how many there are.
    ///
    /// # Errors
    ///
    /// `ERANGE`; `E2BIG` if not even the most that can be asked for is enough; `EFAULT`.
    fn put_whole(&mut self, (address, room): (u64, u64), bytes: &[u8], most: usize) -> Answer {
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(most);
        if room == 0 {
            return Ok(bytes.len() as i64);
        }
        if bytes.len() > room {
            return Err(if room == most { Errno::E2BIG } else { Errno::ERANGE });
        }
        self.mem.copy_to_user(address, bytes)?;
        Ok(bytes.len() as i64)
    }

    pub(super) fn removexattr(&mut self) -> Answer {
        let (name, path) = self.names()?;
        done(self.task.removexattr(&path, name.as_bytes()))
    }

    pub(super) fn lremovexattr(&mut self) -> Answer {
        let (name, path) = self.names()?;
        done(self.task.lremovexattr(&path, name.as_bytes()))
    }

    pub(super) fn fremovexattr(&mut self) -> Answer {
        let name = self.attr_name(1)?;
        done(self.task.fremovexattr(self.int(0), name.as_bytes()))
    }

    fn names(&mut self) -> Result<(AttrName, Name)> {
        Ok((self.attr_name(1)?, self.name(0)))
    }
}
