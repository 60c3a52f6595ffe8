//! A JSON object on each line.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use rcuwalk_host::show_caps;
use serde::{Deserialize, Serialize};

use crate::output::{Head, Output, text_and_hex};
use crate::right::Right;
use crate::run::{Row, Summary};

/// The version of the format, which changes when a reader of the old one would be misled.
pub(crate) const FORMAT: u32 = 1;

/// Writes JSON lines: a head, an object for each entry, an end. `docs/audit.md` describes them.
#[derive(Debug)]
pub struct Json<W: Write> {
    head: Head,
    out: W,
}

/// Any line, as it is read back.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum SavedLine<'a> {
    Head(#[serde(borrow)] HeadLine<'a>),
    Row(#[serde(borrow)] RowLine<'a>),
    End(EndLine),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HeadLine<'a> {
    pub(crate) rcuwalk_audit: u32,
    #[serde(borrow)]
    pub(crate) source: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) identities: Vec<IdentityLine<'a>>,
    #[serde(borrow)]
    pub(crate) can: Vec<Cow<'a, str>>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct IdentityLine<'a> {
    #[serde(borrow)]
    pub(crate) label: Cow<'a, str>,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    #[serde(borrow)]
    pub(crate) caps: Cow<'a, str>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RowLine<'a> {
    #[serde(borrow)]
    pub(crate) path: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) path_hex: Option<String>,
    #[serde(borrow, rename = "type")]
    pub(crate) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) mode: Cow<'a, str>,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) acl: bool,
    pub(crate) caps: bool,
    #[serde(borrow)]
    pub(crate) can: BTreeMap<Cow<'a, str>, Vec<Cow<'a, str>>>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EndLine {
    pub(crate) summary: SummaryLine,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SummaryLine {
    pub(crate) entries: u64,
    pub(crate) rows: u64,
    pub(crate) closed: u64,
    pub(crate) complete: bool,
    pub(crate) counts: BTreeMap<String, BTreeMap<String, u64>>,
}

impl<W: Write> Json<W> {
    /// Writes the head.
    ///
    /// # Errors
    ///
    /// What writing answers.
    pub fn new(head: &Head, out: W) -> io::Result<Json<W>> {
        let mut json = Json { head: head.clone(), out };
        let identities = head.identities.iter().map(|who| IdentityLine {
            label: Cow::Borrowed(&who.label),
            uid: who.uid,
            gid: who.gid,
            groups: who.groups.clone(),
            caps: show_caps(who.caps).into(),
        });
        let line = HeadLine {
            rcuwalk_audit: FORMAT,
            source: Cow::Borrowed(&head.source),
            identities: identities.collect(),
            can: head.want.iter().map(|right| right.name().into()).collect(),
        };
        json.line(&line)?;
        Ok(json)
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, line)?;
        self.out.write_all(b"\n")
    }
}

impl<W: Write> Output for Json<W> {
    fn row(&mut self, row: &Row) -> io::Result<()> {
        let (path, path_hex) = text_and_hex(&row.path);
        let mut can = BTreeMap::new();
        for (i, who) in self.head.identities.iter().enumerate() {
            let rights = row.can(i);
            if !rights.is_empty() {
                can.insert(Cow::Borrowed(&*who.label), rights.iter().map(|r| r.name().into()).collect());
            }
        }
        let line = RowLine {
            path,
            path_hex,
            kind: row.kind().into(),
            mode: format!("{:04o}", row.mode & 0o7777).into(),
            uid: row.uid,
            gid: row.gid,
            acl: row.acl,
            caps: row.caps,
            can,
        };
        serde_json::to_writer(&mut self.out, &line)?;
        self.out.write_all(b"\n")
    }

    fn end(&mut self, summary: &Summary) -> io::Result<()> {
        let want = self.head.want;
        let of = |counts: &[u64; 6]| {
            let named = |right: Right| (right.name().to_owned(), counts[right as usize]);
            want.iter().map(named).collect()
        };
        let counts = self.head.identities.iter().zip(&summary.counts);
        let summary = SummaryLine {
            entries: summary.entries,
            rows: summary.rows,
            closed: summary.closed,
            complete: summary.complete,
            counts: counts.map(|(who, counts)| (who.label.clone(), of(counts))).collect(),
        };
        self.line(&EndLine { summary })?;
        self.out.flush()
    }
}
