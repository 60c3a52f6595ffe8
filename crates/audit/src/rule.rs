//! What must not be.

use globset::{GlobBuilder, GlobMatcher};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rcuwalk_host::Identity;

use crate::right::RightSet;
use crate::run::Row;

/// Forbids rights to entries, for every identity or for one.
///
/// Written `RIGHT[,RIGHT...][@IDENTITY]:/PATTERN`. In the pattern `*` and `?` stand for what is within one name, `**` for any number
/// of names, `[...]` for one of several characters, `{a,b}` for one of several words.
///
/// ```
/// use rcuwalk_audit::Rule;
/// let rule: Rule = "write,delete@www-data:/etc/**".parse().unwrap();
/// assert_eq!(rule.to_string(), "write,delete@www-data:/etc/**");
/// assert!("write:etc".parse::<Rule>().is_err());
/// ```
#[derive(Clone, Debug)]
pub struct Rule {
    text: String,
    rights: RightSet,
    identity: Option<String>,
    pattern: GlobMatcher,
}

/// Why a text is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "rule '{text}': {reason}; write RIGHT,...:/PATTERN or RIGHT,...@IDENTITY:/PATTERN, such as write:/etc/**"
)]
pub struct RuleError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

impl std::str::FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Rule, RuleError> {
        let wrong = |reason: String| RuleError { text: text.to_owned(), reason };
        let at =
            text.find(":/").ok_or_else(|| wrong("there is no pattern that begins with a slash".into()))?;
        let (head, pattern) = (&text[..at], &text[at + 1..]);
        let (rights, identity) = match head.split_once('@') {
            Some((_, "")) => return Err(wrong("no identity after '@'".into())),
            Some((rights, identity)) => (rights, Some(identity.to_owned())),
            None => (head, None),
        };
        let glob = GlobBuilder::new(pattern).literal_separator(true).build();
        let pattern = glob.map_err(|e| wrong(e.kind().to_string()))?.compile_matcher();
        Ok(Rule { text: text.to_owned(), rights: rights.parse().map_err(wrong)?, identity, pattern })
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Rule {
    /// The rights it speaks of.
    pub fn rights(&self) -> RightSet {
        self.rights
    }

    /// The label of the identity it speaks of; all if none.
    pub fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// What breaks the rule: numbers of identities, and what each may do although it must not.
    pub fn broken_by(&self, row: &Row, identities: &[Identity]) -> Vec<(usize, RightSet)> {
        let able = |(i, who): (usize, &Identity)| {
            let named = self.identity.as_ref().is_none_or(|name| *name == who.label);
            let can = row.can(i).and(self.rights);
            (named && !can.is_empty()).then_some((i, can))
        };
        let able: Vec<_> = identities.iter().enumerate().filter_map(able).collect();
        // The pattern last: most entries grant nothing that is forbidden.
        if !able.is_empty() && self.pattern.is_match(Path::new(OsStr::from_bytes(&row.path))) {
            able
        } else {
            Vec::new()
        }
    }
}
