//! The hash chains of the directory cache: lockless to read, one writer at a time, growing under readers.
//!
//! Kernel: `dentry_hashtable` and include/linux/list_nulls.h. Differs: the table grows with what it holds, one chain at a time
//! (linear hashing), so that no change waits for a whole table to be moved.
//!
//! A table of `n` chains, where `n` lies between the powers of two `s` and `2 * s`, has split the first `n - s` of its `s` old
//! chains: their nodes are told apart by one more bit of the hash. Each insertion splits two chains at most.
//!
//! A reader may stand on a node that is moved to another chain, or freed and used again, and so be led astray. Each chain
//! therefore ends in a mark that names its bucket *and* how many bits of the hash lead to it. A reader that comes to the right
//! mark has seen every node that stayed in the table while it looked; one that comes to a wrong mark knows it, and looks again.
//! A mark that a split has replaced never comes back.
//!
//! A hit needs no such proof: the caller checks what it found against the node's own sequence count. A miss is an answer
//! only if, besides the right mark, the directory did not change its entries meanwhile (the caller's business).

use crate::arena::View;
use crate::facade::{AtomicU32, Ordering, removed};
use crate::{AllocError, Arena, Handle};

/// Set in a link that ends a chain; the rest of the word names the chain, as [`Chain`] says.
const END: u32 = 1 << 31;

/// How many chains an insertion splits at most. One would keep up with half as many chains as [`ChainsWriter::insert`] wants.
const SPLITS: u32 = 2;

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

/// How many chains there are: `low + 1`, a power of two, of which the first `split` have been split.
#[derive(Debug, Clone, Copy)]
struct Shape {
    low: u32,
    split: u32,
}

impl Shape {
    #[inline(always)]
    fn of(size: u32) -> Shape {
        let low = (u32::MAX >> 1) >> size.leading_zeros();
        Shape { low, split: size - low - 1 }
    }

    /// The chain of `hash`.
    #[inline(always)]
    fn chain(self, hash: u32) -> Chain {
        let Shape { low, split } = self;
        Chain { mask: if hash & low < split { 2 * low + 1 } else { low }, hash }
    }
}

/// One chain: the hashes that are `hash` in the bits of `mask`, the lowest so many.
#[derive(Debug, Clone, Copy)]
struct Chain {
    mask: u32,
    hash: u32,
}

impl Chain {
    #[inline(always)]
    fn bucket(self) -> u32 {
        self.hash & self.mask
    }

    /// The mark at its end.
    #[inline(always)]
    fn end(self) -> u32 {
        END | (self.mask + 1) | self.bucket()
    }
}

/// The table, as readers use it.
#[derive(Debug)]
pub struct Chains {
    /// Chains there are; never fewer than before.
    size: AtomicU32,
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
        let chains = Chains { size: AtomicU32::new(INITIAL), buckets: Arena::new(max)? };
        for bucket in 0..INITIAL {
            chains.buckets.get(bucket).store(Chain { mask: INITIAL - 1, hash: bucket }.end());
        }
        Ok((chains, ChainsWriter { nodes: 0, size: INITIAL, max }))
    }

    /// The readers' view of the table as it is now. In a view that has become old a reader may find nothing, or go
    /// astray; what it finds is found.
    #[inline(always)]
    pub fn view(&self) -> ChainsView<'_> {
        // Relaxed: a size that is seen before the chain behind it does no harm, nor does one that is old. See `ChainsWriter::split`.
        ChainsView { shape: Shape::of(self.size.load(Ordering::Relaxed)), buckets: self.buckets.view() }
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
}

/// What a reader of the table needs, by value.
#[derive(Debug, Clone, Copy)]
pub struct ChainsView<'a> {
    shape: Shape,
    buckets: View<'a, Link>,
}

impl ChainsView<'_> {
    /// Starts along the chain of `hash`.
    #[inline(always)]
    pub fn walk(&self, hash: u32) -> ChainWalk {
        let chain = self.shape.chain(hash);
        // SAFETY: 1: a bucket is below the size that its shape was made of, and no size was ever published that is above the
        // capacity: `ChainsWriter` stops at `max`.
        let head = unsafe { self.buckets.get_unchecked(chain.bucket()) };
        ChainWalk { at: head.load(), chain }
    }
}

/// A reader on its way along one chain.
#[derive(Debug, Clone, Copy)]
pub struct ChainWalk {
    at: u32,
    chain: Chain,
}

impl ChainWalk {
    /// The node it has come to; none at the end.
    #[inline(always)]
    pub fn node(&self) -> Option<Handle> {
        // Zero is what a bucket reads whose chain is not there yet.
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
        self.at == self.chain.end()
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
        for _ in 0..SPLITS {
            // Half full at most: a node that does not match is a cache line fetched for nothing.
            if self.nodes > self.size / 2 && self.size < self.max {
                self.split(chains, nodes);
            }
        }
        let head = chains.buckets.get(Shape::of(self.size).chain(nodes.hash(at)).bucket());
        nodes.link(at).store(head.load());
        head.store(at);
        self.nodes += 1;
    }

    /// Takes node `at` out of its chain. Its link still leads on, for readers that stand on it.
    pub fn remove<N: Nodes>(&mut self, chains: &Chains, nodes: &N, at: Handle) {
        let mut link = chains.buckets.get(Shape::of(self.size).chain(nodes.hash(at)).bucket());
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

    /// Makes two chains of the first one that is not split yet.
    ///
    /// A reader that looks in the old chain believes a miss only at the old mark, and the mark goes first. Each node that leaves is
    /// taken out afterwards. So a reader that saw one gone, or was led into the new chain by one that left, has acquired a store
    /// made after the mark was replaced ([CHN-1], [CHN-2]), and finds another mark at its end.
    ///
    /// A reader that looks in the new chain finds either nothing there, which leads astray, or the whole chain: one store puts
    /// it there. So the size may be seen before the chain.
    ///
    /// Model: models::growing_table_loses_no_node.
    fn split<N: Nodes>(&mut self, chains: &Chains, nodes: &N) {
        let Shape { low, split } = Shape::of(self.size);
        let mask = 2 * low + 1;
        let (stays, leaves) = (Chain { mask, hash: split }, Chain { mask, hash: self.size });
        let (head, new_head) = (chains.buckets.get(split), chains.buckets.get(self.size));
        let mut link = head;
        while link.load() & END == 0 {
            link = nodes.link(link.load());
        }
        if !removed("split-mark") {
            link.store(stays.end());
        }
        if removed("split-whole") {
            new_head.store(leaves.end());
        }
        let (mut link, mut first) = (head, leaves.end());
        loop {
            match link.load() {
                end if end & END != 0 => break,
                at if nodes.hash(at) & (low + 1) == 0 => link = nodes.link(at),
                at => {
                    link.store(nodes.link(at).load());
                    nodes.link(at).store(first);
                    first = at;
                }
            }
        }
        link.store(stays.end());
        new_head.store(first);
        self.size += 1;
        // Relaxed: as above.
        chains.size.store(self.size, Ordering::Relaxed);
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
        assert_eq!(writer.size, 4096, "the most there may be");
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
    fn a_chain_that_is_not_there_yet_leads_astray() {
        let (arena, chains, _writer) = table(0);
        chains.buckets.get(Shape::of(INITIAL).chain(5).bucket()).store(0);
        assert_eq!(chains.find(&arena, 5, |_| true), Found::Astray);
    }

    #[test]
    fn a_table_grows_by_two_chains_an_insertion_at_most() {
        let (arena, chains, mut writer) = table(INITIAL / 2);
        for nodes in writer.len()..2000 {
            let (at, before) = (arena.alloc().unwrap(), writer.size);
            arena.get(at).hash.set(nodes.wrapping_mul(0x9e37_79b1));
            writer.insert(&chains, &arena, at);
            assert!(writer.size - before <= 2, "{before} chains became {}", writer.size);
            assert!(writer.size / 2 >= nodes.min(writer.max), "{} chains for {nodes} nodes", writer.size);
        }
    }

    #[test]
    fn what_is_seen_in_an_old_view_is_no_miss_of_a_node_that_moved() {
        let (arena, chains, mut writer) = table(INITIAL / 2);
        let old = chains.view();
        for i in INITIAL / 2..2000 {
            let at = arena.alloc().unwrap();
            arena.get(at).hash.set(i.wrapping_mul(0x9e37_79b1));
            writer.insert(&chains, &arena, at);
        }
        for node in 1..=2000 {
            let mut walk = old.walk(arena.hash(node));
            while let Some(at) = walk.node().filter(|&at| at != node) {
                walk.step(arena.link(at));
            }
            assert!(walk.node().is_some() || !walk.missed(), "node {node} is missed, and the miss believed");
        }
    }
}
