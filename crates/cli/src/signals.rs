//! Ctrl-C and friends end the command at once, whatever it is doing, with a message and nothing left behind.

use std::io::{self, IsTerminal, Write};
use std::process::exit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::{self, Thread};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::output::{Failure, complain};

/// Set when a signal ends the process.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Set when the command wants to end in its own way.
static ASKS_FIRST: AtomicBool = AtomicBool::new(false);

/// The signal that asked such a command to end; 0 if none did.
static ASKED: AtomicI32 = AtomicI32::new(0);

/// Who is woken when a signal asks.
static WAITER: OnceLock<Thread> = OnceLock::new();

/// From now on the first signal only asks the command to end, which looks at [`asked`]; this thread is unparked then. The
/// second ends it.
pub(crate) fn ask_first() {
    WAITER.get_or_init(thread::current);
    ASKS_FIRST.store(true, Ordering::Release);
}

/// Whether the command wants to be asked.
pub(crate) fn asks_first() -> bool {
    ASKS_FIRST.load(Ordering::Acquire)
}

/// The signal that asks the command to end.
pub(crate) fn asked() -> Option<i32> {
    match ASKED.load(Ordering::Acquire) {
        0 => None,
        signal => Some(signal),
    }
}

/// Waits for the end if a signal has begun it: what the command comes to now, with its files taken away under it, is
/// neither to be said nor to decide the exit code.
pub(crate) fn yield_to_end() {
    while ENDING.load(Ordering::Acquire) {
        thread::park();
    }
}

/// Starts to watch.
///
/// A thread of its own ends the process: no long-running loop has to look at a flag, and one that hangs can still be
/// ended.
pub(crate) fn watch() -> Result<(), Failure> {
    let failed = |e: io::Error| {
        let text = rcuwalk_host::describe(&e);
        Failure::Error(format!("watching for signals: this process: {text}; raise ulimit -u and ulimit -n"))
    };
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(failed)?;
    let body = move || {
        for signal in signals.forever() {
            if !asks_first() || asked().is_some() {
                end(signal);
            }
            ASKED.store(signal, Ordering::Release);
            WAITER.get().into_iter().for_each(Thread::unpark);
        }
    };
    thread::Builder::new().name("signals".into()).spawn(body).map_err(failed)?;
    Ok(())
}

fn end(signal: i32) -> ! {
    ENDING.store(true, Ordering::Release);
    rcuwalk_measure::scratch::remove_leftovers();
    if io::stderr().is_terminal() {
        // The progress bar's line.
        let _ = write!(io::stderr().lock(), "\r\x1b[2K");
    }
    let name = match signal {
        SIGHUP => "SIGHUP",
        SIGINT => "SIGINT",
        _ => "SIGTERM",
    };
    complain(format_args!("interrupted: {name}; no result was written"));
    exit(128 + signal)
}
