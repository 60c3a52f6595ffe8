//! What a tree has been, moment by moment, and which answers its moments allow.
//!
//! A walk is a sequence of steps, each of which is taken at some moment, one after the other: may this directory be
//! searched, what has this name in it, what is mounted over that. An answer is allowed if there are such moments between
//! the start and the end of the call. So "an object that was at no moment at that path", and a refusal or a success that
//! no moment explains, are not.

use std::collections::{BTreeMap, BTreeSet};

/// An inode number.
pub(crate) type Ino = u64;

/// An object: what bears on a walk by somebody who is neither owner nor in the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Object {
    /// Whether others may search and read it, and its names. A removed one stays, without names.
    Dir { open: bool, names: BTreeMap<&'static str, Ino> },
    /// Whether others may read it.
    File { open: bool },
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
            Object::File { .. } => None,
        }
    }

    pub(crate) fn names_mut(&mut self, dir: Ino) -> &mut BTreeMap<&'static str, Ino> {
        match self.objects.get_mut(&dir) {
            Some(Object::Dir { names, .. }) => names,
            other => panic!("{dir} is no directory but {other:?}"),
        }
    }

    /// What is seen where `ino` is.
    pub(crate) fn covered(&self, ino: Ino) -> Ino {
        self.mounts.get(&ino).copied().unwrap_or(ino)
    }

    /// What a path leads to for somebody who may do anything, before and after what is mounted over it.
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
            None => false,
        }
    }
}

/// For objects, the first moment at which a walk can have come there.
type Reached = BTreeMap<Ino, usize>;

fn reach(reached: &mut Reached, ino: Ino, at: usize) {
    let first = reached.entry(ino).or_insert(at);
    *first = at.min(*first);
}

/// Every answer to `question` about `path` that the moments of `states`, in this order, explain.
pub(crate) fn allowed(states: &[State], path: &[&str], question: Question) -> BTreeSet<Answer> {
    let mut answers = BTreeSet::new();
    let from = |at: usize| (at..states.len()).map(|t| (t, &states[t]));
    let mut here = Reached::from([(states[0].root, 0)]);
    for name in path {
        let (mut searched, mut found, mut next) = (Reached::new(), Reached::new(), Reached::new());
        for (&dir, &at) in &here {
            for (t, state) in from(at) {
                match state.objects.get(&dir) {
                    Some(Object::Dir { open: true, .. }) => reach(&mut searched, dir, t),
                    Some(Object::Dir { open: false, .. }) => drop(answers.insert(Answer::Refused)),
                    Some(Object::File { .. }) => drop(answers.insert(Answer::NotDir)),
                    // It is yet to be made.
                    None => {}
                }
            }
        }
        for (&dir, &at) in &searched {
            for (t, state) in from(at) {
                match state.names(dir).and_then(|names| names.get(name)) {
                    Some(&child) => reach(&mut found, child, t),
                    None => drop(answers.insert(Answer::Missing)),
                }
            }
        }
        for (&child, &at) in &found {
            from(at).for_each(|(t, state)| reach(&mut next, state.covered(child), t));
        }
        here = next;
    }
    for (&ino, &at) in &here {
        match question {
            Question::Stat => drop(answers.insert(Answer::Found(ino))),
            Question::Open => {
                for (_, state) in from(at).filter(|(_, state)| state.objects.contains_key(&ino)) {
                    answers.insert(if state.is_open(ino) { Answer::Opened(ino) } else { Answer::Refused });
                }
            }
        }
    }
    answers
}
