//! The host's side: one process with a private tmpfs that runs program after program.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::fuzz::program::{Program, Trace};
use crate::host::{HostWorld, Place, receive, send};
use crate::run::Mismatch;
use crate::sys::{SingleThreaded, exit_now, ignore_signals};
use rcuwalk::perm::Protected;

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The executor process.
pub(super) struct Executor {
    channel: UnixStream,
    full_caps: u64,
}

impl Executor {
    /// Starts it.
    pub(super) fn start(single: &SingleThreaded) -> Result<Executor, String> {
        if !crate::host::is_root() {
            return Err("fuzzing against the kernel needs root".to_owned());
        }
        ignore_signals();
        let (mut ours, theirs) = UnixStream::pair().map_err(|e| e.to_string())?;
        if single.fork().map_err(|e| e.to_string())?.is_none() {
            drop(ours);
            serve(single, theirs);
        }
        drop(theirs);
        ours.set_read_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
        let full_caps: Result<u64, String> = receive(&mut ours)?.ok_or("the host's executor ended")?;
        Ok(Executor { channel: ours, full_caps: full_caps? })
    }

    /// Every capability a task on the host can have.
    pub(super) fn full_caps(&self) -> u64 {
        self.full_caps
    }

    /// Sends a program.
    pub(super) fn send(&mut self, program: &Program) -> Result<(), String> {
        send(&mut self.channel, program)
    }

    /// Receives what the host made of it.
    pub(super) fn receive(&mut self) -> Result<Trace, String> {
        let trace: Result<Trace, String> =
            receive(&mut self.channel)?.ok_or("the host's executor ended while running a program")?;
        trace.map_err(|why| format!("on the host: {why}"))
    }
}

/// Runs programs until the other end closes.
fn serve(single: &SingleThreaded, mut channel: UnixStream) -> ! {
    let mut world = match HostWorld::new(single, &Place::Tmpfs) {
        Ok(world) => world,
        Err(why) => {
            let _ = send(&mut channel, &Err::<u64, String>(why));
            exit_now(1);
        }
    };
    if send(&mut channel, &Ok::<u64, String>(crate::backend::World::full_caps(&world))).is_err() {
        exit_now(1);
    }
    while let Ok(Some(program)) = receive::<Program>(&mut channel) {
        let trace = world.renew().and_then(|()| {
            program.run(&mut world).map_err(|m: Mismatch| format!("{} {}", m.call, m.difference))
        });
        if send(&mut channel, &trace).is_err() {
            break;
        }
    }
    drop(world);
    exit_now(0)
}

/// The host's `fs.protected_*`, which the engine is to have as well.
pub(super) fn protected_settings() -> Result<Protected, String> {
    let read = |name: &str| -> Result<u8, String> {
        let path = format!("/proc/sys/fs/{name}");
        let mut text = String::new();
        std::fs::File::open(&path)
            .and_then(|mut f| f.read_to_string(&mut text))
            .map_err(|e| format!("{path}: {e}"))?;
        text.trim().parse().map_err(|_| format!("{path} holds {text:?}"))
    };
    Ok(Protected {
        symlinks: read("protected_symlinks")? != 0,
        hardlinks: read("protected_hardlinks")? != 0,
        regular: read("protected_regular")?,
        fifos: read("protected_fifos")?,
    })
}
