//! What a program needs behind execve(2): a script its own text, a program its shared libraries.
//!
//! Each place at which a loader looks is opened by the engine with the credential of the new program, and the search goes on, or
//! ends, as the loader's would. What another loader does than those whose rules are known, and whatever else was not seen, is
//! unknown.

use std::fs::File;
use std::io::Read;

use rcuwalk::cred::Cred;
use rcuwalk::errno::Errno;
use rcuwalk::uapi::{O_RDONLY, S_IFREG};
use rcuwalk::{Exec, Task};

use crate::call::Call;
use crate::elf::{self, Dynamic, Elf};
use crate::error::Error;
use crate::fix::fixes;
use crate::identity::{Names, Subject};
use crate::judge::{Reader, tell};
use crate::ld_so::{Candidate, Family, Object, System, Wanted, dir_of};
use crate::probe::{Place, Probe};
use crate::report::{Deciding, Fix, Load, Text, Verdict, Verify, Walk};
use crate::scene::{NodeIx, Scene, View, World};
use crate::trial::judge;
use crate::unseen::{Doubt, Seen, doubts};

/// Libraries of one program.
const MOST_LIBRARIES: usize = 2048;
/// Places at which they are looked for.
const MOST_TRIES: usize = 1 << 16;
/// The largest loader, and the largest cache, that is read, in bytes.
const MOST_BYTES: u64 = 16 << 20;

/// Programs that read the script they are named in.
const READERS: [&str; 15] = [
    "sh", "dash", "bash", "ash", "ksh", "mksh", "zsh", "python", "perl", "ruby", "node", "nodejs", "php",
    "lua", "tclsh",
];

/// A file that the program needs.
#[derive(Debug)]
pub(crate) struct Needed {
    pub(crate) role: &'static str,
    pub(crate) name: Vec<u8>,
    /// Where it is, or is refused.
    pub(crate) path: Option<Vec<u8>>,
    /// What needs it.
    pub(crate) by: Vec<u8>,
    pub(crate) verdict: Verdict,
    /// What decides, unless it is allowed.
    pub(crate) failure: Option<(Deciding, Errno)>,
    pub(crate) walk: Way,
    /// The call by which it is judged.
    pub(crate) call: Option<Call>,
}

impl Needed {
    /// It is there, and nothing was walked to; the caller says what differs.
    fn new(role: &'static str, name: &[u8], by: &[u8], path: Option<Vec<u8>>) -> Needed {
        let (verdict, failure, walk, call) = (Verdict::Allowed, None, Way::Nowhere, None);
        Needed { role, name: name.to_vec(), path, by: by.to_vec(), verdict, failure, walk, call }
    }

    /// A library that is in none of the directories that were searched.
    fn missing(name: &[u8], by: &[u8], searched: &[String]) -> Needed {
        let (needs, places) = (String::from_utf8_lossy(by), searched.join(", "));
        let text = format!("the library that {needs} needs is not in {places}");
        let deciding = Deciding { rule: "missing-library", path: Text(name.to_vec()), text };
        let failure = Some((deciding, Errno::ENOENT));
        Needed { verdict: Verdict::Denied, failure, ..Needed::new("library", name, by, None) }
    }

    /// A capability that the new program may have could let it pass.
    fn may_be_overridden(&mut self) {
        if let Some((deciding, _)) =
            self.failure.as_mut().filter(|(deciding, _)| deciding.rule == "permission")
        {
            deciding.rule = "unseen";
            deciding.text += "; whether the program keeps the capabilities that would override it (ambient ones) is not known";
            self.verdict = Verdict::Unknown;
        }
    }
}

/// The walk to what is needed.
#[derive(Debug)]
pub(crate) enum Way {
    /// That of execve(2) of this number.
    OfExec(usize),
    Own(Walk),
    Nowhere,
}

/// What a program needs, and how that was found.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    pub(crate) needed: Vec<Needed>,
    /// The nodes that the walks came to.
    pub(crate) nodes: Vec<NodeIx>,
    pub(crate) notes: Vec<String>,
    /// The new program has the ids and capabilities of what executes it.
    as_asker: bool,
}

/// What came of a candidate.
enum Attempt {
    /// It is loaded.
    Loads(NodeIx, Dynamic),
    /// The search goes on.
    Passed(Deciding, Errno),
    /// The search ends here, and so does the program.
    Fails(Deciding, Errno),
    Unknown(String),
}

struct Search<'s, 'p> {
    probe: &'s mut Probe<'p>,
    names: &'s mut Names,
    world: World,
    task: Task,
    who: &'s Subject,
    /// The credential of the new program.
    cred: &'s Cred,
    /// The program must not trust its environment: `AT_SECURE`.
    secure: bool,
    tries: usize,
    loading: Loading,
}

/// Looks for all that a program needs which execve(2) starts. `walked` are the paths at which it found the program, the
/// interpreters of scripts in their order, and the loader, if the program has one.
pub(crate) fn look(
    probe: &mut Probe<'_>,
    who: &Subject,
    exec: &Exec,
    walked: &[(Vec<u8>, NodeIx)],
    names: &mut Names,
) -> Result<Loading, Error> {
    let world = World::new(&probe.scene, View::Real).map_err(|e| Error::Engine("what was found", e))?;
    let task = world.task(&probe.scene).map_err(|e| Error::Engine("the current directory", e))?;
    let (cred, secure) = (&*exec.cred, exec.secureexec);
    let old = who.cred()?;
    let ids = |cred: &Cred| (cred.fsuid(), cred.fsgid(), cred.effective());
    let loading = Loading { as_asker: ids(cred) == ids(&old), ..Loading::default() };
    let mut search = Search { probe, names, world, task, who, cred, secure, tries: 0, loading };
    search.task.set_cred(cred.clone());
    let programs = walked.len() - usize::from(exec.interpreter.is_some());
    for at in 1..programs {
        search.started("interpreter", at, &walked[at].0, &walked[at - 1].0);
        search.script(&walked[at - 1].0, &walked[at].0)?;
    }
    match (walked.get(programs), walked[..programs].last()) {
        (Some(loader), Some(program)) => {
            search.started("loader", programs, &loader.0, &program.0);
            search.libraries(program, loader)?;
        }
        (_, Some(program)) => {
            search.note("the program is linked statically, and loads no libraries to start");
            search.dynamic(program);
        }
        _ => {}
    }
    search.note("what it opens when it runs, such as plugins (dlopen) and other programs, was not looked at");
    // Of a user it is not known which capabilities are ambient, and so are kept.
    let lost = old.effective() - cred.effective();
    if who.pid.is_none() && !who.is_caller() && !lost.is_empty() {
        search.loading.needed.iter_mut().for_each(Needed::may_be_overridden);
    }
    search.loading.nodes.sort_unstable();
    search.loading.nodes.dedup();
    Ok(search.loading)
}

impl Loading {
    /// What may decide about these files beside what was seen.
    pub(crate) fn doubts(&self, scene: &Scene, who: &Subject, seen: Seen) -> Vec<Doubt> {
        let Some(call) = self.needed.iter().find_map(|needed| needed.call.as_ref()) else {
            return Vec::new();
        };
        let mut doubts = doubts(scene, &self.nodes, who, call, seen);
        // What the host answers to this identity says nothing about another.
        doubts.iter_mut().for_each(|doubt| doubt.settled &= self.as_asker);
        doubts
    }

    /// Asks the host for each file, if it is the same identity that opens it.
    pub(crate) fn verify(
        &self,
        verify: &mut Verify,
        place: &Place,
        scene: &Scene,
        who: &Subject,
        cred: &Cred,
        suspects: &[Doubt],
    ) -> Result<(), Error> {
        if !self.as_asker || verify.outcome == "impossible" {
            return Ok(());
        }
        for call in self.needed.iter().filter_map(|needed| needed.call.as_ref()) {
            let one = crate::verify::verify(place, scene, who, cred, call, suspects)?;
            verify.calls.extend(one.calls);
            if one.outcome != "agrees" && verify.outcome == "agrees" {
                (verify.outcome, verify.text) = (one.outcome, one.text);
            }
        }
        Ok(())
    }

    /// Changes after which the only file that is refused is not.
    pub(crate) fn fixes(&self, scene: &Scene, who: &Subject, names: &mut Names) -> Result<Vec<Fix>, Error> {
        let mut refused = self.needed.iter().filter(|needed| needed.verdict != Verdict::Allowed);
        match (refused.next().and_then(|needed| needed.call.as_ref()), refused.next()) {
            (Some(call), None) if self.as_asker => fixes(scene, who, names, call, &[]),
            _ => Ok(Vec::new()),
        }
    }

    /// As the report has it; `walks` are those of execve(2), and all in the end.
    pub(crate) fn report(self, walks: &mut Vec<Walk>) -> Vec<Load> {
        let load = |needed: Needed| Load {
            role: needed.role,
            name: Text(needed.name),
            path: needed.path.map(Text),
            by: Text(needed.by),
            verdict: needed.verdict,
            errno: needed
                .failure
                .as_ref()
                .filter(|_| needed.verdict == Verdict::Denied)
                .map(|it| it.1.name()),
            because: needed.failure.map(|(deciding, _)| deciding.text),
            walk: match needed.walk {
                Way::OfExec(at) => Some(at),
                Way::Own(walk) => {
                    walks.push(walk);
                    Some(walks.len() - 1)
                }
                Way::Nowhere => None,
            },
        };
        self.needed.into_iter().map(load).collect()
    }
}

impl Search<'_, '_> {
    fn note(&mut self, text: &str) {
        self.loading.notes.push(text.to_owned());
    }

    /// Something that execve(2) itself comes to.
    fn started(&mut self, role: &'static str, walk: usize, path: &[u8], by: &[u8]) {
        let walk = Way::OfExec(walk);
        self.loading.needed.push(Needed { walk, ..Needed::new(role, path, by, Some(path.to_vec())) });
    }

    /// What the engine says to opening a path for reading.
    fn open(&mut self, path: &[u8]) -> Result<Opened, Error> {
        self.tries += 1;
        if self.tries > MOST_TRIES {
            return Ok(Opened { result: Err(too_much()), walk: Way::Nowhere });
        }
        self.probe.discover(|task| {
            let _ = task.stat(path);
        })?;
        let scene = &self.probe.scene;
        self.world.catch_up(scene).map_err(|e| Error::Engine("what was found", e))?;
        let call = Call::Open(path.to_vec(), O_RDONLY, 0);
        let (result, events) = self.world.vfs.record(|| call.run(&mut self.task));
        let mut reader = Reader::new(scene, self.cred, self.names, false);
        reader.read(events);
        let (verdict, failure) = judge(scene, &reader, &result, self.who, &call);
        let target = reader.target();
        self.loading.nodes.extend(reader.nodes().filter(|&node| node < scene.nodes.len()));
        let walk = reader.finish().pop().map_or(Way::Nowhere, Way::Own);
        let result = match (verdict, failure, target) {
            (Verdict::Allowed, _, Some(node)) => Ok(node),
            (_, Some((reason, errno)), _) => {
                Err((verdict, tell(scene, self.cred, self.names, &reason, errno), errno))
            }
            _ => Err((Verdict::Unknown, unseen(path, "it could not be seen".to_owned()), Errno::ENOENT)),
        };
        Ok(Opened { result, walk })
    }

    /// A script is read by its interpreter, as far as that is one that reads scripts.
    fn script(&mut self, script: &[u8], interpreter: &[u8]) -> Result<(), Error> {
        let Opened { result, walk } = self.open(script)?;
        let (mut verdict, mut failure) = (Verdict::Allowed, None);
        if let Err((said, mut deciding, errno)) = result {
            let by = String::from_utf8_lossy(interpreter);
            let base = by.rsplit('/').next().unwrap_or_default();
            if said == Verdict::Denied && READERS.contains(&base.trim_end_matches(is_version)) {
                verdict = Verdict::Denied;
                deciding.text = format!("{}; {by} reads the script", deciding.text);
            } else {
                verdict = Verdict::Unknown;
                deciding.rule = "unseen";
                deciding.text = format!("{}; whether {by} reads the script is not known", deciding.text);
            }
            failure = Some((deciding, errno));
        }
        let call = Some(Call::Open(script.to_vec(), O_RDONLY, 0));
        let needed = Needed::new("script", script, interpreter, Some(script.to_vec()));
        self.loading.needed.push(Needed { verdict, failure, walk, call, ..needed });
        Ok(())
    }

    /// All libraries of `program`, as `loader` finds them: those that the program names, then those that these name, and so on.
    fn libraries(&mut self, program: &(Vec<u8>, NodeIx), loader: &(Vec<u8>, NodeIx)) -> Result<(), Error> {
        let Some(system) = self.system(loader)? else {
            let text =
                "it is neither glibc's loader nor musl's, and whether it finds the libraries is not known";
            self.unknown(b"", &program.0, unseen(&loader.0, text.to_owned()));
            return Ok(());
        };
        let mut objects = Vec::new();
        for (path, node) in [program, loader] {
            let Some(dynamic) = self.dynamic(&(path.clone(), *node)) else { return Ok(()) };
            let names = [Some(path.clone()), dynamic.soname.clone()].into_iter().flatten().collect();
            let (host, path) = (self.probe.scene.nodes[*node].object.host, self.probe.scene.path(*node));
            objects.push(Object { path, names, dynamic, by: None, host });
        }
        let mut at = 0;
        while at < objects.len() {
            for name in std::mem::take(&mut objects[at].dynamic.needed) {
                self.library(&system, &mut objects, at, &name)?;
            }
            at += 1;
        }
        Ok(())
    }

    /// What a program, or the loader, asks of the loader; if that is not known, the answer is not either.
    fn dynamic(&mut self, (path, node): &(Vec<u8>, NodeIx)) -> Option<Dynamic> {
        let text = match self.contents(*node).map(elf::read) {
            Ok(Elf::Loadable(dynamic)) => return Some(dynamic),
            Ok(Elf::Other) => return Some(Dynamic::default()),
            Ok(Elf::CutShort) => CUT_SHORT.to_owned(),
            Ok(Elf::Malformed(text)) => format!("{text}, and what that comes to is not known"),
            Err(text) => text,
        };
        self.unknown(b"", path, unseen(path, text));
        None
    }

    /// The library `name` that object `by` needs.
    fn library(
        &mut self,
        system: &System,
        objects: &mut Vec<Object>,
        by: usize,
        name: &[u8],
    ) -> Result<(), Error> {
        if system.has(objects, name) {
            return Ok(());
        }
        let needs = objects[by].path.clone();
        if objects.len() == MOST_LIBRARIES {
            self.unknown(name, &needs, too_much().1);
            return Ok(());
        }
        // The first place that has it and refuses says more than the last, which has not.
        let mut refused: Option<Needed> = None;
        let mut searched: Vec<String> = Vec::new();
        let wanted = Wanted { name, objects, by, library_path: &self.who.library_path, secure: self.secure };
        for candidate in system.candidates(wanted) {
            let path = match self.place(candidate, name)? {
                Ok(Some(path)) => path,
                Ok(None) => continue,
                Err(deciding) => {
                    self.unknown(name, &needs, deciding);
                    return Ok(());
                }
            };
            let (attempt, walk) = self.attempt(system.family, &path)?;
            let call = Some(Call::Open(path.clone(), O_RDONLY, 0));
            let mut needed =
                Needed { walk, call, ..Needed::new("library", name, &needs, Some(path.clone())) };
            match attempt {
                Attempt::Loads(node, dynamic) => {
                    let host = self.probe.scene.nodes[node].object.host;
                    let names = vec![name.to_vec(), path.clone()];
                    self.take_in(objects, Object { path, names, dynamic, by: Some(by), host }, needed);
                    return Ok(());
                }
                Attempt::Unknown(text) => {
                    self.unknown(name, &needs, unseen(&path, text));
                    return Ok(());
                }
                Attempt::Fails(deciding, errno) => {
                    (needed.verdict, needed.failure) = (Verdict::Denied, Some((deciding, errno)));
                    self.loading.needed.push(needed);
                    return Ok(());
                }
                Attempt::Passed(deciding, errno) => {
                    let dir = String::from_utf8_lossy(dir_of(&path)).into_owned();
                    if !searched.contains(&dir) && !dir.contains("/glibc-hwcaps/") {
                        searched.push(dir);
                    }
                    if deciding.rule != "missing" && refused.is_none() {
                        (needed.verdict, needed.failure) = (Verdict::Denied, Some((deciding, errno)));
                        refused = Some(needed);
                    }
                }
            }
        }
        let missing = || Needed::missing(name, &needs, &searched);
        self.loading.needed.push(refused.unwrap_or_else(missing));
        Ok(())
    }

    /// The path at which a candidate for the library `name` is to be tried, if there is one; otherwise what is not known of it.
    fn place(
        &mut self,
        candidate: Candidate,
        name: &[u8],
    ) -> Result<Result<Option<Vec<u8>>, Deciding>, Error> {
        Ok(match candidate {
            Candidate::Path(path) => Ok(Some(path)),
            Candidate::Unknown(text) => Err(unseen(name, text)),
            Candidate::UnlessThere(path) if self.open(&path)?.result.is_ok() => {
                let text = "older loaders search it for libraries that suit the processor".to_owned();
                Err(unseen(&path, text))
            }
            Candidate::UnlessThere(_) => Ok(None),
        })
    }

    /// A library is loaded, unless the same file has been under another name.
    fn take_in(&mut self, objects: &mut Vec<Object>, new: Object, needed: Needed) {
        match objects.iter_mut().find(|object| object.host == new.host) {
            Some(object) => object.names.push(needed.name),
            None => {
                objects.push(new);
                self.loading.needed.push(needed);
            }
        }
    }

    /// Something about the libraries that is not known.
    fn unknown(&mut self, name: &[u8], by: &[u8], deciding: Deciding) {
        let path = Some(deciding.path.0.clone());
        let (verdict, failure) = (Verdict::Unknown, Some((deciding, Errno::ENOENT)));
        self.loading.needed.push(Needed { verdict, failure, ..Needed::new("library", name, by, path) });
    }

    /// What the loader does with a file at `path`.
    fn attempt(&mut self, family: Family, path: &[u8]) -> Result<(Attempt, Way), Error> {
        let Opened { result, walk } = self.open(path)?;
        let attempt = match result {
            Ok(node) => self.load(family, node),
            Err((Verdict::Denied, deciding, errno @ (Errno::ENOENT | Errno::EACCES | Errno::ENOTDIR))) => {
                Attempt::Passed(deciding, errno)
            }
            Err((_, deciding, _)) => Attempt::Unknown(deciding.text),
        };
        Ok((attempt, walk))
    }

    /// What the loader does with a file that it has opened.
    fn load(&mut self, family: Family, node: NodeIx) -> Attempt {
        let path = Text(self.probe.scene.path(node));
        let fails = |text: &str| {
            let text = format!("the loader does not take it for a library: {text}");
            (Deciding { rule: "not-a-library", path: path.clone(), text }, Errno::ELIBBAD)
        };
        let object = &self.probe.scene.nodes[node].object;
        if object.kind() != S_IFREG {
            let (deciding, errno) = fails("it is no regular file");
            return Attempt::Fails(deciding, errno);
        }
        let dynamic = match self.contents(node).map(elf::read) {
            Err(text) => return Attempt::Unknown(text),
            Ok(Elf::Loadable(dynamic)) if !dynamic.program => dynamic,
            Ok(Elf::CutShort) => return Attempt::Unknown(CUT_SHORT.to_owned()),
            Ok(elf) => {
                let (deciding, errno) = fails(match elf {
                    Elf::Loadable(_) => "it is a program",
                    Elf::Other | Elf::CutShort => "it is for another machine",
                    Elf::Malformed(text) => text,
                });
                return match elf {
                    Elf::Other if family == Family::Glibc => Attempt::Passed(deciding, errno),
                    _ => Attempt::Fails(deciding, errno),
                };
            }
        };
        let mount = &self.probe.scene.mounts[self.probe.scene.nodes[node].mount];
        if mount.options.noexec {
            let point = String::from_utf8_lossy(&mount.point);
            let text = format!("the mount at {point} is noexec: no library of it can be mapped");
            return Attempt::Fails(Deciding { rule: "noexec", path, text }, Errno::EPERM);
        }
        Attempt::Loads(node, dynamic)
    }

    /// A file, to be read.
    fn contents(&self, node: NodeIx) -> Result<File, String> {
        self.probe.contents(node).map_err(|errno| format!("what is in it could not be read ({errno})"))
    }

    /// The bytes of a file that the new program may read; `None` if it may not.
    fn bytes(&mut self, path: &[u8]) -> Result<Result<Option<Vec<u8>>, String>, Error> {
        Ok(match self.open(path)?.result {
            Ok(node) => self.contents(node).and_then(bounded).map(Some),
            Err((Verdict::Denied, ..)) => Ok(None),
            Err((_, deciding, _)) => Err(deciding.text),
        })
    }

    /// The rules of a loader; `None` if they are not known.
    fn system(&mut self, loader: &(Vec<u8>, NodeIx)) -> Result<Option<System>, Error> {
        let Ok(bytes) = self.contents(loader.1).and_then(bounded) else { return Ok(None) };
        let Some(mut system) = System::of(&bytes) else { return Ok(None) };
        let read = match system.family {
            Family::Glibc => self.bytes(b"/etc/ld.so.cache")?,
            Family::Musl => self.bytes(b"/etc/ld-musl-x86_64.path")?,
        };
        match (system.family, read) {
            (_, Err(_)) => return Ok(None),
            (Family::Glibc, Ok(cache)) => {
                system.cache = cache;
                if self.bytes(PRELOAD)?.ok().flatten().is_some_and(|text| !text.trim_ascii().is_empty()) {
                    let text =
                        "the libraries that it names are loaded first, and were not looked at".to_owned();
                    self.unknown(b"", &loader.0, unseen(PRELOAD, text));
                }
            }
            (Family::Musl, Ok(Some(dirs))) => system.dirs = vec![dirs],
            (Family::Musl, Ok(None)) => {}
        }
        Ok(Some(system))
    }
}

/// What is wrong with a file that was not written to its end.
const CUT_SHORT: &str =
    "it ends before what is to be mapped of it does, and whether that is touched is not known";

/// Libraries that glibc's loader loads for every program.
const PRELOAD: &[u8] = b"/etc/ld.so.preload";

/// What came of opening, and how it went there.
struct Opened {
    result: Result<NodeIx, (Verdict, Deciding, Errno)>,
    walk: Way,
}

fn unseen(path: &[u8], text: String) -> Deciding {
    Deciding { rule: "unseen", path: Text(path.to_vec()), text }
}

fn too_much() -> (Verdict, Deciding, Errno) {
    let text = format!("more than {MOST_LIBRARIES} libraries, or {MOST_TRIES} places to look at");
    (Verdict::Unknown, unseen(b"", text), Errno::E2BIG)
}

fn is_version(c: char) -> bool {
    c.is_ascii_digit() || c == '.'
}

fn bounded(file: File) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = file.take(MOST_BYTES + 1).read_to_end(&mut bytes);
    match read {
        Ok(len) if len as u64 <= MOST_BYTES => Ok(bytes),
        Ok(_) => Err(format!("it has more than {MOST_BYTES} bytes")),
        Err(e) => Err(e.to_string()),
    }
}
