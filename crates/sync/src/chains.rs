//! The hash chains of the directory cache: lockless to read, one writer at a time, resizable under readers.
//!
//! Kernel: `dentry_hashtable` and include/linux/list_nulls.h. Differs: the table grows with what it holds.
//!
//! A reader may stand on a node that is moved to another chain, or freed and used again, and so be led astray. Each chain
//! therefore ends in a mark that names its bucket *and* the size of its table. A reader that comes to the right mark has
//! seen every node that stayed in the chain while it looked; one that comes to a wrong mark knows it, and looks again.
//!
//! A hit needs no such proof: the caller checks what it found against the node's own sequence count. A miss is an answer
//! only if, besides the right mark, the table did not change its size meanwhile ([`Chains::begin`], [`Chains::retry`])
//! and the directory did not change its entries (the caller's business).

use crate::arena::View;
use crate::facade::{AtomicU32, Ordering};
use crate::{AllocError, Arena, Handle, SeqCount};

/// Set in a link that ends a chain; the rest of the word is the bucket.
const END: u32 = 1 << 31;

/// The buckets of a new table.
const INITIAL: u32 = if cfg!(any(loom, shuttle, miri)) { 1 } else { 256 };

/// The word that leads from one node of a chain to the next.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Link(AtomicU32);

impl Link {
    #[inline(always)]
    fn load(&self) -> u32 {
        // [CHN-1] pairs with [CHN-2]: a reader that is led to a node sees its fields, and its link, as they were when it was
        // linked here, or newer. An older link could lead past a node that has been there all along.
        // Model: models::chain_reader_misses_nothing_that_stays.
        self.0.load(ordering!("CHN-1", Acquire))
    }

    #[inline]
    fn store(&self, to: u32) {
        // [CHN-2] pairs with [CHN-1].
        self.0.store(to, ordering!("CHN-2", Release));
    }
}

/// Where the nodes of the chains live.
pub trait Nodes {
    /// The link inside node `handle`.
    fn link(&self, handle: Handle) -> &Link;
    /// The hash under which node `handle` is in its chain.
    fn hash(&self, handle: Handle) -> u32;
}

/// What a walk along one chain came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// This node.
    Hit(Handle),
    /// The end of the chain: no node that stayed in it matches.
    Miss,
    /// The end of another chain: nothing is known.
    Astray,
}

/// The table, as readers use it.
///
/// The table of `size` buckets lies in slots `size..2 * size` of one reservation, so a bucket's number says which table
/// it belongs to, and one word, `size`, publishes a new table.
#[derive(Debug)]
pub struct Chains {
    size: AtomicU32,
    /// Odd while the table is being replaced.
    moves: SeqCount,
    buckets: Arena<Link>,
}

/// The right to change a table; there is one for each [`Chains`], and its owner keeps it behind a lock.
#[derive(Debug)]
pub struct ChainsWriter {
    nodes: u32,
    size: u32,
    max: u32,
}

impl Chains {
    /// An empty table that can grow to `max` buckets (a power of two is best; 2²⁹ at most), and the right to change it.
    ///
    /// # Errors
    ///
    /// [`AllocError::NoMemory`] if the system refuses the address space.
    pub fn new(max: u32) -> Result<(Chains, ChainsWriter), AllocError> {
        let max = max.clamp(INITIAL, 1 << 29).next_power_of_two();
        let chains = Chains {
            size: AtomicU32::new(INITIAL),
            moves: SeqCount::default(),
            buckets: Arena::new(2 * max)?,
        };
        chains.clear(INITIAL);
        Ok((chains, ChainsWriter { nodes: 0, size: INITIAL, max }))
    }

    /// The readers' view of the table as it is now. In a view that has become old a reader may find nothing, or go
    /// astray; what it finds is found.
    #[inline(always)]
    pub fn view(&self) -> ChainsView<'_> {
        // Relaxed: a look in either table is safe, and a size that is seen before the table behind it does no harm.
        // - A slot there that still reads zero leads astray.
        // - A reader of anything else has acquired, by [CHN-1], a store made after `moves` went odd, and so does not
        //   believe a miss; and a hit proves itself.
        // Model: models::growing_table_loses_no_node.
        ChainsView { size: self.size.load(Ordering::Relaxed), buckets: self.buckets.view() }
    }

    /// Walks the chain of `hash` until `is` accepts a node.
    pub fn find<N: Nodes>(&self, nodes: &N, hash: u32, mut is: impl FnMut(Handle) -> bool) -> Found {
        let mut walk = self.view().walk(hash);
        while let Some(at) = walk.node() {
            if is(at) {
                return Found::Hit(at);
            }
            walk.step(nodes.link(at));
        }
        if walk.missed() { Found::Miss } else { Found::Astray }
    }

    /// Starts a look whose miss shall count. Its [`view`](Self::view) has to be taken afterwards.
    #[inline]
    pub fn begin(&self) -> u32 {
        self.moves.begin()
    }

    /// Whether the table was replaced since `start`, so that a miss means nothing.
    #[inline]
    #[must_use]
    pub fn retry(&self, start: u32) -> bool {
        self.moves.retry(start)
    }

    #[inline(always)]
    fn bucket(size: u32, hash: u32) -> u32 {
        size | (hash & (size - 1))
    }

    /// Makes every chain of the table of `size` buckets empty.
    fn clear(&self, size: u32) {
        for bucket in size..2 * size {
            self.buckets.get(bucket).store(END | bucket);
        }
    }

    /// Puts node `at` in front of its chain in the table of `size` buckets.
    fn push<N: Nodes>(&self, nodes: &N, size: u32, at: Handle) {
        let head = self.buckets.get(Self::bucket(size, nodes.hash(at)));
        nodes.link(at).store(head.load());
        head.store(at);
    }
}

/// What a reader of the table needs, by value.
#[derive(Debug, Clone, Copy)]
pub struct ChainsView<'a> {
    size: u32,
    buckets: View<'a, Link>,
}

impl ChainsView<'_> {
    /// Starts along the chain of `hash`.
    #[inline(always)]
    pub fn walk(&self, hash: u32) -> ChainWalk {
        let bucket = Chains::bucket(self.size, hash);
        ChainWalk { at: self.buckets.get(bucket).load(), end: END | bucket }
    }
}

/// A reader on its way along one chain.
#[derive(Debug, Clone, Copy)]
pub struct ChainWalk {
    at: u32,
    end: u32,
}

impl ChainWalk {
    /// The node it has come to; none at the end.
    #[inline(always)]
    pub fn node(&self) -> Option<Handle> {
        // Zero is what a table reads that has been given back.
        (self.at.wrapping_sub(1) < END - 1).then_some(self.at)
    }

    /// Goes on by the link of the node it stands on.
    #[inline(always)]
    pub fn step(&mut self, link: &Link) {
        self.at = link.load();
    }

    /// At the end: whether it is the end of the chain it started in, so that no node that stayed in it was missed.
    #[inline(always)]
    pub fn missed(&self) -> bool {
        self.at == self.end
    }
}

impl ChainsWriter {
    /// Nodes in the table.
    pub fn len(&self) -> u32 {
        self.nodes
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.nodes == 0
    }

    /// Puts node `at`, which is in no chain, into the one of its hash.
    pub fn insert<N: Nodes>(&mut self, chains: &Chains, nodes: &N, at: Handle) {
        debug_assert!(at != 0 && at & END == 0);
        // Half full at most: a node that does not match is a cache line fetched for nothing.
        if self.nodes > self.size / 2 && self.size < self.max {
            self.grow(chains, nodes);
        }
        chains.push(nodes, self.size, at);
        self.nodes += 1;
    }

    /// Takes node `at` out of its chain. Its link still leads on, for readers that stand on it.
    pub fn remove<N: Nodes>(&mut self, chains: &Chains, nodes: &N, at: Handle) {
        let mut link = chains.buckets.get(Chains::bucket(self.size, nodes.hash(at)));
        loop {
            match link.load() {
                next if next == at => break,
                next if next & END != 0 => {
                    debug_assert!(false, "node {at} is not in its chain");
                    return;
                }
                next => link = nodes.link(next),
            }
        }
        link.store(nodes.link(at).load());
        self.nodes -= 1;
    }

    /// Moves every node to a table of twice the size.
    ///
    /// A reader that is on its way in the old table may follow a node into the new one. It then ends at a mark of the new
    /// table, and looks again. One that ends at a mark of the old table may have come after its node had left; `moves`,
    /// odd meanwhile, keeps it from believing the miss.
    fn grow<N: Nodes>(&mut self, chains: &Chains, nodes: &N) {
        let (old, new) = (self.size, 2 * self.size);
        let moves = chains.moves.write();
        chains.clear(new);
        for bucket in old..2 * old {
            let head = chains.buckets.get(bucket);
            loop {
                let at = head.load();
                if at & END != 0 {
                    break;
                }
                head.store(nodes.link(at).load());
                chains.push(nodes, new, at);
            }
        }
        self.size = new;
        // Relaxed: see `view`.
        chains.size.store(new, Ordering::Relaxed);
        drop(moves);
        chains.buckets.discard(old, old);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Racy32;

    crate::type_stable! {
        struct Node {
            hash: Racy32,
            link: Link,
        }
    }

    impl Nodes for Arena<Node> {
        fn link(&self, handle: Handle) -> &Link {
            &self.get(handle).link
        }
        fn hash(&self, handle: Handle) -> u32 {
            self.get(handle).hash.get()
        }
    }

    fn table(nodes: u32) -> (Arena<Node>, Chains, ChainsWriter) {
        let arena = Arena::<Node>::new(4096).unwrap();
        let (chains, mut writer) = Chains::new(1 << 12).unwrap();
        for i in 0..nodes {
            let at = arena.alloc().unwrap();
            arena.get(at).hash.set(i.wrapping_mul(0x9e37_79b1));
            writer.insert(&chains, &arena, at);
        }
        (arena, chains, writer)
    }

    #[test]
    fn every_node_is_found_through_growth_and_removal() {
        let (arena, chains, mut writer) = table(3000);
        assert_eq!(writer.size, 4096);
        let find = |at: Handle| chains.find(&arena, arena.hash(at), |h| h == at);
        assert!((1..=3000).all(|at| find(at) == Found::Hit(at)));
        for at in (1..=3000).step_by(3) {
            writer.remove(&chains, &arena, at);
        }
        assert!((1..=3000).all(|at| find(at) == if at % 3 == 1 { Found::Miss } else { Found::Hit(at) }));
        assert_eq!(writer.len(), 2000);
    }

    #[test]
    fn a_reader_led_into_another_chain_knows_it() {
        let (arena, chains, mut writer) = table(2);
        let moved = 1;
        // The node moves to another chain while a reader stands on it: the reader must not take the end for its own.
        let mut first = true;
        let hash = arena.hash(moved);
        let found = chains.find(&arena, hash, |at| {
            if std::mem::take(&mut first) {
                assert_eq!(at, moved);
                writer.remove(&chains, &arena, moved);
                arena.get(moved).hash.set(hash + 1);
                writer.insert(&chains, &arena, moved);
            }
            false
        });
        assert_eq!(found, Found::Astray);
    }

    #[test]
    fn a_table_given_back_leads_nowhere() {
        let (arena, chains, _writer) = table(0);
        chains.buckets.get(Chains::bucket(INITIAL, 5)).store(0);
        assert_eq!(chains.find(&arena, 5, |_| true), Found::Astray);
    }
}
