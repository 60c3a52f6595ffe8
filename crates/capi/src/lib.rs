//! The C interface of rcuwalk. For C programs: `include/rcuwalk.h`, `man/rcuwalk.3`, `examples/`.
//!
//! [`door`] has the functions; the rest keeps C's mistakes away from the engine. No function dereferences a pointer it is
//! given: memory of the caller is read and written through [`rcuwalk_host::ProcessMemory`], so a bad pointer is `-EFAULT`.
//! Only callbacks, and memory that the caller vouches for, are believed. Objects are named by numbers that say what they
//! name and when it was made (`handle.rs`), so a number whose object is gone is `-ESRCH`.
#![deny(unsafe_code)]

pub mod door;
mod gate;
mod handle;
mod sys;
