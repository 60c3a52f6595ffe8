//! `divergences.toml`: rows that a backend is known to fail, each with its reason.
//!
//! Strict: an entry whose row passes, or whose row does not exist, is an error. So the file states exactly what
//! differs, no more.

use std::collections::BTreeMap;
use std::path::Path;

use toml::de::DeTable;

use crate::case::{Case, LoadError};
use crate::read::{Problem, Read, Table, alternatives, line_column};

/// Known failures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Divergences {
    /// By backend and full name of the row, the reason.
    rows: BTreeMap<(String, String), String>,
    /// Parts of descriptions of differences that the fuzzer finds.
    fuzz: Vec<String>,
}

impl Divergences {
    /// Loads the file; each entry for a row must name a row of `cases`. A file that does not exist has no entries.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn load(file: &Path, cases: &[Case]) -> Result<Divergences, LoadError> {
        let names: Vec<String> = cases.iter().map(Case::full_name).collect();
        load(file, Some(&names))
    }

    /// Loads the known differences of the fuzzer.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn load_fuzz(file: &Path) -> Result<Vec<String>, LoadError> {
        load(file, None).map(|divergences| divergences.fuzz)
    }

    /// Why `case` is expected to fail on `backend`, if it is.
    pub fn reason(&self, backend: &str, case: &Case) -> Option<&str> {
        self.rows.get(&(backend.to_owned(), case.full_name())).map(String::as_str)
    }
}

fn load(file: &Path, names: Option<&[String]>) -> Result<Divergences, LoadError> {
    let error =
        |line, column, message| LoadError { file: file.to_owned(), line, column, case: None, message };
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Divergences::default()),
        Err(e) => return Err(error(0, 0, e.to_string())),
    };
    let document = DeTable::parse(&text).map_err(|e| {
        let (line, column) = line_column(&text, e.span().map_or(0, |s| s.start));
        error(line, column, e.message().to_owned())
    })?;
    read(Table::new(0, document.get_ref(), "a file of divergences"), names).map_err(|problem| {
        let (line, column) = line_column(&text, problem.at);
        error(line, column, problem.message)
    })
}

fn read(mut top: Table<'_>, names: Option<&[String]>) -> Read<Divergences> {
    let mut divergences = Divergences::default();
    let list = top.take("divergence").map_or(Ok(Vec::new()), |n| n.array())?;
    let fuzz = top.take("fuzz").map_or(Ok(Vec::new()), |n| n.array())?;
    top.finish()?;
    for node in list {
        let mut table = node.table("a divergence")?;
        let name = table.need("case")?;
        if let Some(names) = names.filter(|names| !names.iter().any(|n| n == name.str().unwrap_or_default()))
        {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            return Err(name.problem(format!(
                "no case `{}`{}",
                name.str()?,
                alternatives(name.str()?, &names)
            )));
        }
        let backends = table.need("backends")?.strings()?;
        let reason = reason(&mut table)?;
        let at = table.at();
        table.finish()?;
        for backend in backends {
            let key = (backend.to_owned(), name.str()?.to_owned());
            if divergences.rows.insert(key, reason.clone()).is_some() {
                return Err(Problem::new(at, "a second divergence of this case and backend"));
            }
        }
    }
    for node in fuzz {
        let mut table = node.table("a difference of the fuzzer")?;
        divergences.fuzz.push(table.need("difference")?.str()?.to_owned());
        reason(&mut table)?;
        table.finish()?;
    }
    Ok(divergences)
}

fn reason(table: &mut Table<'_>) -> Read<String> {
    let node = table.need("reason")?;
    match node.str()?.trim() {
        "" => Err(node.problem("a divergence needs its reason")),
        reason => Ok(reason.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Divergences, String> {
        let document = DeTable::parse(text).map_err(|e| e.to_string())?;
        let names = ["path/a".to_owned()];
        read(Table::new(0, document.get_ref(), "a file of divergences"), Some(&names)).map_err(|p| p.message)
    }

    #[test]
    fn entries_name_rows_that_exist_and_give_reasons() {
        let good = "[[divergence]]\ncase = \"path/a\"\nbackends = [\"engine\"]\nreason = \"r\"\n";
        assert_eq!(parse(good).expect("well-formed").rows.len(), 1);
        assert!(
            parse(&good.replace("path/a", "path/b")).expect_err("no such row").contains("no case `path/b`")
        );
        assert!(parse(&good.replace("\"r\"", "\" \"")).expect_err("no reason").contains("reason"));
        assert!(parse(&good.repeat(2)).expect_err("twice").contains("second"));
        assert!(parse("[[fuzz]]\ndifference = \"x\"\n").expect_err("no reason").contains("needs `reason`"));
    }
}
