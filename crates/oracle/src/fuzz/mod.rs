//! The differential fuzzer: random worlds and calls, on the host kernel and on the engine, answer by answer.
//!
//! A [`Program`] is a tree, a few identities and a sequence of calls, all chosen in advance from a seed. Both systems run
//! it; every answer is compared, and now and then the whole tree (names, types, modes, owners, links, sizes, contents,
//! attributes, which times have moved). A difference is shrunk to the few calls it needs and printed as a row that
//! expects what the kernel answered.

mod compare;
mod generate;
mod host;
mod program;
mod shrink;
mod snapshot;

pub use compare::FileSystem;
pub use generate::Generator;
pub use program::{Difference, Program, Trace};
pub use snapshot::{Snapshot, State};

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rcuwalk::WalkMode;

use crate::backend::World;
use crate::door;
use crate::engine::Engine;
use crate::host::Place;
use crate::outcome::Outcome;
use crate::run::Mismatch;
use crate::sys::{SingleThreaded, cpu_time};

/// What to fuzz, and how much.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many calls to compare.
    pub operations: u64,
    /// Stop after this time, even if fewer calls were compared.
    pub patience: Option<Duration>,
    /// Seed of the first program; program `n` has its own, derived from it.
    pub seed: u64,
    /// How many differences to shrink and print before stopping.
    pub stop_after: usize,
    /// Known differences: parts of their descriptions.
    pub known: Vec<String>,
    /// Where the host's worlds are: on tmpfs or ext4.
    pub place: Place,
}

/// What happens while the fuzzer runs.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A difference was found and shrunk: the row that shows it.
    Row(&'a str),
    /// So it stands; every few seconds.
    Progress(&'a Summary),
}

/// What the fuzzer has done.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Programs run.
    pub programs: u64,
    /// Calls compared.
    pub operations: u64,
    /// Snapshots of the whole tree compared.
    pub snapshots: u64,
    /// How the calls ended on the host: by name of the call and of the answer ("ok" or an errno). It shows what the
    /// programs reach.
    pub answers: BTreeMap<(&'static str, String), u64>,
    /// Differences found, each shrunk, as rows.
    pub rows: Vec<String>,
    /// Time spent.
    pub elapsed: Duration,
    /// Time spent by all processes, the host's side included, on processors. Known at the end.
    pub cpu: Duration,
}

impl Summary {
    fn count(&mut self, program: &Program, host: &Trace) {
        self.programs += 1;
        self.operations += program.steps.len() as u64;
        self.snapshots += host.snapshots.len() as u64;
        for ((_, op), outcome) in program.steps.iter().zip(&host.outcomes) {
            let answer = match outcome {
                Outcome::Error(errno) => crate::errno::name(*errno),
                _ => "ok".to_owned(),
            };
            *self.answers.entry((op.name(), answer)).or_default() += 1;
        }
    }

    /// How many calls succeeded on the host.
    pub fn succeeded(&self) -> u64 {
        self.answers.iter().filter(|((_, answer), _)| answer == "ok").map(|(_, n)| n).sum()
    }
}

/// The seed of program `n`.
pub fn seed_of(seed: u64, n: u64) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(n)
}

/// Time between two [`Event::Progress`].
const PROGRESS: Duration = Duration::from_secs(5);

/// Runs programs until enough calls were compared or enough differences found.
///
/// # Errors
///
/// If the host or the engine cannot run programs at all.
pub fn run(
    settings: &Settings,
    single: &SingleThreaded,
    report: &mut dyn FnMut(Event<'_>),
) -> Result<Summary, String> {
    let cpu = cpu_time();
    let mut duel = Duel::new(single, settings)?;
    let start = Instant::now();
    let mut told = start;
    let mut summary = Summary::default();
    // While the host runs one program, the next one is made.
    let mut next = duel.make(settings.seed, 0)?;
    while summary.operations < settings.operations && summary.rows.len() < settings.stop_after {
        summary.elapsed = start.elapsed();
        if settings.patience.is_some_and(|patience| summary.elapsed >= patience) {
            break;
        }
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            report(Event::Progress(&summary));
        }
        let round = next;
        duel.host.send(&round.program)?;
        next = duel.make(settings.seed, summary.programs + 1)?;
        let host = duel.host.receive()?;
        let difference = duel.judge(&round, &host)?;
        summary.count(&round.program, &host);
        if difference.is_some() {
            let row = duel.shrink(round)?;
            report(Event::Row(&row));
            summary.rows.push(row);
        }
    }
    summary.elapsed = start.elapsed();
    duel.host.end()?;
    summary.cpu = cpu_time().saturating_sub(cpu);
    Ok(summary)
}

/// A program and what its guide made of it.
struct Round {
    seed: u64,
    pair: Pair,
    program: Program,
    guide: Trace,
}

/// Two engines that run a program: the first guides its making.
type Pair = [usize; 2];

/// Where calls enter an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// The methods of a task.
    Methods,
    /// The raw door: the same registers and memory as the kernel's.
    RawDoor,
}

/// The ways to walk, with the names of the engines that go them.
const ENGINES: [(WalkMode, Entry, &str); 5] = [
    (WalkMode::Rcu, Entry::Methods, "engine-rcu"),
    (WalkMode::RefOnly, Entry::Methods, "engine-ref"),
    (WalkMode::Direct, Entry::Methods, "engine"),
    (WalkMode::RefOnly, Entry::RawDoor, "syscall-ref"),
    (WalkMode::Direct, Entry::RawDoor, "syscall"),
];

/// Programs take turns with the ways to walk. Those of the raw door may pass any pointer and size.
const PAIRS: [Pair; 4] = [[2, 1], [0, 2], [4, 3], [2, 0]];

/// The host and the engines, which run the same programs.
struct Duel {
    host: host::Executor,
    engines: [Engine; ENGINES.len()],
    known: Vec<String>,
    file_system: FileSystem,
}

impl Duel {
    fn new(single: &SingleThreaded, settings: &Settings) -> Result<Duel, String> {
        let protected = host::protected_settings()?;
        Ok(Duel {
            file_system: FileSystem::of(&settings.place)?,
            host: host::Executor::start(single, &settings.place)?,
            engines: ENGINES.map(|(mode, ..)| Engine::for_fuzzing(mode, protected)),
            known: settings.known.clone(),
        })
    }

    /// Makes the program `n` of a seed.
    fn make(&self, seed: u64, n: u64) -> Result<Round, String> {
        let seed = seed_of(seed, n);
        let mut pair = PAIRS[(n % PAIRS.len() as u64) as usize];
        let mut raw = ENGINES[pair[0]].1 == Entry::RawDoor;
        // What a transfer that faults leaves behind is tmpfs's own.
        if raw && self.file_system == FileSystem::Ext4 {
            (pair, raw) = (PAIRS[0], false);
        }
        let mut world = self.fresh_world(pair[0])?;
        let (program, guide) = Generator::new(seed, self.file_system, raw)
            .program(&mut *world, self.host.full_caps())
            .map_err(|m| format!("seed {seed:#x}: {} {}", m.call, m.difference))?;
        Ok(Round { seed, pair, program, guide })
    }

    /// Compares what the engines and the host made of a program.
    fn judge(&self, round: &Round, host: &Trace) -> Result<Option<Difference>, String> {
        let judge = |engine: usize, trace: &Trace| {
            compare::Judge {
                program: &round.program,
                system: ENGINES[engine].2,
                known: &self.known,
                file_system: self.file_system,
            }
            .first_difference(host, trace)
        };
        if let Some(difference) = judge(round.pair[0], &round.guide) {
            return Ok(Some(difference));
        }
        let other = self.run_on(round.pair[1], &round.program)?;
        Ok(judge(round.pair[1], &other))
    }

    fn fresh_world(&self, engine: usize) -> Result<Box<dyn World>, String> {
        Ok(match ENGINES[engine].1 {
            Entry::Methods => {
                Box::new(self.engines[engine].fresh_world().map_err(|errno| errno.to_string())?)
            }
            Entry::RawDoor => Box::new(door::fresh_world(&self.engines[engine])?),
        })
    }

    fn run_on(&self, engine: usize, program: &Program) -> Result<Trace, String> {
        let mut world = self.fresh_world(engine)?;
        program
            .run(&mut *world)
            .map_err(|m: Mismatch| format!("the engine cannot make the world: {} {}", m.call, m.difference))
    }

    /// Runs `program` everywhere; the first difference, and what the host answered.
    fn fight(&mut self, program: &Program, pair: Pair) -> Result<(Option<Difference>, Trace), String> {
        let program = program.with_capabilities(self.host.full_caps());
        self.host.send(&program)?;
        let guide = self.run_on(pair[0], &program)?;
        let host = self.host.receive()?;
        let round = Round { seed: 0, pair, program, guide };
        Ok((self.judge(&round, &host)?, host))
    }

    /// The row of the smallest program that shows the difference.
    fn shrink(&mut self, round: Round) -> Result<String, String> {
        let Round { seed, pair, program, .. } = round;
        let gone = format!("# seed {seed:#x}: a difference that did not show again\n");
        let Some(first) = self.fight(&program, pair)?.0 else { return Ok(gone) };
        let call = call_of(&program, &first);
        let small = shrink::shrink(program, &mut |candidate| {
            let difference = self.fight(candidate, pair)?.0;
            // What is smaller may show what the generator takes care not to ask for.
            Ok(difference.filter(|difference| call_of(candidate, difference) == call))
        })?;
        let (difference, trace) = self.fight(&small, pair)?;
        let row = difference.map(|difference| small.row(&trace, &difference, seed, self.host.full_caps()));
        Ok(format!("# at first: {}\n{}", first.what.replace('\n', " "), row.unwrap_or(gone)))
    }
}

/// The name of the call whose answer differs; none for a snapshot.
fn call_of(program: &Program, difference: &Difference) -> Option<&'static str> {
    let (_, op) = program.steps.get(difference.steps.checked_sub(1)?)?;
    difference.path.is_none().then(|| op.name())
}
