//! The tests that may fail, and then must.

use crate::process::root;
use serde::{Deserialize, Serialize};

/// Where they are written down.
const FILE: &str = "suites/expected.toml";

/// All of them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expected {
    #[serde(default)]
    expected: Vec<Entry>,
}

/// Some tests of one suite.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    suite: String,
    /// A name, or the beginning of names with a `*` at its end.
    pub(super) test: String,
    on: Vec<String>,
    why: String,
}

impl Expected {
    pub(super) fn read() -> Result<Expected, String> {
        let text = std::fs::read_to_string(root().join(FILE)).map_err(|error| format!("{FILE}: {error}"))?;
        Expected::parse(&text)
    }

    pub(super) fn parse(text: &str) -> Result<Expected, String> {
        toml::from_str(text).map_err(|error| format!("{FILE}: {error}"))
    }

    pub(super) fn all(&self) -> &[Entry] {
        &self.expected
    }

    /// Those of a suite in a place.
    pub(super) fn of(&self, suite: &str, place: &str) -> impl Iterator<Item = &Entry> {
        self.expected
            .iter()
            .filter(move |entry| entry.suite == suite && entry.on.iter().any(|on| on == place))
    }
}

impl Entry {
    /// Whether it is about that test.
    pub(super) fn names(&self, test: &str) -> bool {
        match self.test.strip_suffix('*') {
            Some(beginning) => test.starts_with(beginning),
            None => self.test == test,
        }
    }
}
