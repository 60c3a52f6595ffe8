//! Records of measurements: `bench/records/NAME-DATE.json`. A later day's measurement stands beside them and overwrites none.

use crate::process::{self, root};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const DIR: &str = "bench/records";

/// Where today's record of this name goes.
pub(crate) fn today(name: &str) -> Result<String, String> {
    Ok(format!("{DIR}/{name}-{}.json", date()?))
}

/// Today, in UTC.
pub(crate) fn date() -> Result<String, String> {
    let date = process::output(Command::new("date").args(["-u", "+%F"]))?;
    Ok(date.trim().to_owned())
}

/// The record of this name that the documents show.
pub(crate) fn newest(name: &str) -> Result<Value, String> {
    let newest = history(name)?.pop();
    newest.map(|(_, record)| record).ok_or_else(|| format!("{DIR}/{name}-DATE.json: there is none"))
}

/// The records of this name with their paths, oldest first. Each must be of the day that its name says.
pub(crate) fn history(name: &str) -> Result<Vec<(String, Value)>, String> {
    history_in(&root().join(DIR), name)
}

fn history_in(dir: &Path, name: &str) -> Result<Vec<(String, Value)>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    let mut records = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let file = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        let Some(date) = file.strip_suffix(".json").and_then(|stem| dated(stem, name)) else { continue };
        let path = format!("{DIR}/{file}");
        let text = std::fs::read_to_string(dir.join(&file)).map_err(|error| format!("{path}: {error}"))?;
        let record: Value = serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
        if !said(&record).starts_with(date) {
            return Err(format!("{path}: the record says it is of {:?}; rename the file", said(&record)));
        }
        records.push((path, record));
    }
    records.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(records)
}

/// The date behind `name` in the stem of a file's name; records of longer names have none there.
fn dated<'a>(stem: &'a str, name: &str) -> Option<&'a str> {
    let date = stem.strip_prefix(name)?.strip_prefix('-')?;
    let shaped =
        |(at, byte): (usize, u8)| if at == 4 || at == 7 { byte == b'-' } else { byte.is_ascii_digit() };
    (date.len() == 10 && date.bytes().enumerate().all(shaped)).then_some(date)
}

/// When a record says it was made.
pub(crate) fn said(record: &Value) -> &str {
    record["machine"]["date"].as_str().or(record["date"].as_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_last_and_a_name_is_not_the_start_of_another() {
        let dir = std::env::temp_dir().join(format!("rcuwalk-records-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        for (file, date) in [
            ("usr-2026-11-22", "2026-11-22"),
            ("usr-2027-01-02", "2027-01-02T03:04:05Z"),
            ("usr-2026-12-31", "2026-12-31"),
            ("usr-include-2028-01-01", "2028-01-01"),
            ("host-2026-11-22", "2026-11-23"),
        ] {
            std::fs::write(dir.join(format!("{file}.json")), format!("{{\"date\":\"{date}\"}}")).unwrap();
        }
        let paths = |name| {
            history_in(&dir, name)
                .map(|records| records.into_iter().map(|(path, _)| path).collect::<Vec<_>>())
        };
        let usr = ["usr-2026-11-22", "usr-2026-12-31", "usr-2027-01-02"];
        assert_eq!(paths("usr"), Ok(usr.map(|stem| format!("{DIR}/{stem}.json")).to_vec()));
        assert_eq!(paths("usr-include").unwrap().len(), 1);
        assert_eq!(paths("none"), Ok(vec![]));
        assert!(paths("host").unwrap_err().contains("the record says it is of \"2026-11-23\""));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
