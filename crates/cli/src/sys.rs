//! What to do when the machine has no memory left.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};

/// The system's allocator, except that running out ends the command with a message and exit code 2 instead of an
/// abort.
pub(crate) struct OrExit;

/// Says so and leaves, without allocating.
#[cold]
fn out_of_memory() -> ! {
    const MESSAGE: &[u8] =
        b"rcuwalk: allocating memory: this process: ENOMEM: Cannot allocate memory; raise ulimit -v, free memory, or \
          take a smaller tree\n";
    // Nothing can be done about a message that cannot be written.
    let _ = rustix::io::write(rustix::stdio::stderr(), MESSAGE);
    // SAFETY: _exit has no demands. exit would run handlers, and those allocate.
    unsafe { libc::_exit(2) }
}

fn checked(block: *mut u8) -> *mut u8 {
    if block.is_null() { out_of_memory() } else { block }
}

// SAFETY: every call is passed on to `System`, which keeps the contract; a null answer does not return at all.
unsafe impl GlobalAlloc for OrExit {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about `layout`.
        checked(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about `layout`.
        checked(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promises; the block is `System`'s.
        checked(unsafe { System.realloc(block, layout, size) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises; the block is `System`'s.
        unsafe { System.dealloc(block, layout) }
    }
}
