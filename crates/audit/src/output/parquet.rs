//! Columns, for those who ask their questions in SQL.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::Encoding;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use crate::output::{Head, Output};
use crate::right::Right;
use crate::run::{Row, Summary};

/// Rows of one row group.
const GROUP: usize = 1 << 17;

const SCHEMA: &str = "message audit {
    required binary path;
    required binary identity (UTF8);
    required binary type (UTF8);
    required int32 mode;
    required int64 uid;
    required int64 gid;
    required boolean acl;
    required boolean caps;
    required boolean read;
    required boolean write;
    required boolean exec;
    required boolean search;
    required boolean delete;
    required boolean setid;
}";

/// Writes an Apache Parquet file: one row for each entry and each identity that may do something with it, in the columns that
/// [`Csv`](crate::Csv) has; the path as bytes, the mode as a number. What was not asked is false; what was asked stands in the file's
/// metadata, as `rcuwalk.can`, beside `rcuwalk.source`.
pub struct Parquet<W: Write + Send> {
    head: Head,
    out: Option<SerializedFileWriter<W>>,
    columns: Columns,
}

/// The rows of a group.
#[derive(Default)]
struct Columns {
    texts: [Vec<ByteArray>; 3],
    mode: Vec<i32>,
    ids: [Vec<i64>; 2],
    flags: [Vec<bool>; 8],
}

impl<W: Write + Send> std::fmt::Debug for Parquet<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parquet").field("head", &self.head).finish_non_exhaustive()
    }
}

fn failed(e: ParquetError) -> io::Error {
    match e {
        ParquetError::External(e) => match e.downcast::<io::Error>() {
            Ok(e) => *e,
            Err(e) => io::Error::other(e),
        },
        e => io::Error::other(e),
    }
}

impl<W: Write + Send> Parquet<W> {
    /// Writes the beginning of the file.
    ///
    /// # Errors
    ///
    /// What writing answers.
    pub fn new(head: &Head, out: W) -> io::Result<Parquet<W>> {
        let schema = Arc::new(parse_message_type(SCHEMA).map_err(failed)?);
        let about = vec![
            KeyValue::new("rcuwalk.source".to_owned(), head.source.clone()),
            KeyValue::new("rcuwalk.can".to_owned(), head.want.to_string()),
        ];
        // Neighbouring paths have much in common; everything else has few values.
        let path = ColumnPath::from("path");
        let properties = WriterProperties::builder()
            .set_key_value_metadata(Some(about))
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BYTE_ARRAY)
            .build();
        let out = SerializedFileWriter::new(out, schema, Arc::new(properties)).map_err(failed)?;
        Ok(Parquet { head: head.clone(), out: Some(out), columns: Columns::default() })
    }

    /// Writes a row group of what there is.
    fn write_group(&mut self) -> Result<(), ParquetError> {
        let columns = std::mem::take(&mut self.columns);
        let Some(out) = self.out.as_mut().filter(|_| !columns.mode.is_empty()) else { return Ok(()) };
        let mut group = out.next_row_group()?;
        let (mut texts, mut ids, mut flags) =
            (columns.texts.iter(), columns.ids.iter(), columns.flags.iter());
        while let Some(mut column) = group.next_column()? {
            match column.untyped() {
                ColumnWriter::ByteArrayColumnWriter(w) => {
                    w.write_batch(texts.next().map_or(&[], |v| v), None, None)
                }
                ColumnWriter::Int32ColumnWriter(w) => w.write_batch(&columns.mode, None, None),
                ColumnWriter::Int64ColumnWriter(w) => {
                    w.write_batch(ids.next().map_or(&[], |v| v), None, None)
                }
                ColumnWriter::BoolColumnWriter(w) => {
                    w.write_batch(flags.next().map_or(&[], |v| v), None, None)
                }
                _ => return Err(ParquetError::General("a column of another type".into())),
            }?;
            column.close()?;
        }
        group.close().map(drop)
    }
}

impl<W: Write + Send> Output for Parquet<W> {
    fn row(&mut self, row: &Row) -> io::Result<()> {
        for (i, who) in self.head.identities.iter().enumerate() {
            let can = row.can(i);
            if can.is_empty() {
                continue;
            }
            let columns = &mut self.columns;
            let texts = [&row.path[..], who.label.as_bytes(), row.kind().as_bytes()];
            columns.texts.iter_mut().zip(texts).for_each(|(column, text)| column.push(text.to_vec().into()));
            columns.mode.push((row.mode & 0o7777) as i32);
            let ids = [row.uid, row.gid].map(i64::from);
            columns.ids.iter_mut().zip(ids).for_each(|(column, id)| column.push(id));
            let flags = [row.acl, row.caps].into_iter().chain(Right::ALL.map(|right| can.contains(right)));
            columns.flags.iter_mut().zip(flags).for_each(|(column, flag)| column.push(flag));
        }
        if self.columns.mode.len() >= GROUP { self.write_group().map_err(failed) } else { Ok(()) }
    }

    fn end(&mut self, _: &Summary) -> io::Result<()> {
        self.write_group().map_err(failed)?;
        match self.out.take() {
            Some(out) => out.close().map(drop).map_err(failed),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Audit;
    use crate::{Identity, RightSet};
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    use rcuwalk::{Cred, Vfs};
    use std::ops::ControlFlow;

    #[test]
    fn what_is_written_is_read_back() {
        let vfs = Vfs::new().unwrap();
        let root = vfs.task(Cred::root());
        for n in 0..50 {
            root.creat(format!("/file-{n:02}").as_bytes(), 0o604 | (n % 2 * 0o100)).unwrap();
        }
        let identities = vec![Identity::new(0, 0, &[]), Identity::new(7, 7, &[])];
        let want: RightSet = "read,exec".parse().unwrap();
        let head = Head { source: "here".into(), identities, want };
        let mut file = Vec::new();
        let mut parquet = Parquet::new(&head, &mut file).unwrap();
        let audit = Audit::new(&vfs, b"/", &head.identities, want).unwrap();
        let each = |row: &Row| {
            parquet.row(row).unwrap();
            ControlFlow::Continue(())
        };
        let summary = audit.run(|_| ControlFlow::Continue(()), each).unwrap();
        parquet.end(&summary).unwrap();
        drop(parquet);

        let temp = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut &temp, &file).unwrap();
        let reader = SerializedFileReader::new(temp).unwrap();
        let about = reader.metadata().file_metadata().key_value_metadata().unwrap().clone();
        assert!(about.contains(&KeyValue::new("rcuwalk.can".to_owned(), "read,exec".to_owned())));
        let rows: Vec<Vec<Field>> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().into_columns().into_iter().map(|(_, field)| field).collect())
            .collect();
        assert_eq!(rows.len(), 2 * 51, "the root directory, and the files");
        let of = |path: &str, who: &str| {
            let is = |row: &&Vec<Field>| {
                row[0] == Field::Bytes(path.as_bytes().to_vec().into()) && row[1] == Field::Str(who.into())
            };
            rows.iter().find(is).unwrap()[2..].to_vec()
        };
        let flags = |read, exec| [false, false, read, false, exec, false, false, false].map(Field::Bool);
        let facts = [Field::Str("file".into()), Field::Int(0o704), Field::Long(0), Field::Long(0)];
        assert_eq!(of("/file-01", "0:0"), [&facts[..], &flags(true, true)].concat());
        assert_eq!(of("/file-01", "7:7"), [&facts[..], &flags(true, false)].concat());
    }
}
