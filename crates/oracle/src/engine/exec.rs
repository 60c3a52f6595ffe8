//! execve on the engine: in a child of the task, as on the host.

use rcuwalk::{Exec, Libc, Task};

use super::{answer, bytes};
use crate::args::Vector;
use crate::op::Op;
use crate::outcome::{self, Outcome};

/// The strings of a proper vector; rows with others were declined.
fn strings(vector: &Vector) -> Vec<&[u8]> {
    match vector {
        Vector::Strings(list) => list.iter().map(bytes).collect(),
        Vector::Null | Vector::Bad => Vec::new(),
    }
}

/// Executes something, if the call is one that does.
pub(super) fn perform(task: &Task, op: &Op) -> Option<Outcome> {
    let mut child = task.fork();
    let executed = match op {
        Op::Execve { path, argv, envp } => {
            child.execve(bytes(path), &strings(argv), &strings(envp)).map(Some)
        }
        Op::Execveat { dirfd, path, argv, envp, flags } => {
            child.execveat(dirfd.raw(), bytes(path), &strings(argv), &strings(envp), flags.0 as i32)
        }
        Op::Execvp { file, argv, search, libc } => {
            let libc = if libc.0 == 0 { Libc::Glibc } else { Libc::Musl };
            child.execvpe(libc, search.bytes(), bytes(file), &strings(argv), &[]).map(Some)
        }
        _ => return None,
    };
    Some(answer(executed, |exec| match exec {
        Some(exec) => Outcome::Exec(Box::new(seen(&child, exec))),
        None => Outcome::Done,
    }))
}

/// What the program would see of itself.
pub(crate) fn seen(task: &Task, exec: Exec) -> outcome::Exec {
    let ([uid, euid, suid], [gid, egid, sgid]) = (task.getresuid(), task.getresgid());
    let (ns, caps) = (task.cred().user_ns(), task.capget());
    outcome::Exec {
        argv: exec.argv,
        envp: exec.envp,
        execfn: exec.filename,
        uids: [uid, euid, suid, ns.from_kuid_munged(task.cred().fsuid())],
        gids: [gid, egid, sgid, ns.from_kgid_munged(task.cred().fsgid())],
        caps: [caps.effective.0, caps.permitted.0, caps.inheritable.0],
        secure: exec.secureexec,
    }
}
