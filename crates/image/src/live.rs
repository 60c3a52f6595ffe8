//! A file system that is kept in an image while it is used.

use crate::Summary;
use crate::error::{Error, Fault, Outcome, Result};
use crate::store::{AtPath, Db, Opener, Pending};
use crate::tree::{self, Contents};
use rcuwalk::changes::{Backing, Changes, Drained};
use rcuwalk::{Errno, Vfs};
use redb::backends::FileBackend;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// When changes are committed although nobody asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// So long after the last time.
    pub interval: Duration,
    /// When contents of so many bytes changed: whoever writes on has to wait then.
    pub unsaved_bytes: u64,
}

impl Default for Options {
    /// Every five seconds, every 64 MiB.
    fn default() -> Options {
        Options { interval: Duration::from_secs(5), unsaved_bytes: 64 << 20 }
    }
}

/// A file system whose state is kept in an image file: fsync(2), fdatasync(2), syncfs(2), sync(2), writes with `O_SYNC` and
/// [`sync`](Live::sync) wait until it is there, and what nobody asked for follows a little later.
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
    stopped: Mutex<bool>,
    stop: Condvar,
}

/// Whose turn it is to commit: whoever comes while one commits waits for the next time, and shares it.
#[derive(Debug)]
struct Turn {
    started: u64,
    done: u64,
    running: bool,
    result: std::result::Result<(), Errno>,
}

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
        write_new(file, vfs)
            .and_then(|(db, changes, drained)| {
                sync_dir(path)?;
                Ok(Live::start(path, db, changes, drained, Box::new(AtPath(path.into())), options))
            })
            .map_err(|e| {
                let _ = std::fs::remove_file(path);
                fault(e)
            })
    }

    /// Loads the image into `vfs`, a fresh file system that nobody uses yet, and keeps it there from now on. An image that was not
    /// closed is as it was at the last commit.
    ///
    /// # Errors
    ///
    /// All of [`Error`]. `vfs` is to be dropped then.
    pub fn open(path: &Path, vfs: &Vfs, options: &Options) -> Result<Live> {
        let opener = AtPath(path.into());
        let (db, changes, drained) = load_watched(&opener, vfs).map_err(|fault| fault.at(path))?;
        Ok(Live::start(path, db, changes, drained, Box::new(opener), options))
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
            stopped: Mutex::new(false),
            stop: Condvar::new(),
        });
        shared.set_limit();
        shared.changes.set_backing(Arc::clone(&shared) as Arc<dyn Backing>);
        let theirs = Arc::clone(&shared);
        // Without the thread nothing is lost but what nobody asked to be durable.
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

    /// The image as it was last committed.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn summary(&self) -> Result<Summary> {
        let keeper = locked(&self.shared.keeper);
        let db = keeper.db.as_ref().ok_or_else(|| self.shared.error(Errno::EIO))?;
        Summary::of(db, &self.shared.path).map_err(|fault| fault.at(&self.shared.path))
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
        let closed = locked(&self.shared.keeper).db.take().map_or(Ok(()), Db::close);
        synced.and(closed.map_err(|fault| fault.at(&self.shared.path)))
    }
}

impl Drop for Live {
    /// As [`close`](Live::close), and tells nobody what went wrong.
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
            if !self.changes.is_empty() || !locked(&self.keeper).pending.is_empty() {
                // Whoever waits for durability hears of it, and everybody who wants space.
                let _ = self.sync();
            }
            stopped = locked(&self.stopped);
        }
    }

    fn commit(&self) -> rcuwalk::Result<()> {
        let mut keeper = locked(&self.keeper);
        let Keeper { pending, drained, .. } = &mut *keeper;
        // After a commit that failed, what came since goes with it: it may be what makes room.
        *drained = self.changes.drain(|change| tree::record(change, &mut |op| pending.push(op)));
        match self.commit_pending(&mut keeper) {
            Ok(()) => {
                keeper.error = None;
                self.changes.set_refusal(None);
                self.set_limit();
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

    fn commit_pending(&self, keeper: &mut Keeper) -> Outcome<()> {
        if keeper.pending.is_empty() {
            return Ok(());
        }
        if keeper.db.is_none() {
            keeper.db = Some(self.opener.open()?);
        }
        let Keeper { db: Some(db), pending, drained, .. } = keeper else { return Ok(()) };
        db.commit(|writer| {
            pending.apply(writer)?;
            Ok((drained.next_key, drained.next_ino))
        })?;
        pending.clear();
        Ok(())
    }

    /// Where the disk is nearly full, writers commit sooner, so that they hear of it and not fsync later.
    fn set_limit(&self) {
        /// What commits need beside the contents.
        const SPARE: u64 = 16 << 20;
        let room =
            rustix::fs::statvfs(&self.path).map_or(u64::MAX, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
        self.changes.set_limit(self.options.unsaved_bytes.min(room.saturating_sub(SPARE) / 4));
    }

    fn error(&self, errno: Errno) -> Error {
        locked(&self.keeper).error.take().unwrap_or_else(|| Fault::Io(errno.into()).at(&self.path))
    }
}

/// Writes a whole tree into a new file.
pub(crate) fn write_new(file: File, vfs: &Vfs) -> Outcome<(Db, Changes, Drained)> {
    let mut db = Db::create(FileBackend::new(file)?)?;
    let changes = vfs.loader().watch(vfs, &[], 0)?;
    let drained = fill(&mut db, &changes)?;
    Ok((db, changes, drained))
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
    let drained = Drained { next_key: db.state.next_key, next_ino: db.state.next_ino };
    Ok((db, changes, drained))
}

/// Makes the name of a file durable.
pub(crate) fn sync_dir(path: &Path) -> Outcome<()> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    Ok(File::open(dir)?.sync_all()?)
}
