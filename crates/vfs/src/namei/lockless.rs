//! A whole lockless walk: the hot loop, then the general walk, then what the whole-path table is told.

use super::packing::{Ended, Halt, Stretch, Words};
use super::{
    ALWAYS, At, Candidate, Known, Lookup, MODE, Nameidata, Position, Question, STORED, Stop, Walk, Walker,
};
use crate::base::errno::Errno;
use crate::base::uapi::S_IFLNK;
use crate::base::variants::SearchCheck;
use crate::dcache::pathtable::{self, Led};
use crate::dcache::{Name, Seen};
use crate::kernel::WalkMode;
use crate::namei::getname::{check_name, skip_slashes};
use crate::perm::MAY_EXEC;
use rcuwalk_sync::Handle;

impl<'a> Walker<'a> {
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
                    if nd.is_told(from, dir) && !nd.trailing =>
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

    /// [`walk_names`](Self::walk_names) as the [variants](crate::base::variants) have it: a walk that is to count, or to ask a
    /// hook, leaves all to the general one.
    #[inline(always)]
    pub(super) fn walk_stretch<const LAST: bool>(
        &self,
        mnt: Handle,
        from: Seen,
        path: &[u8],
        start: usize,
    ) -> Stretch {
        if self.kernel.plain_search() {
            return self.walk_names::<LAST, STORED>(mnt, from, path, start);
        }
        Stretch::from(self.walk_variant::<LAST>(mnt, from, path, start))
    }

    #[cold]
    #[inline(never)]
    fn walk_variant<const LAST: bool>(&self, mnt: Handle, from: Seen, path: &[u8], start: usize) -> Words {
        if self.kernel.variants.count_searches() || self.kernel.is_hooked() {
            return Stretch { at: from, start, halt: Halt::Undecided }.words();
        }
        let stretch = match self.kernel.variants.search() {
            SearchCheck::Stored => self.walk_names::<LAST, STORED>(mnt, from, path, start),
            SearchCheck::Mode => self.walk_names::<LAST, MODE>(mnt, from, path, start),
            SearchCheck::Always => self.walk_names::<LAST, ALWAYS>(mnt, from, path, start),
        };
        stretch.words()
    }

    #[inline(never)]
    pub(super) fn may_search_slow(&self, mnt: Handle, dentry: Handle) -> bool {
        let store = &self.kernel.store;
        let i = store.inode(store.d_inode(dentry));
        let seq = i.seq.begin();
        self.kernel.racy_permission(mnt, i, self.cred, MAY_EXEC).is_ok() && !i.seq.retry(seq)
    }
}
