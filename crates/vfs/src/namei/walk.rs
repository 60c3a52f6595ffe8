//! The hot loop: plain names, for as long as there is nothing to decide but whether they are there.

use super::{Walker, Words, everyone_may_search};
use crate::base::variants::SearchCheck;
use crate::dcache::{Look, Meta, Name, Seen};
use crate::perm::MAY_EXEC;
use rcuwalk_sync::{Handle, name, step};

/// Why [`Walker::walk_names`] went no further.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Halt {
    /// The next component takes more than looking it up.
    Undecided,
    /// The path ended, at a dentry that is yet to be validated.
    Found,
    /// The last name was not found, which is yet to be proved.
    Missing,
}

/// [`SearchCheck`] as a parameter of the hot loop.
const STORED: u8 = 0;
const MODE: u8 = 1;
const ALWAYS: u8 = 2;

/// How far the plain part of a path led: to `at`, with the component at `start` still to be walked.
#[derive(Clone, Copy)]
pub(super) struct Stretch {
    pub(super) at: Seen,
    pub(super) start: usize,
    pub(super) halt: Halt,
}

impl Stretch {
    /// For the way to or from an out-of-line function.
    #[inline(always)]
    pub(super) fn words(self) -> Words {
        let Stretch { at, start, halt } = self;
        // A path has at most PATH_MAX bytes.
        Words::new([start as u32 * 4 + halt as u32, at.dentry, at.seq, at.meta.0])
    }
}

impl From<Words> for Stretch {
    #[inline(always)]
    fn from(words: Words) -> Stretch {
        let [stand, dentry, seq, meta] = words.get();
        let halt = match stand % 4 {
            0 => Halt::Undecided,
            1 => Halt::Found,
            _ => Halt::Missing,
        };
        Stretch { at: Seen { dentry, seq, meta: Meta(meta) }, start: (stand / 4) as usize, halt }
    }
}

impl Walker<'_> {
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

    /// [`walk_names`](Self::walk_names) as the [variants](crate::Variants) have it: a walk that is to count, or to ask a
    /// hook, leaves all to the general one.
    #[inline(always)]
    pub(super) fn walk_stretch<const LAST: bool>(
        &self,
        mnt: Handle,
        from: Seen,
        path: &[u8],
        start: usize,
    ) -> Stretch {
        if self.kernel.variants.plain_search() {
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

    #[inline(never)]
    fn may_search_slow(&self, mnt: Handle, dentry: Handle) -> bool {
        let store = &self.kernel.store;
        let i = store.inode(store.d_inode(dentry));
        let seq = i.seq.begin();
        self.kernel.racy_permission(mnt, i, self.cred, MAY_EXEC).is_ok() && !i.seq.retry(seq)
    }
}
