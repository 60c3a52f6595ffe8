//! The general walk: from component to component, in both modes.

use super::packing::Ended;
use super::{At, Last, LastType, Lookup, Position, Step, Stop, Walk, Walker};
use crate::base::errno::Errno;
use crate::base::uapi::{RESOLVE_BENEATH, RESOLVE_CACHED, RESOLVE_IN_ROOT};
use crate::dcache::{Meta, Name, Seen};
use crate::file::fs_struct::Place;
use crate::kernel::trace::Event;
use crate::kernel::{Bail, Kernel};
use crate::mount::Path;
use crate::namei::getname::skip_slashes;
use rcuwalk_sync::Handle;

/// The state of one walk. Kernel: fs/namei.c `struct nameidata`.
pub(crate) struct Nameidata<'a> {
    pub(super) walker: &'a Walker<'a>,
    pub(super) at: At<'a>,
    pub(crate) lookup: Lookup,
    /// The root of this walk, once it was needed; a reference is held in REF-walk.
    pub(super) root: Option<Position>,
    /// REF-walk: the place that this walk holds references to; zeros for none.
    pub(super) held: Path,
    pub(super) total_links: u32,
    /// Mounts and unmounts there had been when the walk started.
    pub(crate) m_seq: u32,
    /// Renames there had been when the walk started, for scoped lookups.
    pub(super) renames: u32,
    /// What the walk turned at, which marks have to tell the end of: links that were followed, directories that were left by
    /// `..`. Not one that `..` led to: it does not end before what was left for it.
    pub(super) turns: [Seen; TURNS],
    pub(super) turned: u32,
    /// The directory that `..` led to last.
    pub(super) up: Handle,
    /// A link at the end of the path was followed.
    pub(super) trailing: bool,
    /// The walk depended on more than an entry of the whole-path table can tell.
    pub(super) untold: bool,
    /// Where a name was missing, and the count of the directory's entries as of which it was.
    pub(super) missing: Option<(Position, u32)>,
}

/// How often a remembered path may turn.
const TURNS: usize = 4;

enum Walked<'p> {
    Last(Position, Last<'p>),
    /// A link in the middle of the path; `rest` is what follows it.
    Link {
        dir: Position,
        link: Seen,
        rest: &'p [u8],
    },
}

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
    pub(super) fn path_walk_from<const RCU: bool, R>(
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

    /// The start of the walk. Kernel: fs/namei.c `path_init()`.
    #[inline(always)]
    pub(super) fn path_init<const RCU: bool>(&mut self, path: &[u8]) -> Walk<Position> {
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
    pub(super) fn root<const RCU: bool>(&mut self) -> Walk<Position> {
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

    /// Gives back the references of a REF-walk.
    pub(crate) fn terminate_walk(&mut self) {
        self.step_held(Path::default());
        if let Some(root) = self.root.take() {
            self.kernel.path_put(root.path());
        }
    }

    /// Notes a place whose end would turn the walk aside, without a count that says so.
    pub(super) fn turn(&mut self, at: Seen) {
        match self.turns.get_mut(self.turned as usize) {
            Some(turn) => *turn = at,
            None => self.untold = true,
        }
        self.turned += 1;
    }

    /// Whether where this walk from `from` led is told by the counts that an entry of the whole-path table is of, by the
    /// links that were followed, and by the dentry that it led to.
    pub(super) fn is_told(&self, from: Path, to: Position) -> bool {
        // What covers a file has no more to do with the file's name.
        let covers_file = !to.seen.meta.is_dir() && to.seen.dentry == self.kernel.mount(to.mnt).root.get();
        !self.untold && !covers_file && self.root.is_none_or(|root| root.path() == from)
    }

    /// A refusal in the middle of the walk. The kernel's RCU-walk has it confirmed by REF-walk, which a walk through
    /// what is cached alone may not become.
    #[cold]
    pub(super) fn unconfirmed(&self, errno: Errno) -> Stop {
        Stop::Fail(if self.lookup.resolve & RESOLVE_CACHED != 0 { Errno::EAGAIN } else { errno })
    }

    /// Reports what the walk does, if it holds references and a trace is recorded.
    #[inline(always)]
    pub(super) fn tell<const RCU: bool>(&self, event: impl FnOnce(&Kernel) -> Event) {
        if !RCU {
            self.kernel.tell(|| event(self.kernel));
        }
    }
}
