//! Asking the host itself.

use std::ffi::CString;
use std::fs::File;

use rcuwalk::cred::{CapSet, Cred};
use rcuwalk::errno::Errno;
use rcuwalk::uapi::*;

use crate::call::{Call, Twin, trimmed};
use crate::error::Error;
use crate::identity::{Names, Subject};
use crate::judge::Reader;
use crate::probe::Place;
use crate::report::{Verdict, Verified, Verify};
use crate::scene::{Scene, View, World};
use crate::sys::{self, Arg, Ids, Plan, RawCall, nr};
use crate::trial::{Trial, judge, try_call};
use crate::unseen::Doubt;

/// Makes the call on the host as the identity, or calls that ask the same and change nothing, and compares.
pub(crate) fn verify(
    place: &Place,
    scene: &Scene,
    who: &Subject,
    cred: &Cred,
    call: &Call,
    suspects: &[Doubt],
) -> Result<Verify, Error> {
    let impossible = |text: String| Verify { outcome: "impossible", calls: Vec::new(), text: Some(text) };
    let open = World::new(scene, View::Open).map_err(|e| Error::Engine("what was found", e))?;
    let exists = |path: &[u8]| exists(scene, &open, path);
    let twins = if disturbs(scene, &open, call) {
        let access = Call::Access(call.path().to_vec(), call.wants() as i32, AT_EACCESS);
        Some(vec![Twin { call: access, without_mknod: false }])
    } else {
        call.twins(&exists)
    };
    let Some(twins) = twins else {
        return Ok(impossible(
            "this call would change something, and none that changes nothing asks the same".into(),
        ));
    };
    let mut raw = Vec::new();
    for twin in &twins {
        match lower(twin) {
            Some(call) => raw.push(call),
            None => return Ok(impossible("a path has a NUL in it, which no system call can name".into())),
        }
    }
    let plan = match plan(place, who) {
        Ok(plan) => plan,
        Err(why) => return Ok(impossible(why)),
    };
    let answers = match sys::perform(&plan, &mut raw) {
        Ok(answers) => answers,
        Err(why) => return Ok(impossible(why)),
    };
    let mut calls = Vec::new();
    let mut doubt = None;
    for (twin, answer) in twins.iter().zip(answers) {
        let expected = expected(scene, who, cred, twin)?;
        let got = answer.map_err(|number| Errno::from_raw(number).unwrap_or(Errno::EIO));
        if expected != got {
            doubt = doubt.or_else(|| Some(likely(expected, got, suspects)));
        }
        let word = |answer: Result<(), Errno>| {
            answer.map_or_else(|errno| errno.name().to_owned(), |()| "ok".to_owned())
        };
        calls.push(Verified { call: twin.call.to_string(), expected: word(expected), got: word(got) });
    }
    let indirect = twins.iter().any(|twin| twin.call != *call);
    let outcome = match (&doubt, indirect) {
        (Some(_), _) => "disagrees",
        (None, true) => "stand-in",
        (None, false) => "agrees",
    };
    // The twins ask permissions; whether there is room, and whether something is in use, only the call itself would tell.
    let text = doubt.or_else(|| {
        indirect.then(|| {
            format!(
                "in place of {call}: the same permissions are asked, nothing is changed, and EBUSY, EXDEV, ENOSPC, EDQUOT or \
                 EOVERFLOW are not met"
            )
        })
    });
    Ok(Verify { outcome, calls, text })
}

/// What the engine says to a twin.
fn expected(scene: &Scene, who: &Subject, cred: &Cred, twin: &Twin) -> Result<Result<(), Errno>, Error> {
    let without;
    let cred = if twin.without_mknod {
        let effective = cred.effective() - CapSet::of(&[CAP_MKNOD]);
        without =
            cred.to_builder().effective(effective).build().map_err(|e| Error::Engine("a credential", e))?;
        &without
    } else {
        cred
    };
    let Trial { result, events } = try_call(scene, cred, who, &twin.call)?;
    let mut names = Names::default();
    let mut reader = Reader::new(scene, cred, &mut names, matches!(twin.call, Call::Exec(_)));
    reader.read(events);
    Ok(match judge(scene, &reader, &result, who, &twin.call) {
        // Some rules the engine does not know.
        (Verdict::Denied, Some((_, errno))) => Err(errno),
        _ => result.map(drop),
    })
}

/// Whether a path is there, its last link not followed, and a directory; as far as the scene knows.
fn exists(scene: &Scene, open: &World, path: &[u8]) -> Option<bool> {
    open.task(scene).ok()?.lstat(trimmed(path)).ok().map(|stat| stat.mode & S_IFMT == S_IFDIR)
}

/// Whether opening alone can have effects: of a device, or a fifo.
fn disturbs(scene: &Scene, open: &World, call: &Call) -> bool {
    let (Call::Open(..) | Call::Open2(..)) = call else { return false };
    let kind = open.task(scene).and_then(|task| task.stat(call.path())).map(|stat| stat.mode & S_IFMT);
    call.opens() && matches!(kind, Ok(S_IFCHR | S_IFBLK | S_IFIFO))
}

/// How the child becomes the identity.
fn plan(place: &Place, who: &Subject) -> Result<Plan, String> {
    let me = Subject::caller().map_err(|e| e.to_string())?;
    let same = (me.uids, me.gids, &me.groups, me.caps) == (who.uids, who.gids, &who.groups, who.caps);
    if !same && me.uids[1] != 0 {
        return Err("only root can ask as another user".to_owned());
    }
    let ids = (!same || who.user_ns.is_some()).then(|| Ids {
        uids: who.uids,
        gids: who.gids,
        groups: who.groups.clone(),
        caps: who.caps.map(|set| set.0),
        securebits: who.securebits,
    });
    let mut plan = Plan {
        mnt_ns: None,
        user_ns: None,
        root: None,
        cwd: None,
        ids,
        no_new_privs: who.no_new_privs,
        umask: who.umask,
    };
    if let Some(pid) = who.pid {
        let open = |name: &str| {
            let path = format!("/proc/{pid}/ns/{name}");
            File::open(&path).map(Into::into).map_err(|e| format!("{path}: {e}"))
        };
        let copy = |fd: &std::os::fd::OwnedFd| fd.try_clone().map_err(|e| format!("a descriptor: {e}"));
        plan.mnt_ns = Some(open("mnt")?);
        plan.user_ns = who.user_ns.as_ref().map(|_| open("user")).transpose()?;
        plan.root = Some(copy(&place.root)?);
        plan.cwd = Some(copy(&place.cwd)?);
    }
    Ok(plan)
}

/// The call as the kernel takes it.
fn lower(twin: &Twin) -> Option<RawCall> {
    let text = |path: &[u8]| CString::new(path).ok().map(Arg::Text);
    let number = |number: i32| Arg::Number(i64::from(number));
    let cwd = || number(AT_FDCWD);
    let (nr, args) = match &twin.call {
        Call::Access(path, mode, flags) => {
            (nr::FACCESSAT2, vec![cwd(), text(path)?, number(*mode), number(*flags)])
        }
        Call::Stat(path, flags) => {
            let room = Arg::Room(vec![0; sys::STAT_SIZE]);
            (nr::NEWFSTATAT, vec![cwd(), text(path)?, room, number(*flags)])
        }
        Call::Readlink(path) => {
            let room = Arg::Room(vec![0; PATH_MAX]);
            (nr::READLINKAT, vec![cwd(), text(path)?, room, Arg::Number(PATH_MAX as i64)])
        }
        Call::Open(path, flags, mode) => {
            // A file with a lease would have it wait.
            let flags = number(flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
            (nr::OPENAT, vec![cwd(), text(path)?, flags, Arg::Number(i64::from(*mode))])
        }
        Call::Open2(path, flags, mode, resolve) => {
            let how = [*flags, *mode, *resolve].map(u64::to_ne_bytes).concat();
            (nr::OPENAT2, vec![cwd(), text(path)?, Arg::Bytes(how), Arg::Number(24)])
        }
        Call::Mknod(path, mode, dev) => {
            (nr::MKNODAT, vec![cwd(), text(path)?, Arg::Number(i64::from(*mode)), Arg::Number(*dev as i64)])
        }
        Call::Unlink(path) => (nr::UNLINKAT, vec![cwd(), text(path)?, number(0)]),
        Call::Rmdir(path) => (nr::UNLINKAT, vec![cwd(), text(path)?, number(AT_REMOVEDIR)]),
        Call::Setxattr(path, name, flags) => {
            (nr::SETXATTR, vec![text(path)?, text(name)?, text(b"")?, number(0), number(*flags)])
        }
        Call::Chdir(path) => (nr::CHDIR, vec![text(path)?]),
        Call::Exec(path) => {
            let vector = Arg::Vector(CString::new(path.as_slice()).ok()?);
            (nr::EXECVE, vec![text(path)?, vector, Arg::Empty])
        }
        _ => return None,
    };
    let executes = matches!(twin.call, Call::Exec(_));
    Some(RawCall { nr, args, without_mknod: twin.without_mknod, executes })
}

/// Why the host says something else, most likely.
fn likely(expected: Result<(), Errno>, got: Result<(), Errno>, suspects: &[Doubt]) -> String {
    let cause = match (expected, got) {
        (_, Err(Errno::ETXTBSY)) => "the file is being executed, or is open for writing".to_owned(),
        (_, Err(Errno::ENOSYS)) => "this kernel, or a filter, does not have the call".to_owned(),
        _ if !suspects.is_empty() => {
            suspects.iter().map(|doubt| doubt.text.as_str()).collect::<Vec<_>>().join("; ")
        }
        (Ok(()), Err(Errno::EACCES | Errno::EPERM)) => {
            "a security module, a seccomp filter or Landlock refuses, none of which can be seen from here"
                .to_owned()
        }
        _ => "something on the way changed meanwhile, or the file system has rules of its own".to_owned(),
    };
    format!("most likely: {cause}")
}
