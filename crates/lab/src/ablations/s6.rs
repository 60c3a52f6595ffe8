//! S6: what executing a program costs, without what the scheduler adds.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

use super::{Budget, Outcome, Row, Workload, side};
use rcuwalk_measure::Error;
use rcuwalk_measure::engines::Value;
use rcuwalk_measure::hostcalls::countdown;
use rcuwalk_measure::scratch::Chain;

/// The row.
pub(super) const ROW: Row = Row {
    id: "S6",
    title: "execve timed, not the scheduler",
    published: "from a clock read before fork to one read in the child, the scheduler is timed; a program that executes \
                itself again and again times execve, and fork to wait the whole (linux-fsdevel, \"open binary before \
                doing anything else in do_execveat_common\")",
    run,
};

/// Executions in one call.
const TIMES: u32 = 32;

fn run(budget: &Budget<'_>) -> Result<Outcome, Error> {
    let chain = Chain::new()?;
    let program = chain.path().join("countdown");
    if let Err(why) = countdown::install(&program)? {
        return Ok(Outcome { points: Vec::new(), note: why });
    }
    let path = CString::new(program.as_os_str().as_bytes()).unwrap_or_default();
    let argument = |n| CString::new(countdown::argument(n)).unwrap_or_default();
    let (none, many) = (argument(0), argument(TIMES - 1));
    let ended_well =
        |argument: &CString| rcuwalk_measure::sys::fork_exec_wait(&[&path], argument) == Ok(Some(0));
    let before = side("a process for each", |_| {
        Value::from(TIMES) * Value::from((0..TIMES).all(|_| ended_well(&none)))
    });
    let after = side("one for all", |_| Value::from(TIMES) * Value::from(ended_well(&many)));
    let workload = Workload::new("execve on this kernel", vec![path.clone()]).per(TIMES).claims(1.5);
    let points = budget.compare(workload, &[&before], &after)?;
    let note = format!(
        "The running kernel alone; both sides make {TIMES} executions. Before, each has a process made for it, which is \
         waited for: fork, exit and two switches of the processor are timed with it. After, one process makes all, and \
         the argument counts them down. `bench --host` has more of both."
    );
    Ok(Outcome { points, note })
}
