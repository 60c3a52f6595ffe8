//! `divergences.toml`: rows that a backend is known to fail, each with its reason.
//!
//! Strict: an entry whose row passes, or whose row does not exist, is an error. So the file states exactly what
//! differs, no more.

use std::collections::BTreeMap;
use std::path::Path;

use toml::de::DeTable;

use crate::case::{Case, LoadError};
use crate::read::{Problem, Read, Table, alternatives, line_column};

/// Known failures: by backend, then by full name of the row, the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Divergences {
    entries: BTreeMap<(String, String), String>,
}

impl Divergences {
    /// Loads the file; each entry must name a row of `cases`. A file that does not exist has no entries.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn load(file: &Path, cases: &[Case]) -> Result<Divergences, LoadError> {
        let error = |line, column, message: String| LoadError {
            file: file.to_owned(),
            line,
            column,
            case: None,
            message,
        };
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Divergences::default()),
            Err(e) => return Err(error(0, 0, e.to_string())),
        };
        let at = |offset| line_column(&text, offset);
        let document = DeTable::parse(&text).map_err(|e| {
            let (line, column) = at(e.span().map_or(0, |s| s.start));
            error(line, column, e.message().to_owned())
        })?;
        read(Table::new(0, document.get_ref(), "a file of divergences"), cases).map_err(|problem| {
            let (line, column) = at(problem.at);
            error(line, column, problem.message)
        })
    }

    /// Why `case` is expected to fail on `backend`, if it is.
    pub fn reason(&self, backend: &str, case: &Case) -> Option<&str> {
        self.entries.get(&(backend.to_owned(), case.full_name())).map(String::as_str)
    }
}

fn read(mut top: Table<'_>, cases: &[Case]) -> Read<Divergences> {
    let mut entries = BTreeMap::new();
    let list = top.take("divergence").map_or(Ok(Vec::new()), |n| n.array())?;
    top.finish()?;
    for node in list {
        let mut table = node.table("a divergence")?;
        let name = table.need("case")?;
        let known: Vec<String> = cases.iter().map(Case::full_name).collect();
        if !known.iter().any(|k| k == name.str().unwrap_or_default()) {
            let names: Vec<&str> = known.iter().map(String::as_str).collect();
            return Err(name.problem(format!(
                "no case `{}`{}",
                name.str()?,
                alternatives(name.str()?, &names)
            )));
        }
        let backends = table.need("backends")?.strings()?;
        let reason = table.need("reason")?;
        if reason.str()?.trim().is_empty() {
            return Err(reason.problem("a divergence needs its reason"));
        }
        let at = table.at();
        table.finish()?;
        for backend in backends {
            let key = (backend.to_owned(), name.str()?.to_owned());
            if entries.insert(key, reason.str()?.to_owned()).is_some() {
                return Err(Problem::new(at, "a second divergence of this case and backend"));
            }
        }
    }
    Ok(Divergences { entries })
}
