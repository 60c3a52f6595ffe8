//! S2: buffers that need not be cleared.

use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};

use rcuwalk::syscall::{SliceMemory, UserMemory, nr};
use rcuwalk::uapi::PATH_MAX;
use rcuwalk::{InitOnAlloc, NameBuffer, Variants, Vfs, WalkMode};
use rcuwalk_sync::slab::POLICY_VARIABLE;

use super::{Budget, Outcome, Row, Workload, side, world};
use rcuwalk_measure::Error;
use rcuwalk_measure::engines::{Contender, Value, error_value};

/// The row.
pub(super) const ROW: Row = Row {
    id: "S2",
    title: "no clearing of path buffers",
    published: "init_on_alloc clears the 4096-byte names_cache object on every path call; a kernel build calls memset \
                36,150,671 times, 14,414,454 times once two hot callers clear a constant size inline (linux-fsdevel, \
                \"avoid duplicating creds in faccessat\", March 2023)",
    run,
};

/// Where the memory of the caller lies, with room for a name first and for an answer behind it.
const NAME: u64 = 0x1000;
const STAT: u64 = NAME + PATH_MAX as u64;
const ROOM: usize = PATH_MAX + 256;

/// The side `name`: stat(2) behind the raw door, of an engine with this way to keep names and this policy of clearing.
fn caller<'a>(
    name: &'static str,
    name_buffer: NameBuffer,
    policy: InitOnAlloc,
    room: &'a mut [u8; ROOM],
) -> Result<impl Contender + 'a, Error> {
    let variants = Variants { name_buffer, ..Variants::default() };
    let vfs = world::tree_of(Vfs::builder().init_on_alloc(policy), WalkMode::Direct, variants)?;
    let caller = Mutex::new((vfs.task(world::user()), SliceMemory::new(NAME, room)));
    Ok(side(name, move |path: &CStr| {
        let mut caller = caller.lock().unwrap_or_else(PoisonError::into_inner);
        let (task, memory) = &mut *caller;
        let mut ino = [0; 8];
        let written = memory.copy_to_user(NAME, path.to_bytes_with_nul());
        let answer = task.syscall(memory, nr::STAT, [NAME, STAT, 0, 0, 0, 0]);
        // The inode number comes second in a `struct stat`.
        let read = memory.copy_from_user(&mut ino, STAT + 8);
        match written.and(read) {
            Ok(()) => Value::from_le_bytes(ino).wrapping_add(answer as u64),
            Err(errno) => error_value(errno.raw()),
        }
    }))
}

fn run(budget: &Budget<'_>) -> Result<Outcome, Error> {
    use NameBuffer::{Embedded, Small, Whole};
    let mut rooms = [[0; ROOM]; 5];
    let [a, b, c, d, e] = &mut rooms;
    let zero_4096 = caller("zero-4096", Whole, InitOnAlloc::Force, a)?;
    let opt_out = caller("opt-out", Whole, InitOnAlloc::On, b)?;
    let zero_192 = caller("zero-192", Small, InitOnAlloc::Force, c)?;
    let forced = caller("embedded, force", Embedded, InitOnAlloc::Force, d)?;
    let embedded = caller("embedded", Embedded, InitOnAlloc::On, e)?;
    // 25 directories of ten bytes and a file: more than is embedded.
    let (short, long) = (vec![world::path(world::FAVOURITE)], vec![world::deep(26)]);
    let mut points = Vec::new();
    let workload = |name, path: &Vec<_>| Workload::new(name, path.clone());
    let name = "stat of 4 components";
    points.extend(budget.compare(workload(name, &short).claims(1.1), &[&zero_4096], &embedded)?);
    points.extend(budget.compare(workload(name, &short), &[&opt_out, &zero_192], &embedded)?);
    let name = "stat of 4 components, opted out";
    points.extend(budget.compare(workload(name, &short).claims(1.0), &[&zero_4096], &opt_out)?);
    let name = "stat of 4 components, force";
    points.extend(budget.compare(workload(name, &short).claims(1.1), &[&zero_4096], &forced)?);
    let name = "stat of a name of 254 bytes";
    points.extend(budget.compare(workload(name, &long).claims(1.0), &[&forced], &embedded)?);
    points.extend(budget.compare(workload(name, &long), &[&zero_4096], &embedded)?);
    let name = "stat of a name of 254 bytes, opted out";
    points.extend(budget.compare(workload(name, &long).claims(1.0), &[&zero_4096], &opt_out)?);
    let note = "The engine's own raw door, told how to keep names and when to clear. After, unless the name says more: the first \
                192 bytes on the stack, cleared by constant-size stores, as the kernel's struct filename has embedded them \
                since 2026, under a policy that heeds opt-outs (on). zero-4096 is what init_on_alloc does; opt-out takes the \
                same buffer from the same cache and leaves it alone; zero-192 takes a cleared buffer of 192 bytes from a cache. \
                A name that is longer goes into the large buffer in every variant, and the opt-out spares it the clearing; \
                coming to that in two copies costs about as much as the clearing does, so that zero-4096, which makes one, is \
                hardly behind there. Of 152,523 paths of one /usr, one is as long.";
    let overruled = std::env::var_os(POLICY_VARIABLE).map_or(String::new(), |words| {
        format!(" {POLICY_VARIABLE}={} overrules what the sides were made with.", words.to_string_lossy())
    });
    Ok(Outcome { points, note: format!("{note}{overruled}") })
}
