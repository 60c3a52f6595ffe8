//! A file system that is kept in an image while it is used.

use crate::Summary;
use crate::disk::{Disk, OnDisk, dir_of};
use crate::error::{Error, Fault, Outcome, Result};
use crate::store::{self, Db, Opener, Pending};
use crate::tree::{self, Contents};
use rcuwalk::changes::{Backing, Changes, Drained};
use rcuwalk::{Errno, Vfs};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// When changes are committed without a call that asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// So long after the last time.
    pub interval: Duration,
    /// When contents of so many bytes changed: further writes then wait.
    pub unsaved_bytes: u64,
}

impl Default for Options {
    /// Every five seconds, every 64 MiB.
    fn default() -> Options {
        Options { interval: Duration::from_secs(5), unsaved_bytes: 64 << 20 }
    }
}

/// A file system whose state is kept in an image file: fsync(2), fdatasync(2), syncfs(2), sync(2), writes with `O_SYNC` and
/// [`sync`](Live::sync) wait until the change is in the file; other changes follow a little later.
///
/// ```
/// use rcuwalk::{Cred, Vfs, uapi::*};
/// use rcuwalk_image::{Live, Options};
///
/// let dir = tempfile::tempdir()?;
/// let file = dir.path().join("tree.image");
/// let vfs = Vfs::new()?;
/// let live = Live::create(&file, &vfs, &Options::default())?;
/// let task = vfs.task(Cred::root());
/// let fd = task.open(b"/ledger", O_CREAT | O_WRONLY, 0o600)?;
/// task.write(fd, b"100")?;
/// task.fsync(fd)?;
/// live.close()?;
///
/// let again = Vfs::new()?;
/// let live = Live::open(&file, &again, &Options::default())?;
/// assert_eq!(again.task(Cred::root()).stat(b"/ledger")?.size, 3);
/// # live.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Live {
    shared: Arc<Shared>,
    committer: Option<JoinHandle<()>>,
}

/// What calls, the committing thread and the owner share.
#[derive(Debug)]
struct Shared {
    path: PathBuf,
    changes: Changes,
    opener: Box<dyn Opener>,
    options: Options,
    turn: Mutex<Turn>,
    turned: Condvar,
    keeper: Mutex<Keeper>,
    account: Mutex<Account>,
    stopped: Mutex<bool>,
    stop: Condvar,
}

/// Whose turn it is to commit: threads that come while one commits wait for the next commit, and share it.
#[derive(Debug)]
struct Turn {
    started: u64,
    done: u64,
    running: bool,
    result: std::result::Result<(), Errno>,
}

/// What is granted to changes, out of what is reserved on the disk. Locked before anything in the engine.
#[derive(Debug, Default)]
struct Account {
    /// What the changes cost that were told and are not committed yet.
    committing: u64,
    /// Bytes of records that went since the file was last made compact.
    freed: u64,
    /// How many make it worth it.
    worth: u64,
}

/// So many bytes of records that went make it worth to try to make the file smaller; twice as many if that did not help.
const WORTH: u64 = 64 << 10;

/// Reserved beside what changes cost: for the store's own records, and for what others take of the room that is given up.
const MARGIN: u64 = 256 << 10;
/// Reserved for changes at least.
const AT_LEAST: u64 = 1 << 20;
/// Reserved for changes while there are none.
const AT_REST: u64 = 16 << 20;
/// The most that changes may cost before they are committed. It is what could be needed and far more than is.
const AT_MOST: u64 = 256 << 20;

/// The file, and what is on its way there.
#[derive(Debug)]
struct Keeper {
    /// None after a write failed, until it is opened again.
    db: Option<Db>,
    /// What was told and is not committed yet.
    pending: Pending,
    drained: Drained,
    error: Option<Error>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    /// Keeps `vfs`, as it is and as it becomes, in a new image file, which only its owner may read.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]: the file exists, or cannot be written; [`Error::Engine`] with `EBUSY`: the file system is kept in an image
    /// already.
    pub fn create(path: &Path, vfs: &Vfs, options: &Options) -> Result<Live> {
        let fault = |fault: Fault| fault.at(path);
        let open = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        let file = open.map_err(|e| fault(e.into()))?;
        // What exists was ours to make, and is of no use half made.
        write_new(file, path, vfs)
            .and_then(|(disk, db, changes, drained)| {
                sync_dir(path)?;
                Ok(Live::start(path, db, changes, drained, Box::new(disk), options))
            })
            .map_err(|e| {
                let _ = std::fs::remove_file(path);
                fault(e)
            })
    }

    /// Loads the image into `vfs`, a fresh file system that has no user yet, and keeps it there from now on. An image that was not
    /// closed is as it was at the last commit.
    ///
    /// # Errors
    ///
    /// All of [`Error`]. `vfs` is to be dropped then.
    pub fn open(path: &Path, vfs: &Vfs, options: &Options) -> Result<Live> {
        let open = || {
            let disk = store::at(path)?;
            let (db, changes, drained) = load_watched(&disk, vfs)?;
            Ok((disk, db, changes, drained))
        };
        let (disk, db, changes, drained) = open().map_err(|fault: Fault| fault.at(path))?;
        Ok(Live::start(path, db, changes, drained, Box::new(disk), options))
    }

    pub(crate) fn start(
        path: &Path,
        db: Db,
        changes: Changes,
        drained: Drained,
        opener: Box<dyn Opener>,
        options: &Options,
    ) -> Live {
        let keeper = Keeper { db: Some(db), pending: Pending::default(), drained, error: None };
        let shared = Arc::new(Shared {
            path: path.into(),
            changes,
            opener,
            options: *options,
            turn: Mutex::new(Turn { started: 0, done: 0, running: false, result: Ok(()) }),
            turned: Condvar::new(),
            keeper: Mutex::new(keeper),
            account: Mutex::new(Account { worth: WORTH, ..Account::default() }),
            stopped: Mutex::new(false),
            stop: Condvar::new(),
        });
        shared.changes.set_limit(options.unsaved_bytes);
        shared.extend();
        shared.changes.set_backing(Arc::clone(&shared) as Arc<dyn Backing>);
        let theirs = Arc::clone(&shared);
        // Without the thread, only changes are lost that no call asked to be durable.
        let committer =
            std::thread::Builder::new().name("commit".into()).spawn(move || theirs.commit_now_and_then());
        Live { shared, committer: committer.ok() }
    }

    /// Waits until all that was done before is durable.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], of which a full disk is the likely one: what was done stays in the file system, is tried again later, and
    /// nothing that takes space is accepted until it succeeds.
    pub fn sync(&self) -> Result<()> {
        self.shared.sync().map_err(|errno| self.shared.error(errno))
    }

    /// What the last commit failed with, if it did.
    pub fn last_error(&self) -> Option<String> {
        locked(&self.shared.keeper).error.as_ref().map(ToString::to_string)
    }

    /// Why no room is kept on the disk for changes that wait, if none is: the image's directory may not be written to, or its file
    /// system cannot reserve space. Changes are then accepted while they take less than a quarter of what is free; if others take it
    /// meanwhile, the commit fails with `ENOSPC`.
    pub fn unreserved(&self) -> Option<String> {
        self.shared.opener.disk()?.unreserved()
    }

    /// The image as it was last committed.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn summary(&self) -> Result<Summary> {
        let keeper = locked(&self.shared.keeper);
        let db = keeper.db.as_ref().ok_or_else(|| self.shared.error(Errno::EIO))?;
        let summary = self.shared.file_bytes().and_then(|bytes| Summary::of(db, bytes));
        summary.map_err(|fault| fault.at(&self.shared.path))
    }

    /// Commits what is left and closes the file. The file system goes on, and nothing keeps it.
    ///
    /// # Errors
    ///
    /// As [`sync`](Live::sync): what could not be committed is lost then.
    pub fn close(mut self) -> Result<()> {
        self.finish()
    }

    fn finish(&mut self) -> Result<()> {
        if std::mem::replace(&mut *locked(&self.shared.stopped), true) {
            return Ok(());
        }
        self.shared.stop.notify_all();
        if let Some(committer) = self.committer.take() {
            // It does not panic, and if it did there would be nothing to add.
            let _ = committer.join();
        }
        let synced = self.sync();
        self.shared.changes.stop();
        let mut closed = locked(&self.shared.keeper).db.take().map_or(Ok(()), Db::close);
        if let Some(disk) = self.shared.opener.disk() {
            closed = closed.and(disk.release_beyond(0).map_err(Fault::from));
        }
        synced.and(closed.map_err(|fault| fault.at(&self.shared.path)))
    }
}

impl Drop for Live {
    /// As [`close`](Live::close), but reports no error.
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

impl Backing for Shared {
    fn sync(&self) -> rcuwalk::Result<()> {
        let mut turn = locked(&self.turn);
        let wanted = turn.started + 1;
        while turn.done < wanted {
            if turn.running {
                turn = self.turned.wait(turn).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            turn.running = true;
            turn.started += 1;
            let number = turn.started;
            drop(turn);
            let result = self.commit();
            turn = locked(&self.turn);
            turn.running = false;
            (turn.done, turn.result) = (number, result);
            self.turned.notify_all();
        }
        turn.result
    }

    fn make_room(&self) {
        if self.changes.needed() < AT_MOST && self.extend() {
            return;
        }
        // What is committed needs no room any more. If it fails, calls that take space learn why.
        let _ = self.sync();
        if !self.extend() && self.compact() {
            let helped = self.extend();
            let mut account = locked(&self.account);
            account.worth = if helped { WORTH } else { account.worth.saturating_mul(2) };
        }
    }
}

impl Shared {
    fn commit_now_and_then(&self) {
        let mut stopped = locked(&self.stopped);
        loop {
            let wait = self.stop.wait_timeout_while(stopped, self.options.interval, |stopped| !*stopped);
            stopped = wait.unwrap_or_else(PoisonError::into_inner).0;
            if *stopped {
                return;
            }
            drop(stopped);
            if self.changes.is_empty() && locked(&self.keeper).pending.is_empty() {
                self.rest();
            } else {
                // Calls that wait for durability, and calls that want space, answer with the error.
                let _ = self.sync();
            }
            stopped = locked(&self.stopped);
        }
    }

    fn commit(&self) -> rcuwalk::Result<()> {
        let mut keeper = locked(&self.keeper);
        let Keeper { pending, drained, .. } = &mut *keeper;
        {
            let mut account = locked(&self.account);
            // After a commit that failed, what came since goes with it: it may be what makes room.
            *drained = self.changes.drain(|change| tree::record(change, &mut |op| pending.push(op)));
            account.committing = account.committing.saturating_add(drained.cost);
        }
        match self.commit_pending(&mut keeper) {
            Ok(freed) => {
                keeper.error = None;
                self.changes.set_refusal(None);
                {
                    let mut account = locked(&self.account);
                    account.committing = 0;
                    account.freed += freed;
                }
                self.extend();
                Ok(())
            }
            Err(fault) => {
                // The store does not go on after a failed write; opening it again makes it what it was.
                keeper.db = None;
                let error = fault.at(&self.path);
                let errno = error.errno();
                keeper.error = Some(error);
                self.changes.set_refusal(Some(errno));
                Err(errno)
            }
        }
    }

    fn commit_pending(&self, keeper: &mut Keeper) -> Outcome<u64> {
        if keeper.pending.is_empty() {
            return Ok(0);
        }
        if keeper.db.is_none() {
            keeper.db = Some(self.opener.open()?);
        }
        let Keeper { db: Some(db), pending, drained, .. } = keeper else { return Ok(0) };
        let freed = db.commit(|writer| {
            pending.apply(writer)?;
            Ok((drained.next_key, drained.next_ino))
        })?;
        pending.clear();
        Ok(freed)
    }

    /// Reserves on the disk what the changes that wait may cost, and some more, and grants it to them. Whether it was to be had.
    fn extend(&self) -> bool {
        let account = locked(&self.account);
        let Some(disk) = self.opener.disk() else { return true };
        let (fixed, needed) = (account.committing + MARGIN, self.changes.needed());
        let reserve = |bytes: u64| disk.reserve(fixed.saturating_add(bytes)).saturating_sub(fixed);
        let mut granted = reserve(needed.saturating_mul(2).min(AT_MOST).max(needed).max(AT_LEAST));
        if granted < needed {
            granted = reserve(needed);
        }
        self.changes.grant(granted);
        granted >= needed
    }

    /// Makes the file as small as it can be, if enough went to be worth it. Whether it did.
    fn compact(&self) -> bool {
        let mut keeper = locked(&self.keeper);
        let mut account = locked(&self.account);
        let Some(db) = &mut keeper.db else { return false };
        if account.freed < account.worth {
            return false;
        }
        account.freed = 0;
        let compacted = db.compact().is_ok();
        if !compacted {
            // As after any failed write; the next commit opens it again, and tells what is wrong.
            keeper.db = None;
        }
        compacted
    }

    /// Gives back what was reserved for more changes than there are now.
    fn rest(&self) {
        let account = locked(&self.account);
        let Some(disk) = self.opener.disk() else { return };
        if disk.reserved() <= MARGIN + AT_REST || account.committing != 0 {
            return;
        }
        if !self.changes.rest(AT_REST) {
            return;
        }
        // A call that needs more from here on waits for the account. The room stays reserved if this fails.
        let _ = disk.release_beyond(MARGIN + AT_REST);
    }

    fn file_bytes(&self) -> Outcome<u64> {
        self.opener.disk().map_or(Ok(0), |disk| Ok(disk.len()?))
    }

    fn error(&self, errno: Errno) -> Error {
        locked(&self.keeper).error.take().unwrap_or_else(|| Fault::Io(errno.into()).at(&self.path))
    }
}

/// Writes a whole tree into a new file.
pub(crate) fn write_new(file: File, path: &Path, vfs: &Vfs) -> Outcome<(Arc<Disk>, Db, Changes, Drained)> {
    let disk = Arc::new(Disk::new(file, path));
    let mut db = Db::create(OnDisk(Arc::clone(&disk)))?;
    let changes = vfs.loader().watch(vfs, &[], 0)?;
    let drained = fill(&mut db, &changes)?;
    Ok((disk, db, changes, drained))
}

/// Commits everything that is to tell, piece by piece as it is told: a whole tree is not held in memory twice.
pub(crate) fn fill(db: &mut Db, changes: &Changes) -> Outcome<Drained> {
    let mut told = None;
    db.commit(|writer| {
        let mut result = Ok(());
        let drained = changes.drain(|change| {
            tree::record(change, &mut |op| {
                if result.is_ok() {
                    result = writer.apply(&op);
                }
            });
        });
        told = Some(drained);
        result.map(|()| (drained.next_key, drained.next_ino))
    })?;
    told.ok_or_else(|| Fault::corrupt("the store", "it took no changes"))
}

/// Loads an image and watches what becomes of it.
pub(crate) fn load_watched(opener: &dyn Opener, vfs: &Vfs) -> Outcome<(Db, Changes, Drained)> {
    let db = opener.open()?;
    let mut loader = vfs.loader();
    let (known, _) =
        crate::store::distrusting(|| tree::load(&db.read()?, &db.state, &mut loader, Contents::Keep))?;
    let changes = loader.watch(vfs, &known, db.state.next_key)?;
    let drained = Drained { next_key: db.state.next_key, next_ino: db.state.next_ino, cost: 0 };
    Ok((db, changes, drained))
}

/// Makes the name of a file durable.
pub(crate) fn sync_dir(path: &Path) -> Outcome<()> {
    Ok(File::open(dir_of(path))?.sync_all()?)
}
