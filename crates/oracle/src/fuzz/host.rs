//! The host's side: a process with a private tmpfs that runs program after program, and one that makes a whole new world
//! for each program that mounts or unshares.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::fuzz::compare::FileSystem;
use crate::fuzz::program::{Program, Trace};
use crate::host::{HostWorld, Place, receive, send};
use crate::run::Mismatch;
use crate::sys::{SingleThreaded, exit_now, ignore_signals, wait};
use rcuwalk::perm::Protected;

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The executor processes.
pub(super) struct Executor {
    /// One world, emptied between programs.
    steady: Server,
    /// A world for each program.
    fresh: Server,
    /// Which of the two runs the present program.
    busy_fresh: bool,
    full_caps: u64,
    place: Place,
    /// Whether the steady world's root would show by its offsets how many names it has had.
    only_fresh: bool,
}

/// A process that runs programs.
struct Server {
    pid: i32,
    channel: UnixStream,
    place: Place,
}

/// A program's trace, or why there is none.
type Answer = Result<Trace, String>;

impl Executor {
    /// Starts them.
    pub(super) fn start(single: &SingleThreaded, place: &Place) -> Result<Executor, String> {
        if !crate::host::is_root() {
            return Err("fuzzing against the kernel needs root".to_owned());
        }
        place.prepare()?;
        ignore_signals();
        let fresh = Server::start(single, place, serve_fresh)?;
        let mut steady = Server::start(single, place, serve_steady)?;
        let full_caps: Result<u64, String> =
            receive(&mut steady.channel)?.ok_or("the host's executor ended")?;
        let only_fresh = *place != Place::Tmpfs && FileSystem::of(place)? == FileSystem::Tmpfs;
        let (full_caps, place) = (full_caps?, place.clone());
        Ok(Executor { steady, fresh, busy_fresh: false, full_caps, place, only_fresh })
    }

    /// Every capability a task on the host can have.
    pub(super) fn full_caps(&self) -> u64 {
        self.full_caps
    }

    /// Sends a program.
    pub(super) fn send(&mut self, program: &Program) -> Result<(), String> {
        self.busy_fresh = self.only_fresh || program.needs_a_world_of_its_own();
        send(&mut self.server().channel, program)
    }

    /// Receives what the host made of it.
    pub(super) fn receive(&mut self) -> Answer {
        let answer: Answer = receive(&mut self.server().channel)?
            .ok_or("the host's executor ended while running a program")?;
        answer.map_err(|why| format!("on the host: {why}"))
    }

    fn server(&mut self) -> &mut Server {
        if self.busy_fresh { &mut self.fresh } else { &mut self.steady }
    }

    /// Ends them, and clears their worlds away.
    pub(super) fn end(self) -> Result<(), String> {
        // The second to be started has a copy of the first one's channel.
        let pid = self.steady.pid;
        self.steady.end()?;
        tidy_up(&self.place, pid);
        self.fresh.end()
    }
}

impl Server {
    /// Forks a process that serves programs.
    fn start(
        single: &SingleThreaded,
        place: &Place,
        serve: fn(&SingleThreaded, &Place, UnixStream),
    ) -> Result<Server, String> {
        let (ours, theirs) = UnixStream::pair().map_err(|e| e.to_string())?;
        let Some(pid) = single.fork().map_err(|e| e.to_string())? else {
            drop(ours);
            serve(single, place, theirs);
            exit_now(0)
        };
        ours.set_read_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
        Ok(Server { pid, channel: ours, place: place.clone() })
    }

    fn end(self) -> Result<(), String> {
        drop(self.channel);
        wait(self.pid, true).map_err(|e| e.to_string())?;
        self.place.clean_up(self.pid.unsigned_abs())
    }
}

/// Runs programs in one world until the other end closes.
fn serve_steady(single: &SingleThreaded, place: &Place, mut channel: UnixStream) {
    let mut world = match HostWorld::new(single, place) {
        Ok(world) => world,
        Err(why) => {
            // If nobody listens any more, nobody misses it.
            let _ = send(&mut channel, &Err::<u64, String>(why));
            return;
        }
    };
    if send(&mut channel, &Ok::<u64, String>(crate::backend::World::full_caps(&world))).is_err() {
        return;
    }
    while let Ok(Some(program)) = receive::<Program>(&mut channel) {
        let answer = world.renew().and_then(|()| run(&program, &mut world));
        if send(&mut channel, &answer).is_err() {
            return;
        }
    }
}

/// Runs each program in a process and a world of its own until the other end closes.
fn serve_fresh(single: &SingleThreaded, place: &Place, mut channel: UnixStream) {
    while let Ok(Some(program)) = receive::<Program>(&mut channel) {
        match single.fork() {
            Ok(Some(pid)) => {
                // Its answer went through the channel it shares with this process.
                let _ = wait(pid, true);
                tidy_up(place, pid);
                if let Err(why) = place.clean_up(pid.unsigned_abs()) {
                    eprintln!("{why}");
                }
            }
            Ok(None) => {
                let world = HostWorld::new(single, place);
                let answer = world.and_then(|mut world| run(&program, &mut world));
                exit_now(i32::from(send(&mut channel, &answer).is_err()));
            }
            Err(e) => {
                let _ = send(&mut channel, &Answer::Err(e.to_string()));
            }
        }
    }
}

/// Removes what the process has left. Whatever stays behind is in nobody's way.
fn tidy_up(place: &Place, pid: i32) {
    if let Err(why) = place.clean_up(pid.unsigned_abs()) {
        eprintln!("{why}");
    }
}

fn run(program: &Program, world: &mut HostWorld) -> Answer {
    program.run(world).map_err(|m: Mismatch| format!("{} {}", m.call, m.difference))
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
