//! Ctrl-C and friends end the command at once, whatever it is doing, with a message and nothing left behind.

use std::io::{self, IsTerminal, Write};
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::output::{Failure, complain};

/// Set when a signal ends the process.
static ENDING: AtomicBool = AtomicBool::new(false);

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
        let text = rcuwalk_bench::describe(&e);
        Failure::Error(format!("watching for signals: this process: {text}; raise ulimit -u and ulimit -n"))
    };
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(failed)?;
    let body = move || {
        if let Some(signal) = signals.forever().next() {
            end(signal);
        }
    };
    thread::Builder::new().name("signals".into()).spawn(body).map_err(failed)?;
    Ok(())
}

fn end(signal: i32) -> ! {
    ENDING.store(true, Ordering::Release);
    rcuwalk_bench::scratch::remove_leftovers();
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
