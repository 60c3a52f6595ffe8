//! What may be asked about.

use std::fmt;
use std::str::FromStr;

/// Something that an identity may do with an entry of a tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Right {
    /// Read a file, list a directory: `access(R_OK)`.
    Read,
    /// Write to a file, change what is in a directory: `access(W_OK)`.
    Write,
    /// Execute a file: `access(X_OK)` on anything but a directory.
    Exec,
    /// Search a directory, that is, reach what is in it: `access(X_OK)`.
    Search,
    /// Remove or rename the entry: write and search permission on its directory, and the rules of sticky directories.
    Delete,
    /// Become another user, or get capabilities, by executing the file.
    SetId,
}

impl Right {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Right; 6] =
        [Right::Read, Right::Write, Right::Exec, Right::Search, Right::Delete, Right::SetId];

    /// The word for it: `read`, `write`, `exec`, `search`, `delete`, `setid`.
    pub const fn name(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Write => "write",
            Right::Exec => "exec",
            Right::Search => "search",
            Right::Delete => "delete",
            Right::SetId => "setid",
        }
    }

    /// The letter for it in a table: `r`, `w`, `x`, `s`, `d`, `u`.
    pub const fn letter(self) -> char {
        match self {
            Right::Read => 'r',
            Right::Write => 'w',
            Right::Exec => 'x',
            Right::Search => 's',
            Right::Delete => 'd',
            Right::SetId => 'u',
        }
    }
}

/// Some of the [`Right`]s.
///
/// ```
/// use rcuwalk_audit::{Right, RightSet};
/// let set: RightSet = "write,setid".parse().unwrap();
/// assert!(set.contains(Right::SetId) && !set.contains(Right::Read));
/// assert_eq!(set.to_string(), "write,setid");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RightSet(u8);

impl RightSet {
    /// All rights.
    pub const ALL: RightSet = RightSet::of(&Right::ALL);

    /// These rights.
    pub const fn of(rights: &[Right]) -> RightSet {
        let (mut bits, mut i) = (0, 0);
        while i < rights.len() {
            bits |= 1 << rights[i] as u8;
            i += 1;
        }
        RightSet(bits)
    }

    /// Whether this right is among them.
    pub const fn contains(self, right: Right) -> bool {
        self.0 >> right as u8 & 1 != 0
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many there are.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Those of both.
    #[must_use]
    pub const fn and(self, other: RightSet) -> RightSet {
        RightSet(self.0 & other.0)
    }

    /// Those of this set that are not in the other.
    #[must_use]
    pub const fn without(self, other: RightSet) -> RightSet {
        RightSet(self.0 & !other.0)
    }

    /// Adds a right.
    pub(crate) fn add(&mut self, right: Right, yes: bool) {
        self.0 |= u8::from(yes) << right as u8;
    }

    /// Each of them, in order.
    pub fn iter(self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(move |&right| self.contains(right))
    }

    /// Their words.
    pub fn names(self) -> Vec<&'static str> {
        self.iter().map(Right::name).collect()
    }

    /// A letter or a dash for each right of `asked`.
    pub fn letters(self, asked: RightSet) -> String {
        asked.iter().map(|right| if self.contains(right) { right.letter() } else { '-' }).collect()
    }
}

/// The words, separated by commas.
impl fmt::Display for RightSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(","))
    }
}

/// Words separated by commas or `|`, or `all`.
impl FromStr for RightSet {
    type Err = String;

    fn from_str(text: &str) -> Result<RightSet, String> {
        let mut set = RightSet::default();
        for word in text.split([',', '|']) {
            match Right::ALL.into_iter().find(|right| right.name() == word) {
                Some(right) => set.add(right, true),
                None if word == "all" => set = RightSet::ALL,
                None => {
                    return Err(format!(
                        "'{word}' is nothing to ask about; choose of {}, or all",
                        RightSet::ALL
                    ));
                }
            }
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_letters() {
        let set: RightSet = "delete|read".parse().unwrap();
        assert_eq!(set, RightSet::of(&[Right::Read, Right::Delete]));
        assert_eq!((set.len(), set.letters(RightSet::ALL)), (2, "r---d-".into()));
        assert_eq!(set.letters("write,delete".parse().unwrap()), "-d");
        assert_eq!("all".parse(), Ok(RightSet::ALL));
        for wrong in ["", "reed", "read,", "READ"] {
            assert!(wrong.parse::<RightSet>().is_err(), "{wrong}");
        }
    }
}
