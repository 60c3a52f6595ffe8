//! What two audits say differently.

use std::collections::BTreeMap;
use std::io::BufRead;

use crate::output::{Head, SavedLine, text_and_hex};
use crate::right::RightSet;
use crate::run::Row;

/// The rows of an audit, kept or read back: by path, what each identity may do.
#[derive(Clone, Debug, Default)]
pub struct Saved {
    identities: Vec<String>,
    want: RightSet,
    rows: BTreeMap<Vec<u8>, Vec<RightSet>>,
}

/// Why a file holds no audit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedError {
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] std::io::Error),
    /// A line is none of those that an audit writes.
    #[error("line {line}: {reason}; name a file that `rcuwalk audit --json` wrote")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The file ends before the audit did.
    #[error("the audit in it is not complete; make it again")]
    Incomplete,
}

/// Something that one audit says and the other does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The entry.
    pub path: Vec<u8>,
    /// The label of the identity.
    pub identity: String,
    /// What it may do only in the new audit.
    pub gained: RightSet,
    /// What it may do only in the old audit.
    pub lost: RightSet,
}

impl Change {
    /// The change as one line: `+write  alice  /srv/x`. On a terminal, escapes stand for what would steer it.
    pub fn line(&self) -> String {
        let signs = self.gained.iter().map(|right| format!("+{}", right.name()));
        let signs: Vec<_> = signs.chain(self.lost.iter().map(|right| format!("-{}", right.name()))).collect();
        let (path, _) = text_and_hex(&self.path);
        let path: String = path
            .chars()
            .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
            .collect();
        format!("{}  {}  {path}", signs.join(","), self.identity)
    }

    /// The change as a JSON object.
    pub fn json(&self) -> serde_json::Value {
        let (path, hex) = text_and_hex(&self.path);
        let mut value = serde_json::json!({
            "path": path,
            "identity": self.identity,
            "gained": self.gained.names(),
            "lost": self.lost.names(),
        });
        if let Some(hex) = hex {
            value["path_hex"] = hex.into();
        }
        value
    }
}

impl Saved {
    /// An empty one, to which rows of this audit are added.
    pub fn new(head: &Head) -> Saved {
        Saved {
            identities: head.identities.iter().map(|who| who.label.clone()).collect(),
            want: head.want,
            rows: BTreeMap::new(),
        }
    }

    /// Keeps a row.
    pub fn add(&mut self, row: &Row) {
        let can = (0..self.identities.len()).map(|i| row.can(i)).collect();
        self.rows.insert(row.path.clone(), can);
    }

    /// Reads what [`Json`](crate::Json) wrote.
    ///
    /// # Errors
    ///
    /// [`SavedError`].
    pub fn read(mut input: impl BufRead) -> Result<Saved, SavedError> {
        let mut saved: Option<Saved> = None;
        let mut line = Vec::new();
        let mut number = 0;
        loop {
            line.clear();
            if input.read_until(b'\n', &mut line)? == 0 {
                return Err(if number == 0 { wrong(1, "the file is empty") } else { SavedError::Incomplete });
            }
            number += 1;
            let parsed = serde_json::from_slice(&line).map_err(|e| wrong(number, &e.to_string()))?;
            match (parsed, &mut saved) {
                (SavedLine::Head(head), None) => {
                    if head.rcuwalk_audit != crate::output::FORMAT {
                        return Err(wrong(number, "another version of the format"));
                    }
                    let want = head.can.join(",").parse().map_err(|e: String| wrong(number, &e))?;
                    let identities = head.identities.iter().map(|who| who.label.to_string()).collect();
                    saved = Some(Saved { identities, want, rows: BTreeMap::new() });
                }
                (SavedLine::Row(row), Some(saved)) => {
                    let path = match &row.path_hex {
                        Some(hex) => {
                            from_hex(hex).ok_or_else(|| wrong(number, "path_hex is no hexadecimal"))?
                        }
                        None => row.path.as_bytes().to_vec(),
                    };
                    let mut can = vec![RightSet::default(); saved.identities.len()];
                    for (label, rights) in &row.can {
                        let at = saved.identities.iter().position(|known| known == label);
                        let at =
                            at.ok_or_else(|| wrong(number, "an identity that the head does not have"))?;
                        can[at] = rights.join(",").parse().map_err(|e: String| wrong(number, &e))?;
                    }
                    saved.rows.insert(path, can);
                }
                (SavedLine::End(end), Some(_)) if !end.summary.complete => {
                    return Err(SavedError::Incomplete);
                }
                (SavedLine::End(_), Some(_)) => return Ok(saved.unwrap_or_default()),
                _ => return Err(wrong(number, "not where it belongs")),
            }
        }
    }
}

fn wrong(line: u64, reason: &str) -> SavedError {
    SavedError::Line { line, reason: reason.to_owned() }
}

fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
    let pair = |pair: &[u8]| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?);
    hex.as_bytes().chunks(2).map(pair).collect()
}

/// The comparison of two audits, as far as both asked the same.
#[derive(Debug)]
pub struct Diff<'a> {
    old: &'a Saved,
    new: &'a Saved,
}

impl<'a> Diff<'a> {
    /// Compares what both audits asked about the identities that have the same label in both.
    pub fn new(old: &'a Saved, new: &'a Saved) -> Diff<'a> {
        Diff { old, new }
    }

    /// Labels of identities that only one of the audits asked about.
    pub fn not_compared(&self) -> Vec<&'a str> {
        let (a, b) = (&self.old.identities, &self.new.identities);
        let only =
            |a: &'a [String], b: &'a [String]| a.iter().filter(|who| !b.contains(who)).map(String::as_str);
        only(a, b).chain(only(b, a)).collect()
    }

    /// The changes, by path.
    pub fn changes(&self) -> impl Iterator<Item = Change> + 'a {
        let (old, new) = (self.old, self.new);
        let want = old.want.and(new.want);
        let pairs: Vec<(usize, usize)> = (0..old.identities.len())
            .filter_map(|i| Some((i, new.identities.iter().position(|who| *who == old.identities[i])?)))
            .collect();
        let gone = old.rows.iter().filter(|(path, _)| !new.rows.contains_key(*path));
        let mut paths: Vec<&Vec<u8>> = new.rows.keys().chain(gone.map(|(path, _)| path)).collect();
        paths.sort_unstable();
        let set = move |saved: &'a Saved, path: &Vec<u8>, i: usize| {
            saved.rows.get(path).map_or(RightSet::default(), |can| can[i]).and(want)
        };
        paths.into_iter().flat_map(move |path| {
            let changes: Vec<Change> = pairs
                .iter()
                .map(|&(i, j)| (i, set(old, path, i), set(new, path, j)))
                .filter(|(_, before, after)| before != after)
                .map(|(i, before, after)| Change {
                    path: path.clone(),
                    identity: old.identities[i].clone(),
                    gained: after.without(before),
                    lost: before.without(after),
                })
                .collect();
            changes
        })
    }
}
