//! The stage that runs the benchmarks once, quickly, and reads what they say.
//!
//! Speed is not judged: other work may share the machine. Answers are, the shape of the records, and how long it takes.

use crate::process::{self, Outcome, RELEASE, cargo, target_dir};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The remedies, in the order of the record.
const REMEDIES: [&str; 11] = ["S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "T1"];

/// Seconds that a quick run of all remedies may take, without optimisation for speed.
const ABLATIONS_MAX: f64 = 20.0;

/// The file systems that are linked in.
const LINKED: [&str; 3] = ["rcuwalk", "vfs MemoryFS", "axfs_ramfs"];

/// The main job, the remedies, and beside the engine whatever other in-memory file systems this machine has.
pub(crate) fn stage() -> Outcome {
    let command = || -> Result<(), String> {
        process::run(&mut cargo(&format!("build --quiet {RELEASE}")))?;
        once(&target_dir("release").join("rcuwalk"), "bench", |_| Ok(()))
    };
    // The laboratory as the tests have built it: its answers and the shape of its records are the same.
    let lab = || -> Result<(), String> {
        let lab = process::program("rcuwalk-lab")?;
        once(&lab, "ablations", ablations)?;
        once(&lab, "peers", peers)
    };
    command().and_then(|()| lab()).into()
}

/// What is wrong with a record.
type Check = fn(&Value) -> Result<(), String>;

fn once(program: &Path, job: &str, check: Check) -> Result<(), String> {
    let file = target_dir(&format!("{job}-quick.json"));
    let mut command = Command::new(program);
    process::run(command.args([job, "--quick", "--json", "--output"]).arg(&file))?;
    let record = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let record = serde_json::from_str(&record).map_err(|error| format!("{}: {error}", file.display()))?;
    check(&record).map_err(|why| format!("`{job}`: {why}"))
}

fn ablations(record: &Value) -> Result<(), String> {
    let rows = list(&record["rows"]);
    let ids: Vec<&str> = rows.iter().filter_map(|row| row["id"].as_str()).collect();
    if ids != REMEDIES {
        return Err(format!("the rows are {ids:?}"));
    }
    rows.iter().try_for_each(remedy)?;
    match record["seconds"].as_f64() {
        Some(seconds) if seconds < ABLATIONS_MAX => Ok(()),
        seconds => Err(format!("it took {seconds:?} s, which must be less than {ABLATIONS_MAX}")),
    }
}

/// One object for each remedy: before, after, their ratio, what was checked, and whether it holds.
fn remedy(row: &Value) -> Result<(), String> {
    let id = row["id"].as_str().unwrap_or("?");
    let points = list(&row["rows"]);
    if points.is_empty() && row["holds"] == false && row["note"].as_str().is_some_and(|why| !why.is_empty()) {
        println!("{id} could not be measured: {}", row["note"]);
        return Ok(());
    }
    for (place, of) in std::iter::once((id.to_owned(), row))
        .chain(points.iter().map(|point| (format!("{id}: {}", point["name"]), point)))
    {
        for key in ["before", "after", "ratio"] {
            if !of[key].as_f64().is_some_and(|figure| figure > 0.0) {
                return Err(format!("{place}: {key} is {}", of[key]));
            }
        }
        clean(&place, of)?;
    }
    if points.is_empty() || points.iter().any(|point| point["wrong"] != false) {
        return Err(format!("{id}: an answer was wrong, or none was asked for"));
    }
    if !row["holds"].is_boolean() {
        return Err(format!("{id}: whether it holds is {}", row["holds"]));
    }
    Ok(())
}

fn peers(record: &Value) -> Result<(), String> {
    let rows = list(&record["rows"]);
    for name in LINKED {
        if !rows.iter().any(|row| row["peer"] == name) {
            return Err(format!("no row is about {name}"));
        }
    }
    for row in rows {
        let place = format!("{}: {}", row["workload"], row["peer"]);
        if row["wrong"] != false || !row["ns"].as_f64().is_some_and(|ns| ns > 0.0) {
            return Err(format!("{place}: {} ns, {}", row["ns"], row["check"]));
        }
        clean(&place, row)?;
    }
    for note in list(&record["notes"]) {
        println!("note: {}", note.as_str().unwrap_or("?"));
    }
    Ok(())
}

/// Every check says that all answers were equal.
fn clean(place: &str, of: &Value) -> Result<(), String> {
    match of["check"].as_str() {
        Some(check) if check.contains("answers equal") => Ok(()),
        _ => Err(format!("{place}: {}", of["check"])),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record() -> Value {
        let point = json!({
            "name": "stat", "before": 2.0, "after": 1.0, "ratio": 2.0, "check": "1 answers equal", "wrong": false,
        });
        let row = |id: &str| {
            let mut row = point.clone();
            row["id"] = id.into();
            row["holds"] = true.into();
            row["rows"] = json!([point]);
            row
        };
        json!({ "seconds": 3.5, "rows": REMEDIES.map(row) })
    }

    #[test]
    fn a_record_of_all_remedies_passes_and_each_fault_is_found() {
        assert_eq!(ablations(&record()), Ok(()));
        type Spoil = fn(&mut Value);
        let faults: [(&str, Spoil); 8] = [
            ("a remedy is missing", |r| drop(r["rows"].as_array_mut().unwrap().pop())),
            ("it took long", |r| r["seconds"] = 20.0.into()),
            ("nobody knows how long", |r| r["seconds"] = Value::Null),
            ("no figure", |r| r["rows"][2]["after"] = Value::Null),
            ("no verdict", |r| r["rows"][2]["holds"] = "yes".into()),
            ("no workload", |r| r["rows"][2]["rows"] = json!([])),
            ("a wrong answer", |r| r["rows"][9]["rows"][0]["wrong"] = true.into()),
            ("a check that failed", |r| r["rows"][9]["rows"][0]["check"] = "DIFFERS: 1 answers".into()),
        ];
        for (what, spoil) in faults {
            let mut record = record();
            spoil(&mut record);
            assert!(ablations(&record).is_err(), "{what}");
        }
    }

    #[test]
    fn a_remedy_that_cannot_be_measured_says_why() {
        let mut record = record();
        record["rows"][5] =
            json!({ "id": "S6", "rows": [], "holds": false, "note": "not on this processor" });
        assert_eq!(ablations(&record), Ok(()));
        record["rows"][5]["note"] = "".into();
        assert!(ablations(&record).is_err());
    }

    #[test]
    fn peers_must_be_there_and_agree() {
        let row = |peer: &str| json!({ "workload": "stat", "peer": peer, "ns": 1.0, "wrong": false, "check": "8 answers equal" });
        let record =
            |last: Value| json!({ "rows": [row("rcuwalk"), row("vfs MemoryFS"), last], "notes": [] });
        assert_eq!(peers(&record(row("axfs_ramfs"))), Ok(()));
        assert!(peers(&record(row("another"))).is_err());
        let mut wrong = row("axfs_ramfs");
        wrong["wrong"] = true.into();
        assert!(peers(&record(wrong)).is_err());
    }
}
