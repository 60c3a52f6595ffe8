//! What a tree has been, moment by moment, and which answers its moments allow.
//!
//! A walk is a sequence of steps, each of which is taken at some moment, one after the other: may this directory be
//! searched, what has this name in it, what is mounted over that. An answer is allowed if there are such moments between
//! the start and the end of the call. So "an object that was at no moment at that path", and a refusal or a success that
//! no moment explains, are not.

#![allow(dead_code, reason = "no test uses all of it")]

use std::collections::{BTreeMap, BTreeSet};

/// An inode number.
pub(crate) type Ino = u64;

/// An object: what bears on a walk by a user that is neither owner nor in the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Object {
    /// Whether others may search and read it, and its names. A removed one stays, without names.
    Dir { open: bool, names: BTreeMap<&'static str, Ino> },
    /// Whether others may read it.
    File { open: bool },
    /// Where it leads: from the root, or from the directory that it is in.
    Link { absolute: bool, body: Vec<&'static str> },
}

/// A moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) root: Ino,
    pub(crate) objects: BTreeMap<Ino, Object>,
    /// What is mounted over directories.
    pub(crate) mounts: BTreeMap<Ino, Ino>,
}

/// What a call answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    /// It found this inode.
    Found(Ino),
    /// It was opened, and is this inode.
    Opened(Ino),
    /// EACCES
    Refused,
    /// ENOENT
    Missing,
    /// ENOTDIR
    NotDir,
}

/// What is asked of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// What is there?
    Stat,
    /// Can it be read?
    Open,
}

impl State {
    pub(crate) fn names(&self, dir: Ino) -> Option<&BTreeMap<&'static str, Ino>> {
        match self.objects.get(&dir)? {
            Object::Dir { names, .. } => Some(names),
            Object::File { .. } | Object::Link { .. } => None,
        }
    }

    pub(crate) fn names_mut(&mut self, dir: Ino) -> &mut BTreeMap<&'static str, Ino> {
        match self.objects.get_mut(&dir) {
            Some(Object::Dir { names, .. }) => names,
            other => panic!("{dir} is no directory but {other:?}"),
        }
    }

    /// The same for a user that may do anything.
    pub(crate) fn open_all(&mut self) {
        for object in self.objects.values_mut() {
            match object {
                Object::Dir { open, .. } | Object::File { open } => *open = true,
                Object::Link { .. } => {}
            }
        }
    }

    /// What is seen where `ino` is.
    pub(crate) fn covered(&self, ino: Ino) -> Ino {
        self.mounts.get(&ino).copied().unwrap_or(ino)
    }

    /// What a path leads to for a user that may do anything, before and after what is mounted over it.
    pub(crate) fn resolve(&self, path: &[&str]) -> Option<(Ino, Ino)> {
        path.iter().try_fold((self.root, self.root), |(_, at), name| {
            let child = *self.names(at)?.get(name)?;
            Some((child, self.covered(child)))
        })
    }

    /// The inodes that can be walked to.
    pub(crate) fn all_named(&self) -> BTreeSet<Ino> {
        let names = self.objects.keys().filter_map(|&ino| self.names(ino)).flat_map(|names| names.values());
        names.chain(self.mounts.values()).chain([&self.root]).copied().collect()
    }

    /// Whether others may search and read the directory, or read the file.
    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        match self.objects.get(&ino) {
            Some(Object::Dir { open, .. } | Object::File { open }) => *open,
            Some(Object::Link { .. }) | None => false,
        }
    }
}

/// Every answer to `question` about `path` that the moments of `states`, in this order, explain.
pub(crate) fn allowed(states: &[State], path: &[&'static str], question: Question) -> BTreeSet<Answer> {
    let mut walks = Walks { states, question, reached: BTreeMap::new(), answers: BTreeSet::new() };
    walks.walk(states[0].root, 0, path);
    walks.answers
}

/// All the walks that one call can have made.
struct Walks<'s> {
    states: &'s [State],
    question: Question,
    /// Where a walk can have come, what it had before it, and the first moment at which it can have been there.
    reached: BTreeMap<(Ino, Vec<&'static str>), usize>,
    answers: BTreeSet<Answer>,
}

/// The moments from `at` on.
fn from(states: &[State], at: usize) -> impl Iterator<Item = (usize, &State)> {
    states.iter().enumerate().skip(at)
}

impl Walks<'_> {
    /// Walks `path` from `dir`, from moment `at` on.
    fn walk(&mut self, dir: Ino, at: usize, path: &[&'static str]) {
        let states = self.states;
        let first = self.reached.entry((dir, path.to_vec())).or_insert(usize::MAX);
        if *first <= at {
            return;
        }
        *first = at;
        let Some((name, rest)) = path.split_first() else { return self.end(dir, at) };
        let mut searched = None;
        for (t, state) in from(states, at) {
            match state.objects.get(&dir) {
                Some(Object::Dir { open: true, .. }) => searched = searched.or(Some(t)),
                Some(Object::Dir { open: false, .. }) => drop(self.answers.insert(Answer::Refused)),
                Some(Object::File { .. }) => drop(self.answers.insert(Answer::NotDir)),
                // A link was followed before this, and the name it leads to is yet to be made.
                Some(Object::Link { .. }) | None => {}
            }
        }
        for (t, state) in searched.into_iter().flat_map(|at| from(states, at)) {
            match state.names(dir).and_then(|names| names.get(name)) {
                Some(&child) => self.step(dir, child, t, rest),
                None => drop(self.answers.insert(Answer::Missing)),
            }
        }
    }

    /// Steps to `child`, found in `dir` at moment `at`: to what covers it, or where it leads.
    fn step(&mut self, dir: Ino, child: Ino, at: usize, rest: &[&'static str]) {
        let states = self.states;
        if let Some(Object::Link { absolute, body }) = self.states[at].objects.get(&child) {
            let start = if *absolute { self.states[at].root } else { dir };
            return self.walk(start, at, &[body, rest].concat());
        }
        for (t, state) in from(states, at) {
            self.walk(state.covered(child), t, rest);
        }
    }

    fn end(&mut self, ino: Ino, at: usize) {
        let states = self.states;
        match self.question {
            Question::Stat => drop(self.answers.insert(Answer::Found(ino))),
            Question::Open => {
                for (_, state) in from(states, at).filter(|(_, state)| state.objects.contains_key(&ino)) {
                    let answer = if state.is_open(ino) { Answer::Opened(ino) } else { Answer::Refused };
                    self.answers.insert(answer);
                }
            }
        }
    }
}
