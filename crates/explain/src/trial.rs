//! One question: the engine makes the call, and the answer is put together.

use rcuwalk::cred::Cred;
use rcuwalk::errno::Errno;
use rcuwalk::trace::Event;
use rcuwalk::uapi::{O_APPEND, O_CREAT, O_WRONLY, S_IFREG, S_ISGID, S_ISUID, S_IXGRP};

use crate::beside::{passed, refusal};
use crate::call::{Call, Outcome, What, trimmed};
use crate::error::Error;
use crate::fix::fixes;
use crate::identity::{Names, Subject, cap_name};
use crate::judge::{Reader, Reason, SWAP, label, tell};
use crate::load::{self, Loading};
use crate::probe::{Place, Probe};
use crate::report::{Answer, Deciding, Id, Report, SCHEMA, Text, Verdict, Verify, Who};
use crate::scene::{NodeIx, Scene, Swap, View, World};
use crate::unseen::{Doubt, Seen, doubts};
use crate::verify::verify;

/// What to find out besides the answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Look for changes that would allow what is denied.
    pub fixes: bool,
    /// Ask the host itself.
    pub verify: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { fixes: true, verify: false }
    }
}

/// Explains paths of the host, as one process sees it.
#[derive(Debug)]
pub struct Explainer {
    place: Place,
}

/// What the engine answered, and all that it told.
pub(crate) struct Trial {
    pub(crate) result: Result<Outcome, Errno>,
    pub(crate) events: Vec<Event>,
}

impl Explainer {
    /// The host as process `pid` sees it: its root, current directory and mounts; `None` is this process.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] if there is no such process, or it may not be looked at.
    pub fn new(pid: Option<i32>) -> Result<Explainer, Error> {
        Ok(Explainer { place: Place::of(pid)? })
    }

    /// Answers everything that is asked about a path. A relative one starts at the current directory.
    ///
    /// # Errors
    ///
    /// [`Error`]: the root may not be looked at; a credential that no process can have; a relative path where the
    /// current directory is not below the root.
    pub fn explain(
        &self,
        who: &Subject,
        path: &[u8],
        asked: &[What],
        options: Options,
    ) -> Result<Report, Error> {
        let executes = asked.iter().any(|what| matches!(what, What::Exec | What::Call(Call::Exec(_))));
        let mut probe = Probe::new(&self.place, executes)?;
        let cred = who.cred()?;
        let mut names = Names::default();
        let answers = asked
            .iter()
            .map(|what| {
                let call = look(&mut probe, what, path)?;
                let interpreters = &look_for_interpreters(&mut probe, &call)?;
                let loading = match what {
                    What::Exec => look_for_libraries(&mut probe, who, &cred, &call, &mut names)?,
                    _ => Loading::default(),
                };
                let (place, scene, cred, call) = (&self.place, &probe.scene, &cred, &call);
                let question = Question { place, scene, who, cred, what, call, interpreters, loading };
                answer(question, &mut names, options)
            })
            .collect::<Result<Vec<Answer>, Error>>()?;
        Ok(Report {
            schema: SCHEMA,
            path: Text(path.to_vec()),
            identity: describe(who, &cred, &mut names),
            answers,
        })
    }
}

/// Looks at everything the question needs, and turns it into a call.
fn look(probe: &mut Probe<'_>, what: &What, path: &[u8]) -> Result<Call, Error> {
    let first = what.call(path, None);
    if !probe.has_cwd() && first.paths().iter().any(|path| path.first() != Some(&b'/')) {
        return Err(Error::Usage(
            "a relative path, and no current directory below the root; give a path from /".to_owned(),
        ));
    }
    probe.discover(|task| first.visit(task))?;
    let kind = if what.follows() { probe.target_kind(path) } else { probe.kind(trimmed(path)) };
    let call = what.call(path, kind);
    probe.look_beside(&call);
    match &call {
        Call::Rmdir(path) => probe.look_into(trimmed(path)),
        Call::Rename(_, new, _) => probe.look_into(trimmed(new)),
        _ => {}
    }
    Ok(call)
}

/// Where an interpreter is looked for that is not where a program says.
const SEARCHED: [&[u8]; 4] = [b"/usr/local/bin/", b"/usr/bin/", b"/bin/", b"/usr/sbin/"];

/// Looks elsewhere for interpreters that are missing; gives the paths at which they are.
fn look_for_interpreters(probe: &mut Probe<'_>, call: &Call) -> Result<Vec<Vec<u8>>, Error> {
    let Call::Exec(path) = call else { return Ok(Vec::new()) };
    let missing = probe.missed(|task| drop(task.execve(path, &[path.as_slice()], &[])));
    let mut found = Vec::new();
    for wanted in missing.iter().filter(|wanted| *wanted != path) {
        let base = wanted.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let without_cr = wanted.strip_suffix(b"\r").map(<[u8]>::to_vec);
        let elsewhere = SEARCHED.iter().map(|dir| [dir, base].concat());
        for candidate in without_cr.into_iter().chain(elsewhere) {
            // With all that it needs to run itself.
            probe.discover(|task| drop(task.execve(&candidate, &[candidate.as_slice()], &[])))?;
            if probe.leads_to_file(&candidate) {
                found.push(candidate);
            }
        }
    }
    Ok(found)
}

/// Looks for what a program needs to start, if execve(2) starts it.
fn look_for_libraries(
    probe: &mut Probe<'_>,
    who: &Subject,
    cred: &Cred,
    call: &Call,
    names: &mut Names,
) -> Result<Loading, Error> {
    let trial = try_call(&probe.scene, cred, who, call)?;
    let Some(exec) = trial.result.ok().and_then(|outcome| outcome.exec) else {
        return Ok(Loading::default());
    };
    let mut reader = Reader::new(&probe.scene, cred, names, true);
    reader.read(trial.events);
    let walks = reader.walks.iter().map(|walk| Some((walk.path.clone(), walk.places.last()?.node?)));
    let walked: Option<Vec<_>> = walks.collect();
    walked.map_or_else(|| Ok(Loading::default()), |walked| load::look(probe, who, &exec, &walked, names))
}

/// What a new program can do that who starts it cannot, and the other way round.
fn privileges(who: &Subject, old: &Cred, new: &Cred, names: &mut Names) -> Vec<String> {
    let mut notes = Vec::new();
    if new.euid() != old.euid() {
        notes.push(format!("it runs as user {}", label(new.euid(), names.user(new.euid()))));
    }
    if new.egid() != old.egid() {
        notes.push(format!("it runs as group {}", label(new.egid(), names.group(new.egid()))));
    }
    let gained: Vec<String> = (0..64)
        .filter(|&cap| new.effective().contains(cap) && !old.effective().contains(cap))
        .map(cap_name)
        .collect();
    match gained.len() {
        0 => {}
        1..=4 => notes.push(format!("it gains {}", gained.join(", "))),
        more => notes.push(format!("it gains {more} capabilities")),
    }
    if who.no_new_privs {
        notes.push("no_new_privs is set: set-id bits and file capabilities have no effect".to_owned());
    }
    notes
}

/// Why the set-id bits and capabilities of a program are worth nothing, if it has any and its mount says so.
fn without_set_id(scene: &Scene, node: NodeIx) -> Option<String> {
    let node = scene.nodes.get(node)?;
    let (object, mount) = (&node.object, &scene.mounts[node.mount]);
    let set_id = object.mode & S_ISUID != 0 || object.mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP;
    let counts = object.kind() == S_IFREG && (set_id || object.caps.is_some());
    (counts && mount.options.nosuid).then(|| {
        let point = String::from_utf8_lossy(&mount.point);
        format!("the mount at {point} is nosuid: set-id bits and file capabilities have no effect")
    })
}

/// Lets the engine make the call.
pub(crate) fn try_call(scene: &Scene, cred: &Cred, who: &Subject, call: &Call) -> Result<Trial, Error> {
    let world = World::new(scene, View::Real).map_err(|e| Error::Engine("what was found", e))?;
    let mut task = world.task(scene).map_err(|e| Error::Engine("the current directory", e))?;
    task.umask(who.umask);
    task.set_cred(cred.clone());
    if who.no_new_privs {
        task.set_no_new_privs();
    }
    let (result, events) = world.vfs.record(|| call.run(&mut task));
    Ok(Trial { result, events })
}

/// One question about one path, and the caller.
pub(crate) struct Question<'a> {
    pub(crate) place: &'a Place,
    pub(crate) scene: &'a Scene,
    pub(crate) who: &'a Subject,
    pub(crate) cred: &'a Cred,
    pub(crate) what: &'a What,
    pub(crate) call: &'a Call,
    /// Where programs of the names of missing interpreters are.
    pub(crate) interpreters: &'a [Vec<u8>],
    /// What a program needs to start.
    pub(crate) loading: Loading,
}

fn answer(question: Question<'_>, names: &mut Names, options: Options) -> Result<Answer, Error> {
    let Question { place, scene, who, cred, what, call, interpreters, ref loading } = question;
    let trial = try_call(scene, cred, who, call)?;
    let mut reader = Reader::new(scene, cred, names, matches!(call, Call::Exec(_)));
    reader.read(trial.events);
    let (mut verdict, failure) = judge(scene, &reader, &trial.result, who, call);
    let nodes: Vec<NodeIx> = reader.nodes().collect();
    let swap = reader
        .target()
        .filter(|&node| scene.nodes.get(node).is_some_and(|node| node.object.swap == Swap::Yes));
    let mut walks = reader.finish();
    let meets_landlock = call.meets_landlock() || *what == What::Write;
    let seen = Seen { meets_landlock, foreign: place.foreign };
    let mut doubts = doubts(scene, &nodes, who, call, seen);
    doubts.extend(loading.doubts(scene, who, seen));
    let mut verify =
        if options.verify { Some(verify(place, scene, who, cred, call, &doubts)?) } else { None };
    if let Some(verify) = &mut verify {
        loading.verify(verify, place, scene, who, cred, &doubts)?;
    }
    let mut failure = failure.map(|(reason, errno)| (tell(scene, cred, names, &reason, errno), errno));
    // What execve(2) starts, and then lacks something.
    let lacks = loading.needed.iter().find(|needed| needed.verdict != Verdict::Allowed);
    let lacks = lacks.filter(|_| verdict == Verdict::Allowed);
    if let Some(needed) = lacks {
        (verdict, failure) = (needed.verdict, needed.failure.clone());
    }
    // It is opened for writing, and then nothing can be written.
    if let Some(node) = swap.filter(|_| verdict == Verdict::Allowed && *what == What::Write) {
        let deciding = Deciding { rule: "swap", path: Text(scene.path(node)), text: SWAP.to_owned() };
        (verdict, failure) = (Verdict::Denied, Some((deciding, Errno::ETXTBSY)));
    }
    if let Some(unknown) = unknown(verdict, &doubts, verify.as_ref()) {
        verdict = Verdict::Unknown;
        failure = Some((Deciding { path: Text(call.path().to_vec()), ..unknown }, Errno::EAGAIN));
    }
    let fixes = match lacks {
        _ if !options.fixes || verdict != Verdict::Denied => Vec::new(),
        None => fixes(scene, who, names, call, interpreters)?,
        Some(_) => loading.fixes(scene, who, names)?,
    };
    let mut notes = other_ways(&question, names, verdict)?;
    if let Some(new) = trial.result.ok().and_then(|outcome| outcome.exec) {
        notes.extend(privileges(who, cred, &new.cred, names));
        notes.extend(nodes.iter().find_map(|&node| without_set_id(scene, node)));
    }
    notes.extend(loading.notes.iter().cloned());
    if let Some(pid) = who.pid.filter(|_| place.foreign) {
        notes.push(format!(
            "paths are as the process sees them: `nsenter -t {pid} -m -r -w COMMAND` sees them, too"
        ));
    }
    let errno = failure.as_ref().map(|(_, errno)| errno.name()).filter(|_| verdict == Verdict::Denied);
    let loads = question.loading.report(&mut walks);
    Ok(Answer {
        what: what.word(),
        call: call.to_string(),
        verdict,
        errno,
        deciding: failure.map(|(deciding, _)| deciding),
        walks,
        loads,
        notes,
        fixes,
        unseen: doubts.into_iter().map(|doubt| doubt.text).collect(),
        verify,
    })
}

/// Where a file is written in another way than plain open(2) with another outcome: a shell's `>` creates, its `>>` appends.
fn other_ways(question: &Question<'_>, names: &mut Names, verdict: Verdict) -> Result<Vec<String>, Error> {
    let Question { scene, who, cred, what, call, .. } = *question;
    let Call::Open(path, O_WRONLY, _) = call else { return Ok(Vec::new()) };
    if *what != What::Write {
        return Ok(Vec::new());
    }
    let mut notes = Vec::new();
    for (flag, word, shell) in [(O_CREAT, "O_CREAT", ">"), (O_APPEND, "O_APPEND", ">>")] {
        let call = Call::Open(path.clone(), O_WRONLY | flag, 0o666);
        let trial = try_call(scene, cred, who, &call)?;
        let mut reader = Reader::new(scene, cred, names, false);
        reader.read(trial.events);
        match judge(scene, &reader, &trial.result, who, &call) {
            (Verdict::Denied, Some((reason, errno))) if verdict != Verdict::Denied => {
                let text = tell(scene, cred, reader.names(), &reason, errno).text;
                notes.push(format!(
                    "with {word}, as a shell's {shell} does, it is denied, {}: {text}",
                    errno.name()
                ));
            }
            (Verdict::Allowed, _) if verdict == Verdict::Denied && flag == O_APPEND => {
                notes.push(format!("with {word}, as a shell's {shell} does, it is allowed"));
            }
            _ => {}
        }
    }
    Ok(notes)
}

/// What makes the verdict unknown, if anything does: the machine itself answers otherwise, or a layer that was not seen may.
fn unknown(verdict: Verdict, doubts: &[Doubt], verify: Option<&Verify>) -> Option<Deciding> {
    let deciding = |rule, text: &str| Deciding { rule, path: Text::default(), text: text.to_owned() };
    let outcome = verify.map(|verify| verify.outcome);
    if let Some(verify) = verify.filter(|verify| verify.outcome == "disagrees") {
        let text = verify.text.as_deref().unwrap_or_default();
        return Some(deciding("disagrees", &format!("the machine answers otherwise; {text}")));
    }
    let open = |doubt: &&Doubt| doubt.hangs(verdict) && !(doubt.settled && outcome == Some("agrees"));
    doubts.iter().find(open).map(|doubt| deciding("unseen", &doubt.text))
}

/// The verdict, and what decided unless it is yes.
pub(crate) fn judge(
    scene: &Scene,
    reader: &Reader<'_>,
    result: &Result<Outcome, Errno>,
    who: &Subject,
    call: &Call,
) -> (Verdict, Option<(Reason, Errno)>) {
    // Whether something is mounted is asked before its file system is.
    if let Some(reason) = reader.shut_out().filter(|_| !matches!(result, Err(Errno::EBUSY))) {
        return (Verdict::Denied, Some((reason, Errno::EACCES)));
    }
    let target = reader.target();
    let kind = target.and_then(|node| scene.nodes.get(node)).map(|node| node.object.kind());
    // That a file is not the directory which rmdir(2) removes is asked after that.
    let is_swap =
        target.and_then(|node| scene.nodes.get(node)).is_some_and(|node| node.object.swap == Swap::Yes);
    let early = is_swap && matches!((call, result), (Call::Rmdir(_), Err(Errno::ENOTDIR)));
    let errno = match *result {
        Err(errno) if !early && !passed(call, errno, kind) => errno,
        _ => {
            if let Some(reason) = reader.blind.clone() {
                return (Verdict::Unknown, Some((Reason { rule: "unseen", ..reason }, Errno::ENOENT)));
            }
            let refused = |node| {
                let (rule, errno) = refusal(scene, node, who, call)?;
                Some((reader.refused_at(node, rule), errno))
            };
            return match reader.nodes().find_map(refused) {
                Some(refused) => (Verdict::Denied, Some(refused)),
                None => (Verdict::Allowed, None),
            };
        }
    };
    let reason = reader.reason(call, errno);
    match reason.rule {
        "fuse-owner" => (Verdict::Denied, Some((reason, Errno::EACCES))),
        "unseen" => (Verdict::Unknown, Some((reason, errno))),
        _ => (Verdict::Denied, Some((reason, errno))),
    }
}

fn describe(who: &Subject, cred: &Cred, names: &mut Names) -> Who {
    let group = |names: &mut Names, id| Id { id, name: names.group(id) };
    Who {
        label: who.label.clone(),
        user: Id { id: cred.fsuid(), name: names.user(cred.fsuid()) },
        group: group(names, cred.fsgid()),
        groups: cred.groups().iter().map(|&gid| group(names, gid)).collect(),
        capabilities: (0..64).filter(|&cap| cred.effective().contains(cap)).map(cap_name).collect(),
        no_new_privs: who.no_new_privs,
        pid: who.pid,
        user_namespace: who.user_ns.is_some(),
        lsm_label: who.label_lsm.clone(),
    }
}
