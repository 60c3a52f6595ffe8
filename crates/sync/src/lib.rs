//! Type-stable arenas, sequence counts and lock references: the concurrency primitives under rcuwalk.
