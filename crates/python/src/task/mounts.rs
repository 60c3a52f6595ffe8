//! Mounts and namespaces.

use super::PyTask;
use crate::args::PathArg;
use crate::error::Answer;
use crate::gate;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rcuwalk::userns::{IdExtent, UserNamespace};
use rcuwalk::{MountAttr, ProcFile, Result};

/// First id inside, first id outside, how many.
type Extent = (u32, u32, u32);

fn write_maps(ns: &UserNamespace, uid_map: &[Extent], gid_map: &[Extent]) -> Result<()> {
    let extents = |map: &[Extent]| -> Vec<IdExtent> {
        map.iter().map(|&(first, lower, count)| IdExtent { first, lower, count }).collect()
    };
    ns.set_uid_map(&extents(uid_map))?;
    ns.set_gid_map(&extents(gid_map))
}

#[pymethods]
impl PyTask {
    /// mount(2)
    #[pyo3(signature = (source, target, fstype="", flags=0, data=""))]
    fn mount(
        &self,
        source: &Bound<'_, PyAny>,
        target: &Bound<'_, PyAny>,
        fstype: &str,
        flags: u64,
        data: &str,
    ) -> PyResult<()> {
        let (source, target) = (PathArg::new("mount", source)?, PathArg::new("mount", target)?);
        let from = source.bytes();
        self.at(&target, ("mount", None, true), |task, _, target| {
            task.mount(from, target, fstype.as_bytes(), flags, data.as_bytes())
        })
    }

    /// umount2(2)
    #[pyo3(signature = (target, flags=0))]
    fn umount2(&self, target: &Bound<'_, PyAny>, flags: i32) -> PyResult<()> {
        let target = PathArg::new("umount2", target)?;
        self.at(&target, ("umount", None, true), |task, _, target| task.umount2(target, flags))
    }

    /// mount_setattr(2); `userns_fd` comes from `open_userns` or `open_proc`.
    #[pyo3(signature = (path, flags=0, *, attr_set=0, attr_clr=0, propagation=0, userns_fd=None, dir_fd=None))]
    #[allow(clippy::too_many_arguments)]
    fn mount_setattr(
        &self,
        path: &Bound<'_, PyAny>,
        flags: i32,
        attr_set: u64,
        attr_clr: u64,
        propagation: u64,
        userns_fd: Option<i32>,
        dir_fd: Option<i32>,
    ) -> PyResult<()> {
        let path = PathArg::new("mount_setattr", path)?;
        let fd = self.fd_in(userns_fd.unwrap_or(-1));
        let userns = self.held().user_ns_of(fd);
        let attr = MountAttr::default()
            .with_set(attr_set)
            .with_clr(attr_clr)
            .with_propagation(propagation)
            .with_userns(userns);
        self.at(&path, ("mount", dir_fd, true), |task, dir, path| task.mount_setattr(dir, path, flags, &attr))
    }

    /// open_tree(2)
    #[pyo3(signature = (path, flags=0, *, dir_fd=None))]
    fn open_tree(&self, path: &Bound<'_, PyAny>, flags: i32, dir_fd: Option<i32>) -> PyResult<i32> {
        let path = PathArg::new("open_tree", path)?;
        let fd =
            self.at(&path, ("mount", dir_fd, true), |task, dir, path| task.open_tree(dir, path, flags))?;
        Ok(self.fd_out(fd))
    }

    /// move_mount(2)
    #[pyo3(signature = (src, dst, flags=0, *, src_dir_fd=None, dst_dir_fd=None))]
    fn move_mount(
        &self,
        src: &Bound<'_, PyAny>,
        dst: &Bound<'_, PyAny>,
        flags: u32,
        src_dir_fd: Option<i32>,
        dst_dir_fd: Option<i32>,
    ) -> PyResult<()> {
        let (from, to) = (PathArg::new("move_mount", src)?, PathArg::new("move_mount", dst)?);
        self.between("mount", (&from, src_dir_fd), (&to, dst_dir_fd), |task, from, to| {
            task.move_mount(from.0, from.1, to.0, to.1, flags)
        })
    }

    /// pivot_root(2)
    fn pivot_root(&self, new_root: &Bound<'_, PyAny>, put_old: &Bound<'_, PyAny>) -> PyResult<()> {
        let (new, old) = (PathArg::new("pivot_root", new_root)?, PathArg::new("pivot_root", put_old)?);
        self.between("mount", (&new, None), (&old, None), |task, new, old| task.pivot_root(new.1, old.1))
    }

    /// `os.unshare`
    fn unshare(&self, py: Python<'_>, flags: u64) -> PyResult<()> {
        self.become_(py, |task| task.unshare(flags)).plain(py)
    }

    /// Writes the id maps of the task's user namespace from outside, as root would.
    fn map_ids(&self, py: Python<'_>, uid_map: Vec<Extent>, gid_map: Vec<Extent>) -> PyResult<()> {
        let _gate = gate::enter();
        write_maps(self.held().cred().user_ns(), &uid_map, &gid_map).plain(py)
    }

    /// A descriptor of a new user namespace with these maps, for `mount_setattr`.
    fn open_userns(&self, py: Python<'_>, uid_map: Vec<Extent>, gid_map: Vec<Extent>) -> PyResult<i32> {
        let _gate = gate::enter();
        let made = UserNamespace::new_child(&UserNamespace::init(), 0, 0, true).and_then(|ns| {
            write_maps(&ns, &uid_map, &gid_map)?;
            self.held().open_user_ns(&ns)
        });
        Ok(self.fd_out(made.plain(py)?))
    }

    /// Opens a file of `/proc/PID` of the task `of`, or of this one: `ns/user` and `ns/mnt` for `setns`, `uid_map`, `gid_map`
    /// and `setgroups` to be written. Every holder of a task may.
    #[pyo3(signature = (file, of=None))]
    fn open_proc(&self, py: Python<'_>, file: &str, of: Option<&Bound<'_, PyTask>>) -> PyResult<i32> {
        let file = match file {
            "ns/user" => ProcFile::UserNs,
            "ns/mnt" => ProcFile::MntNs,
            "uid_map" => ProcFile::UidMap,
            "gid_map" => ProcFile::GidMap,
            "setgroups" => ProcFile::Setgroups,
            _ => return Err(PyValueError::new_err(format!("no file {file:?}"))),
        };
        let _gate = gate::enter();
        // A child of it is in the same namespaces; two tasks are never locked at once.
        let of = of.map(|of| of.get().held().fork());
        let task = self.held();
        let fd = task.open_proc(of.as_ref().unwrap_or(&task), file).plain(py)?;
        Ok(self.fd_out(fd))
    }

    /// `os.setns`
    #[pyo3(signature = (fd, nstype=0))]
    fn setns(&self, py: Python<'_>, fd: i32, nstype: i32) -> PyResult<()> {
        let fd = self.fd_in(fd);
        self.become_(py, |task| task.setns(fd, nstype)).plain(py)
    }
}
