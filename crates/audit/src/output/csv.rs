//! A line for each entry and identity.

use std::io::{self, Write};

use crate::output::{Head, Output};
use crate::right::Right;
use crate::run::{Row, Summary};

/// Writes CSV: a line of names, then one line for each entry and each identity that may do something with it. What was not asked is
/// left empty. Paths are written byte by byte.
#[derive(Debug)]
pub struct Csv<W: Write> {
    head: Head,
    out: csv::Writer<W>,
}

impl<W: Write> Csv<W> {
    /// Writes the line of names.
    ///
    /// # Errors
    ///
    /// What writing answers.
    pub fn new(head: &Head, out: W) -> io::Result<Csv<W>> {
        let mut out = csv::Writer::from_writer(out);
        let names = ["path", "identity", "type", "mode", "uid", "gid", "acl", "caps"];
        out.write_record(names.into_iter().chain(Right::ALL.map(Right::name)))?;
        Ok(Csv { head: head.clone(), out })
    }
}

impl<W: Write> Output for Csv<W> {
    fn row(&mut self, row: &Row) -> io::Result<()> {
        let yes = |yes: bool| if yes { "1" } else { "0" };
        let (mode, uid, gid) =
            (format!("{:04o}", row.mode & 0o7777), row.uid.to_string(), row.gid.to_string());
        for (i, who) in self.head.identities.iter().enumerate() {
            let can = row.can(i);
            if can.is_empty() {
                continue;
            }
            let out = &mut self.out;
            out.write_field(&row.path)?;
            for field in [&who.label, row.kind(), &mode, &uid, &gid, yes(row.acl), yes(row.caps)] {
                out.write_field(field)?;
            }
            for right in Right::ALL {
                out.write_field(if self.head.want.contains(right) { yes(can.contains(right)) } else { "" })?;
            }
            out.write_record(None::<&[u8]>)?;
        }
        Ok(())
    }

    fn end(&mut self, _: &Summary) -> io::Result<()> {
        self.out.flush()
    }
}
