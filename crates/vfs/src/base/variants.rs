//! The old ways: what the engine does at more cost than it has to, when it is told to, so that `cargo lab ablations` can
//! time both.
//!
//! Each is how Linux does it, or did it before the cost was known. Only builds with the feature `__variants` have them:
//! without it every getter of an old way is a constant, and the compiler drops the code behind it.
#![cfg_attr(not(feature = "__variants"), allow(dead_code, unreachable_pub))]

use rcuwalk_sync::Racy32;

/// How a walk learns that it may search a directory (S9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SearchCheck {
    /// A bit, kept in the dentry and set whenever mode or ACL change: anybody may search this directory.
    #[default]
    Stored,
    /// From the inode, each time: three x bits and no ACL. Otherwise all of the check.
    Mode,
    /// All of the permission check, each time.
    Always,
}

/// Where a name lies that the [raw door](crate::syscall) copies in (S2). Whether buffers of the cache `names` are cleared is
/// for [`VfsBuilder::init_on_alloc`](crate::VfsBuilder::init_on_alloc) and the operator to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameBuffer {
    /// In 192 bytes beside what else is known of it, which a few constant stores clear; only a longer one in a buffer of
    /// `PATH_MAX` bytes from the cache.
    #[default]
    Embedded,
    /// As with [`Embedded`](NameBuffer::Embedded), but the 192 bytes are a buffer from a cache, too.
    Small,
    /// In a buffer of `PATH_MAX` bytes from the cache, whatever its length.
    Whole,
}

/// Old ways to be taken; none unless set. See `Vfs::set_variants`.
///
/// Unstable: the feature `__variants` is for the project's own measurements.
///
/// A call that succeeds gives the same answer either way while nobody else changes the tree. The rest can differ where the
/// order of steps shows, or their number; each field says how.
///
#[cfg_attr(feature = "__variants", doc = "```")]
#[cfg_attr(not(feature = "__variants"), doc = "```ignore")]
/// use rcuwalk::{Cred, Variants, Vfs, uapi::R_OK};
///
/// let vfs = Vfs::new()?;
/// let task = vfs.task(Cred::root());
/// assert_eq!(task.access(b"/", R_OK), Ok(()));
/// vfs.set_variants(Variants { cred_copy: true, ..Variants::default() });
/// assert_eq!(task.access(b"/", R_OK), Ok(()), "at more cost");
/// # Ok::<(), rcuwalk::Errno>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Variants {
    /// access(2) always makes the credential it asks as, with references to everything the credential shares, and drops
    /// it afterwards (S1). Without memory for it the process ends.
    pub cred_copy: bool,
    /// execve(2) counts and copies arguments and environment before it looks for the file (S5), so that `E2BIG` and
    /// `EFAULT` come before the errors of the path. Through a descriptor, the name counts towards `E2BIG` as it was given, not as
    /// `/dev/fd/N/name`.
    pub args_first: bool,
    /// execve(2) looks the path up to see whether it is there, and again to open it (S5). Another task may change
    /// the tree in between; hooks, traces and the access times of symbolic links see both.
    pub lookup_twice: bool,
    /// execve(2) allocates the open file before it looks for the path (S5). Without memory for it the process ends, whether
    /// the path is there or not.
    pub early_file: bool,
    /// Where names behind the [raw door](crate::syscall) lie (S2). Without memory for a buffer short names fail, too, with
    /// `ENOMEM`.
    pub name_buffer: NameBuffer,
    /// statx(2) behind the [raw door](crate::syscall) stores each field by itself (S7). When it answers `EFAULT`, a
    /// memory that stores all of a copy or nothing holds the fields before the one that failed.
    pub field_by_field: bool,
    /// How a walk learns that it may search a directory (S9).
    pub search: SearchCheck,
}

/// [`Variants`] as the engine reads them, and whether searches are counted: one word, zero as a rule.
#[derive(Debug, Default)]
pub(crate) struct VariantBits(Racy32);

const CRED_COPY: u32 = 1;
const ARGS_FIRST: u32 = 1 << 1;
const LOOKUP_TWICE: u32 = 1 << 2;
const EARLY_FILE: u32 = 1 << 3;
const SEARCH_MODE: u32 = 1 << 4;
const SEARCH_ALWAYS: u32 = 1 << 5;
const FIELD_BY_FIELD: u32 = 1 << 7;
const NAME_SMALL: u32 = 1 << 9;
const NAME_WHOLE: u32 = 1 << 10;
/// No old way: walks count their searches.
const COUNT_SEARCHES: u32 = 1 << 6;

impl VariantBits {
    pub(crate) fn set_count_searches(&self, on: bool) {
        self.0.set(self.0.get() & !COUNT_SEARCHES | if on { COUNT_SEARCHES } else { 0 });
    }

    pub(crate) fn set(&self, variants: Variants) {
        let bits = [
            (variants.cred_copy, CRED_COPY),
            (variants.args_first, ARGS_FIRST),
            (variants.lookup_twice, LOOKUP_TWICE),
            (variants.early_file, EARLY_FILE),
            (variants.search == SearchCheck::Mode, SEARCH_MODE),
            (variants.search == SearchCheck::Always, SEARCH_ALWAYS),
            (variants.field_by_field, FIELD_BY_FIELD),
            (variants.name_buffer == NameBuffer::Small, NAME_SMALL),
            (variants.name_buffer == NameBuffer::Whole, NAME_WHOLE),
        ];
        let kept = self.0.get() & COUNT_SEARCHES;
        self.0.set(bits.iter().filter(|(on, _)| *on).fold(kept, |all, (_, bit)| all | bit));
    }

    /// The old ways among `bits` that are to be taken: none in an ordinary build.
    #[inline(always)]
    fn old(&self, bits: u32) -> u32 {
        if cfg!(feature = "__variants") { self.0.get() & bits } else { 0 }
    }

    #[inline(always)]
    fn has(&self, bit: u32) -> bool {
        self.old(bit) != 0
    }

    #[inline(always)]
    pub(crate) fn cred_copy(&self) -> bool {
        self.has(CRED_COPY)
    }

    #[inline(always)]
    pub(crate) fn args_first(&self) -> bool {
        self.has(ARGS_FIRST)
    }

    #[inline(always)]
    pub(crate) fn lookup_twice(&self) -> bool {
        self.has(LOOKUP_TWICE)
    }

    #[inline(always)]
    pub(crate) fn early_file(&self) -> bool {
        self.has(EARLY_FILE)
    }

    #[inline(always)]
    pub(crate) fn field_by_field(&self) -> bool {
        self.has(FIELD_BY_FIELD)
    }

    #[inline(always)]
    pub(crate) fn name_buffer(&self) -> NameBuffer {
        match self.old(NAME_SMALL | NAME_WHOLE) {
            0 => NameBuffer::Embedded,
            NAME_SMALL => NameBuffer::Small,
            _ => NameBuffer::Whole,
        }
    }

    /// Whether walks search directories as they do by default, and do not count.
    #[inline(always)]
    pub(crate) fn plain_search(&self) -> bool {
        self.0.get() & (SEARCH_MODE | SEARCH_ALWAYS | COUNT_SEARCHES) == 0
    }

    #[inline(always)]
    pub(crate) fn search(&self) -> SearchCheck {
        match self.old(SEARCH_MODE | SEARCH_ALWAYS) {
            0 => SearchCheck::Stored,
            SEARCH_MODE => SearchCheck::Mode,
            _ => SearchCheck::Always,
        }
    }

    #[inline(always)]
    pub(crate) fn count_searches(&self) -> bool {
        self.0.get() & COUNT_SEARCHES != 0
    }
}
