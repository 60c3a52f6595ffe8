//! SARIF, which code hosts show beside a change.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::output::{Head, Output};
use crate::rule::Rule;
use crate::run::{Row, Summary};

/// Writes SARIF 2.1.0: a result for each entry that breaks a rule. Without rules, a note for each entry.
#[derive(Debug)]
pub struct Sarif<W: Write> {
    head: Head,
    rules: Vec<Rule>,
    out: W,
    results: Vec<Value>,
}

impl<W: Write> Sarif<W> {
    /// Results for these rules.
    pub fn new(head: &Head, rules: &[Rule], out: W) -> Sarif<W> {
        Sarif { head: head.clone(), rules: rules.to_vec(), out, results: Vec::new() }
    }

    fn add(&mut self, rule: &str, level: &str, message: String, path: &[u8]) {
        self.results.push(json!({
            "ruleId": rule,
            "level": level,
            "message": { "text": message },
            "locations": [{ "physicalLocation": { "artifactLocation": { "uri": uri(path) } } }],
        }));
    }
}

/// A path as a URI reference, relative to the root of what was audited.
fn uri(path: &[u8]) -> String {
    let mut out = String::new();
    for &b in path.strip_prefix(b"/").unwrap_or(path) {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => out.push(b.into()),
            b => out.push_str(&format!("%{b:02X}")),
        }
    }
    if out.is_empty() { ".".into() } else { out }
}

impl<W: Write> Output for Sarif<W> {
    fn row(&mut self, row: &Row) -> io::Result<()> {
        let path = String::from_utf8_lossy(&row.path).into_owned();
        let facts = format!("{path} ({:04o}, owner {}, group {})", row.mode & 0o7777, row.uid, row.gid);
        for rule in self.rules.clone() {
            for (i, can) in rule.broken_by(row, &self.head.identities) {
                let message = format!("{} may {can} {facts}", self.head.identities[i].label);
                self.add(&rule.to_string(), "error", message, &row.path);
            }
        }
        if self.rules.is_empty() {
            for i in 0..self.head.identities.len() {
                let can = row.can(i);
                if !can.is_empty() {
                    let message = format!("{} may {can} {facts}", self.head.identities[i].label);
                    self.add("may", "note", message, &row.path);
                }
            }
        }
        Ok(())
    }

    fn end(&mut self, summary: &Summary) -> io::Result<()> {
        let rules: Vec<Value> = match &self.rules[..] {
            [] => vec![json!({ "id": "may", "shortDescription": { "text": "what an identity may do" } })],
            rules => rules
                .iter()
                .map(|rule| json!({ "id": rule.to_string(), "shortDescription": { "text": format!("nobody may {rule}") } }))
                .collect(),
        };
        let log = json!({
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{
                "tool": { "driver": {
                    "name": "rcuwalk audit",
                    "version": env!("CARGO_PKG_VERSION"),
                    "rules": rules,
                } },
                "invocations": [{ "executionSuccessful": summary.complete }],
                "results": self.results,
            }],
        });
        serde_json::to_writer_pretty(&mut self.out, &log)?;
        self.out.write_all(b"\n")?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn paths_are_uri_references() {
        assert_eq!(super::uri(b"/a b/\xc3\xa4%"), "a%20b/%C3%A4%25");
        assert_eq!(super::uri(b"/"), ".");
    }
}
