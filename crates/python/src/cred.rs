//! `Cred`: who a task is.

use crate::error::Answer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};
use rcuwalk::Cred;
use rcuwalk::cred::{CAP_NAMES, CapSet};
use rcuwalk_host::parse_caps;

/// A credential: ids, groups, capabilities. It never changes.
#[pyclass(name = "Cred", module = "rcuwalk", frozen)]
#[derive(Debug, Clone)]
pub(crate) struct PyCred(pub(crate) Cred);

/// Sets of capabilities: a mask, `"full"`, `"none"`, or names, in one string or several.
///
/// # Errors
///
/// `ValueError` for an unknown name, `TypeError` for another type.
pub(crate) fn cap_set(object: &Bound<'_, PyAny>) -> PyResult<CapSet> {
    if object.is_instance_of::<PyInt>() {
        return object.extract().map(CapSet);
    }
    if let Ok(text) = object.cast::<PyString>() {
        return named(text.to_str()?);
    }
    let wrong = |_| PyTypeError::new_err("capabilities are a mask, a string, or strings");
    let parts = object.try_iter().map_err(wrong)?;
    parts.into_iter().try_fold(CapSet::EMPTY, |all, part| Ok(all | cap_set(&part?)?))
}

fn named(text: &str) -> PyResult<CapSet> {
    match text {
        "full" => Ok(CapSet::FULL),
        // "A|B" is how the rows of cases/*.toml write a set.
        _ => parse_caps(&text.replace('|', ",")).map_err(|error| PyValueError::new_err(error.to_string())),
    }
}

#[pymethods]
impl PyCred {
    /// Ids that are not given follow the one before, as setresuid(2) would leave it; capabilities follow the kernel's
    /// rule: root has all, others have none.
    #[new]
    #[pyo3(signature = (uid=0, gid=None, groups=Vec::new(), caps=None, *, euid=None, suid=None, fsuid=None, egid=None,
        sgid=None, fsgid=None, effective=None, permitted=None, inheritable=None, ambient=None, bounding=None, securebits=0))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        uid: u32,
        gid: Option<u32>,
        groups: Vec<u32>,
        caps: Option<&Bound<'_, PyAny>>,
        euid: Option<u32>,
        suid: Option<u32>,
        fsuid: Option<u32>,
        egid: Option<u32>,
        sgid: Option<u32>,
        fsgid: Option<u32>,
        effective: Option<&Bound<'_, PyAny>>,
        permitted: Option<&Bound<'_, PyAny>>,
        inheritable: Option<&Bound<'_, PyAny>>,
        ambient: Option<&Bound<'_, PyAny>>,
        bounding: Option<&Bound<'_, PyAny>>,
        securebits: u32,
    ) -> PyResult<PyCred> {
        let gid = gid.unwrap_or(uid);
        let (euid, egid) = (euid.unwrap_or(uid), egid.unwrap_or(gid));
        let uids = [uid, euid, suid.unwrap_or(euid), fsuid.unwrap_or(euid)];
        let gids = [gid, egid, sgid.unwrap_or(egid), fsgid.unwrap_or(egid)];
        let set = |given: Option<&Bound<'_, PyAny>>, usual| given.map_or(Ok(usual), cap_set);
        let bounding = set(bounding, CapSet::FULL)?;
        let inheritable = set(inheritable, CapSet::EMPTY)?;
        let ambient = set(ambient, CapSet::EMPTY)?;
        let all = caps.map(cap_set).transpose()?;
        let of_root = |is_root: bool| if is_root { CapSet::FULL } else { ambient };
        let permitted = set(permitted, all.unwrap_or(of_root(uids[..3].contains(&0))))?;
        let effective = set(effective, all.unwrap_or(if euid == 0 { permitted } else { ambient }))?;
        let cred = Cred::builder()
            .uids(uids[0], uids[1], uids[2], uids[3])
            .gids(gids[0], gids[1], gids[2], gids[3])
            .groups(&groups)
            .permitted(permitted)
            .effective(effective)
            .inheritable(inheritable)
            .ambient(ambient)
            .bounding(bounding)
            .securebits(securebits)
            .build();
        cred.map(PyCred).plain(py)
    }

    /// User id 0 with every capability.
    #[staticmethod]
    fn root() -> PyCred {
        PyCred(Cred::root())
    }

    /// An ordinary user.
    #[staticmethod]
    #[pyo3(signature = (uid, gid=None, groups=Vec::new()))]
    fn user(py: Python<'_>, uid: u32, gid: Option<u32>, groups: Vec<u32>) -> PyResult<PyCred> {
        PyCred::new(
            py, uid, gid, groups, None, None, None, None, None, None, None, None, None, None, None, None, 0,
        )
    }

    /// Real, effective, saved and file system user id.
    #[getter]
    fn uids(&self) -> (u32, u32, u32, u32) {
        (self.0.uid(), self.0.euid(), self.0.suid(), self.0.fsuid())
    }

    /// Real, effective, saved and file system group id.
    #[getter]
    fn gids(&self) -> (u32, u32, u32, u32) {
        (self.0.gid(), self.0.egid(), self.0.sgid(), self.0.fsgid())
    }

    /// Supplementary groups.
    #[getter]
    fn groups(&self) -> Vec<u32> {
        self.0.groups().to_vec()
    }

    /// Names of the effective capabilities.
    #[getter]
    fn capabilities(&self) -> Vec<&'static str> {
        let effective = self.0.effective();
        (0u32..).zip(CAP_NAMES).filter(|(cap, _)| effective.contains(*cap)).map(|(_, name)| name).collect()
    }

    fn __repr__(&self) -> String {
        let [uid, gid] = [self.0.fsuid(), self.0.fsgid()];
        format!("Cred(uid={uid}, gid={gid}, groups={:?}, caps={:#x})", self.0.groups(), self.0.effective().0)
    }
}
