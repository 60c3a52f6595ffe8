//! Buffers that are used again, and who decides what is in them.
//!
//! Hardened systems clear every object when it is allocated, so that nobody finds what another left behind
//! (`init_on_alloc`). For a buffer of 4096 bytes that is about to be overwritten by a name of fifty, this is most of what
//! the allocation costs. So:
//!
//! * a [`Cache`] may be made with [`Init::OptOut`]: its user writes before it reads;
//! * an opt-out is a request, known by the cache's name. [`Policy`] is the operator's word: all, some or none are heard, and
//!   [`Policy::Force`] is the emergency brake, for the day on which one of them turns out to be a hole;
//! * caches of one size share their buffers (merging), but one that asked to opt out shares with nobody, heard or not: what
//!   its users leave behind is found by nobody else.
//!
//! Buffers are always initialised memory as far as the language is concerned; an opt-out decides whose bytes there are in it.
//!
//! Slots of an [`Arena`](crate::Arena) are not cleared by any policy, as the kernel's `SLAB_TYPESAFE_BY_RCU` objects are not:
//! readers with a stale handle may be looking at them.
//!
//! Kernel: mm/slub.c, mm/slab.h `slab_want_init_on_alloc()`. Differs: the kernel has no opt-out by name.

use crate::fill::{self, Site};
use crate::lock::{Mutex, PoisonError};
use crate::{AllocError, Counter};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

/// The environment variable with the operator's [`Policy`].
pub const POLICY_VARIABLE: &str = "RCUWALK_INIT_ON_ALLOC";

/// Which buffers are cleared when they are handed out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Policy {
    /// None.
    Off,
    /// All but those of caches that opted out. The default.
    #[default]
    On,
    /// All but those of caches that opted out *and* are named here.
    Skip(Vec<String>),
    /// All of them: the emergency brake.
    Force,
}

impl Policy {
    /// Reads `off`, `on`, `force`, or `skip=NAME,NAME,...`.
    ///
    /// ```
    /// use rcuwalk_sync::slab::Policy;
    ///
    /// assert_eq!(Policy::parse("skip=names"), Some(Policy::Skip(vec!["names".into()])));
    /// assert_eq!(Policy::parse("perhaps"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Policy> {
        match text.trim() {
            "off" => Some(Policy::Off),
            "on" => Some(Policy::On),
            "force" => Some(Policy::Force),
            other => {
                let names = other.strip_prefix("skip=")?.split(',').filter(|name| !name.is_empty());
                Some(Policy::Skip(names.map(str::to_owned).collect()))
            }
        }
    }

    /// The policy in force: the operator's, from [`POLICY_VARIABLE`], before the program's. A value of the variable that
    /// cannot be read counts as [`Policy::Force`]: its author wanted a setting, and this one is safe.
    pub fn or_operators(self) -> Policy {
        match std::env::var_os(POLICY_VARIABLE) {
            None => self,
            Some(text) => text.to_str().and_then(Policy::parse).unwrap_or(Policy::Force),
        }
    }

    /// Whether a cache's buffers are cleared. Kernel: mm/slab.h `slab_want_init_on_alloc()`.
    pub fn clears(&self, name: &str, init: Init) -> bool {
        match self {
            Policy::Off => false,
            Policy::On => init == Init::OnAlloc,
            Policy::Skip(names) => init == Init::OnAlloc || !names.iter().any(|other| other == name),
            Policy::Force => true,
        }
    }
}

/// What a cache asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Init {
    /// Cleared buffers, where the policy wants that at all.
    OnAlloc,
    /// Buffers as they are: the user reads nothing that it has not written.
    OptOut,
}

/// The caches of one owner, and its policy.
#[derive(Debug, Default)]
pub struct Slabs {
    policy: Policy,
    pools: Mutex<Vec<Arc<Pool>>>,
}

/// Buffers of one size.
#[derive(Debug)]
struct Pool {
    size: usize,
    init: Init,
    /// Buffers that had to come from the system.
    fresh: Counter,
}

/// How many unused buffers of a pool a thread keeps.
const MAGAZINE: usize = 4;

/// How many pools a thread keeps buffers of; the one it has known longest goes first.
const POOLS: usize = 8;

/// Unused buffers of one pool.
struct Magazine {
    pool: Weak<Pool>,
    buffers: Vec<Box<[u8]>>,
}

thread_local! {
    /// The unused buffers of this thread. They are found by pool, and go with the thread: no lock, no shared line.
    ///
    /// Kernel: mm/slub.c `struct kmem_cache_cpu`.  Differs: a thread's, since a program cannot stay on a processor; a slot for
    /// each processor would need a lock (`cargo lab ablations --only S4` times it).
    static MAGAZINES: RefCell<Vec<Magazine>> = const { RefCell::new(Vec::new()) };
}

/// A cache: buffers of one size, for one purpose.
#[derive(Debug)]
pub struct Cache {
    site: &'static Site,
    clears: bool,
    pool: Arc<Pool>,
}

/// What there is to know about a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
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

impl Slabs {
    /// No cache yet, and `policy` for those to come.
    pub fn new(policy: Policy) -> Slabs {
        Slabs { policy, pools: Mutex::default() }
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// A cache of buffers of `size` bytes, named after `site`, at which its fills are counted.
    ///
    /// Kernel: mm/slab_common.c `kmem_cache_create()`, with its `find_mergeable()`.
    pub fn cache(&self, site: &'static Site, size: usize, init: Init) -> Cache {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let clears = self.policy.clears(site.name(), init);
        let mergeable = |pool: &&Arc<Pool>| pool.size == size && pool.init == Init::OnAlloc;
        let shared = pools.iter().find(mergeable).filter(|_| init == Init::OnAlloc).cloned();
        let pool = shared.unwrap_or_else(|| {
            let pool = Arc::new(Pool { size, init, fresh: Counter::default() });
            pools.push(Arc::clone(&pool));
            pool
        });
        Cache { site, clears, pool }
    }
}

impl Cache {
    /// A buffer: cleared, if the policy says so, else with whatever its last user of *this* pool left in it.
    ///
    /// Kernel: mm/slub.c `kmem_cache_alloc()`.
    ///
    /// # Errors
    ///
    /// [`AllocError::NoMemory`].
    #[inline]
    pub fn alloc(&self) -> Result<Buffer<&Cache>, AllocError> {
        Ok(Buffer { bytes: self.bytes()?, cache: self })
    }

    /// As [`alloc`](Self::alloc), for a buffer that outlives the caller's reference to the cache.
    ///
    /// # Errors
    ///
    /// [`AllocError::NoMemory`].
    pub fn alloc_shared(self: &Arc<Self>) -> Result<Buffer<Arc<Cache>>, AllocError> {
        Ok(Buffer { bytes: self.bytes()?, cache: Arc::clone(self) })
    }

    #[inline]
    fn bytes(&self) -> Result<Box<[u8]>, AllocError> {
        let Some(mut bytes) = self.pool.take() else { return self.pool.grow() };
        if self.clears {
            fill::zero(&mut bytes, self.site);
        }
        Ok(bytes)
    }

    /// What there is to know about it.
    pub fn info(&self) -> CacheInfo {
        let (size, fresh) = (self.pool.size, self.pool.fresh.get());
        CacheInfo { name: self.site.name(), size, clears: self.clears, fresh }
    }
}

impl Pool {
    /// A buffer that this thread gave back.
    #[inline]
    fn take(self: &Arc<Pool>) -> Option<Box<[u8]>> {
        let taken = MAGAZINES.try_with(|all| {
            let mut all = all.borrow_mut();
            let magazine = all.iter_mut().find(|magazine| self.owns(magazine))?;
            magazine.buffers.pop()
        });
        taken.ok().flatten()
    }

    /// Keeps a buffer for this thread, or leaves it to the system if there are enough, or the thread is ending.
    #[inline]
    fn give(self: &Arc<Pool>, buffer: Box<[u8]>) {
        let _ = MAGAZINES.try_with(|all| {
            let mut all = all.borrow_mut();
            match all.iter_mut().find(|magazine| self.owns(magazine)) {
                Some(magazine) if magazine.buffers.len() < MAGAZINE => magazine.buffers.push(buffer),
                Some(_) => {}
                None => self.open(&mut all, buffer),
            }
        });
    }

    #[inline(always)]
    fn owns(self: &Arc<Pool>, magazine: &Magazine) -> bool {
        std::ptr::eq(magazine.pool.as_ptr(), Arc::as_ptr(self))
    }

    /// A magazine for this pool, in the place of one whose pool is gone, or the oldest.
    #[cold]
    fn open(self: &Arc<Pool>, all: &mut Vec<Magazine>, buffer: Box<[u8]>) {
        all.retain(|magazine| magazine.pool.strong_count() > 0);
        if all.len() >= POOLS {
            all.remove(0);
        }
        let mut buffers = Vec::with_capacity(MAGAZINE);
        buffers.push(buffer);
        all.push(Magazine { pool: Arc::downgrade(self), buffers });
    }

    /// A new buffer, of zeroes.
    #[cold]
    fn grow(&self) -> Result<Box<[u8]>, AllocError> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(self.size).map_err(|_| AllocError::NoMemory)?;
        bytes.resize(self.size, 0);
        self.fresh.add(1);
        Ok(bytes.into_boxed_slice())
    }
}

/// A buffer of a [`Cache`], given back when dropped.
#[derive(Debug)]
pub struct Buffer<C: Deref<Target = Cache>> {
    cache: C,
    bytes: Box<[u8]>,
}

impl<C: Deref<Target = Cache>> Deref for Buffer<C> {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<C: Deref<Target = Cache>> DerefMut for Buffer<C> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl<C: Deref<Target = Cache>> Drop for Buffer<C> {
    // Out of line: where a name hardly ever has a buffer, finding out is then all that dropping it costs.
    #[inline(never)]
    fn drop(&mut self) {
        self.cache.pool.give(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static NAMES: Site = Site::new("names");
    static LINKS: Site = Site::new("links");
    static OTHER: Site = Site::new("other");

    /// Leaves something behind, and tells whether the next user finds it.
    fn leaks(from: &Cache, to: &Cache) -> bool {
        let mark = from.alloc().unwrap()[0].wrapping_add(1).max(1);
        from.alloc().unwrap().fill(mark);
        let found = to.alloc().unwrap().contains(&mark);
        to.alloc().unwrap().fill(0);
        found
    }

    #[test]
    fn the_operator_decides_which_opt_outs_are_heard() {
        for (text, names, links) in [
            ("on", true, true),
            ("skip=names", true, false),
            ("skip=names,links", true, true),
            ("skip=", false, false),
            ("force", false, false),
            ("off", true, true),
        ] {
            let slabs = Slabs::new(Policy::parse(text).unwrap());
            let one = slabs.cache(&NAMES, 64, Init::OptOut);
            let two = slabs.cache(&LINKS, 64, Init::OptOut);
            assert_eq!(leaks(&one, &one), names, "{text}");
            assert_eq!(leaks(&two, &two), links, "{text}");
            let plain = slabs.cache(&OTHER, 64, Init::OnAlloc);
            assert_eq!(leaks(&plain, &plain), text == "off", "{text}");
            assert_eq!(plain.info().clears, text != "off");
        }
    }

    #[test]
    fn opted_out_caches_share_with_nobody() {
        for policy in [Policy::On, Policy::Force, Policy::Off] {
            let slabs = Slabs::new(policy);
            let one = slabs.cache(&NAMES, 64, Init::OptOut);
            let two = slabs.cache(&LINKS, 64, Init::OptOut);
            let plain = slabs.cache(&OTHER, 64, Init::OnAlloc);
            let twin = slabs.cache(&OTHER, 64, Init::OnAlloc);
            let large = slabs.cache(&OTHER, 128, Init::OnAlloc);
            assert!(!leaks(&one, &two) && !leaks(&one, &plain) && !leaks(&plain, &one));
            assert!(Arc::ptr_eq(&plain.pool, &twin.pool), "merged");
            assert!(!Arc::ptr_eq(&plain.pool, &large.pool) && !Arc::ptr_eq(&one.pool, &two.pool));
        }
    }

    #[test]
    fn buffers_are_used_again() {
        let slabs = Slabs::new(Policy::On);
        let cache = slabs.cache(&OTHER, 4096, Init::OnAlloc);
        for _ in 0..if cfg!(miri) { 3 } else { 100 } {
            let (one, two) = (cache.alloc().unwrap(), cache.alloc().unwrap());
            assert!(one.len() == 4096 && *two == vec![0; 4096]);
        }
        assert_eq!(cache.info(), CacheInfo { name: "other", size: 4096, clears: true, fresh: 2 });
        let held: Vec<_> = (0..50).map(|_| cache.alloc().unwrap()).collect();
        drop(held);
        let kept =
            || MAGAZINES.with_borrow(|all| all.iter().map(|magazine| magazine.buffers.len()).sum::<usize>());
        assert_eq!(kept(), MAGAZINE);
        drop((cache, slabs));
        for _ in 0..2 * POOLS {
            let slabs = Slabs::new(Policy::On);
            drop(slabs.cache(&OTHER, 64, Init::OnAlloc).alloc().unwrap());
        }
        assert_eq!(kept(), 1, "buffers of pools that are gone go, too");
    }

    #[test]
    fn a_thread_keeps_buffers_of_few_pools() {
        let slabs = Slabs::new(Policy::On);
        let caches: Vec<_> = (1..=2 * POOLS).map(|n| slabs.cache(&OTHER, n, Init::OnAlloc)).collect();
        caches.iter().for_each(|cache| drop(cache.alloc().unwrap()));
        assert_eq!(MAGAZINES.with_borrow(Vec::len), POOLS);
    }

    #[test]
    fn threads_give_back_what_others_took() {
        let slabs = Slabs::new(Policy::On);
        let cache = slabs.cache(&OTHER, 64, Init::OnAlloc);
        std::thread::scope(|scope| {
            for round in 0..4_u8 {
                let cache = &cache;
                scope.spawn(move || {
                    for _ in 0..if cfg!(miri) { 20 } else { 2000 } {
                        let mut buffer = cache.alloc().unwrap();
                        assert!(buffer.iter().all(|&byte| byte == 0));
                        buffer.fill(round + 1);
                    }
                });
            }
        });
    }
}
