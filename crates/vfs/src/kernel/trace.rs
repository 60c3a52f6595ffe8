//! What a call saw and asked on its way, for those who have to explain its answer.
//!
//! There is one walk and one set of checks; [`Vfs::record`] only lets them tell what they do. Telling is compiled out of
//! the lockless walk: while a recording runs, every call walks holding references, and only that walk has the words. The
//! checks of [`crate::perm`] take a `Watch`, which for everybody else is `Unwatched` and leaves no code behind.

use crate::base::errno::{Errno, Result};
use crate::cred::Cred;
use crate::dcache::Name;
use crate::kernel::Kernel;
use crate::kernel::vfs::Vfs;
use crate::mount::{Path, flags};
use crate::perm::fact::Watch;
pub use crate::perm::fact::{Class, Fact, Held, Rule};
use crate::perm::{IFLAG_APPEND, IFLAG_IMMUTABLE, InodeAttr, watched};
use rcuwalk_sync::Handle;
use rcuwalk_sync::lock::{Mutex, MutexGuard, PoisonError};

/// Where something was seen: an inode through a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Spot {
    /// The mount, as statx(2) numbers it with `STATX_MNT_ID_UNIQUE`, and [`crate::Loader::mount`].
    pub mount: u64,
    /// The inode number.
    pub ino: u64,
}

/// One step of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A walk of `path` begins at `at`; also where a link with an absolute body begins again.
    Walk {
        /// The path.
        path: Vec<u8>,
        /// The root, the current directory, or what a descriptor stands for.
        at: Spot,
    },
    /// A name was found.
    Found {
        /// The name.
        name: Vec<u8>,
        /// What it names, before anything that is mounted over it.
        at: Spot,
    },
    /// A name was not found.
    Missing {
        /// The name.
        name: Vec<u8>,
        /// The directory.
        dir: Spot,
    },
    /// Something is mounted over what was found, or over where `..` led.
    Crossed {
        /// The root of the topmost mount.
        to: Spot,
    },
    /// `..` led up, or back to the root of the walk.
    Up {
        /// The parent.
        to: Spot,
    },
    /// A link is followed, unless a [`Fact::Refused`] precedes the next event.
    Link {
        /// The link.
        link: Spot,
        /// Its body.
        body: Vec<u8>,
        /// It was the last component.
        trailing: bool,
    },
    /// A check of permissions says what it does.
    Fact {
        /// The inode that is asked.
        of: Spot,
        /// What it says.
        fact: Fact,
    },
}

/// Listens to what is said of one inode, if a recording runs.
pub(crate) struct Asking<'a> {
    kernel: &'a Kernel,
    of: Spot,
}

impl Watch for Asking<'_> {
    fn see(&mut self, fact: impl FnOnce() -> Fact) {
        self.kernel.tell(|| Event::Fact { of: self.of, fact: fact() });
    }
}

/// The events of a recording under way.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    events: Mutex<Vec<Event>>,
    /// Held by the recorder.
    turn: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kernel {
    /// Adds an event, if anybody wants it.
    pub(crate) fn tell(&self, event: impl FnOnce() -> Event) {
        if self.is_recording() {
            lock(&self.recorder.events).push(event());
        }
    }

    /// Says what a lookup in `dir` came to.
    #[cold]
    pub(crate) fn tell_lookup(&self, dir: Path, name: Name<'_>, found: Option<Handle>) {
        self.tell(|| {
            let name = name.bytes().to_vec();
            match found {
                Some(dentry) => Event::Found { name, at: self.spot(Path { dentry, ..dir }) },
                None => Event::Missing { name, dir: self.spot(dir) },
            }
        });
    }

    /// Where a dentry is seen.
    pub(crate) fn spot(&self, path: Path) -> Spot {
        self.inode_spot(path.mnt, self.store.d_inode(path.dentry))
    }

    pub(crate) fn inode_spot(&self, mnt: Handle, inode: Handle) -> Spot {
        Spot { mount: self.mount(mnt).id.get(), ino: self.store.inode(inode).ino.get() }
    }

    /// A listener to what is said of an inode.
    pub(crate) fn asking(&self, of: Spot) -> Asking<'_> {
        Asking { kernel: self, of }
    }

    /// Ends a call, or a question within it, because of a rule that concerns this place.
    #[cold]
    pub(crate) fn refuse<T>(&self, at: Path, rule: Rule, errno: Errno) -> Result<T> {
        self.asking(self.spot(at)).refuse(rule, errno)
    }

    /// The error of a change of attributes, after saying which rule it stands for: `rule`, unless the inode allows no such
    /// change to anybody. `cap` would pass that rule.
    #[cold]
    pub(crate) fn refused_setattr(
        &self,
        at: Path,
        attr: &InodeAttr,
        cred: &Cred,
        (rule, cap): (Rule, u32),
        errno: Errno,
    ) -> Errno {
        let rule = match errno {
            Errno::EPERM if attr.iflags & IFLAG_IMMUTABLE != 0 => Rule::Immutable,
            Errno::EPERM if attr.iflags & IFLAG_APPEND != 0 => Rule::AppendOnly,
            Errno::EPERM => rule,
            Errno::EOVERFLOW => Rule::UnmappedOwner,
            _ => return errno,
        };
        let mut asking = self.asking(self.spot(at));
        if matches!(rule, Rule::NotOwner | Rule::Chown) {
            watched::capable_wrt_inode_uidgid(cred, attr, cap, &mut asking);
        }
        let _: Result<()> = asking.refuse(rule, errno);
        errno
    }

    /// [`refuse`](Self::refuse) for an inode as a mount shows it.
    #[cold]
    pub(crate) fn refuse_inode<T>(&self, mnt: Handle, inode: Handle, rule: Rule, errno: Errno) -> Result<T> {
        self.asking(self.inode_spot(mnt, inode)).refuse(rule, errno)
    }
}

impl Vfs {
    /// Runs `call` and gives, with its result, what the walks and checks of this file system did meanwhile. Calls walk
    /// holding references while it runs; other users of the file system are recorded, too. Only one recording runs at a
    /// time, and inside one there can be no other: it would wait for itself.
    ///
    /// ```
    /// use rcuwalk::trace::{Class, Event, Fact, Rule};
    /// use rcuwalk::{Cred, Errno, Vfs};
    ///
    /// let vfs = Vfs::new()?;
    /// vfs.task(Cred::root()).mkdir(b"/private", 0o700)?;
    /// let user = vfs.task(Cred::user(1000, 1000, &[]));
    /// let (answer, events) = vfs.record(|| user.stat(b"/private/x"));
    /// assert_eq!(answer, Err(Errno::EACCES));
    /// let facts: Vec<Fact> = events
    ///     .into_iter()
    ///     .filter_map(|event| if let Event::Fact { fact, .. } = event { Some(fact) } else { None })
    ///     .collect();
    /// assert!(facts.contains(&Fact::Class { class: Class::Other, bits: 0, mask: None, granted: false }));
    /// assert_eq!(facts.last(), Some(&Fact::Refused { rule: Rule::Permission, errno: Errno::EACCES }));
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn record<R>(&self, call: impl FnOnce() -> R) -> (R, Vec<Event>) {
        let kernel = &*self.0;
        let _turn = lock(&kernel.recorder.turn);
        let recording = Recording::start(kernel);
        let result = call();
        drop(recording);
        (result, std::mem::take(&mut lock(&kernel.recorder.events)))
    }
}

/// Switches the recording off again, even if the call panics.
struct Recording<'a>(&'a Kernel);

impl<'a> Recording<'a> {
    fn start(kernel: &'a Kernel) -> Self {
        lock(&kernel.recorder.events).clear();
        kernel.mark_recorded(true);
        Recording(kernel)
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        self.0.mark_recorded(false);
    }
}

impl Kernel {
    /// Sends every walk into the mode that holds references, and every permission check through the slow path that
    /// idmapped mounts take, or no longer.
    fn mark_recorded(&self, yes: bool) {
        let ns = self.store.lock();
        self.set_recording(yes);
        for mnt in ns.mnt.all() {
            let word = &self.mount(mnt).flags;
            word.set(if yes { word.get() | flags::RECORDED } else { word.get() & !flags::RECORDED });
        }
    }
}
