//! What several identities may do with everything in a tree, as rows and as Arrow.

use crate::args::{PathArg, name_str};
use crate::error::os_error;
use crate::gate;
use crate::vfs::PyVfs;
use arrow_array::builder::{BinaryBuilder, BooleanBuilder, UInt32Builder};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchIterator};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use rcuwalk_audit::{Audit, AuditError, Identity, Right, RightSet, Row, Summary};
use rcuwalk_host::HostNames;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The entries of a tree that the identities asked about may do something with.
#[pyclass(name = "AuditRows", module = "rcuwalk", frozen)]
#[derive(Debug)]
pub(crate) struct PyAudit {
    labels: Vec<String>,
    want: RightSet,
    rows: Vec<Row>,
    summary: Summary,
}

/// Audits the tree below `top` for identities such as `"1000:1000,27"`, `"alice"` or `"1000+CAP_FOWNER"`.
#[pyfunction]
#[pyo3(signature = (vfs, identities, top, want="all"))]
pub(crate) fn audit_rows(
    vfs: &Bound<'_, PyVfs>,
    identities: Vec<String>,
    top: &Bound<'_, PyAny>,
    want: &str,
) -> PyResult<PyAudit> {
    let py = vfs.py();
    let want: RightSet = want.parse().map_err(PyValueError::new_err)?;
    let arg = PathArg::new("audit", top)?;
    let (path, engine) = (arg.bytes(), &vfs.get().0.vfs);
    let parsed =
        identities.iter().map(|text| Identity::parse(text, &HostNames)).collect::<Result<Vec<_>, _>>();
    let identities = parsed.map_err(|error| PyValueError::new_err(error.to_string()))?;
    let audited = py.detach(|| {
        let _gate = gate::enter();
        let audit = Audit::new(engine, path, &identities, want)?;
        let mut rows = Vec::new();
        let summary = audit.run(
            |_| ControlFlow::Continue(()),
            |row| {
                rows.push(row.clone());
                ControlFlow::Continue(())
            },
        )?;
        Ok((rows, summary))
    });
    let labels = identities.into_iter().map(|who| who.label).collect();
    match audited {
        Ok((rows, mut summary)) => {
            // Relaxed: a single word that orders nothing.
            summary.complete &= !vfs.get().0.incomplete.load(Ordering::Relaxed);
            Ok(PyAudit { labels, want, rows, summary })
        }
        Err(AuditError::NoTop { errno, .. }) => Err(os_error(py, errno, &[top])),
        Err(error) => Err(PyValueError::new_err(error.to_string())),
    }
}

impl PyAudit {
    /// A column for each property, and one for each identity and right that was asked for.
    fn schema(&self) -> Schema {
        let mut fields = vec![Field::new("path", DataType::Binary, false)];
        fields.extend(["mode", "uid", "gid"].map(|name| Field::new(name, DataType::UInt32, false)));
        fields.extend(["acl", "caps"].map(|name| Field::new(name, DataType::Boolean, false)));
        for label in &self.labels {
            let right =
                |right: Right| Field::new(format!("{label}:{}", right.name()), DataType::Boolean, false);
            fields.extend(self.want.iter().map(right));
        }
        Schema::new(fields)
    }

    fn batch(&self) -> Result<RecordBatch, ArrowError> {
        let mut path = BinaryBuilder::new();
        self.rows.iter().for_each(|row| path.append_value(&row.path));
        let number = |of: fn(&Row) -> u32| -> ArrayRef {
            let mut column = UInt32Builder::new();
            self.rows.iter().for_each(|row| column.append_value(of(row)));
            Arc::new(column.finish())
        };
        let flag = |of: &dyn Fn(&Row) -> bool| -> ArrayRef {
            let mut column = BooleanBuilder::new();
            self.rows.iter().for_each(|row| column.append_value(of(row)));
            Arc::new(column.finish())
        };
        let mut columns: Vec<ArrayRef> = vec![Arc::new(path.finish())];
        columns.extend([number(|row| row.mode), number(|row| row.uid), number(|row| row.gid)]);
        columns.extend([flag(&|row| row.acl), flag(&|row| row.caps)]);
        for identity in 0..self.labels.len() {
            columns.extend(self.want.iter().map(|right| flag(&|row| row.can(identity).contains(right))));
        }
        RecordBatch::try_new(Arc::new(self.schema()), columns)
    }
}

fn arrow_error(error: ArrowError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

#[pymethods]
impl PyAudit {
    fn __len__(&self) -> usize {
        self.rows.len()
    }

    /// Names of the identities.
    #[getter]
    fn identities(&self) -> Vec<String> {
        self.labels.clone()
    }

    /// Names of the rights that were asked for.
    #[getter]
    fn rights(&self) -> Vec<&'static str> {
        self.want.names()
    }

    /// Entries looked at, rows, directories nobody may search, whether the whole tree was gone through and had been imported whole.
    #[getter]
    fn summary(&self) -> (u64, u64, u64, bool) {
        (self.summary.entries, self.summary.rows, self.summary.closed, self.summary.complete)
    }

    /// One row: path, type, mode, uid, gid, has an ACL, has capabilities, rights by identity.
    #[allow(clippy::type_complexity)]
    fn row<'py>(
        &self,
        py: Python<'py>,
        index: usize,
    ) -> PyResult<(Bound<'py, PyAny>, &'static str, u32, u32, u32, bool, bool, Vec<Vec<&'static str>>)> {
        let row = self.rows.get(index).ok_or_else(|| PyIndexError::new_err("no such row"))?;
        let rights = (0..self.labels.len()).map(|identity| row.can(identity).names()).collect();
        Ok((name_str(py, &row.path)?, row.kind(), row.mode, row.uid, row.gid, row.acl, row.caps, rights))
    }

    /// The Arrow PyCapsule interface: the schema.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&self.schema()).map_err(arrow_error)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// The Arrow PyCapsule interface: one batch with all rows, in the schema of its own.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A consumer may wish for another schema, and has to be content with this one.
        let _ = requested_schema;
        let batch = py.detach(|| self.batch()).map_err(arrow_error)?;
        let schema = batch.schema();
        let reader = RecordBatchIterator::new([Ok(batch)], schema);
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}
