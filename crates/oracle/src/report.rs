//! Reports: for people, as JSON, as JUnit XML.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use crate::case::Case;
use crate::launch::Ran;
use crate::run::{Mismatch, Verdict};

/// Counts of verdicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows that passed.
    pub passed: usize,
    /// Rows that failed.
    pub failed: usize,
    /// Rows that were declined.
    pub skipped: usize,
    /// Rows that failed as `divergences.toml` says.
    pub diverged: usize,
}

impl Counts {
    fn add(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Failed(_) => self.failed += 1,
            Verdict::Skipped(_) => self.skipped += 1,
            Verdict::Diverged(_) => self.diverged += 1,
        }
    }

    /// Counts all verdicts.
    pub fn of(results: &[Ran]) -> Counts {
        let mut counts = Counts::default();
        results.iter().for_each(|ran| counts.add(&ran.verdict));
        counts
    }

    /// `N passed, N failed, N skipped`, and the divergences if there are any.
    pub fn line(&self) -> String {
        let mut line = format!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        if self.diverged > 0 {
            let _ = write!(line, ", {} diverged as expected", self.diverged);
        }
        line
    }
}

/// The report for people: failures with their calls, what was skipped and why, counts per topic.
pub fn text(cases: &[Case], results: &[Ran], backend: &str) -> String {
    let mut out = String::new();
    for ran in results {
        let case = &cases[ran.index];
        if let Verdict::Failed(wrong) = &ran.verdict {
            let _ = writeln!(out, "FAILED {} ({}:{})", case.full_name(), case.file.display(), case.line);
            for mismatch in wrong {
                let _ = writeln!(out, "    {}", one_line(mismatch));
            }
            let _ = writeln!(out, "    why: {}", case.why);
        }
    }
    for ran in results.iter().filter(|ran| ran.retries > 0 && ran.verdict == Verdict::Passed) {
        let _ = writeln!(out, "passed only at attempt {}: {}", ran.retries + 1, cases[ran.index].full_name());
    }
    let mut reasons: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for ran in results {
        match &ran.verdict {
            Verdict::Skipped(reason) => *reasons.entry(("skipped", reason)).or_default() += 1,
            Verdict::Diverged(reason) => *reasons.entry(("diverged", reason)).or_default() += 1,
            _ => {}
        }
    }
    for ((what, reason), count) in reasons {
        let _ = writeln!(out, "{what} {count}: {reason}");
    }
    let mut topics: BTreeMap<&str, Counts> = BTreeMap::new();
    for ran in results {
        topics.entry(&cases[ran.index].topic).or_default().add(&ran.verdict);
    }
    let width = topics.keys().map(|t| t.len()).max().unwrap_or(0);
    for (topic, counts) in topics {
        let _ = writeln!(out, "{topic:width$}  {}", counts.line());
    }
    let _ = writeln!(out, "{backend}: {}", Counts::of(results).line());
    out
}

fn one_line(mismatch: &Mismatch) -> String {
    match (mismatch.line, mismatch.call.as_str()) {
        (0, "") => mismatch.difference.clone(),
        (0, call) => format!("{call}: {}", mismatch.difference),
        (line, call) => format!("line {line}: {call}: {}", mismatch.difference),
    }
}

/// The report as JSON: counts, and one object per row.
pub fn json(cases: &[Case], results: &[Ran], backend: &str) -> Value {
    let counts = Counts::of(results);
    let rows: Vec<Value> = results
        .iter()
        .map(|ran| {
            let case = &cases[ran.index];
            let (verdict, detail) = match &ran.verdict {
                Verdict::Passed => ("passed", Value::Null),
                Verdict::Failed(wrong) => ("failed", json!(wrong)),
                Verdict::Skipped(reason) => ("skipped", json!(reason)),
                Verdict::Diverged(reason) => ("diverged", json!(reason)),
            };
            json!({
                "topic": case.topic, "name": case.name, "ids": case.ids, "file": case.file, "line": case.line,
                "verdict": verdict, "detail": detail, "retries": ran.retries, "seconds": ran.seconds,
            })
        })
        .collect();
    json!({
        "backend": backend,
        "passed": counts.passed, "failed": counts.failed, "skipped": counts.skipped, "diverged": counts.diverged,
        "rows": rows,
    })
}

/// The report as JUnit XML, one suite per topic.
pub fn junit(cases: &[Case], results: &[Ran], backend: &str) -> String {
    let mut suites: BTreeMap<&str, Vec<&Ran>> = BTreeMap::new();
    for ran in results {
        suites.entry(&cases[ran.index].topic).or_default().push(ran);
    }
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for (topic, runs) in suites {
        let failed = runs.iter().filter(|r| matches!(r.verdict, Verdict::Failed(_))).count();
        let skipped =
            runs.iter().filter(|r| matches!(r.verdict, Verdict::Skipped(_) | Verdict::Diverged(_))).count();
        let _ = writeln!(
            out,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{failed}\" skipped=\"{skipped}\">",
            escape(&format!("{backend}.{topic}")),
            runs.len()
        );
        for ran in runs {
            let case = &cases[ran.index];
            let _ = write!(
                out,
                "    <testcase classname=\"{}\" name=\"{}\" time=\"{:.4}\">",
                escape(topic),
                escape(&case.name),
                ran.seconds
            );
            match &ran.verdict {
                Verdict::Passed => {}
                Verdict::Failed(wrong) => {
                    let lines: Vec<String> = wrong.iter().map(one_line).collect();
                    let _ = write!(out, "<failure message=\"{}\"/>", escape(&lines.join("\n")));
                }
                Verdict::Skipped(reason) | Verdict::Diverged(reason) => {
                    let _ = write!(out, "<skipped message=\"{}\"/>", escape(reason));
                }
            }
            out.push_str("</testcase>\n");
        }
        out.push_str("  </testsuite>\n");
    }
    out.push_str("</testsuites>\n");
    out
}

/// Text as an XML attribute value; characters XML cannot hold become `?`.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn sample() -> (Vec<Case>, Vec<Ran>) {
        let text = "[[case]]\nname = \"a\"\nwhy = \"w\"\ncall = { op = \"umask\", mask = \"0\" }\nexpect = \"ok\"\n\
                    [[case]]\nname = \"b\"\nwhy = \"w\"\ncall = { op = \"umask\", mask = \"0\" }\nexpect = \"ok\"\n";
        let cases = crate::case::parse(Path::new("t.toml"), text).expect("well-formed");
        let wrong = Mismatch { line: 4, call: "{ x }".into(), difference: "expected <a>, got \"b\"".into() };
        let verdicts = [Verdict::Failed(vec![wrong]), Verdict::Skipped("no reason & all".into())];
        let ran = |(index, verdict)| Ran { index, verdict, retries: 0, seconds: 0.5 };
        (cases, verdicts.into_iter().enumerate().map(ran).collect())
    }

    #[test]
    fn the_last_line_counts() {
        let (cases, results) = sample();
        let report = text(&cases, &results, "host");
        assert!(report.ends_with("host: 0 passed, 1 failed, 1 skipped\n"), "{report}");
        assert!(report.contains("line 4: { x }: expected <a>"), "{report}");
    }

    #[test]
    fn xml_is_escaped() {
        let (cases, results) = sample();
        let xml = junit(&cases, &results, "host");
        assert!(xml.contains("expected &lt;a&gt;, got &quot;b&quot;"), "{xml}");
        assert!(xml.contains("<skipped message=\"no reason &amp; all\"/>"), "{xml}");
    }

    #[test]
    fn json_has_a_row_for_each_case() {
        let (cases, results) = sample();
        let report = json(&cases, &results, "host");
        assert_eq!(report["rows"].as_array().map(Vec::len), Some(2));
        assert_eq!(report["rows"][0]["verdict"], "failed");
    }
}
