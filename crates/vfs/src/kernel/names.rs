//! Buffers for the names that calls copy in.

use crate::base::uapi::PATH_MAX;
use rcuwalk_sync::fill::Site;
use rcuwalk_sync::slab::{Cache, CacheInfo, Init, Policy as InitOnAlloc, Slabs};
use std::sync::{Arc, OnceLock};

/// Names shorter than this need no buffer. Of the 152,523 paths of one `/usr`, one is not: `find /usr | awk 'length > 191'`.
///
/// Kernel: include/linux/fs.h `EMBEDDED_NAME_MAX`.
pub(crate) const EMBEDDED_NAME_MAX: usize = 192;

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
        let slabs = Slabs::new(policy.or_operators());
        let whole = Names::cache(&slabs, PATH_MAX);
        Names { slabs, whole, small: OnceLock::new() }
    }

    /// [`NameBuffer::Small`](crate::NameBuffer::Small).
    #[cold]
    pub(crate) fn small(&self) -> &Arc<Cache> {
        self.small.get_or_init(|| Names::cache(&self.slabs, EMBEDDED_NAME_MAX))
    }

    fn cache(slabs: &Slabs, size: usize) -> Arc<Cache> {
        static NAMES: Site = Site::new("names");
        Arc::new(slabs.cache(&NAMES, size, Init::OptOut))
    }

    pub(crate) fn info(&self) -> Vec<CacheInfo> {
        [&self.whole].into_iter().chain(self.small.get()).map(|cache| cache.info()).collect()
    }
}
