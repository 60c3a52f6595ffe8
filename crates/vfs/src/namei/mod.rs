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
//! **Claim.** RCU-walk takes no step that REF-walk could not have taken at that moment.
//! **Induction.** The walk came to `at` when its count was `seq`. A step reads the child's count, then what that count covers
//! (parent, name, inode, type, "may search"), and then checks that the count of `at` is still `seq`. So at the moment of the
//! check `at` was still the directory that the walk had come to, and the child was its entry of that name: REF-walk, holding
//! `at`, would have found the same child. What the walk reads of the last object counts only after that object's own check.
//!
//! **Cost.** RCU-walk that answers executes no atomic read-modify-write and no fence, and stores to nothing that another thread
//! reads, but for the mark of a mount that expires unless it is used, which it clears. A walk that bails counts that.
//! A component costs one cache line of the hash table and one of the dentry. A directory that everyone may search (S9)
//! answers from that line; any other answers from its inode, in the next line. The whole-path table, which is asked
//! before the walk and told after it, adds stores: [`direct`] says which lookups make them.
//! A walk that cannot be sure bails out with a [`Bail`](crate::kernel::Bail) and is made again in REF-walk, which waits.
//!
//! **Contract.** Every function that a walk calls with `RCU` set, or from [`Walker::walk_names`], keeps these rules:
//!
//! 1. It takes no lock and no reference, does not wait, and writes nothing shared. Where it would have to, it bails.
//! 2. It reads an object's count before the fields that the count covers, and carries the two together ([`Seen`]).
//! 3. It hands on what it came to only after the count of where it came from stood still (step `parent`).
//! 4. A refusal is an answer. It counts after the inode's count and then the dentry's stood still.
//! 5. A missing name is an answer. It counts after [`Nameidata::prove_missing`].
//! 6. What it takes from mounts counts only if no mount changed since the walk began (`m_seq`). It asks the mount table only
//!    at a dentry that says something is mounted over it, somewhere ([`Meta::is_mounted`]).
//! 7. The caller validates where the walk ends: nothing that was read there counts before [`Walker::confirm`] or
//!    [`Walker::legitimize`] says so.

mod direct;
pub(crate) mod getname;
mod links;
mod lockless;
mod mounts;
mod nameidata;
mod packing;
mod steps;
mod types;

pub(crate) use direct::{Candidate, Known, Question};
pub(crate) use nameidata::Nameidata;
pub(crate) use types::{At, Last, LastType, Lookup, Position, Step, Stop, Walk};

use crate::base::errno::Errno;
use crate::cred::Cred;
use crate::dcache::pathtable::MISSING;
use crate::dcache::{Look, Meta, Name, Seen};
use crate::file::fs_struct::FsStruct;
use crate::kernel::{Kernel, WalkMode};
use crate::mount::Path;
use getname::check_name;
use packing::{Halt, Stretch};
use rcuwalk_sync::{Handle, Racy32, name, step};
use steps::everyone_may_search;

/// What a lookup needs of a task: its place in the tree and its credential.
#[derive(Clone, Copy)]
pub(crate) struct Walker<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) cred: &'a Cred,
    pub(crate) fs: &'a FsStruct,
    /// See [`PathTable::sleeps`](crate::dcache::pathtable::PathTable::sleeps).
    pub(crate) passed: &'a Racy32,
}

/// `SearchCheck` as a parameter of the hot loop.
const STORED: u8 = 0;
const MODE: u8 = 1;
const ALWAYS: u8 = 2;

impl<'a> Walker<'a> {
    /// The hot loop. It walks names until there is more to decide than whether they are there; `.`, `..`, links, mounts, refusals
    /// and repeated slashes end it, and [`link_path_walk`](Nameidata::link_path_walk) goes on from there. With `LAST` it walks
    /// the last component too, unless that may need following or slashes come after it.
    ///
    /// Each round hands scalars to the next, and holds base addresses by value, so that the chain from directory to directory
    /// runs through registers.
    #[inline(always)]
    fn walk_names<const LAST: bool, const SEARCH: u8>(
        &self,
        mnt: Handle,
        from: Seen,
        path: &[u8],
        start: usize,
    ) -> Stretch {
        let (tree, seed) = (self.kernel.store.tree(), self.kernel.store.seed());
        let Seen { mut dentry, mut seq, meta: Meta(mut meta) } = from;
        let mut rest = path.get(start..).unwrap_or_default();
        if rest.is_empty() {
            return Stretch { at: from, start, halt: Halt::Undecided };
        }
        let halt = loop {
            if !self.may_search::<SEARCH>(mnt, Seen { dentry, seq, meta: Meta(meta) }) {
                break Halt::Undecided;
            }
            let component = name::leading(path, rest, seed);
            let behind = rest.get(component.len as usize + 1..);
            let dots = component.first as u8 == b'.' && component.len <= 2;
            if dots || behind.is_none() && !LAST {
                break Halt::Undecided;
            }
            let child = match tree.d_lookup_rcu(dentry, Name { path: rest, start: 0, component }) {
                Look::Hit(child) => child,
                Look::Miss if behind.is_none() => break Halt::Missing,
                _ => break Halt::Undecided,
            };
            if step!("parent", tree.retry(Seen { dentry, seq, meta: Meta(meta) })) {
                break Halt::Undecided;
            }
            match behind {
                None if child.meta.takes_step() => break Halt::Undecided,
                None => {
                    Seen { dentry, seq, meta: Meta(meta) } = child;
                    break Halt::Found;
                }
                // One slash and more path is the rule; anything else is left to the general walk.
                Some(behind)
                    if child.meta.is_plain_dir() && behind.first().is_some_and(|&byte| byte != b'/') =>
                {
                    Seen { dentry, seq, meta: Meta(meta) } = child;
                    rest = behind;
                }
                Some(_) => break Halt::Undecided,
            }
        };
        let start = path.len() - rest.len();
        Stretch { at: Seen { dentry, seq, meta: Meta(meta) }, start, halt }
    }

    /// Whether this directory may be searched, for certain; if not, the general walk finds out why.
    #[inline(always)]
    fn may_search<const SEARCH: u8>(&self, mnt: Handle, dir: Seen) -> bool {
        let known = match SEARCH {
            STORED => dir.meta.may_search(),
            MODE => everyone_may_search(&self.kernel.store, dir.dentry),
            _ => false,
        };
        known || self.may_search_slow(mnt, dir.dentry)
    }

    /// Looks `path` up and lets `finish` answer from what it leads to. In RCU-walk `finish` reads objects without a
    /// reference, so its answer, or error, counts only after the dentry was validated; it may run twice.
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
            Known::Missing => return Err(MISSING),
            Known::Unknown(question) => question,
        };
        self.filename_walk(at, path, lookup, question, &mut finish)
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
