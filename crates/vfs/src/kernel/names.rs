//! Buffers for the names that calls copy in.

use crate::base::uapi::PATH_MAX;
use rcuwalk_sync::fill::Site;
use rcuwalk_sync::slab::{Cache, Init, Policy, Slabs};
use std::sync::{Arc, OnceLock};

/// Names shorter than this need no buffer. Of the 152,523 paths of one `/usr`, one is not: `find /usr | awk 'length > 191'`.
///
/// Kernel: include/linux/fs.h `EMBEDDED_NAME_MAX`.
pub(crate) const EMBEDDED_NAME_MAX: usize = 192;

/// Which buffers are cleared before they are used: [`VfsBuilder::init_on_alloc`](crate::VfsBuilder::init_on_alloc).
///
/// Kernel: the boot option `init_on_alloc`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum InitOnAlloc {
    /// All but those of caches that opted out. The default.
    #[default]
    On,
    /// None.
    Off,
    /// All: the emergency brake.
    Force,
    /// All but those of caches that opted out *and* are named here ([`CacheInfo::name`]).
    Skip(Vec<String>),
}

impl InitOnAlloc {
    /// This, or what the operator wants instead.
    pub(crate) fn policy(self) -> Policy {
        let policy = match self {
            InitOnAlloc::On => Policy::On,
            InitOnAlloc::Off => Policy::Off,
            InitOnAlloc::Force => Policy::Force,
            InitOnAlloc::Skip(names) => Policy::Skip(names),
        };
        policy.or_operators()
    }
}

/// What there is to know about a cache of buffers: [`Stats::caches`](crate::Stats::caches).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheInfo {
    /// Its name.
    pub name: &'static str,
    /// Bytes of a buffer.
    pub size: usize,
    /// Whether its buffers are cleared.
    pub clears: bool,
    /// Buffers that came from the system so far, for this cache and those that share with it.
    pub fresh: u64,
}

impl CacheInfo {
    pub(crate) fn of(cache: &Cache) -> CacheInfo {
        let info = cache.info();
        CacheInfo { name: info.name, size: info.size, clears: info.clears, fresh: info.fresh }
    }
}

/// Buffers for names. Kernel: fs/dcache.c `names_cachep`.
pub(crate) struct Names {
    slabs: Slabs,
    /// Room for any name.
    pub(crate) whole: Arc<Cache>,
    /// Room for most; made when a variant wants it.
    small: OnceLock<Arc<Cache>>,
}

impl Names {
    /// The caches, under `policy` or the operator's.
    pub(crate) fn new(policy: InitOnAlloc) -> Names {
        let slabs = Slabs::new(policy.policy());
        let whole = Names::cache(&slabs, PATH_MAX);
        Names { slabs, whole, small: OnceLock::new() }
    }

    /// `NameBuffer::Small`.
    #[cold]
    pub(crate) fn small(&self) -> &Arc<Cache> {
        self.small.get_or_init(|| Names::cache(&self.slabs, EMBEDDED_NAME_MAX))
    }

    fn cache(slabs: &Slabs, size: usize) -> Arc<Cache> {
        static NAMES: Site = Site::new("names");
        Arc::new(slabs.cache(&NAMES, size, Init::OptOut))
    }

    pub(crate) fn info(&self) -> Vec<CacheInfo> {
        [&self.whole].into_iter().chain(self.small.get()).map(|cache| CacheInfo::of(cache)).collect()
    }
}
