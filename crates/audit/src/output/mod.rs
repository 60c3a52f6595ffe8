//! Rows on paper.

mod csv;
mod json;
#[cfg(feature = "parquet")]
mod parquet;
mod sarif;
mod table;

use std::io;

use rcuwalk::uapi::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFSOCK};
use rcuwalk_host::Identity;

pub use self::csv::Csv;
pub use self::json::Json;
#[cfg(feature = "parquet")]
pub use self::parquet::Parquet;
pub use self::sarif::Sarif;
pub use self::table::Table;

use crate::right::RightSet;
use crate::run::{Row, Summary};

pub(crate) use self::json::{FORMAT, SavedLine};

/// What an audit is about.
#[derive(Clone, Debug)]
pub struct Head {
    /// What was audited, as it was named.
    pub source: String,
    /// Who was asked about.
    pub identities: Vec<Identity>,
    /// What was asked.
    pub want: RightSet,
}

/// Takes the rows of an audit as they come.
pub trait Output {
    /// Takes an entry.
    ///
    /// # Errors
    ///
    /// What writing answers.
    fn row(&mut self, row: &Row) -> io::Result<()>;

    /// Takes the end.
    ///
    /// # Errors
    ///
    /// What writing answers.
    fn end(&mut self, summary: &Summary) -> io::Result<()>;
}

/// Type and permissions as `ls -l` shows them, with `+` behind them if there is an ACL, and `c` if there are file capabilities.
///
/// ```
/// assert_eq!(rcuwalk_audit::permissions(0o104755, true, false), "-rwsr-xr-x+");
/// ```
pub fn permissions(mode: u32, acl: bool, caps: bool) -> String {
    let kind = match mode & S_IFMT {
        S_IFDIR => 'd',
        S_IFLNK => 'l',
        S_IFIFO => 'p',
        S_IFSOCK => 's',
        S_IFCHR => 'c',
        S_IFBLK => 'b',
        _ => '-',
    };
    let mut out = String::from(kind);
    for (class, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> class;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    for (yes, sign) in [(acl, '+'), (caps, 'c')] {
        if yes {
            out.push(sign);
        }
    }
    out
}

/// A path as text; if it is no UTF-8, also its bytes in hexadecimal.
pub(crate) fn text_and_hex(path: &[u8]) -> (std::borrow::Cow<'_, str>, Option<String>) {
    let hex = || path.iter().map(|b| format!("{b:02x}")).collect();
    (String::from_utf8_lossy(path), std::str::from_utf8(path).is_err().then(hex))
}
