//! Reading TOML with positions: every complaint names the place, what is wrong and what would be right.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What is wrong with a row, and where (byte offset into the file).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Byte offset of the offending text.
    pub at: usize,
    /// What is wrong, in one sentence.
    pub message: String,
}

impl Problem {
    /// A problem at byte `at`.
    pub fn new(at: usize, message: impl Into<String>) -> Problem {
        Problem { at, message: message.into() }
    }
}

/// Result of reading a part of a row.
pub type Read<T> = Result<T, Problem>;

/// A TOML value and its place.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    at: usize,
    value: &'a DeValue<'a>,
}

impl<'a> Node<'a> {
    /// The value with its position.
    pub fn new(value: &'a Spanned<DeValue<'a>>) -> Node<'a> {
        Node { at: value.span().start, value: value.get_ref() }
    }

    /// Byte offset in the file.
    pub fn at(&self) -> usize {
        self.at
    }

    /// A problem with this value.
    pub fn problem(&self, message: impl Into<String>) -> Problem {
        Problem::new(self.at, message)
    }

    /// "expected X, found Y".
    fn mismatch(&self, wanted: &str) -> Problem {
        self.problem(format!("expected {wanted}, found a {}", self.value.type_str()))
    }

    /// The value as a string, if it is one.
    pub fn as_str(&self) -> Option<&'a str> {
        self.value.as_str()
    }

    /// The value as a table, if it is one.
    pub fn as_table(&self, what: &str) -> Option<Table<'a>> {
        self.value.as_table().map(|t| Table::new(self.at, t, what))
    }

    /// True if the value is an array.
    pub fn is_array(&self) -> bool {
        self.value.is_array()
    }

    /// True if the value is an integer.
    pub fn is_int(&self) -> bool {
        self.value.is_integer()
    }

    /// The value, which must be a string.
    pub fn str(&self) -> Read<&'a str> {
        self.value.as_str().ok_or_else(|| self.mismatch("a string"))
    }

    /// The value, which must be true or false.
    pub fn bool(&self) -> Read<bool> {
        self.value.as_bool().ok_or_else(|| self.mismatch("true or false"))
    }

    /// The value, which must be an integer that fits `i64` (hexadecimal and octal notation allowed).
    pub fn int(&self) -> Read<i64> {
        let int = self.value.as_integer().ok_or_else(|| self.mismatch("an integer"))?;
        let text = int.as_str().replace('_', "");
        i64::from_str_radix(&text, int.radix()).map_err(|e| self.problem(format!("{text}: {e}")))
    }

    /// The value, which must be an integer from `min` to `max`.
    pub fn int_in(&self, min: i64, max: i64) -> Read<i64> {
        let n = self.int()?;
        if (min..=max).contains(&n) {
            Ok(n)
        } else {
            Err(self.problem(format!("{n} is outside {min}..={max}")))
        }
    }

    /// The elements of the value, which must be an array.
    pub fn array(&self) -> Read<Vec<Node<'a>>> {
        let array = self.value.as_array().ok_or_else(|| self.mismatch("an array"))?;
        Ok(array.iter().map(Node::new).collect())
    }

    /// The value, which must be an array of strings.
    pub fn strings(&self) -> Read<Vec<&'a str>> {
        self.array()?.iter().map(Node::str).collect()
    }

    /// The value, which must be a table; `what` names it in complaints about its keys.
    pub fn table(&self, what: &str) -> Read<Table<'a>> {
        self.as_table(what).ok_or_else(|| self.mismatch("a table"))
    }
}

/// A TOML table whose keys are taken one by one; [`Table::finish`] rejects what nobody took.
#[derive(Debug)]
pub struct Table<'a> {
    at: usize,
    what: String,
    entries: BTreeMap<&'a str, (usize, Node<'a>)>,
    known: Vec<&'static str>,
}

impl<'a> Table<'a> {
    /// A reader over `table`, found at byte `at` and called `what` in complaints.
    pub fn new(at: usize, table: &'a DeTable<'a>, what: &str) -> Table<'a> {
        let entries = table
            .iter()
            .map(|(key, value)| (key.get_ref().as_ref(), (key.span().start, Node::new(value))))
            .collect();
        Table { at, what: what.to_owned(), entries, known: Vec::new() }
    }

    /// Byte offset in the file.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Changes the name used in complaints.
    pub fn call_it(&mut self, what: impl Into<String>) {
        self.what = what.into();
    }

    /// Takes an optional key.
    pub fn take(&mut self, key: &'static str) -> Option<Node<'a>> {
        self.known.push(key);
        self.entries.remove(key).map(|(_, node)| node)
    }

    /// Takes a key that must be there.
    pub fn need(&mut self, key: &'static str) -> Read<Node<'a>> {
        match self.take(key) {
            Some(node) => Ok(node),
            None => Err(Problem::new(self.at, format!("{} needs `{key}`", self.what))),
        }
    }

    /// All remaining keys with their values, for tables whose keys are free.
    pub fn rest(&mut self) -> Vec<(&'a str, Node<'a>)> {
        std::mem::take(&mut self.entries).into_iter().map(|(key, (_, node))| (key, node)).collect()
    }

    /// Rejects keys that nobody took.
    pub fn finish(self) -> Read<()> {
        let Some((key, (at, _))) = self.entries.iter().next() else { return Ok(()) };
        let message = if self.known.is_empty() {
            format!("{} takes no key `{key}`", self.what)
        } else {
            format!("{} has no key `{key}`{}", self.what, alternatives(key, &self.known))
        };
        Err(Problem::new(*at, message))
    }
}

/// "; did you mean X?" if something is close, "; known: a, b, c" otherwise.
pub fn alternatives(word: &str, known: &[&str]) -> String {
    let close = known
        .iter()
        .map(|k| (distance(word, k), *k))
        .filter(|(d, k)| *d <= 1 + k.len().min(word.len()) / 4)
        .min();
    match close {
        Some((_, k)) => format!("; did you mean `{k}`?"),
        None if known.len() <= 60 => format!("; known: {}", known.join(", ")),
        None => String::new(),
    }
}

/// Levenshtein distance, ignoring case.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_ascii_lowercase(), b.to_ascii_lowercase());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Line and column (both from 1) of byte `at` in `text`.
pub fn line_column(text: &str, at: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = before.iter().filter(|b| **b == b'\n').count() + 1;
    let start = before.iter().rposition(|b| *b == b'\n').map_or(0, |p| p + 1);
    (line, before.len() - start + 1)
}

/// `bytes` as a TOML basic string; not for bytes that are not UTF-8.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_word_is_suggested() {
        assert_eq!(alternatives("pth", &["path", "flags"]), "; did you mean `path`?");
        assert_eq!(alternatives("zzz", &["path", "flags"]), "; known: path, flags");
    }

    #[test]
    fn positions_count_from_one() {
        assert_eq!(line_column("ab\ncd", 0), (1, 1));
        assert_eq!(line_column("ab\ncd", 4), (2, 2));
    }

    #[test]
    fn quoting_survives_a_round_trip() {
        let text = "a\"b\\c\n\t\u{1}é";
        let doc = format!("k = {}", quote(text));
        let table = DeTable::parse(&doc).expect("valid TOML");
        assert_eq!(table.get_ref().get("k").and_then(|v| v.get_ref().as_str()), Some(text));
    }
}
