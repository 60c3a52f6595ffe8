//! The path walk: from a pathname to a dentry.
//!
//! Kernel: fs/namei.c. One algorithm in two modes:
//!
//! ```text
//! REF-walk                                      RCU-walk
//!
//! at = start;  get(at)                          at = start;  seq = begin(at)
//! for each component but the last:              for each component but the last:
//!     may_search(at)?                               may_search(at)?
//!     child = find(at, name)                        child, cseq = find(at, name)
//!     get(child)                                    retry(at, seq)?    -> bail
//!     put(at)
//!     at = child                                    at, seq = child, cseq
//! use(at)                                       use(at);  retry(at, seq)?  -> bail
//! put(at)
//! ```
//!
//! **Claim.** RCU-walk takes no step that REF-walk could not have taken at that moment. A step reads the child's count,
//! then what the count covers (parent, name, inode, type, "may search"), and only then checks that `at` has not changed
//! since it was reached. So at the moment of that check `at` was still the directory the walk had come to, and the child
//! was its entry of that name: REF-walk, holding `at`, would have found the same child. By induction the whole walk
//! is one that REF-walk could have made. What is read of the last object is believed only after its own check.
//!
//! **Errors are answers too** and are validated like them: a refusal after the inode and the dentry it was read from, a
//! missing name by the proof in [`Nameidata::prove_missing`].
//!
//! **Mounts.** A dentry that something is mounted over, anywhere, says so in its flags ([`Meta::is_mounted`]), so only a
//! walk that comes to one asks the mount table. Whatever a walk took from mounts counts only if no mount changed from
//! before its start to its end (`m_seq`); in REF-walk it holds the mount it stands in and crosses under the lock.
//!
//! **Cost.** RCU-walk writes nothing that another thread can see, and executes no atomic read-modify-write and no fence
//! instruction. A component costs one cache line of the hash table and one of the dentry. A directory that anybody may
//! search (S9) answers from that line; only others are asked by their inode, which is its neighbour.
//!
//! A walk that cannot be sure bails out with a [`Bail`] and is made again in REF-walk, which waits where it must.

mod direct;
pub(crate) mod getname;
mod walk;

pub(crate) use direct::{Candidate, Known, Question};
use walk::{Halt, Stretch};

use crate::base::errno::Errno;
use crate::base::uapi::{
    NAME_MAX, RESOLVE_BENEATH, RESOLVE_CACHED, RESOLVE_IN_ROOT, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV,
    S_IFLNK, S_ISVTX, S_IWOTH,
};
use crate::base::variants::SearchCheck;
use crate::cred::Cred;
use crate::dcache::inode::{Touch, flags};
use crate::dcache::pathtable::{self, Led};
use crate::dcache::store::Store;
use crate::dcache::{Look, Meta, Name, Seen};
use crate::file::File;
use crate::file::fs_struct::{FsStruct, Place};
use crate::kernel::trace::Event;
use crate::kernel::{Bail, Kernel, WalkMode};
use crate::mount::{self, Path};
use crate::namei::getname::check_name;
use crate::perm::fact::Rule;
use crate::perm::{self, MAY_EXEC};
use rcuwalk_sync::{Handle, Racy32, step};

/// Why a walk ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Stop {
    /// Nothing is known; walk again, holding references.
    Retry(Bail),
    /// This is the answer.
    Fail(Errno),
}

/// What a step of a walk gives.
pub(crate) type Walk<T> = Result<T, Stop>;

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Fail(errno)
    }
}

/// How a path is to be looked up. The raw flags of the calls are parsed into this once, and travel no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lookup {
    /// Follow a link in the last component.
    pub(crate) follow: bool,
    /// The result must be a directory.
    pub(crate) directory: bool,
    /// An empty path means the start itself.
    pub(crate) empty: bool,
    /// `RESOLVE_*` bits.
    pub(crate) resolve: u64,
}

impl Lookup {
    /// `stat`, `access`, `chmod`, …: follow to the end.
    pub(crate) const FOLLOW: Lookup = Lookup { follow: true, directory: false, empty: false, resolve: 0 };
    /// `lstat`, `readlink`, …: the link itself.
    pub(crate) const NOFOLLOW: Lookup = Lookup { follow: false, ..Lookup::FOLLOW };
    /// `chdir`, `chroot`.
    pub(crate) const DIRECTORY: Lookup = Lookup { directory: true, ..Lookup::FOLLOW };

    fn scoped(self) -> bool {
        self.resolve & (RESOLVE_BENEATH | RESOLVE_IN_ROOT) != 0
    }
}

/// Where relative paths start.
#[derive(Debug, Clone, Copy)]
pub(crate) enum At<'a> {
    /// `AT_FDCWD`.
    Cwd,
    /// An open file, which must be a directory unless the path is empty.
    File(&'a File),
    /// A descriptor that is not open: `EBADF` if it turns out to be needed.
    Bad,
}

/// Where a walk stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    pub(crate) mnt: Handle,
    pub(crate) seen: Seen,
}

impl Position {
    pub(crate) fn path(self) -> Path {
        Path { mnt: self.mnt, dentry: self.seen.dentry }
    }
}

/// Four words in two registers. As a structure they would be returned by way of memory: stored one by one and loaded in pairs,
/// which waits until the stores are done.
#[derive(Clone, Copy)]
struct Words(u64, u64);

impl Words {
    #[inline(always)]
    fn new([a, b, c, d]: [u32; 4]) -> Words {
        Words(u64::from(a) | u64::from(b) << 32, u64::from(c) | u64::from(d) << 32)
    }

    #[inline(always)]
    fn get(self) -> [u32; 4] {
        [self.0 as u32, (self.0 >> 32) as u32, self.1 as u32, (self.1 >> 32) as u32]
    }
}

/// A [`Walk<Position>`] that an out-of-line function returns.
#[derive(Clone, Copy)]
struct Ended(Words);

impl Ended {
    #[inline(always)]
    fn of(walk: impl FnOnce() -> Walk<Position>) -> Ended {
        Ended(Words::new(match walk() {
            Ok(Position { mnt, seen }) => [mnt, seen.dentry, seen.seq, seen.meta.0],
            // No mount has number 0.
            Err(Stop::Fail(errno)) => [0, 0, 0, errno.raw() as u32],
            Err(Stop::Retry(bail)) => [0, 1, 0, bail as u32],
        }))
    }

    #[inline(always)]
    fn walk(self) -> Walk<Position> {
        match self.0.get() {
            [0, kind, _, why] => Err(Ended::stop(kind, why)),
            [mnt, dentry, seq, meta] => Ok(Position { mnt, seen: Seen { dentry, seq, meta: Meta(meta) } }),
        }
    }

    #[cold]
    fn stop(kind: u32, why: u32) -> Stop {
        match Errno::from_raw(why as i32) {
            Some(errno) if kind == 0 => Stop::Fail(errno),
            _ => Stop::Retry(Bail::ALL[why as usize].0),
        }
    }
}

/// The last component of a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Last<'p> {
    pub(crate) kind: LastType,
    pub(crate) name: Name<'p>,
    /// Slashes follow it.
    pub(crate) slash: bool,
}

/// Kernel: include/linux/namei.h `LAST_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastType {
    /// A name.
    Norm,
    /// Nothing, or only slashes.
    Root,
    Dot,
    DotDot,
}

/// What the caller makes of the last component.
pub(crate) enum Step<R> {
    Done(R),
    /// It is a link, found in the directory the walk stands in, and is to be followed.
    Link(Seen),
}

enum Walked<'p> {
    Last(Position, Last<'p>),
    /// A link in the middle of the path; `rest` is what follows it.
    Link {
        dir: Position,
        link: Seen,
        rest: &'p [u8],
    },
}

/// The state of one walk. Kernel: fs/namei.c `struct nameidata`.
pub(crate) struct Nameidata<'a> {
    walker: &'a Walker<'a>,
    at: At<'a>,
    pub(crate) lookup: Lookup,
    /// The root of this walk, once it was needed; a reference is held in REF-walk.
    root: Option<Position>,
    /// REF-walk: the place that this walk holds references to; zeros for none.
    held: Path,
    total_links: u32,
    /// Mounts and unmounts there had been when the walk started.
    pub(crate) m_seq: u32,
    /// Renames there had been when the walk started, for scoped lookups.
    renames: u32,
    /// What the walk turned at, which marks have to tell the end of: links that were followed, directories that were left by
    /// `..`. Not one that `..` led to: it does not end before what was left for it.
    turns: [Seen; TURNS],
    turned: u32,
    /// The directory that `..` led to last.
    up: Handle,
    /// A link at the end of the path was followed.
    trailing: bool,
    /// The walk depended on more than an entry of the whole-path table can tell.
    untold: bool,
    /// Where a name was missing, and the count of the directory's entries as of which it was.
    missing: Option<(Position, u32)>,
}

/// How often a remembered path may turn.
const TURNS: usize = 4;

/// The longest chain of links that is followed.
const MAXSYMLINKS: u32 = 40;

/// By reference: a copy would be loaded sixteen bytes at a time, right after it was stored by fields.
impl<'a> std::ops::Deref for Nameidata<'a> {
    type Target = Walker<'a>;

    #[inline(always)]
    fn deref(&self) -> &Walker<'a> {
        self.walker
    }
}

impl<'a> Nameidata<'a> {
    pub(crate) fn new(walker: &'a Walker<'a>, at: At<'a>, lookup: Lookup) -> Self {
        let kernel = walker.kernel;
        let renames = if lookup.scoped() { kernel.store.rename_seq.begin() } else { 0 };
        let m_seq = kernel.mounts.seq.begin();
        Nameidata {
            walker,
            at,
            lookup,
            root: None,
            held: Path::default(),
            total_links: 0,
            m_seq,
            renames,
            turns: [Seen { dentry: 0, seq: 0, meta: Meta::NONE }; TURNS],
            turned: 0,
            up: 0,
            trailing: false,
            untold: false,
            missing: None,
        }
    }

    /// Walks `path` and asks `last` what to do with its last component, following the links that `last` gives back.
    #[inline(always)]
    pub(crate) fn path_walk<const RCU: bool, R>(
        &mut self,
        path: &[u8],
        last: impl FnMut(&mut Self, Position, Last<'_>) -> Walk<Step<R>>,
    ) -> Walk<R> {
        let at = self.path_init::<RCU>(path)?;
        self.tell::<RCU>(|kernel| Event::Walk { path: path.to_vec(), at: kernel.spot(at.path()) });
        self.path_walk_from::<RCU, R>(at, path, skip_slashes(path, 0), last)
    }

    /// [`path_walk`](Self::path_walk) from the component that begins at `start`, to which `at` is the way.
    #[inline(always)]
    fn path_walk_from<const RCU: bool, R>(
        &mut self,
        at: Position,
        path: &[u8],
        start: usize,
        mut last: impl FnMut(&mut Self, Position, Last<'_>) -> Walk<Step<R>>,
    ) -> Walk<R> {
        let mut owned;
        let (mut at, mut path, mut start) = (at, path, start);
        loop {
            if RCU {
                let stretch = self.walker.walk_stretch::<false>(at.mnt, at.seen, path, start);
                (at.seen, start) = (stretch.at, stretch.start);
            }
            let (dir, link, trailing, rest) = match self.link_path_walk::<RCU>(at, path, start)? {
                Walked::Link { dir, link, rest } => (dir, link, false, rest),
                Walked::Last(at, component) => match last(self, at, component)? {
                    Step::Done(result) => return Ok(result),
                    Step::Link(link) => (at, link, true, &[][..]),
                },
            };
            (at, owned) = self.pick_link::<RCU>(dir, link, trailing, rest)?;
            path = &owned;
            start = skip_slashes(path, 0);
        }
    }

    /// Says what the walk does, if it holds references and somebody listens.
    #[inline(always)]
    fn tell<const RCU: bool>(&self, event: impl FnOnce(&Kernel) -> Event) {
        if !RCU {
            self.kernel.tell(|| event(self.kernel));
        }
    }

    /// Walks all but the last component of `path`.
    ///
    /// Kernel: fs/namei.c `link_path_walk()`.  Differs: the caller follows links, by putting the link's body in front of
    /// the rest of the path.
    #[inline(never)]
    fn link_path_walk<'p, const RCU: bool>(
        &mut self,
        at: Position,
        path: &'p [u8],
        start: usize,
    ) -> Walk<Walked<'p>> {
        let (mut at, mut start) = (at, start);
        if start == path.len() {
            let name = Name { path, start, component: Default::default() };
            return Ok(Walked::Last(at, Last { kind: LastType::Root, name, slash: false }));
        }
        loop {
            self.may_lookup::<RCU>(at)?;
            let component = self.kernel.store.component(path, start);
            let end = start + component.len as usize;
            let next = skip_slashes(path, end);
            let kind = match (component.len, component.first) {
                (1, 0x2e) => LastType::Dot,
                (2, 0x2e2e) => LastType::DotDot,
                _ => LastType::Norm,
            };
            let name = Name { path, start, component };
            if next == path.len() {
                return Ok(Walked::Last(at, Last { kind, name, slash: next != end }));
            }
            match kind {
                LastType::Norm => {
                    let child = self.lookup_fast::<RCU>(at, name)?;
                    if !child.meta.is_dir() {
                        return self.not_a_directory::<RCU>(at, child, &path[end..]);
                    }
                    at = self.handle_mounts::<RCU>(at.mnt, child)?;
                }
                LastType::DotDot => at = self.follow_dotdot::<RCU>(at)?,
                LastType::Dot | LastType::Root => {}
            }
            start = next;
        }
    }

    /// A component in the middle of the path is no directory: a link is followed, anything else ends the walk.
    #[cold]
    fn not_a_directory<'p, const RCU: bool>(
        &mut self,
        dir: Position,
        child: Seen,
        rest: &'p [u8],
    ) -> Walk<Walked<'p>> {
        if self.is_open_link::<RCU>(dir.mnt, child)? {
            return Ok(Walked::Link { dir, link: child, rest });
        }
        let mnt = if child.meta.is_mounted() {
            // What covers it is no directory either, but the walk may not be allowed to go there.
            self.traverse_mounts::<RCU>(dir.mnt, child)?.mnt
        } else {
            self.drop_child::<RCU>(child)?;
            dir.mnt
        };
        self.kernel.mount_used(mnt);
        Err(self.unconfirmed(Errno::ENOTDIR))
    }

    /// A refusal in the middle of the walk. The kernel's RCU-walk has it confirmed by REF-walk, which a walk through
    /// what is cached alone may not become.
    #[cold]
    fn unconfirmed(&self, errno: Errno) -> Stop {
        Stop::Fail(if self.lookup.resolve & RESOLVE_CACHED != 0 { Errno::EAGAIN } else { errno })
    }

    /// The start of the walk. Kernel: fs/namei.c `path_init()`.
    #[inline(always)]
    fn path_init<const RCU: bool>(&mut self, path: &[u8]) -> Walk<Position> {
        let absolute = path.first() == Some(&b'/');
        if self.lookup.resolve == 0 && absolute {
            return self.start_at::<RCU>(Place::Root);
        }
        match self.at {
            At::Cwd if self.lookup.resolve == 0 => self.start_at::<RCU>(Place::Pwd),
            _ => self.path_init_slow::<RCU>(path, absolute).walk(),
        }
    }

    /// Starts with a descriptor or with `RESOLVE_*` flags.
    #[cold]
    #[inline(never)]
    fn path_init_slow<const RCU: bool>(&mut self, path: &[u8], absolute: bool) -> Ended {
        Ended::of(|| {
            let resolve = self.lookup.resolve;
            if absolute && resolve & RESOLVE_BENEATH != 0 {
                return Err(Stop::Fail(Errno::EXDEV));
            }
            let at = if absolute && resolve & RESOLVE_IN_ROOT == 0 {
                // From now on the root is known, which RESOLVE_NO_XDEV asks for.
                self.root::<RCU>()?;
                return self.start_at::<RCU>(Place::Root);
            } else {
                match self.at {
                    At::Cwd => self.start_at::<RCU>(Place::Pwd)?,
                    At::Bad => return Err(Stop::Fail(Errno::EBADF)),
                    At::File(file) => {
                        // The open file holds its dentry; the walk takes a reference of its own only to keep one rule.
                        let seen = self.kernel.store.see(file.path.dentry);
                        if !path.is_empty() && !seen.meta.is_dir() {
                            return Err(Stop::Fail(Errno::ENOTDIR));
                        }
                        if !RCU {
                            self.kernel.path_get(file.path);
                            self.held = file.path;
                        }
                        Position { mnt: file.path.mnt, seen }
                    }
                }
            };
            if self.lookup.scoped() {
                if !RCU {
                    self.kernel.path_get(at.path());
                }
                self.root = Some(at);
            }
            Ok(at)
        })
    }

    /// Stands at the root or the current directory of the process.
    #[inline(always)]
    fn start_at<const RCU: bool>(&mut self, place: Place) -> Walk<Position> {
        let store = &self.kernel.store;
        loop {
            let start = self.fs.begin();
            let path = self.fs.peek(place);
            let d = store.dentry(path.dentry);
            let seq = d.seq.begin();
            let seen = Seen { dentry: path.dentry, seq, meta: Meta(d.meta.get()) };
            if RCU {
                if self.fs.retry(start) {
                    return Err(Stop::Retry(Bail::FsChanged));
                }
                return Ok(Position { mnt: path.mnt, seen });
            }
            if self.kernel.hold(path, || !self.fs.retry(start)) {
                self.step_held(path);
                return Ok(Position { mnt: path.mnt, seen: store.see(path.dentry) });
            }
        }
    }

    /// The root of this walk. Kernel: fs/namei.c `set_root()`.
    fn root<const RCU: bool>(&mut self) -> Walk<Position> {
        if let Some(root) = self.root {
            return Ok(root);
        }
        let held = std::mem::take(&mut self.held);
        let root = self.start_at::<RCU>(Place::Root);
        // In REF-walk the references that `start_at` took are the root's now.
        self.held = held;
        self.root = Some(root?);
        root
    }

    /// Whether the walk may look for a name in the directory it stands in.
    ///
    /// Kernel: fs/namei.c `may_lookup()`.
    #[inline(always)]
    fn may_lookup<const RCU: bool>(&self, at: Position) -> Walk<()> {
        let known = at.seen.meta.may_search() && self.kernel.variants.plain_search();
        if known && (RCU || !self.kernel.is_recording()) {
            return Ok(());
        }
        self.may_lookup_slow::<RCU>(at)
    }

    /// [`may_lookup`](Self::may_lookup) of a directory that not everybody may search, or as the
    /// [variants](crate::Variants) have it.
    #[inline(never)]
    fn may_lookup_slow<const RCU: bool>(&self, at: Position) -> Walk<()> {
        let kernel = self.kernel;
        if !kernel.variants.plain_search() {
            let known = match kernel.variants.search() {
                SearchCheck::Stored => at.seen.meta.may_search(),
                SearchCheck::Mode => everyone_may_search(&kernel.store, at.seen.dentry),
                SearchCheck::Always => false,
            };
            if kernel.variants.count_searches() {
                kernel.searches.here()[usize::from(!known)].add(1);
            }
            if known && (RCU || !kernel.is_recording()) && !kernel.is_hooked() {
                return Ok(());
            }
        }
        match self.permission::<RCU>(at, MAY_EXEC) {
            Ok(()) => Ok(()),
            Err(stop) => {
                if RCU && matches!(stop, Stop::Fail(_)) {
                    self.revalidate(at.seen)?;
                }
                self.kernel.mount_used(at.mnt);
                match stop {
                    Stop::Fail(errno) => Err(self.unconfirmed(errno)),
                    retry => Err(retry),
                }
            }
        }
    }

    /// Whether the task may do `mask` to the inode of `seen`. A refusal in RCU-walk is not validated yet.
    ///
    /// Kernel: fs/namei.c `inode_permission()`.
    fn permission<const RCU: bool>(&self, at: Position, mask: u32) -> Walk<()> {
        let store = &self.kernel.store;
        let i = store.inode(store.d_inode(at.seen.dentry));
        loop {
            let seq = if RCU { i.seq.begin() } else { i.seq.wait() };
            let answer = self.kernel.racy_permission(at.mnt, i, self.cred, mask);
            if !step!("permission", i.seq.retry(seq)) {
                return answer.map_err(Stop::Fail);
            }
            if RCU {
                return Err(Stop::Retry(Bail::InodeChanged));
            }
        }
    }

    /// Fails unless `seen` is still what was seen.
    #[inline(always)]
    pub(crate) fn revalidate(&self, seen: Seen) -> Walk<()> {
        if step!("revalidate", self.kernel.store.dentry(seen.dentry).seq.retry(seen.seq)) {
            return Err(Stop::Retry(Bail::DentryMoved));
        }
        Ok(())
    }

    /// Takes the two references to a place that RCU-walk came to, if it is still what it was.
    ///
    /// Kernel: fs/namei.c `legitimize_path()`.
    #[inline(always)]
    pub(crate) fn legitimize(&self, at: Position) -> Walk<()> {
        self.kernel.legitimize(at.mnt, at.seen, self.m_seq).map_err(Stop::Retry)
    }

    /// The entry `name` of the directory the walk stands in; with a reference in REF-walk.
    ///
    /// Kernel: fs/namei.c `lookup_fast()`, `lookup_slow()`.
    #[inline(always)]
    pub(crate) fn lookup_fast<const RCU: bool>(&mut self, at: Position, name: Name<'_>) -> Walk<Seen> {
        if !RCU {
            let found = self.lookup_ref(at, name);
            if self.kernel.is_recording() {
                self.kernel.tell_lookup(at.path(), name, found.as_ref().ok().map(|child| child.dentry));
            }
            return found;
        }
        let tree = self.kernel.store.tree();
        match tree.d_lookup_rcu(at.seen.dentry, name) {
            Look::Hit(_) if step!("parent", tree.retry(at.seen)) => Err(Stop::Retry(Bail::DentryMoved)),
            Look::Hit(child) => Ok(child),
            Look::Miss => self.prove_missing(at, name),
            Look::Astray => Err(Stop::Retry(Bail::Astray)),
        }
    }

    /// Looks again for a name that was not found, so that the miss can be believed: with the directory's entries and the
    /// table unchanged from before the look to after it. The first look pays for none of this, since most names exist.
    #[inline(never)]
    fn prove_missing(&mut self, at: Position, name: Name<'_>) -> Walk<Seen> {
        let store = &self.kernel.store;
        let dir = store.inode(store.d_inode(at.seen.dentry));
        let (entries, table) = (dir.seq.begin(), store.chains.begin());
        let dead = dir.mode.get() & flags::DEAD != 0;
        match store.d_lookup_rcu(at.seen.dentry, name) {
            Look::Hit(child) => {
                self.revalidate(at.seen)?;
                return Ok(child);
            }
            Look::Astray => return Err(Stop::Retry(Bail::Astray)),
            Look::Miss => {}
        }
        if step!("missing-table", store.chains.retry(table)) {
            return Err(Stop::Retry(Bail::Astray));
        }
        if step!("missing-entries", dir.seq.retry(entries)) {
            return Err(Stop::Retry(Bail::DirChanged));
        }
        self.revalidate(at.seen)?;
        self.missing = Some((at, entries));
        Err(Stop::Fail(self.missing(at, name, dead)))
    }

    /// [`lookup_fast`](Self::lookup_fast) holding references: tries without the lock, then takes it.
    fn lookup_ref(&mut self, at: Position, name: Name<'_>) -> Walk<Seen> {
        let store = &self.kernel.store;
        for _ in 0..3 {
            match store.d_lookup_rcu(at.seen.dentry, name) {
                Look::Hit(child) if store.legitimize(child) => return Ok(child),
                Look::Miss => {
                    match self.prove_missing(Position { seen: store.see(at.seen.dentry), ..at }, name) {
                        Ok(child) if store.legitimize(child) => return Ok(child),
                        Err(Stop::Fail(errno)) => return Err(Stop::Fail(errno)),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        let ns = store.lock();
        match store.d_lookup(&ns, at.seen.dentry, name) {
            Some(child) => {
                store.links(child).count.get();
                Ok(store.see(child))
            }
            None => {
                let dead = store.inode(store.d_inode(at.seen.dentry)).mode.get() & flags::DEAD != 0;
                Err(Stop::Fail(self.missing(at, name, dead)))
            }
        }
    }

    /// The error for a name that is not there. As on tmpfs nothing remembers that a name is missing, so that a walk
    /// through what is cached alone does not know.
    fn missing(&self, at: Position, name: Name<'_>, dead: bool) -> Errno {
        self.kernel.mount_used(at.mnt);
        if self.lookup.resolve & RESOLVE_CACHED != 0 { Errno::EAGAIN } else { missing(name, dead) }
    }

    /// Steps to `child`, whose reference the walk got from a lookup.
    #[inline(always)]
    pub(crate) fn advance<const RCU: bool>(&mut self, child: Handle) {
        if !RCU {
            self.advance_held(child);
        }
    }

    /// Steps to a dentry of the same mount, whose reference passes to the walk.
    fn advance_held(&mut self, child: Handle) {
        let old = std::mem::replace(&mut self.held.dentry, child);
        if old != 0 {
            self.kernel.store.dput(old);
        }
    }

    /// Steps to a place whose two references pass to the walk.
    fn step_held(&mut self, path: Path) {
        let old = std::mem::replace(&mut self.held, path);
        if old.dentry != 0 {
            self.kernel.store.dput(old.dentry);
            self.kernel.mntput_no_expire(old.mnt);
        }
    }

    /// Steps to `child`, found in mount `mnt`, or to what is mounted over it.
    ///
    /// Kernel: fs/namei.c `handle_mounts()`.
    #[inline(always)]
    pub(crate) fn handle_mounts<const RCU: bool>(&mut self, mnt: Handle, child: Seen) -> Walk<Position> {
        if child.meta.is_mounted() {
            return self.traverse_mounts::<RCU>(mnt, child);
        }
        self.advance::<RCU>(child.dentry);
        Ok(Position { mnt, seen: child })
    }

    /// Whether `child`, found in mount `mnt`, is a link that nothing is mounted over there.
    #[inline(always)]
    pub(crate) fn is_open_link<const RCU: bool>(&self, mnt: Handle, child: Seen) -> Walk<bool> {
        Ok(child.meta.file_type() == S_IFLNK
            && (!child.meta.is_mounted() || !self.is_covered::<RCU>(mnt, child)?))
    }

    /// Whether something is mounted over `child` as seen through `mnt`.
    #[cold]
    fn is_covered<const RCU: bool>(&self, mnt: Handle, child: Seen) -> Walk<bool> {
        let covered = self.kernel.mounts.lookup(mnt, child.dentry).is_some();
        if RCU {
            self.check_mounts()?;
        }
        Ok(covered)
    }

    /// [`handle_mounts`](Self::handle_mounts) of a dentry that is a mountpoint, in this or another namespace.
    ///
    /// Kernel: fs/namei.c `__follow_mount_rcu()`, `__traverse_mounts()`.
    #[cold]
    fn traverse_mounts<const RCU: bool>(&mut self, mnt: Handle, child: Seen) -> Walk<Position> {
        let (kernel, store) = (self.kernel, &self.kernel.store);
        let no_xdev = self.lookup.resolve & RESOLVE_NO_XDEV != 0;
        if RCU {
            let mut at = Position { mnt, seen: child };
            while at.seen.meta.is_mounted()
                && let Some(mnt) = kernel.mounts.lookup(at.mnt, at.seen.dentry)
            {
                let root = kernel.mount(mnt).root.get();
                let d = store.dentry(root);
                at = Position {
                    mnt,
                    seen: Seen { dentry: root, seq: d.seq.begin(), meta: Meta(d.meta.get()) },
                };
            }
            self.check_mounts()?;
            self.revalidate(child)?;
            if no_xdev && at.mnt != mnt {
                return Err(self.unconfirmed(Errno::EXDEV));
            }
            return Ok(at);
        }
        let from = Path { mnt, dentry: child.dentry };
        let to = {
            let ns = store.lock();
            let to = kernel.topmost(&ns, from);
            if to.mnt != mnt {
                kernel.path_get(to);
            }
            to
        };
        if to.mnt == mnt {
            self.advance_held(child.dentry);
        } else {
            store.dput(child.dentry);
            self.step_held(to);
            if no_xdev {
                return Err(self.unconfirmed(Errno::EXDEV));
            }
        }
        self.tell::<RCU>(|kernel| Event::Crossed { to: kernel.spot(to) });
        Ok(Position { mnt: to.mnt, seen: store.see(to.dentry) })
    }

    /// Fails if anything was mounted or unmounted since the walk started.
    fn check_mounts(&self) -> Walk<()> {
        let moved = step!("mounts", self.kernel.mounts.seq.retry(self.m_seq));
        if moved { Err(Stop::Retry(Bail::MountMoved)) } else { Ok(()) }
    }

    /// Lets go of a child that a lookup gave; in RCU-walk makes sure that it was one.
    pub(crate) fn drop_child<const RCU: bool>(&self, child: Seen) -> Walk<()> {
        if RCU {
            return self.revalidate(child);
        }
        self.kernel.store.dput(child.dentry);
        Ok(())
    }

    /// Steps to the parent. Kernel: fs/namei.c `handle_dots()`, `follow_dotdot()`.
    fn follow_dotdot<const RCU: bool>(&mut self, at: Position) -> Walk<Position> {
        let root = self.root::<RCU>()?;
        let from = if at.path() == root.path() {
            None
        } else if at.seen.dentry == self.kernel.mount(at.mnt).root.get() {
            self.choose_mountpoint::<RCU>(at, root)?
        } else {
            Some(at)
        };
        let parent = match from {
            None => self.stay_in_root::<RCU>(at)?,
            Some(from) => {
                if from.seen.dentry != self.up {
                    self.turn(from.seen);
                }
                let parent = self.step_up::<RCU>(from)?;
                self.path_connected::<RCU>(from, parent.seen.dentry)?;
                parent
            }
        };
        self.up = parent.seen.dentry;
        self.tell::<RCU>(|kernel| Event::Up { to: kernel.spot(parent.path()) });
        let over = self.cross::<RCU>(parent)?;
        let store = &self.kernel.store;
        let moved = store.rename_seq.retry(self.renames) || self.kernel.mounts.seq.retry(self.m_seq);
        if self.lookup.scoped() && moved {
            return Err(Stop::Fail(Errno::EAGAIN));
        }
        Ok(over)
    }

    /// Notes a place whose end would turn the walk aside, without a count that says so.
    fn turn(&mut self, at: Seen) {
        match self.turns.get_mut(self.turned as usize) {
            Some(turn) => *turn = at,
            None => self.untold = true,
        }
        self.turned += 1;
    }

    /// `..` leads nowhere from the root of the walk, but to what is mounted over it.
    fn stay_in_root<const RCU: bool>(&self, at: Position) -> Walk<Position> {
        if self.lookup.resolve & RESOLVE_BENEATH != 0 {
            if RCU {
                self.check_mounts()?;
            }
            self.validate::<RCU>(at.seen)?;
            return Err(self.unconfirmed(Errno::EXDEV));
        }
        Ok(at)
    }

    /// From the root of a mount up to what it covers; `None` if that would pass the root of the walk, or the mount is
    /// attached nowhere.
    ///
    /// Kernel: fs/namei.c `choose_mountpoint()`.
    #[cold]
    fn choose_mountpoint<const RCU: bool>(&mut self, at: Position, root: Position) -> Walk<Option<Position>> {
        let (kernel, store) = (self.kernel, &self.kernel.store);
        let over = if RCU {
            let over = kernel.mountpoint_above(at.path(), root.path());
            let seen = over.map(|over| {
                let d = store.dentry(over.dentry);
                Seen { dentry: over.dentry, seq: d.seq.begin(), meta: Meta(d.meta.get()) }
            });
            self.check_mounts()?;
            self.revalidate(at.seen)?;
            over.zip(seen).map(|(over, seen)| Position { mnt: over.mnt, seen })
        } else {
            let _ns = store.lock();
            let over = kernel.mountpoint_above(at.path(), root.path());
            over.map(|over| {
                kernel.path_get(over);
                Position { mnt: over.mnt, seen: store.see(over.dentry) }
            })
        };
        let Some(over) = over else { return Ok(None) };
        if !RCU {
            self.step_held(over.path());
        }
        if self.lookup.resolve & RESOLVE_NO_XDEV != 0 {
            return Err(self.unconfirmed(Errno::EXDEV));
        }
        Ok(Some(over))
    }

    /// To the parent within the mount.
    fn step_up<const RCU: bool>(&mut self, at: Position) -> Walk<Position> {
        let store = &self.kernel.store;
        loop {
            let d = store.dentry(at.seen.dentry);
            let now = if RCU { at.seen.seq } else { d.seq.wait() };
            let parent = d.parent.get();
            let p = store.dentry(parent);
            let seen = Seen { dentry: parent, seq: p.seq.begin(), meta: Meta(p.meta.get()) };
            if RCU {
                self.revalidate(at.seen)?;
                return Ok(Position { mnt: at.mnt, seen });
            }
            // The child holds its parent, so the count is not zero unless the child has moved on.
            if store.links(parent).count.get_not_zero() {
                if d.seq.retry(now) {
                    store.dput(parent);
                    continue;
                }
                self.advance_held(parent);
                return Ok(Position { mnt: at.mnt, seen: store.see(parent) });
            }
        }
    }

    /// Whether `parent`, come to from `at`, is still in the tree that the mount shows: a directory can be moved out of a
    /// tree that is bound elsewhere.
    ///
    /// Kernel: fs/namei.c `path_connected()`.
    #[inline]
    fn path_connected<const RCU: bool>(&self, at: Position, parent: Handle) -> Walk<()> {
        let store = &self.kernel.store;
        let root = self.kernel.mount(at.mnt).root.get();
        if parent == root || store.dentry(root).parent.get() == root {
            return Ok(());
        }
        let connected = if RCU {
            let renames = store.rename_seq.begin();
            let connected = store.is_subdir(parent, root);
            if store.rename_seq.retry(renames) {
                return Err(Stop::Retry(Bail::DentryMoved));
            }
            self.check_mounts()?;
            self.revalidate(at.seen)?;
            connected
        } else {
            let _ns = store.lock();
            store.is_subdir(parent, root)
        };
        if connected { Ok(()) } else { Err(Stop::Fail(Errno::ENOENT)) }
    }

    /// What is mounted over the directory that `..` led to, which the walk holds already.
    #[inline]
    fn cross<const RCU: bool>(&mut self, at: Position) -> Walk<Position> {
        if !at.seen.meta.is_mounted() {
            return Ok(at);
        }
        if !RCU {
            self.kernel.store.links(at.seen.dentry).count.get();
        }
        self.traverse_mounts::<RCU>(at.mnt, at.seen)
    }

    /// Makes sure at the end of a scoped walk that it ended in its scope, if anything moved meanwhile.
    ///
    /// Kernel: fs/namei.c `complete_walk()`.
    #[inline(always)]
    pub(crate) fn complete_walk<const RCU: bool>(&self, at: Position) -> Walk<()> {
        if self.lookup.scoped() { self.complete_scoped::<RCU>(at) } else { Ok(()) }
    }

    #[cold]
    fn complete_scoped<const RCU: bool>(&self, at: Position) -> Walk<()> {
        let (kernel, store) = (self.kernel, &self.kernel.store);
        let moved = store.rename_seq.retry(self.renames) || kernel.mounts.seq.retry(self.m_seq);
        let Some(root) = self.root.filter(|_| moved) else { return Ok(()) };
        if RCU {
            return Err(Stop::Retry(Bail::DentryMoved));
        }
        let inside = kernel.is_path_reachable(&store.lock(), at.path(), root.path());
        if inside { Ok(()) } else { Err(Stop::Fail(Errno::EXDEV)) }
    }

    /// [`revalidate`](Self::revalidate) in RCU-walk; in REF-walk there is nothing to check.
    pub(crate) fn validate<const RCU: bool>(&self, seen: Seen) -> Walk<()> {
        if RCU { self.revalidate(seen) } else { Ok(()) }
    }

    /// Follows `link`, found in `dir`: where the walk goes on, and the path from there.
    ///
    /// Kernel: fs/namei.c `pick_link()`.
    #[cold]
    fn pick_link<const RCU: bool>(
        &mut self,
        dir: Position,
        link: Seen,
        trailing: bool,
        rest: &[u8],
    ) -> Walk<(Position, Vec<u8>)> {
        let read = self.read_link::<RCU>(dir, link, trailing, rest);
        match read {
            Err(Stop::Retry(_)) if RCU => {}
            _ => self.drop_child::<RCU>(link)?,
        }
        let path = read?;
        if path.first() != Some(&b'/') {
            // The directory is asked again, for which what was seen of it before may be too old by now.
            let seen = if RCU { dir.seen } else { self.kernel.store.see(dir.seen.dentry) };
            return Ok((Position { seen, ..dir }, path));
        }
        if self.lookup.resolve & RESOLVE_BENEATH != 0 {
            return Err(Stop::Fail(Errno::EXDEV));
        }
        // A root that the walk did not need so far counts as another mount.
        if self.lookup.resolve & RESOLVE_NO_XDEV != 0 && self.root.is_none_or(|root| root.mnt != dir.mnt) {
            return Err(Stop::Fail(Errno::EXDEV));
        }
        let root = self.root::<RCU>()?;
        if !RCU {
            self.tell::<RCU>(|kernel| Event::Walk { path: path.clone(), at: kernel.spot(root.path()) });
            self.kernel.path_get(root.path());
            self.step_held(root.path());
        }
        Ok((root, path))
    }

    /// The checks that following a link takes, in order, and its body with `rest` behind it.
    fn read_link<const RCU: bool>(
        &mut self,
        dir: Position,
        link: Seen,
        trailing: bool,
        rest: &[u8],
    ) -> Walk<Vec<u8>> {
        let place = Path { mnt: dir.mnt, dentry: link.dentry };
        if self.total_links == MAXSYMLINKS {
            return Ok(self.kernel.refuse(place, Rule::TooManyLinks, Errno::ELOOP)?);
        }
        self.total_links += 1;
        let store = &self.kernel.store;
        let inode = store.d_inode(link.dentry);
        // As long as the directory stays what it is, the link is followed, and nothing written.
        let mut certain = self.kernel.mount_has(dir.mnt, mount::flags::NOATIME);
        if trailing {
            let [link, dir] =
                [inode, store.d_inode(dir.seen.dentry)].map(|i| self.kernel.read_attr(dir.mnt, i));
            certain &= dir.mode & (S_ISVTX | S_IWOTH) != S_ISVTX | S_IWOTH;
            let may = perm::may_follow_link(self.kernel.protected(), &dir, &link, self.cred);
            may.or_else(|errno| self.kernel.refuse(place, Rule::ProtectedSymlinks, errno))?;
        }
        if self.kernel.mount_has(dir.mnt, mount::flags::NOSYMFOLLOW) {
            return Ok(self.kernel.refuse(place, Rule::NoSymFollow, Errno::ELOOP)?);
        }
        if self.lookup.resolve & RESOLVE_NO_SYMLINKS != 0 {
            return Ok(self.kernel.refuse(place, Rule::NoSymlinks, Errno::ELOOP)?);
        }
        if self.kernel.atime_needs_update(dir.mnt, inode) {
            if RCU {
                return Err(Stop::Retry(Bail::MayBlock));
            }
            if self.lookup.resolve & RESOLVE_CACHED != 0 {
                return Err(Stop::Fail(Errno::EAGAIN));
            }
            self.kernel.touch_now(inode, Touch::A);
        }
        self.turn(link);
        self.trailing |= trailing;
        self.untold |= !certain;
        let mut path = Vec::new();
        store.link_body(inode, &mut path)?;
        self.tell::<RCU>(|kernel| Event::Link { link: kernel.spot(place), body: path.clone(), trailing });
        path.try_reserve(rest.len()).map_err(|_| Errno::ENOMEM)?;
        path.extend_from_slice(rest);
        Ok(path)
    }

    /// Steps to the last component of a plain lookup. Kernel: fs/namei.c `lookup_last()`.
    #[inline(always)]
    pub(crate) fn lookup_last<const RCU: bool>(
        &mut self,
        at: Position,
        last: Last<'_>,
    ) -> Walk<Step<Position>> {
        let position = match last.kind {
            LastType::Norm => {
                if last.slash {
                    self.lookup.follow = true;
                    self.lookup.directory = true;
                }
                let child = self.lookup_fast::<RCU>(at, last.name)?;
                if self.lookup.follow && self.is_open_link::<RCU>(at.mnt, child)? {
                    return Ok(Step::Link(child));
                }
                self.handle_mounts::<RCU>(at.mnt, child)?
            }
            LastType::DotDot => self.follow_dotdot::<RCU>(at)?,
            LastType::Dot | LastType::Root => at,
        };
        self.complete_walk::<RCU>(position)?;
        if self.lookup.directory && !position.seen.meta.is_dir() {
            self.validate::<RCU>(position.seen)?;
            self.kernel.mount_used(position.mnt);
            return Err(Stop::Fail(Errno::ENOTDIR));
        }
        Ok(Step::Done(position))
    }

    /// Whether where this walk from `from` led is told by the counts that an entry of the whole-path table is of, by the
    /// links that were followed, and by the dentry that it led to.
    fn is_told(&self, from: Path, to: Position) -> bool {
        // What covers a file has no more to do with the file's name.
        let covers_file = !to.seen.meta.is_dir() && to.seen.dentry == self.kernel.mount(to.mnt).root.get();
        !self.untold && !covers_file && self.root.is_none_or(|root| root.path() == from)
    }

    /// Gives back the references of a REF-walk.
    pub(crate) fn terminate_walk(&mut self) {
        self.step_held(Path::default());
        if let Some(root) = self.root.take() {
            self.kernel.path_put(root.path());
        }
    }
}

/// What the stored bit says, from the inode; not while that changes.
#[inline(always)]
fn everyone_may_search(store: &Store, dentry: Handle) -> bool {
    let i = store.inode(store.d_inode(dentry));
    let seq = i.seq.begin();
    i.everyone_may_search() && !i.seq.retry(seq)
}

/// The error for a name that is not there: in a removed directory nothing can be looked up, otherwise the file system
/// would have refused the name for its length first.
fn missing(name: Name<'_>, dead: bool) -> Errno {
    if name.component.len > NAME_MAX as u32 && !dead { Errno::ENAMETOOLONG } else { Errno::ENOENT }
}

#[inline(always)]
fn skip_slashes(path: &[u8], from: usize) -> usize {
    let mut at = from;
    while path.get(at) == Some(&b'/') {
        at += 1;
    }
    at
}

/// A task's place in the tree and its credential: what a lookup needs of it.
#[derive(Clone, Copy)]
pub(crate) struct Walker<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) cred: &'a Cred,
    pub(crate) fs: &'a FsStruct,
    /// See [`PathTable::sleeps`](crate::dcache::pathtable::PathTable::sleeps).
    pub(crate) passed: &'a Racy32,
}

impl<'a> Walker<'a> {
    /// Looks `path` up and lets `finish` answer from what it leads to. In RCU-walk `finish` reads objects that nobody
    /// holds, so its answer, or error, counts only after the dentry was validated; it may run twice.
    ///
    /// Kernel: fs/namei.c `filename_lookup()`.
    #[inline(always)]
    pub(crate) fn filename_lookup<R>(
        &self,
        at: At<'_>,
        path: &[u8],
        lookup: Lookup,
        mut finish: impl FnMut(Position) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let question = match self.ask(at, path, lookup) {
            Known::To(found) => {
                let found = self.itself(found);
                let result = finish(found.position);
                if self.confirm(found) {
                    return result;
                }
                None
            }
            Known::Missing => return Err(pathtable::MISSING),
            Known::Unknown(question) => question,
        };
        self.filename_walk(at, path, lookup, question, &mut finish)
    }

    /// [`filename_lookup`](Self::filename_lookup) of a path that the whole-path table does not know.
    #[inline(never)]
    pub(crate) fn filename_walk<R>(
        &self,
        at: At<'_>,
        path: &[u8],
        lookup: Lookup,
        question: Option<Question>,
        finish: &mut dyn FnMut(Position) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        if let Some(found) = self.lookup_walk(at, path, lookup, question)? {
            let result = finish(found.position);
            if self.confirm(found) {
                return result;
            }
        }
        self.lookup_ref(at, path, lookup, finish)
    }

    /// The lockless half of [`filename_walk`](Self::filename_walk): where `path` leads, as long as what is read there is
    /// [confirmed](Self::confirm); `None` if the lockless walk could not tell.
    #[inline(always)]
    pub(crate) fn lookup_walk(
        &self,
        at: At<'_>,
        path: &[u8],
        lookup: Lookup,
        question: Option<Question>,
    ) -> Result<Option<Candidate<'a>>, Errno> {
        check_name(path, lookup.empty)?;
        if self.kernel.walk_mode() == WalkMode::RefOnly {
            return Ok(None);
        }
        let m_seq = question.map_or_else(|| self.kernel.mounts.seq.begin(), |asked| asked.as_of.m_seq);
        match self.walk_rcu(at, path, lookup, m_seq, question).walk() {
            Ok(position) => Ok(Some(self.candidate(position, m_seq))),
            Err(Stop::Fail(errno)) => Err(errno),
            Err(Stop::Retry(bail)) => {
                self.kernel.count_bail(bail);
                Ok(None)
            }
        }
    }

    /// [`path_lookupat_rcu`](Self::path_lookupat_rcu) of a path that the table was asked for already.
    pub(crate) fn walk_asked(
        &self,
        at: At<'_>,
        path: &[u8],
        lookup: Lookup,
        question: Question,
    ) -> Walk<Position> {
        self.walk_rcu(at, path, lookup, question.as_of.m_seq, Some(question)).walk()
    }

    /// The lockless half of a plain lookup, up to but without the validation of where it ends.
    ///
    /// Kernel: fs/namei.c `path_lookupat()`.
    #[inline(always)]
    pub(crate) fn path_lookupat_rcu(
        &self,
        at: At<'_>,
        path: &[u8],
        lookup: Lookup,
        m_seq: u32,
    ) -> Walk<Position> {
        match self.ask_as_of(at, path, lookup, m_seq) {
            Known::To(found) => Ok(found.position),
            Known::Missing => Err(Stop::Fail(pathtable::MISSING)),
            Known::Unknown(question) => self.walk_rcu(at, path, lookup, m_seq, question).walk(),
        }
    }

    /// Walks a path, and tells the whole-path table where it led, if that was asked before: one function that all calls
    /// share.
    #[inline(never)]
    fn walk_rcu(
        &self,
        at: At<'_>,
        path: &[u8],
        lookup: Lookup,
        m_seq: u32,
        question: Option<Question>,
    ) -> Ended {
        Ended::of(|| {
            let mut nd = Nameidata::new(self, at, lookup);
            nd.m_seq = m_seq;
            let start = nd.path_init::<true>(path)?;
            let stretch = self.walk_stretch::<true>(start.mnt, start.seen, path, skip_slashes(path, 0));
            let answer = match stretch.halt {
                Halt::Found if !lookup.directory || stretch.at.meta.is_dir() => {
                    Ok(Position { mnt: start.mnt, seen: stretch.at })
                }
                _ => self.finish_walk(&mut nd, start.mnt, path, stretch.words()).walk(),
            };
            let paths = &self.kernel.store.paths;
            if question.is_none() && !answer.as_ref().is_ok_and(|to| paths.samples(to.seen.dentry)) {
                return answer;
            }
            let from = start.path();
            let told = match (&answer, nd.missing) {
                (Ok(to), _) if nd.is_told(from, *to) => match to.seen {
                    seen if nd.trailing => Some((to.mnt, Led::Followed(seen))),
                    // Only who does not follow it is led to a link.
                    seen if seen.meta.file_type() == S_IFLNK => None,
                    seen => Some((to.mnt, Led::To(seen))),
                },
                (Err(Stop::Fail(pathtable::MISSING)), Some((dir, entries)))
                    if nd.is_told(from, dir) && dir.mnt == start.mnt && !nd.trailing =>
                {
                    Some((dir.mnt, Led::Missing { dir: dir.seen, entries }))
                }
                _ => None,
            };
            match (question, told) {
                // The process may have moved since it was asked from where the path starts.
                (Some(asked), _) if asked.from != from => {}
                (Some(Question { sign, as_of, .. }), Some((mnt, led))) => {
                    if paths.admits(sign) {
                        self.note(sign, as_of, mnt, led, &nd.turns[..nd.turned as usize]);
                    }
                }
                (Some(_), None) => paths.never(self.passed),
                (None, Some(_)) => self.mark(at, path, lookup),
                (None, None) => {}
            }
            answer
        })
    }

    /// What remains of a lookup after its plain part.
    #[inline(never)]
    fn finish_walk(&self, nd: &mut Nameidata<'_>, mnt: Handle, path: &[u8], stretch: Words) -> Ended {
        Ended::of(|| {
            let stretch = Stretch::from(stretch);
            let position = Position { mnt, seen: stretch.at };
            match stretch.halt {
                // But it is no directory.
                Halt::Found => {
                    nd.revalidate(stretch.at)?;
                    self.kernel.mount_used(position.mnt);
                    return Err(Stop::Fail(Errno::ENOTDIR));
                }
                Halt::Missing => {
                    let component = self.kernel.store.component(path, stretch.start);
                    // If it came into being meanwhile, the walk goes on.
                    nd.prove_missing(position, Name { path, start: stretch.start, component })?;
                }
                Halt::Undecided => {}
            }
            nd.path_walk_from::<true, _>(position, path, stretch.start, |nd, at, last| {
                nd.lookup_last::<true>(at, last)
            })
        })
    }

    /// The second half of [`filename_lookup`](Self::filename_lookup), holding references.
    #[cold]
    pub(crate) fn lookup_ref<R>(
        &self,
        at: At<'_>,
        path: &[u8],
        lookup: Lookup,
        finish: &mut dyn FnMut(Position) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.walk_ref(at, path, lookup, |nd, at, last| {
            Ok(match nd.lookup_last::<false>(at, last)? {
                Step::Link(link) => Step::Link(link),
                Step::Done(position) => {
                    self.kernel.mount_used(position.mnt);
                    Step::Done(finish(position)?)
                }
            })
        })
    }

    /// One REF-walk from start to end. It never bails.
    pub(crate) fn walk_ref<R>(
        &self,
        at: At<'_>,
        path: &[u8],
        lookup: Lookup,
        last: impl FnMut(&mut Nameidata<'_>, Position, Last<'_>) -> Walk<Step<R>>,
    ) -> Result<R, Errno> {
        let mut nd = Nameidata::new(self, at, lookup);
        let walked = nd.path_walk::<false, _>(path, last);
        nd.terminate_walk();
        walked.map_err(|stop| match stop {
            Stop::Fail(errno) => errno,
            Stop::Retry(bail) => unreachable!("REF-walk bailed out: {bail:?}"),
        })
    }

    /// Walks to the directory of the last component and runs `act` there, which takes the name space lock itself. The
    /// directory is held meanwhile.
    ///
    /// Kernel: fs/namei.c `filename_parentat()`.
    pub(crate) fn filename_parentat<R>(
        &self,
        at: At<'_>,
        path: &[u8],
        mut act: impl FnMut(Path, Last<'_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        check_name(path, false)?;
        let lookup = Lookup::NOFOLLOW;
        if self.kernel.walk_mode() != WalkMode::RefOnly {
            let mut nd = Nameidata::new(self, at, lookup);
            let walked = nd.path_walk::<true, _>(path, |nd, dir, last| {
                nd.legitimize(dir)?;
                let result = act(dir.path(), last);
                nd.kernel.path_put(dir.path());
                Ok(Step::Done(result?))
            });
            match walked {
                Ok(result) => return Ok(result),
                Err(Stop::Fail(errno)) => return Err(errno),
                Err(Stop::Retry(bail)) => self.kernel.count_bail(bail),
            }
        }
        self.walk_ref(at, path, lookup, |nd, dir, last| {
            nd.kernel.mount_used(dir.mnt);
            Ok(Step::Done(act(dir.path(), last)?))
        })
    }
}
