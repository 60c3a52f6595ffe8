//! What the rows cover: which calls they make, and which answers of each they demand.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::case::Case;
use crate::errno;
use crate::expect::Expect;
use crate::op::Op;

/// What rows say about one call.
#[derive(Debug, Default)]
struct Covered {
    rows: BTreeSet<String>,
    made: usize,
    succeeds: bool,
    errors: BTreeSet<String>,
}

/// Rows and calls by topic; for every call there is how many rows make it, how often, whether one expects success, and
/// the errors that are expected. Calls of `setup`, which only have to succeed, do not count.
pub fn json(cases: &[Case]) -> Value {
    let mut calls: BTreeMap<&str, Covered> =
        Op::ALL.iter().map(|call| (call.name, Covered::default())).collect();
    let mut topics: BTreeMap<&str, (&str, usize, usize)> = BTreeMap::new();
    for case in cases {
        let topic = topics.entry(&case.topic).or_insert((&case.about, 0, 0));
        topic.1 += 1;
        topic.2 += case.calls.len();
        for step in &case.calls {
            let covered = calls.entry(step.op.name()).or_default();
            covered.rows.insert(case.full_name());
            covered.made += 1;
            match &step.expect {
                Expect::Success(_) => covered.succeeds = true,
                Expect::Error(number) => {
                    covered.errors.insert(errno::name(*number));
                }
            }
        }
    }
    let topics: Vec<Value> = topics
        .into_iter()
        .map(
            |(name, (about, rows, calls))| json!({ "name": name, "about": about, "rows": rows, "calls": calls }),
        )
        .collect();
    let calls: Vec<Value> = calls
        .into_iter()
        .map(|(name, covered)| {
            json!({
                "name": name, "rows": covered.rows.len(), "made": covered.made,
                "succeeds": covered.succeeds, "errors": covered.errors,
            })
        })
        .collect();
    json!({ "topics": topics, "calls": calls })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn answers_are_told_by_call() {
        let text = "about = \"x\"\n[[case]]\nname = \"a\"\nwhy = \"w\"\ncalls = [\n\
                    { op = \"mkdir\", path = \"d\", expect = \"ok\" },\n\
                    { op = \"mkdir\", path = \"d\", expect = \"EEXIST\" },\n]\n";
        let cases = crate::case::parse(Path::new("t.toml"), text).expect("well-formed");
        let coverage = json(&cases);
        assert_eq!(coverage["topics"][0], json!({ "name": "t", "about": "x", "rows": 1, "calls": 2 }));
        let calls = coverage["calls"].as_array().expect("a list");
        assert_eq!(calls.len(), Op::ALL.len());
        let mkdir = calls.iter().find(|call| call["name"] == "mkdir").expect("mkdir");
        assert_eq!((&mkdir["rows"], &mkdir["made"]), (&json!(1), &json!(2)));
        assert_eq!((&mkdir["succeeds"], &mkdir["errors"]), (&json!(true), &json!(["EEXIST"])));
    }
}
