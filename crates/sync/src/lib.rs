//! The concurrency primitives under rcuwalk, and the only crate of its core that holds `unsafe` code or names a memory
//! ordering.
//!
//! The lockless path walk rests on one idea: **type-stable memory**. Every object lives in an [`Arena`] slot that stays
//! a valid object of its type for the life of the arena, freed or not, and every field is an atomic word. A reader
//! needs no pin, no epoch and no hazard pointer. A stale handle leads to a valid object, and the object's
//! [`SeqCount`] tells the reader that it moved on. Reading therefore writes nothing, shared or thread-local.
//!
//! | module | what it gives |
//! |---|---|
//! | [`arena`] | slots addressed by 32-bit handle in one reserved range that never moves |
//! | [`blob`] | immutable byte strings (long names, symlink bodies, ACLs, xattrs) in the same kind of memory |
//! | [`seqcount`] | sequence counts: writers exclude each other, readers validate |
//! | [`lock`] | the locks, or those of a model checker |
//! | [`lockref`] | a reference count that can be taken only while it is not zero |
//! | [`chains`] | the resizable hash chains of the directory cache |
//! | [`racy`] | words that are read while they may be written, and sums nobody decides by |
//! | [`budget`] | a quantity that many threads take from |
//! | [`cpumask`] | sets of processors with a constant upper size |
//! | [`percpu`] | one of a thing for each processor |
//! | [`slab`] | buffers that are used again, and who decides what is in them |
//! | [`fill`] | clearing memory, when most of it is small |
//! | [`name`] | path components: scanned, hashed and compared a word at a time |
//!
//! Orderings carry an ID (`[SEQ-1]`) which stands at both ends of the pair and in `docs/ordering.md`; each has a loom
//! model in `tests/models.rs` and a mutant without which that model must fail.

#[macro_use]
mod facade;
pub mod arena;
pub mod blob;
pub mod budget;
pub mod chains;
pub mod cpumask;
#[cfg(not(loom))]
pub mod fill;
pub mod lock;
pub mod lockref;
#[cfg(not(any(loom, shuttle)))]
mod mem;
pub mod name;
#[cfg(not(loom))]
pub mod percpu;
pub mod racy;
pub mod seqcount;
#[cfg(not(loom))]
pub mod slab;
mod spin;

#[doc(hidden)]
pub use arena::TypeStable;
pub use arena::{Arena, Handle, View};
pub use blob::Blobs;
pub use budget::{Beyond, Budget, Charge, Tally};
pub use chains::{Chains, ChainsView, ChainsWriter, Found, Link, Nodes};
#[doc(hidden)]
pub use facade::removed;
pub use lockref::LockRef;
#[cfg(not(loom))]
pub use percpu::{PerCpu, thread_number};
pub use racy::{Counter, Racy32, Racy64, Serial};
pub use seqcount::{SeqCount, SeqRead, SeqWrite};

/// Whether a model checker runs this build. Its words are larger than those of a processor, so what asserts a layout, or makes
/// room for many of them, asks.
pub const MODELLED: bool = cfg!(any(loom, shuttle));

/// A reservation of address space that the system refused, or an arena with no slot left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocError {
    /// The system gave no memory or no address space (`ENOMEM`).
    NoMemory,
    /// Every slot that the arena was made for is in use (`ENOSPC`).
    Full,
}

impl std::fmt::Display for AllocError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            AllocError::NoMemory => "the system gave no memory for the arena",
            AllocError::Full => "the arena is full",
        })
    }
}

impl std::error::Error for AllocError {}
