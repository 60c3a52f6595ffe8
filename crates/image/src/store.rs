//! The file: opening it, reading its records, and changing them all at once or not at all.

use crate::disk::{Disk, OnDisk};
use crate::error::{Fault, Outcome};
use crate::overlay::Overlay;
use crate::record::{FORMAT, Kind, State, VERSION, decode, describe, encode, seal, seal_of};
use redb::{
    Builder, Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTableMetadata,
    StorageBackend, Table, TableDefinition, WriteTransaction,
};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

type Definition = TableDefinition<'static, &'static [u8], &'static [u8]>;
type Records<'t> = Table<'t, &'static [u8], &'static [u8]>;

/// The state, under one key.
const STATE: Definition = TableDefinition::new("state");
const STATE_KEY: &[u8] = b"state";
/// Bytes of pages that the store keeps in memory: the tree itself is in the engine.
const CACHE_SIZE: usize = 64 << 20;

const fn definition(kind: Kind) -> Definition {
    TableDefinition::new(kind.table())
}

/// A change of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    Put(Kind, Vec<u8>, Vec<u8>),
    Delete(Kind, Vec<u8>),
    /// All keys from the first on, below the second.
    DeleteRange(Kind, Vec<u8>, Vec<u8>),
}

/// Changes that wait for their commit: for each record the last one alone, so that what was superseded takes no space any more.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Ranges to delete first.
    ranges: Vec<(Kind, Vec<u8>, Vec<u8>)>,
    /// By record, what it says then; `None` if it is to go.
    records: BTreeMap<(Kind, Vec<u8>), Option<Vec<u8>>>,
}

impl Pending {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.records.is_empty()
    }

    pub(crate) fn push(&mut self, op: Op) {
        match op {
            Op::Put(kind, key, payload) => drop(self.records.insert((kind, key), Some(payload))),
            Op::Delete(kind, key) => drop(self.records.insert((kind, key), None)),
            Op::DeleteRange(kind, from, to) => {
                let range = (kind, from.clone())..(kind, to.clone());
                let within: Vec<_> = self.records.range(range).map(|(record, _)| record.clone()).collect();
                within.iter().for_each(|record| drop(self.records.remove(record)));
                self.ranges.push((kind, from, to));
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Pending::default();
    }

    pub(crate) fn apply(&self, writer: &mut Writer<'_>) -> Outcome<()> {
        self.ranges.iter().try_for_each(|(kind, from, to)| writer.delete_range(*kind, from, to))?;
        self.records.iter().try_for_each(|((kind, key), payload)| match payload {
            Some(payload) => writer.put(*kind, key, payload),
            None => writer.delete(*kind, key),
        })
    }
}

/// An open image file.
#[derive(Debug)]
pub(crate) struct Db {
    db: Database,
    /// What was true at the last commit.
    pub(crate) state: State,
}

/// Makes a backend anew, for opening and for opening again after a write has failed.
pub(crate) trait Opener: std::fmt::Debug + Send + Sync {
    fn open(&self) -> Outcome<Db>;

    /// The disk below, if room can be reserved there.
    fn disk(&self) -> Option<&Disk>;
}

impl Opener for Arc<Disk> {
    fn open(&self) -> Outcome<Db> {
        patiently(|| Db::open(OnDisk(Arc::clone(self))))
    }

    fn disk(&self) -> Option<&Disk> {
        Some(self)
    }
}

/// The image file at a path, to be changed.
pub(crate) fn at(path: &Path) -> Outcome<Arc<Disk>> {
    let file = not_empty(OpenOptions::new().read(true).write(true).open(path)?)?;
    Ok(Arc::new(Disk::new(file, path)))
}

/// How long to wait for an image that another process has open: umount(8) returns before the process that served the mount has
/// committed what was left and closed the file.
const PATIENCE: Duration = Duration::from_secs(2);

/// Opens an image that another process may be about to close.
fn patiently<R>(open: impl Fn() -> Outcome<R>) -> Outcome<R> {
    let until = Instant::now() + PATIENCE;
    loop {
        match open() {
            Err(Fault::Store(redb::Error::DatabaseAlreadyOpen)) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done,
        }
    }
}

/// The store would make something of an empty file.
fn not_empty(file: File) -> Outcome<File> {
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(Fault::NotAnImage("it is no regular file".into()));
    }
    if meta.len() == 0 {
        return Err(Fault::NotAnImage("it is empty".into()));
    }
    Ok(file)
}

/// Where the store's header has its flags, and the one that says that the file was not closed.
const FLAGS: usize = 9;
const NOT_CLOSED: u8 = 2;

/// An image that is looked at.
pub(crate) struct Look {
    pub(crate) db: Db,
    file: File,
    /// The begin of the file, which every commit changes.
    header: [u8; 512],
    /// Another process keeps it.
    pub(crate) in_use: bool,
}

impl Look {
    /// Opens an image to look at it. If it has to be repaired first, that happens in memory. One that is in use only if `in_use`: it may
    /// change meanwhile.
    pub(crate) fn open(path: &Path, in_use: bool) -> Outcome<Look> {
        // A fifo under that name must not be waited for.
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = not_empty(OpenOptions::new().read(true).custom_flags(flags).open(path)?)?;
        let locked = patiently(|| match file.try_lock_shared() {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => Err(Fault::Store(redb::Error::DatabaseAlreadyOpen)),
            Err(TryLockError::Error(e)) => Err(e.into()),
        });
        let in_use = match locked {
            Err(Fault::Store(redb::Error::DatabaseAlreadyOpen)) if in_use => true,
            locked => locked.map(|()| false)?,
        };
        let header = header(&file)?;
        Ok(Look { db: Db::open(Overlay::new(file.try_clone()?)?)?, file, header, in_use })
    }

    /// Whether its process closed it.
    pub(crate) fn is_closed(&self) -> bool {
        self.header[FLAGS] & NOT_CLOSED == 0
    }

    /// Whether nothing was committed since it was opened: then all that was read is one state. A commit writes to pages only that the
    /// last one does not use.
    pub(crate) fn holds(&self) -> Outcome<bool> {
        Ok(header(&self.file)? == self.header)
    }
}

/// Whether another process keeps the image now.
pub(crate) fn is_locked(path: &Path) -> Outcome<bool> {
    Ok(matches!(File::open(path)?.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

fn header(file: &File) -> Outcome<[u8; 512]> {
    let mut header = [0; 512];
    file.read_exact_at(&mut header, 0).map_err(|e| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => Fault::NotAnImage("it does not begin as one does".into()),
        _ => e.into(),
    })?;
    Ok(header)
}

/// Runs what reads a file from elsewhere. The store checks the sums of its pages first, but a forger can make sums agree; where it
/// panics on such a file it is damaged, and nothing worse.
pub(crate) fn distrusting<R>(read: impl FnOnce() -> Outcome<R>) -> Outcome<R> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(Fault::corrupt("the store", "its pages make no sense")))
}

impl Db {
    /// Makes an empty image in a new file.
    pub(crate) fn create(backend: impl StorageBackend) -> Outcome<Db> {
        let db = Builder::new().set_cache_size(CACHE_SIZE).create_with_backend(backend)?;
        Ok(Db { db, state: State::default() })
    }

    /// Opens an image: the sum of each of its pages is checked, and if it was not closed, or is damaged, it becomes what it was at
    /// the last commit that holds together.
    pub(crate) fn open(backend: impl StorageBackend) -> Outcome<Db> {
        distrusting(|| {
            let db = Builder::new()
                .set_cache_size(CACHE_SIZE)
                .set_check_integrity_on_open(true)
                .create_with_backend(backend)?;
            let state = read_state(&db.begin_read()?)?;
            Ok(Db { db, state })
        })
    }

    pub(crate) fn read(&self) -> Outcome<Reader> {
        let txn = self.db.begin_read()?;
        let [node, name, chunk] = Kind::ALL.map(|kind| txn.open_table(definition(kind)));
        Ok(Reader { tables: [node?, name?, chunk?] })
    }

    /// Makes changes, all of them or, if it fails, none; durable once this returns. Gives the bytes of records that are no more.
    pub(crate) fn commit(
        &mut self,
        next: impl FnOnce(&mut Writer<'_>) -> Outcome<(u64, u64)>,
    ) -> Outcome<u64> {
        let txn: WriteTransaction = self.db.begin_write()?;
        let mut state = self.state.clone();
        let [node, name, chunk] = Kind::ALL.map(|kind| txn.open_table(definition(kind)));
        let mut writer =
            Writer { tables: [node?, name?, chunk?], counts: state.counts, sum: state.sum, freed: 0 };
        (state.next_key, state.next_ino) = next(&mut writer)?;
        (state.counts, state.sum) = (writer.counts, writer.sum);
        let freed = writer.freed;
        drop(writer);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        state.time = (now.as_secs() as i64, now.subsec_nanos());
        state.commit += 1;
        let value = seal(Kind::Node, STATE_KEY, &encode(&state));
        txn.open_table(STATE)?.insert(STATE_KEY, &value[..])?;
        txn.commit()?;
        self.state = state;
        Ok(freed)
    }

    /// Bytes that records take in the file.
    pub(crate) fn used(&self) -> Outcome<u64> {
        let txn = self.db.begin_write()?;
        let stats = txn.stats()?;
        txn.abort()?;
        Ok(stats.allocated_pages() * stats.page_size() as u64)
    }

    /// Makes the file as small as it can be.
    pub(crate) fn compact(&mut self) -> Outcome<()> {
        match self.db.compact() {
            Ok(_) => Ok(()),
            Err(e) => Err(Fault::Store(e.into())),
        }
    }

    pub(crate) fn close(self) -> Outcome<()> {
        Ok(self.db.close()?)
    }
}

fn read_state(txn: &ReadTransaction) -> Outcome<State> {
    let table = match txn.open_table(STATE) {
        Err(redb::TableError::TableDoesNotExist(_) | redb::TableError::TableTypeMismatch { .. }) => {
            return Err(Fault::NotAnImage("it is a store of something else".into()));
        }
        table => table?,
    };
    let corrupt = |reason: String| Fault::corrupt("the state", reason);
    let value = table.get(STATE_KEY)?.ok_or_else(|| corrupt("it is missing".into()))?;
    let state: State = match decode(Kind::Node, STATE_KEY, value.value()) {
        Ok(state) => state,
        Err(Fault::Corrupt { reason, .. }) => return Err(corrupt(reason)),
        Err(fault) => return Err(fault),
    };
    if state.format != FORMAT {
        return Err(Fault::NotAnImage("it is a store of something else".into()));
    }
    if state.version != VERSION {
        let text = format!("its format has version {}, and this program reads {VERSION}", state.version);
        return Err(Fault::NotAnImage(text));
    }
    Ok(state)
}

/// The records at one moment.
pub(crate) struct Reader {
    tables: [ReadOnlyTable<&'static [u8], &'static [u8]>; 3],
}

impl Reader {
    /// Shows one record.
    pub(crate) fn get<R>(
        &self,
        kind: Kind,
        key: &[u8],
        show: impl FnOnce(&[u8]) -> Outcome<R>,
    ) -> Outcome<Option<R>> {
        self.tables[kind as usize].get(key)?.map(|value| show(value.value())).transpose()
    }

    /// Shows all records whose keys begin with a number.
    pub(crate) fn each(
        &self,
        kind: Kind,
        number: u64,
        mut show: impl FnMut(&[u8], &[u8]) -> Outcome<()>,
    ) -> Outcome<()> {
        let (from, to) = (number.to_be_bytes(), number.saturating_add(1).to_be_bytes());
        for entry in self.tables[kind as usize].range(&from[..]..&to[..])? {
            let (key, value) = entry?;
            show(key.value(), value.value())?;
        }
        Ok(())
    }

    /// How many records there are.
    pub(crate) fn count(&self, kind: Kind) -> Outcome<u64> {
        Ok(self.tables[kind as usize].len()?)
    }

    /// The first record that is not `known`, by number and as text.
    pub(crate) fn stranger(&self, kind: Kind, known: impl Fn(u64) -> bool) -> Outcome<Option<String>> {
        for entry in self.tables[kind as usize].range::<&[u8]>(..)? {
            let (key, _) = entry?;
            let number = key.value().first_chunk().map_or(0, |number| u64::from_be_bytes(*number));
            if !known(number) {
                return Ok(Some(describe(kind, key.value())));
            }
        }
        Ok(None)
    }
}

/// The records while they are changed.
pub(crate) struct Writer<'t> {
    tables: [Records<'t>; 3],
    counts: [u64; 3],
    sum: u64,
    freed: u64,
}

impl Writer<'_> {
    pub(crate) fn apply(&mut self, op: &Op) -> Outcome<()> {
        match op {
            Op::Put(kind, key, payload) => self.put(*kind, key, payload),
            Op::Delete(kind, key) => self.delete(*kind, key),
            Op::DeleteRange(kind, from, to) => self.delete_range(*kind, from, to),
        }
    }

    fn put(&mut self, kind: Kind, key: &[u8], payload: &[u8]) -> Outcome<()> {
        let value = seal(kind, key, payload);
        let old = self.tables[kind as usize].insert(key, &value[..])?;
        let old = old.map(|old| seal_of(old.value()));
        self.sum = self.sum.wrapping_add(seal_of(&value)).wrapping_sub(old.unwrap_or(0));
        self.counts[kind as usize] += u64::from(old.is_none());
        Ok(())
    }

    fn delete(&mut self, kind: Kind, key: &[u8]) -> Outcome<()> {
        let old = self.tables[kind as usize].remove(key)?.map(|old| measure(old.value()));
        old.into_iter().for_each(|old| self.forget(kind, old));
        Ok(())
    }

    fn delete_range(&mut self, kind: Kind, from: &[u8], to: &[u8]) -> Outcome<()> {
        let mut gone = Vec::new();
        for entry in self.tables[kind as usize].extract_from_if::<&[u8], _>(from..to, |_, _| true)? {
            gone.push(measure(entry?.1.value()));
        }
        gone.into_iter().for_each(|old| self.forget(kind, old));
        Ok(())
    }

    fn forget(&mut self, kind: Kind, (seal, bytes): (u64, u64)) {
        self.freed += bytes;
        self.sum = self.sum.wrapping_sub(seal);
        self.counts[kind as usize] = self.counts[kind as usize].saturating_sub(1);
    }
}

/// The checksum of a record that goes, and its bytes.
fn measure(value: &[u8]) -> (u64, u64) {
    (seal_of(value), value.len() as u64)
}
