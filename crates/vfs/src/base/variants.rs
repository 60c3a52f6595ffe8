//! The old ways: what the engine does at more cost than it has to, when it is told to.
//!
//! Each is how Linux did it, or does it, before somebody measured what it costs. Answers are the same either way, which is
//! what makes the comparison worth something. `rcuwalk bench --ablations` is what they are for.

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

/// Old ways to be taken; none unless set. See [`Vfs::set_variants`](crate::Vfs::set_variants).
///
/// ```
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
    /// it afterwards (S1).
    pub cred_copy: bool,
    /// execve(2) counts and copies arguments and environment before it looks for the file (S5), so that `E2BIG` comes
    /// before the errors of the path.
    pub args_first: bool,
    /// execve(2) looks the path up to see whether it is there, and again to open it (S5).
    pub lookup_twice: bool,
    /// execve(2) allocates the open file before it looks for the path (S5).
    pub early_file: bool,
    /// Where names behind the [raw door](crate::syscall) lie (S2).
    pub name_buffer: NameBuffer,
    /// statx(2) behind the [raw door](crate::syscall) stores each field by itself (S7).
    pub field_by_field: bool,
    /// How a walk learns that it may search a directory (S9).
    pub search: SearchCheck,
    /// Walks count in [`Stats`](crate::Stats) how many permission checks were spared (S9), and how many were not.
    /// They are slower then.
    pub count_searches: bool,
}

/// [`Variants`] as the engine reads them: one word, zero as a rule.
#[derive(Debug, Default)]
pub(crate) struct VariantBits(Racy32);

const CRED_COPY: u32 = 1;
const ARGS_FIRST: u32 = 1 << 1;
const LOOKUP_TWICE: u32 = 1 << 2;
const EARLY_FILE: u32 = 1 << 3;
const SEARCH_MODE: u32 = 1 << 4;
const SEARCH_ALWAYS: u32 = 1 << 5;
const COUNT_SEARCHES: u32 = 1 << 6;
const FIELD_BY_FIELD: u32 = 1 << 7;
const NAME_SMALL: u32 = 1 << 9;
const NAME_WHOLE: u32 = 1 << 10;
/// No variant: set for good where walks have to ask a hook.
const HOOKED: u32 = 1 << 8;

impl VariantBits {
    pub(crate) fn new(hooked: bool) -> VariantBits {
        VariantBits(Racy32::new(if hooked { HOOKED } else { 0 }))
    }

    pub(crate) fn set(&self, variants: Variants) {
        let bits = [
            (variants.cred_copy, CRED_COPY),
            (variants.args_first, ARGS_FIRST),
            (variants.lookup_twice, LOOKUP_TWICE),
            (variants.early_file, EARLY_FILE),
            (variants.search == SearchCheck::Mode, SEARCH_MODE),
            (variants.search == SearchCheck::Always, SEARCH_ALWAYS),
            (variants.count_searches, COUNT_SEARCHES),
            (variants.field_by_field, FIELD_BY_FIELD),
            (variants.name_buffer == NameBuffer::Small, NAME_SMALL),
            (variants.name_buffer == NameBuffer::Whole, NAME_WHOLE),
        ];
        let hooked = self.0.get() & HOOKED;
        self.0.set(bits.iter().filter(|(on, _)| *on).fold(hooked, |all, (_, bit)| all | bit));
    }

    #[inline(always)]
    fn has(&self, bit: u32) -> bool {
        self.0.get() & bit != 0
    }

    #[inline(always)]
    pub(crate) fn cred_copy(&self) -> bool {
        self.has(CRED_COPY)
    }

    pub(crate) fn args_first(&self) -> bool {
        self.has(ARGS_FIRST)
    }

    pub(crate) fn lookup_twice(&self) -> bool {
        self.has(LOOKUP_TWICE)
    }

    pub(crate) fn early_file(&self) -> bool {
        self.has(EARLY_FILE)
    }

    pub(crate) fn field_by_field(&self) -> bool {
        self.has(FIELD_BY_FIELD)
    }

    #[inline(always)]
    pub(crate) fn name_buffer(&self) -> NameBuffer {
        match self.0.get() & (NAME_SMALL | NAME_WHOLE) {
            0 => NameBuffer::Embedded,
            NAME_SMALL => NameBuffer::Small,
            _ => NameBuffer::Whole,
        }
    }

    /// Whether walks search directories as they do by default, do not count, and ask nobody.
    #[inline(always)]
    pub(crate) fn plain_search(&self) -> bool {
        !self.has(SEARCH_MODE | SEARCH_ALWAYS | COUNT_SEARCHES | HOOKED)
    }

    #[inline(always)]
    pub(crate) fn search(&self) -> SearchCheck {
        match self.0.get() & (SEARCH_MODE | SEARCH_ALWAYS) {
            0 => SearchCheck::Stored,
            SEARCH_MODE => SearchCheck::Mode,
            _ => SearchCheck::Always,
        }
    }

    #[inline(always)]
    pub(crate) fn count_searches(&self) -> bool {
        self.has(COUNT_SEARCHES)
    }
}
