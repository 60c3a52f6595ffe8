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
use crate::dcache::{Look, Meta, Name, Seen, pathtable};
use crate::file::fs_struct::FsStruct;
use crate::kernel::{Kernel, WalkMode};
use crate::mount::Path;
use getname::check_name;
use packing::{Halt, Stretch};
use rcuwalk_sync::{Handle, Racy32, name, step};
use steps::everyone_may_search;

/// A task's place in the tree and its credential: what a lookup needs of it.
#[derive(Clone, Copy)]
pub(crate) struct Walker<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) cred: &'a Cred,
    pub(crate) fs: &'a FsStruct,
    /// See [`PathTable::sleeps`](crate::dcache::pathtable::PathTable::sleeps).
    pub(crate) passed: &'a Racy32,
}

/// [`SearchCheck`] as a parameter of the hot loop.
const STORED: u8 = 0;
const MODE: u8 = 1;
const ALWAYS: u8 = 2;

impl<'a> Walker<'a> {
    /// Walks plain names for as long as there is nothing to decide but whether they are there. What is not a name of a
    /// searchable directory's entry is left to [`link_path_walk`](super::Nameidata::link_path_walk), which goes on from where
    /// this stands. With `LAST` the last component is walked too, unless it may need following or does not end the path.
    ///
    /// Every value that a round hands to the next is a scalar, and every base address is by value: the chain from one
    /// directory to the next runs through registers.
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

#[inline(always)]
fn skip_slashes(path: &[u8], from: usize) -> usize {
    let mut at = from;
    while path.get(at) == Some(&b'/') {
        at += 1;
    }
    at
}
