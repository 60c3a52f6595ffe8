//! For people.

use std::io::{self, Write};

use rcuwalk_host::show_caps;

use crate::output::{Head, Output, permissions};
use crate::right::Right;
use crate::run::{Row, Summary};

/// Columns that a path gets at least, before identities give up their names in the head.
const PATH_WIDTH: usize = 30;

/// Writes a table: what each identity may do, permissions, owner and group, path. A line at the end sums up.
///
/// Where the names of the identities would leave too little room, letters stand for them, with their meaning above.
#[derive(Debug)]
pub struct Table<W: Write> {
    head: Head,
    out: W,
    width: Option<usize>,
    columns: Vec<usize>,
    begun: bool,
}

impl<W: Write> Table<W> {
    /// A table at most `width` columns wide, of a terminal; paths are cut in the middle to fit. Without a width, as wide as needed. What
    /// would steer a terminal or look like another row is an escape; CSV and JSON have every byte.
    pub fn new(head: &Head, out: W, width: Option<usize>) -> Table<W> {
        Table { head: head.clone(), out, width, columns: Vec::new(), begun: false }
    }

    /// Writes what stands above the rows.
    fn begin(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        let cell = self.head.want.len();
        let mut names: Vec<String> = self.head.identities.iter().map(|who| who.label.clone()).collect();
        let fixed = "PERMISSIONS  OWNER        ".len();
        let total: usize = names.iter().map(|name| name.chars().count().max(cell) + 2).sum();
        if self.width.unwrap_or(120) < total + fixed + PATH_WIDTH {
            for (i, name) in names.iter_mut().enumerate() {
                let short = short_name(i);
                writeln!(self.out, "{short} = {name}")?;
                *name = short;
            }
        }
        self.columns = names.iter().map(|name| name.chars().count().max(cell)).collect();
        for (name, &width) in names.iter().zip(&self.columns) {
            write!(self.out, "{name:width$}  ")?;
        }
        writeln!(self.out, "{:11}  {:11}  PATH", "PERMISSIONS", "OWNER")
    }
}

/// `A` to `Z`, then `A1` and so on.
fn short_name(i: usize) -> String {
    let letter = char::from(b'A' + (i % 26) as u8);
    if i < 26 { letter.to_string() } else { format!("{letter}{}", i / 26) }
}

/// A path for people: nothing in it steers a terminal or ends the line, and what does not fit is left out of the middle.
fn shown(path: &[u8], room: usize) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= room || room < 3 {
        return text;
    }
    let (front, back) = ((room - 1) / 3, room - 1 - (room - 1) / 3);
    let ends = [&chars[..front], &['\u{2026}'], &chars[chars.len() - back..]];
    ends.concat().into_iter().collect()
}

impl<W: Write> Output for Table<W> {
    fn row(&mut self, row: &Row) -> io::Result<()> {
        self.begin()?;
        let mut line = String::new();
        for (i, &width) in self.columns.iter().enumerate() {
            line.push_str(&format!("{:width$}  ", row.can(i).letters(self.head.want)));
        }
        let owner = format!("{}:{}", row.uid, row.gid);
        line.push_str(&format!("{:11}  {owner:11}  ", permissions(row.mode, row.acl, row.caps)));
        let room = self.width.map_or(usize::MAX, |width| width.saturating_sub(line.chars().count()));
        writeln!(self.out, "{line}{}", shown(&row.path, room))
    }

    fn end(&mut self, summary: &Summary) -> io::Result<()> {
        if self.begun {
            writeln!(self.out)?;
        }
        for (who, counts) in self.head.identities.iter().zip(&summary.counts) {
            let count = |right: Right| format!("{} {}", right.name(), counts[right as usize]);
            let caps = if who.caps.is_empty() {
                String::new()
            } else {
                format!(" with {} capabilities", show_caps(who.caps))
            };
            let counts: Vec<_> = self.head.want.iter().map(count).collect();
            writeln!(self.out, "{} ({}{caps}): {}", who.label, who.ids(), counts.join(", "))?;
        }
        let part = if summary.complete { "" } else { ", not the whole tree" };
        let closed = match summary.closed {
            0 => String::new(),
            n => format!("; {n} directories are closed to all of them"),
        };
        writeln!(self.out, "{} entries looked at{part}{closed}", summary.entries)?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_fit_and_do_not_steer() {
        assert_eq!(shown(b"/a\x1b[2J/\xff", 40), "/a\\u{1b}[2J/\\xff");
        let cut = shown(b"/usr/share/doc/some-package/README", 20);
        assert_eq!((cut.chars().count(), &*cut), (20, "/usr/s\u{2026}ackage/README"));
        assert_eq!((short_name(0), short_name(27)), ("A".into(), "B1".into()));
    }
}
