//! Who a task is: ids, groups, capabilities, and what else prctl(2) keeps.

use super::PyTask;
use crate::cred::cap_set;
use crate::error::Answer;
use crate::gate;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rcuwalk::cred::CapSet;
use rcuwalk::{CapData, Result, Rlimit, Task};

/// An id as `os` takes it: -1 is the one that means none.
pub(super) fn id(value: i64) -> PyResult<u32> {
    match value {
        -1 => Ok(u32::MAX),
        _ => u32::try_from(value).map_err(|_| {
            PyOverflowError::new_err(if value < 0 {
                "id is less than minimum"
            } else {
                "id is greater than maximum"
            })
        }),
    }
}

/// The number of a capability; what no number can be is one that does not exist.
fn number(cap: i64) -> u32 {
    u32::try_from(cap).unwrap_or(u32::MAX)
}

impl PyTask {
    fn change_ids(&self, py: Python<'_>, call: impl FnOnce(&mut Task) -> Result<()> + Send) -> PyResult<()> {
        self.become_(py, call).plain(py)
    }
}

#[pymethods]
impl PyTask {
    /// `os.getuid`
    fn getuid(&self) -> u32 {
        self.held().getuid()
    }

    /// `os.geteuid`
    fn geteuid(&self) -> u32 {
        self.held().geteuid()
    }

    /// `os.getgid`
    fn getgid(&self) -> u32 {
        self.held().getgid()
    }

    /// `os.getegid`
    fn getegid(&self) -> u32 {
        self.held().getegid()
    }

    /// `os.getresuid`
    fn getresuid(&self) -> (u32, u32, u32) {
        self.held().getresuid().into()
    }

    /// `os.getresgid`
    fn getresgid(&self) -> (u32, u32, u32) {
        self.held().getresgid().into()
    }

    /// `os.getgroups`
    fn getgroups(&self) -> Vec<u32> {
        self.held().getgroups()
    }

    /// `os.setuid`
    fn setuid(&self, py: Python<'_>, uid: i64) -> PyResult<()> {
        let uid = id(uid)?;
        self.change_ids(py, |task| task.setuid(uid))
    }

    /// `os.setgid`
    fn setgid(&self, py: Python<'_>, gid: i64) -> PyResult<()> {
        let gid = id(gid)?;
        self.change_ids(py, |task| task.setgid(gid))
    }

    /// `os.seteuid`
    fn seteuid(&self, py: Python<'_>, euid: i64) -> PyResult<()> {
        let euid = id(euid)?;
        self.change_ids(py, |task| task.setresuid(u32::MAX, euid, u32::MAX))
    }

    /// `os.setegid`
    fn setegid(&self, py: Python<'_>, egid: i64) -> PyResult<()> {
        let egid = id(egid)?;
        self.change_ids(py, |task| task.setresgid(u32::MAX, egid, u32::MAX))
    }

    /// `os.setreuid`
    fn setreuid(&self, py: Python<'_>, ruid: i64, euid: i64) -> PyResult<()> {
        let (ruid, euid) = (id(ruid)?, id(euid)?);
        self.change_ids(py, |task| task.setreuid(ruid, euid))
    }

    /// `os.setregid`
    fn setregid(&self, py: Python<'_>, rgid: i64, egid: i64) -> PyResult<()> {
        let (rgid, egid) = (id(rgid)?, id(egid)?);
        self.change_ids(py, |task| task.setregid(rgid, egid))
    }

    /// `os.setresuid`
    fn setresuid(&self, py: Python<'_>, ruid: i64, euid: i64, suid: i64) -> PyResult<()> {
        let (ruid, euid, suid) = (id(ruid)?, id(euid)?, id(suid)?);
        self.change_ids(py, |task| task.setresuid(ruid, euid, suid))
    }

    /// `os.setresgid`
    fn setresgid(&self, py: Python<'_>, rgid: i64, egid: i64, sgid: i64) -> PyResult<()> {
        let (rgid, egid, sgid) = (id(rgid)?, id(egid)?, id(sgid)?);
        self.change_ids(py, |task| task.setresgid(rgid, egid, sgid))
    }

    /// `os.setgroups`
    fn setgroups(&self, py: Python<'_>, groups: Vec<u32>) -> PyResult<()> {
        self.change_ids(py, |task| task.setgroups(&groups))
    }

    /// setfsuid(2): gives the old id, whether it was changed or not.
    fn setfsuid(&self, py: Python<'_>, fsuid: i64) -> PyResult<u32> {
        let fsuid = id(fsuid)?;
        Ok(self.become_(py, |task| task.setfsuid(fsuid)))
    }

    /// setfsgid(2): gives the old id, whether it was changed or not.
    fn setfsgid(&self, py: Python<'_>, fsgid: i64) -> PyResult<u32> {
        let fsgid = id(fsgid)?;
        Ok(self.become_(py, |task| task.setfsgid(fsgid)))
    }

    /// capget(2): masks named `effective`, `permitted` and `inheritable`.
    fn capget<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let sets = self.held().capget();
        let out = PyDict::new(py);
        out.set_item("effective", sets.effective.0)?;
        out.set_item("permitted", sets.permitted.0)?;
        out.set_item("inheritable", sets.inheritable.0)?;
        Ok(out)
    }

    /// capset(2)
    fn capset(
        &self,
        py: Python<'_>,
        effective: &Bound<'_, PyAny>,
        permitted: &Bound<'_, PyAny>,
        inheritable: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let read = |set: &Bound<'_, PyAny>| -> PyResult<CapSet> { cap_set(set) };
        let sets = CapData {
            effective: read(effective)?,
            permitted: read(permitted)?,
            inheritable: read(inheritable)?,
        };
        self.change_ids(py, |task| task.capset(sets))
    }

    /// prctl(2) `PR_GET_SECUREBITS`
    fn get_securebits(&self) -> u32 {
        self.held().get_securebits()
    }

    /// prctl(2) `PR_SET_SECUREBITS`
    fn set_securebits(&self, py: Python<'_>, bits: u32) -> PyResult<()> {
        self.change_ids(py, |task| task.set_securebits(bits))
    }

    /// prctl(2) `PR_GET_KEEPCAPS`
    fn get_keepcaps(&self) -> bool {
        self.held().get_keepcaps()
    }

    /// prctl(2) `PR_SET_KEEPCAPS`
    fn set_keepcaps(&self, py: Python<'_>, keep: bool) -> PyResult<()> {
        self.change_ids(py, |task| task.set_keepcaps(keep))
    }

    /// prctl(2) `PR_GET_NO_NEW_PRIVS`
    fn get_no_new_privs(&self) -> bool {
        self.held().no_new_privs()
    }

    /// prctl(2) `PR_SET_NO_NEW_PRIVS`
    fn set_no_new_privs(&self, py: Python<'_>) {
        self.become_(py, Task::set_no_new_privs);
    }

    /// prctl(2) `PR_CAPBSET_READ`
    fn capbset_read(&self, py: Python<'_>, cap: i64) -> PyResult<bool> {
        let cap = number(cap);
        self.held().capbset_read(cap).plain(py)
    }

    /// prctl(2) `PR_CAPBSET_DROP`
    fn capbset_drop(&self, py: Python<'_>, cap: i64) -> PyResult<()> {
        let cap = number(cap);
        self.change_ids(py, |task| task.capbset_drop(cap))
    }

    /// prctl(2) `PR_CAP_AMBIENT_IS_SET`
    fn ambient_is_set(&self, py: Python<'_>, cap: i64) -> PyResult<bool> {
        let cap = number(cap);
        self.held().cap_ambient_is_set(cap).plain(py)
    }

    /// prctl(2) `PR_CAP_AMBIENT_RAISE`
    fn ambient_raise(&self, py: Python<'_>, cap: i64) -> PyResult<()> {
        let cap = number(cap);
        self.change_ids(py, |task| task.cap_ambient_raise(cap))
    }

    /// prctl(2) `PR_CAP_AMBIENT_LOWER`
    fn ambient_lower(&self, py: Python<'_>, cap: i64) -> PyResult<()> {
        let cap = number(cap);
        self.change_ids(py, |task| task.cap_ambient_lower(cap))
    }

    /// prctl(2) `PR_CAP_AMBIENT_CLEAR_ALL`
    fn ambient_clear(&self, py: Python<'_>) {
        self.become_(py, Task::cap_ambient_clear_all);
    }

    /// setrlimit(2), the soft limit: `nofile` descriptors, bytes of a file (`fsize`), bytes of the stack (`stack`).
    #[pyo3(signature = (*, nofile=None, fsize=None, stack=None))]
    fn setrlimit(&self, py: Python<'_>, nofile: Option<usize>, fsize: Option<u64>, stack: Option<u64>) {
        self.become_(py, |task| {
            if let Some(limit) = nofile {
                task.set_nofile_limit(limit);
            }
            if let Some(limit) = fsize {
                task.set_fsize_limit(limit);
            }
            if let Some(limit) = stack {
                task.set_stack_limit(limit);
            }
        });
    }

    /// `resource.prlimit` of this task: the soft and the hard limit as they were, `RLIM_INFINITY` for none.
    #[pyo3(signature = (resource, limits=None))]
    fn prlimit(&self, py: Python<'_>, resource: u32, limits: Option<(i64, i64)>) -> PyResult<(i64, i64)> {
        let _gate = gate::enter();
        let task = self.held();
        let old = task.getrlimit(resource).plain(py)?;
        if let Some((cur, max)) = limits {
            task.setrlimit(resource, Rlimit { cur: cur as u64, max: max as u64 }).plain(py)?;
        }
        Ok((old.cur as i64, old.max as i64))
    }
}
