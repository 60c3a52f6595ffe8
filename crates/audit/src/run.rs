//! Asking.

use std::ops::ControlFlow;

use rcuwalk::uapi::{S_IFDIR, S_IFLNK, S_IFMT, s_isdir, s_islnk, s_isreg};
use rcuwalk::{Cred, Errno, Rights, SURVEY_MAX, Surveyed, Vfs};
use rcuwalk_host::Identity;

use crate::right::{Right, RightSet};

/// Why an audit cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// No identity was named.
    #[error("no identity; name one with --as, or --world, --any-uid, --service")]
    Nobody,
    /// More identities than one walk over the tree can carry.
    #[error("{0} identities; at most {SURVEY_MAX} fit into one audit: make several")]
    TooMany(usize),
    /// Two identities that output could not tell apart.
    #[error("identity '{0}' is named twice; name it once")]
    Twice(String),
    /// Ids that no process can have.
    #[error("identity '{label}': {errno}; ids go from 0 to 4294967294")]
    NoCred {
        /// The identity.
        label: String,
        /// What the engine says.
        errno: Errno,
    },
    /// The place where the audit is to begin cannot be reached even with every permission.
    #[error("{path}: {errno}; name a directory of the tree")]
    NoTop {
        /// The place.
        path: String,
        /// What the engine says.
        errno: Errno,
    },
}

/// An entry of the tree that an identity may do something with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its path.
    pub path: Vec<u8>,
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Whether it has an ACL that says more than the permissions.
    pub acl: bool,
    /// Whether it has file capabilities.
    pub caps: bool,
    rights: Rights,
    want: RightSet,
}

impl Row {
    /// What the identity of this number may do, of what was asked.
    pub fn can(&self, identity: usize) -> RightSet {
        let (is_dir, is_link) = (s_isdir(self.mode), s_islnk(self.mode));
        let mut set = RightSet::default();
        let has = |rights: u64| rights >> identity & 1 == 1;
        // A link grants nothing by itself: what it leads to is an entry of its own.
        set.add(Right::Read, has(self.rights.read) && !is_link);
        set.add(Right::Write, has(self.rights.write) && !is_link);
        set.add(Right::Exec, has(self.rights.exec) && !is_link && !is_dir);
        set.add(Right::Search, has(self.rights.exec) && is_dir);
        set.add(Right::Delete, has(self.rights.delete));
        set.add(Right::SetId, has(self.rights.setid) && s_isreg(self.mode));
        set.and(self.want)
    }

    /// The word for its type: `file`, `dir`, `link`, `fifo`, `socket`, `chardev`, `blockdev`.
    pub fn kind(&self) -> &'static str {
        use rcuwalk::uapi::{S_IFBLK, S_IFCHR, S_IFIFO, S_IFSOCK};
        match self.mode & S_IFMT {
            S_IFDIR => "dir",
            S_IFLNK => "link",
            S_IFIFO => "fifo",
            S_IFSOCK => "socket",
            S_IFCHR => "chardev",
            S_IFBLK => "blockdev",
            _ => "file",
        }
    }
}

/// What an audit came to.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Summary {
    /// Entries looked at.
    pub entries: u64,
    /// Entries that some identity may do something with, of what was asked.
    pub rows: u64,
    /// Directories that no identity may search, and whose contents were passed over therefore.
    pub closed: u64,
    /// For each identity, entries by [`Right`], in the order of [`Right::ALL`].
    pub counts: Vec<[u64; 6]>,
    /// Whether the whole tree was gone through.
    pub complete: bool,
}

/// Questions about a tree.
#[derive(Debug)]
pub struct Audit<'a> {
    vfs: &'a Vfs,
    top: &'a [u8],
    creds: Vec<Cred>,
    want: RightSet,
}

/// Rows of one directory, to be put in order.
struct Collector<'a, F> {
    dir: Vec<u8>,
    rows: Vec<Row>,
    summary: Summary,
    want: RightSet,
    mask: Rights,
    /// No more rows are wanted.
    refused: bool,
    each: &'a mut F,
}

impl<'a> Audit<'a> {
    /// Asks what `identities` may do, of `want`, with `top` and everything below it in `vfs`. Directories above count.
    ///
    /// # Errors
    ///
    /// [`AuditError::Nobody`], [`AuditError::TooMany`], [`AuditError::Twice`], [`AuditError::NoCred`].
    pub fn new(
        vfs: &'a Vfs,
        top: &'a [u8],
        identities: &[Identity],
        want: RightSet,
    ) -> Result<Audit<'a>, AuditError> {
        if identities.is_empty() {
            return Err(AuditError::Nobody);
        }
        if identities.len() > SURVEY_MAX {
            return Err(AuditError::TooMany(identities.len()));
        }
        for (i, who) in identities.iter().enumerate() {
            if identities[..i].iter().any(|other| other.label == who.label) {
                return Err(AuditError::Twice(who.label.clone()));
            }
        }
        let cred = |who: &Identity| {
            who.cred().map_err(|errno| AuditError::NoCred { label: who.label.clone(), errno })
        };
        let creds = identities.iter().map(cred).collect::<Result<_, _>>()?;
        Ok(Audit { vfs, top, creds, want })
    }

    /// Goes through the tree. `tick` is told the number of entries looked at, now and then; `each` gets the rows: those of a directory
    /// together, by name, then its subdirectories, by name. Either ends the audit with `Break`.
    ///
    /// # Errors
    ///
    /// [`AuditError::NoTop`].
    pub fn run(
        &self,
        mut tick: impl FnMut(u64) -> ControlFlow<()>,
        mut each: impl FnMut(&Row) -> ControlFlow<()>,
    ) -> Result<Summary, AuditError> {
        let mut collector = Collector {
            dir: Vec::new(),
            rows: Vec::new(),
            summary: Summary { counts: vec![[0; 6]; self.creds.len()], ..Summary::default() },
            want: self.want,
            mask: self.mask(),
            refused: false,
            each: &mut each,
        };
        let mut broken = false;
        let totals = self.vfs.survey(self.top, &self.creds, |entry| {
            let flow = collector.take(entry);
            let flow = if flow.is_continue() && collector.summary.entries.is_multiple_of(1024) {
                tick(collector.summary.entries)
            } else {
                flow
            };
            broken = flow.is_break();
            flow
        });
        let totals = totals.map_err(|errno| AuditError::NoTop {
            path: String::from_utf8_lossy(self.top).into_owned(),
            errno,
        })?;
        // A caller that ends the walk early gets what was found until then.
        if !collector.refused {
            broken |= collector.flush().is_break();
        }
        let mut summary = collector.summary;
        (summary.entries, summary.closed, summary.complete) = (totals.entries, totals.closed, !broken);
        Ok(summary)
    }

    /// All ones for what is wanted.
    fn mask(&self) -> Rights {
        let of = |rights: &[Right]| if self.want.and(RightSet::of(rights)).is_empty() { 0 } else { u64::MAX };
        Rights {
            read: of(&[Right::Read]),
            write: of(&[Right::Write]),
            exec: of(&[Right::Exec, Right::Search]),
            delete: of(&[Right::Delete]),
            setid: of(&[Right::SetId]),
        }
    }
}

impl<F: FnMut(&Row) -> ControlFlow<()>> Collector<'_, F> {
    fn take(&mut self, entry: &Surveyed<'_>) -> ControlFlow<()> {
        self.summary.entries += 1;
        let (r, m) = (entry.rights, self.mask);
        let any =
            r.read & m.read | r.write & m.write | r.exec & m.exec | r.delete & m.delete | r.setid & m.setid;
        if any == 0 {
            return ControlFlow::Continue(());
        }
        if self.dir != entry.dir() {
            self.flush()?;
            self.dir.clear();
            self.dir.extend_from_slice(entry.dir());
        }
        let mut row = Row {
            path: Vec::new(),
            mode: entry.attr.mode,
            uid: entry.attr.uid,
            gid: entry.attr.gid,
            acl: entry.has_acl,
            caps: entry.has_caps,
            rights: r,
            want: self.want,
        };
        let mut counted = false;
        let mut left = any;
        while left != 0 {
            let who = left.trailing_zeros() as usize;
            left &= left - 1;
            for right in row.can(who).iter() {
                self.summary.counts[who][right as usize] += 1;
                counted = true;
            }
        }
        if counted {
            row.path.reserve(self.dir.len() + 32);
            row.path.extend_from_slice(&self.dir);
            row.path.push(b'/');
            entry.name(&mut row.path);
            self.rows.push(row);
        }
        ControlFlow::Continue(())
    }

    /// Hands out the rows of a directory.
    fn flush(&mut self) -> ControlFlow<()> {
        // They have the directory in common.
        let name = self.dir.len();
        self.rows.sort_unstable_by(|a, b| a.path[name..].cmp(&b.path[name..]));
        let flow = self.rows.drain(..).try_for_each(|row| {
            self.summary.rows += 1;
            (self.each)(&row)
        });
        self.refused = flow.is_break();
        flow
    }
}
