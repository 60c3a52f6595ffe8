//! Every answer beside the kernel's.
//!
//! The tree may be alive. What counts is what held still: a path is compared only if the kernel said the same about it
//! before the import and after; the others are counted as changed. A difference is asked about once more before it is
//! called a mismatch.

use std::ffi::{CStr, CString, OsStr};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;

use rcuwalk::errno::Errno;
use rcuwalk::uapi::PATH_MAX;
use rcuwalk_host::Identity;
use rcuwalk_measure::Error;
use rcuwalk_measure::attr::{Attr, host_attr};
use rcuwalk_measure::identity::{self, Caps};
use rustix::fs::{Access, access};
use serde::Serialize;

use crate::tree::{Entry, Tree, host_names};

/// Mismatches described in full; the rest is only counted.
const DESCRIBED: usize = 20;

/// Whether a final link is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// `stat`.
    Yes,
    /// `lstat`.
    No,
}

/// The implementation whose answers are checked, as seen by one identity. Errors are error numbers.
pub trait Subject: Sync {
    /// `newfstatat(2)`.
    ///
    /// # Errors
    ///
    /// The call's.
    fn stat(&self, path: &[u8], follow: Follow) -> Result<Attr, i32>;
    /// `statx(2)`.
    ///
    /// # Errors
    ///
    /// The call's.
    fn statx(&self, path: &[u8], follow: Follow) -> Result<Attr, i32>;
    /// `access(2)`: 0 or the error.
    fn access(&self, path: &[u8], mode: i32) -> i32;
    /// The sorted names in a directory, without `.` and `..`.
    ///
    /// # Errors
    ///
    /// Those of `open(2)` and `getdents(2)`.
    fn names(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, i32>;
}

/// One difference between the subject and the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// The call, with the identity where that matters.
    pub call: String,
    /// The path; odd bytes as `\xNN`.
    pub path: String,
    /// What differs, as `size 1 != 2`: the kernel's value comes second.
    pub difference: String,
}

/// What was compared and how it went.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Checked {
    /// Answers of `newfstatat` and `statx` that were compared: two for every path, two more for a link that is
    /// followed.
    pub stat: u64,
    /// Those that differ.
    pub stat_mismatch: u64,
    /// Answers of `access` that were compared: R, W and X for every path and identity.
    pub access: u64,
    /// Those that differ.
    pub access_mismatch: u64,
    /// Directories whose list of names was compared.
    pub readdir: u64,
    /// Those that differ.
    pub readdir_mismatch: u64,
    /// Paths that were not compared because they changed or vanished during the run.
    pub changed: u64,
    /// Access times that were not compared because a reader moved them.
    pub atime_moved: u64,
    /// Links that were not followed because they lead out of the tree.
    pub links_outside: u64,
    /// Answers of `access` that were not compared, see `notes`.
    pub access_skipped: u64,
    /// The identities of `access`.
    pub identities: Vec<Identity>,
    /// The first differences.
    pub mismatches: Vec<Mismatch>,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

impl Checked {
    /// True if nothing differed.
    pub fn agrees(&self) -> bool {
        self.stat_mismatch + self.access_mismatch + self.readdir_mismatch == 0
    }

    fn add(&mut self, other: Checked) {
        self.stat += other.stat;
        self.stat_mismatch += other.stat_mismatch;
        self.access += other.access;
        self.access_mismatch += other.access_mismatch;
        self.readdir += other.readdir;
        self.readdir_mismatch += other.readdir_mismatch;
        self.changed += other.changed;
        self.atime_moved += other.atime_moved;
        self.links_outside += other.links_outside;
        self.access_skipped += other.access_skipped;
        let room = DESCRIBED.saturating_sub(self.mismatches.len());
        self.mismatches.extend(other.mismatches.into_iter().take(room));
    }

    /// Adds the results of another check of the same tree.
    pub fn merge(&mut self, mut other: Checked) {
        self.identities.append(&mut other.identities);
        self.notes.append(&mut other.notes);
        self.add(other);
    }

    fn describe(&mut self, call: &str, path: &CStr, difference: impl FnOnce() -> String) {
        if self.mismatches.len() < DESCRIBED {
            let path = path.to_bytes().escape_ascii().to_string();
            self.mismatches.push(Mismatch { call: call.to_owned(), path, difference: difference() });
        }
    }
}

/// Compares attributes and directory listings of the whole tree. `progress` is told numbers
/// of finished paths; every path is visited twice.
///
/// # Errors
///
/// When no thread can be started.
pub fn check_stat(
    tree: &Tree,
    subject: &dyn Subject,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Checked, Error> {
    let total = Mutex::new(Checked::default());
    // Following a link and listing a directory move access times on either side: all inodes are compared first.
    for what in [check_inode, check_behind] {
        in_chunks(&tree.entries, |chunk| {
            let mut part = Checked::default();
            chunk.iter().for_each(|entry| what(tree, subject, entry, &mut part));
            progress(chunk.len() as u64);
            total.lock().unwrap_or_else(PoisonError::into_inner).add(part);
            Ok(())
        })?;
    }
    let mut total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    for mount in &tree.mounts {
        total.notes.push(format!("another file system is mounted at {}: left out", mount.to_string_lossy()));
    }
    if !tree.unreadable.is_empty() {
        total.notes.push(format!(
            "{} directories could not be read: their contents are left out",
            tree.unreadable.len()
        ));
    }
    Ok(total)
}

/// Compares the inode itself.
fn check_inode(_: &Tree, subject: &dyn Subject, entry: &Entry, out: &mut Checked) {
    let path = entry.path.to_bytes();
    let now = host_attr(&entry.path, false);
    if !quiet(entry, &now) {
        out.changed += 1;
        return;
    }
    let moved = now.is_ok_and(|now| now.atime != entry.attr.atime);
    let skip: &[&str] = if moved { &["atime"] } else { &[] };
    out.atime_moved += u64::from(moved);
    let answers =
        [("newfstatat", subject.stat(path, Follow::No)), ("statx", subject.statx(path, Follow::No))];
    for (call, mine) in answers {
        out.stat += 1;
        if let Some(text) = difference(&mine, &now, skip) {
            if quiet(entry, &host_attr(&entry.path, false)) {
                out.stat_mismatch += 1;
                out.describe(call, &entry.path, || text);
            } else {
                out.changed += 1;
            }
        }
    }
}

/// True if the kernel says about the name itself what it said before the import, but for the access time.
fn quiet(entry: &Entry, now: &Result<Attr, i32>) -> bool {
    match now {
        Ok(now) => now.differences(&entry.attr, &["atime"]).is_empty(),
        // Listed from its directory, but out of reach by an absolute path: that does not change.
        Err(errno) => *errno == Errno::ENAMETOOLONG.raw() && entry.path.as_bytes_with_nul().len() > PATH_MAX,
    }
}

/// True if the kernel says what it said before the import about the name and what it leads to, and every
/// directory on the way lets the same people through.
fn held_still(tree: &Tree, entry: &Entry) -> bool {
    if !quiet(entry, &host_attr(&entry.path, false)) {
        return false;
    }
    let target =
        |before: &Result<Attr, i32>| difference(&host_attr(&entry.path, true), before, &["atime"]).is_none();
    if !entry.target.as_deref().is_none_or(target) {
        return false;
    }
    let path = Path::new(OsStr::from_bytes(entry.path.to_bytes()));
    path.ancestors().skip(1).all(|dir| {
        let Ok(dir) = CString::new(dir.as_os_str().as_bytes()) else { return false };
        let now = host_attr(&dir, false);
        tree.dirs.get(&dir).zip(now.as_ref().ok()).is_some_and(|(before, now)| same_rules(before, now))
    })
}

/// True if a directory lets the same people through as before. New and lost names move both of its times, a change of
/// owner, mode or ACL the second alone.
fn same_rules(before: &Attr, now: &Attr) -> bool {
    (before.ino, before.mode, before.uid, before.gid) == (now.ino, now.mode, now.uid, now.gid)
        && (before.ctime == now.ctime || before.mtime != now.mtime)
}

/// Compares what a link leads to and what a directory holds.
fn check_behind(tree: &Tree, subject: &dyn Subject, entry: &Entry, out: &mut Checked) {
    if entry.attr.is_symlink() {
        check_followed(tree, subject, entry, out);
    } else if entry.attr.is_dir() && tree.unreadable.binary_search(&entry.path).is_err() {
        check_names(tree, subject, entry, out);
    }
}

/// Compares what lies behind a link, where that is in the tree.
fn check_followed(tree: &Tree, subject: &dyn Subject, entry: &Entry, out: &mut Checked) {
    let path = entry.path.to_bytes();
    if !tree.stays_inside(path) {
        out.links_outside += 1;
        return;
    }
    let theirs = host_attr(&entry.path, true);
    let answers =
        [("newfstatat", subject.stat(path, Follow::Yes)), ("statx", subject.statx(path, Follow::Yes))];
    for (call, mine) in answers {
        out.stat += 1;
        // The target's access time is compared where the target itself is listed.
        if let Some(text) = difference(&mine, &theirs, &["atime"]) {
            if held_still(tree, entry) {
                out.stat_mismatch += 1;
                out.describe(&format!("{call}, link followed"), &entry.path, || text);
            } else {
                out.changed += 1;
            }
        }
    }
}

/// Compares the names in a directory.
fn check_names(tree: &Tree, subject: &dyn Subject, entry: &Entry, out: &mut Checked) {
    let Ok(mut theirs) = host_names(&entry.path) else {
        out.changed += 1;
        return;
    };
    let prefix = entry.path.to_bytes();
    let mounted = |name: &Vec<u8>| {
        tree.mounts.iter().any(|mount| {
            let rest = mount.to_bytes().strip_prefix(prefix).unwrap_or(b"");
            rest.strip_prefix(b"/").unwrap_or(rest) == name.as_slice()
        })
    };
    theirs.retain(|name| !mounted(name));
    out.readdir += 1;
    let mine = subject.names(prefix).map(|mut names| {
        names.retain(|name| !mounted(name));
        names
    });
    if mine.as_ref() != Ok(&theirs) {
        if host_attr(&entry.path, false).is_ok_and(|now| now.mtime == entry.attr.mtime) {
            out.readdir_mismatch += 1;
            out.describe("readdir", &entry.path, || match mine {
                Ok(mine) => format!("{} names != {}", mine.len(), theirs.len()),
                Err(errno) => format!("{} != {} names", errno_name(errno), theirs.len()),
            });
        } else {
            out.changed += 1;
        }
    }
}

/// The difference between an answer and the kernel's; `None` when there is none.
fn difference(mine: &Result<Attr, i32>, theirs: &Result<Attr, i32>, skip: &[&str]) -> Option<String> {
    let text = match (mine, theirs) {
        (Ok(mine), Ok(theirs)) => mine.differences(theirs, skip),
        (Err(mine), Err(theirs)) if mine == theirs => String::new(),
        (Ok(_), Err(theirs)) => format!("success != {}", errno_name(*theirs)),
        (Err(mine), Ok(_)) => format!("{} != success", errno_name(*mine)),
        (Err(mine), Err(theirs)) => format!("{} != {}", errno_name(*mine), errno_name(*theirs)),
    };
    (!text.is_empty()).then_some(text)
}

fn errno_name(errno: i32) -> String {
    Errno::from_raw(errno).map_or_else(|| format!("errno {errno}"), |e| e.name().to_owned())
}

/// The subject as one identity with these capabilities sees it.
pub type SubjectFor<'a> = dyn Fn(&Identity, Caps) -> Result<Box<dyn Subject>, Error> + Sync + 'a;

/// Compares `access` R, W and X of every path for each identity with the kernel's answer to a thread that has it.
///
/// # Errors
///
/// When no thread can be started, or one cannot take on an identity.
pub fn check_access(
    tree: &Tree,
    identities: &[Identity],
    subject_for: &SubjectFor<'_>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Checked, Error> {
    let mut total = Checked { identities: identities.to_vec(), ..Checked::default() };
    let outside: Vec<bool> =
        tree.entries.iter().map(|e| e.attr.is_symlink() && !tree.stays_inside(e.path.to_bytes())).collect();
    let skips = Skips::of(tree, &outside);
    total.notes.extend(skips.notes());
    let work: Vec<usize> = (0..tree.entries.len()).collect();
    for who in identities {
        let sum = Mutex::new(Checked::default());
        in_chunks(&work, |chunk| {
            let caps = identity::assume(who)?;
            let subject = subject_for(who, caps)?;
            let mut part = Checked::default();
            for &index in chunk {
                skips.check(index, who, &*subject, &mut part);
            }
            progress(chunk.len() as u64);
            sum.lock().unwrap_or_else(PoisonError::into_inner).add(part);
            Ok(())
        })?;
        total.add(sum.into_inner().unwrap_or_else(PoisonError::into_inner));
    }
    Ok(total)
}

/// What cannot be compared: the engine has the tree alone, and not the host's user namespace.
struct Skips<'a> {
    tree: &'a Tree,
    outside: &'a [bool],
    /// Ids that this user namespace does not map show up as this one, on inodes that root has no power over.
    unmapped: Option<u32>,
}

impl<'a> Skips<'a> {
    fn of(tree: &'a Tree, outside: &'a [bool]) -> Skips<'a> {
        let whole = std::fs::read_to_string("/proc/self/uid_map")
            .is_ok_and(|map| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]));
        let overflow = || std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok();
        let unmapped = if whole { None } else { Some(overflow().unwrap_or(65534)) };
        Skips { tree, outside, unmapped }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(id) = self.unmapped {
            notes.push(format!(
                "access of inodes owned by {id} is not compared: this user namespace hides the owner"
            ));
        }
        notes
    }

    fn skip(&self, index: usize) -> bool {
        let Entry { attr, .. } = &self.tree.entries[index];
        self.outside[index] || self.unmapped.is_some_and(|id| attr.uid == id || attr.gid == id)
    }

    fn check(&self, index: usize, who: &Identity, subject: &dyn Subject, out: &mut Checked) {
        let entry = &self.tree.entries[index];
        for (mode, flag, letter) in
            [(4, Access::READ_OK, 'R'), (2, Access::WRITE_OK, 'W'), (1, Access::EXEC_OK, 'X')]
        {
            if self.skip(index) {
                out.access_skipped += 1;
                continue;
            }
            let ask = || access(&entry.path, flag).map_or_else(|e| e.raw_os_error(), |()| 0);
            let (mine, theirs) = (subject.access(entry.path.to_bytes(), mode), ask());
            out.access += 1;
            if mine == theirs {
                continue;
            }
            if ask() == theirs && held_still(self.tree, entry) {
                out.access_mismatch += 1;
                let name = |errno| if errno == 0 { "success".to_owned() } else { errno_name(errno) };
                out.describe(&format!("access {letter} as {who}"), &entry.path, || {
                    format!("{} != {}", name(mine), name(theirs))
                });
            } else {
                out.changed += 1;
            }
        }
    }
}

/// The identities that show most: root, an ordinary user, that user in a group that decides something in the tree.
/// Without the privilege to become them, the caller alone.
///
/// # Errors
///
/// What asking for the caller's ids answers.
pub fn identities(tree: &Tree) -> Result<Vec<Identity>, Error> {
    if !identity::can_switch() {
        return Ok(vec![identity::caller()?]);
    }
    let user = Identity::new(1000, 1000, &[]);
    let group = Identity::new(1000, 1000, &[deciding_group(tree)]);
    Ok(vec![Identity::new(0, 0, &[]), user, group])
}

/// The group that owns most inodes which treat it unlike everybody else, one that is not 0 if there is any.
fn deciding_group(tree: &Tree) -> u32 {
    let mut votes = std::collections::BTreeMap::<u32, (u64, u64)>::new();
    for entry in &tree.entries {
        let vote = votes.entry(entry.attr.gid).or_default();
        vote.0 += u64::from(entry.attr.mode >> 3 & 7 != entry.attr.mode & 7);
        vote.1 += 1;
    }
    votes.into_iter().max_by_key(|(gid, vote)| (*gid != 0, *vote)).map_or(0, |(gid, _)| gid)
}

/// Runs `work` on parts of `items`, on as many threads as there are processors.
fn in_chunks<T: Sync>(items: &[T], work: impl Fn(&[T]) -> Result<(), Error> + Sync) -> Result<(), Error> {
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let next = std::sync::atomic::AtomicUsize::new(0);
    const CHUNK: usize = 1024;
    thread::scope(|scope| {
        let mut handles = Vec::with_capacity(threads);
        for index in 0..threads {
            let (next, work) = (&next, &work);
            let body = move || {
                loop {
                    let from = next.fetch_add(CHUNK, std::sync::atomic::Ordering::Relaxed);
                    if from >= items.len() {
                        return Ok(());
                    }
                    work(&items[from..items.len().min(from + CHUNK)])?;
                }
            };
            match thread::Builder::new().name(format!("check-{index}")).spawn_scoped(scope, body) {
                Ok(handle) => handles.push(handle),
                // Fewer threads do the same work.
                Err(e) if handles.is_empty() => {
                    return Err(Error::host(
                        "starting a thread",
                        format!("check-{index}"),
                        e,
                        "raise ulimit -u",
                    ));
                }
                Err(_) => break,
            }
        }
        handles
            .into_iter()
            .try_for_each(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    /// The kernel itself as the subject, except that the file `lie` is reported differently.
    struct Mirror {
        lie: &'static [u8],
    }

    impl Mirror {
        fn attr(&self, path: &[u8], follow: Follow) -> Result<Attr, i32> {
            let attr = host_attr(&CString::new(path).unwrap(), follow == Follow::Yes)?;
            Ok(if path.ends_with(self.lie) { Attr { size: attr.size + 1, ..attr } } else { attr })
        }
    }

    impl Subject for Mirror {
        fn stat(&self, path: &[u8], follow: Follow) -> Result<Attr, i32> {
            self.attr(path, follow).map(|attr| Attr { btime: None, ..attr })
        }
        fn statx(&self, path: &[u8], follow: Follow) -> Result<Attr, i32> {
            self.attr(path, follow)
        }
        fn access(&self, path: &[u8], mode: i32) -> i32 {
            let lie = path.ends_with(self.lie) && mode == 4;
            let answer = access(path, Access::from_bits_retain(mode as u32));
            if lie { 71 } else { answer.map_or_else(|e| e.raw_os_error(), |()| 0) }
        }
        fn names(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, i32> {
            let mut names = host_names(&CString::new(path).unwrap())?;
            names.retain(|name| name != self.lie);
            Ok(names)
        }
    }

    fn sample() -> TempDir {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("d")).unwrap();
        fs::write(temp.path().join("d/file"), "x").unwrap();
        symlink("d/file", temp.path().join("link")).unwrap();
        symlink("/etc", temp.path().join("away")).unwrap();
        temp
    }

    fn check(tree: &Tree, lie: &'static [u8]) -> Checked {
        let mut checked = check_stat(tree, &Mirror { lie }, &|_| ()).unwrap();
        let who = [identity::caller().unwrap()];
        let subject_for =
            |_: &Identity, _| -> Result<Box<dyn Subject>, Error> { Ok(Box::new(Mirror { lie })) };
        checked.merge(check_access(tree, &who, &subject_for, &|_| ()).unwrap());
        checked
    }

    #[test]
    fn a_true_mirror_has_no_mismatch() {
        let temp = sample();
        let checked = check(&Tree::read(temp.path()).unwrap(), b"nothing");
        assert!(checked.agrees(), "{:?}", checked.mismatches);
        assert_eq!((checked.stat, checked.readdir, checked.links_outside), (5 * 2 + 2, 2, 1));
        assert_eq!((checked.access, checked.access_skipped), (4 * 3, 3));
        assert_eq!(checked.changed, 0);
    }

    #[test]
    fn a_lie_is_found_in_every_call() {
        let temp = sample();
        let checked = check(&Tree::read(temp.path()).unwrap(), b"file");
        assert_eq!((checked.stat_mismatch, checked.access_mismatch, checked.readdir_mismatch), (2, 1, 1));
        let found: Vec<(&str, &str)> =
            checked.mismatches.iter().map(|m| (m.call.as_str(), m.difference.as_str())).collect();
        assert!(found.contains(&("statx", "size 2 != 1")), "{found:?}");
        assert!(found.contains(&("readdir", "0 names != 1")), "{found:?}");
        assert!(
            found.iter().any(|(call, text)| call.starts_with("access R") && *text == "EPROTO != success")
        );
    }

    #[test]
    fn what_changed_since_is_counted_and_not_compared() {
        let temp = sample();
        let tree = Tree::read(temp.path()).unwrap();
        fs::write(temp.path().join("d/file"), "longer").unwrap();
        fs::remove_file(temp.path().join("link")).unwrap();
        let checked = check(&tree, b"nothing");
        assert!(checked.agrees(), "{:?}", checked.mismatches);
        assert_eq!(checked.changed, 3, "the file, the link, and the directory that lost it");
    }

    #[test]
    fn chooses_a_group_that_matters() {
        let temp = sample();
        let mut tree = Tree::read(temp.path()).unwrap();
        for entry in &mut tree.entries {
            (entry.attr.gid, entry.attr.mode) = (0, 0o100_644);
        }
        assert_eq!(deciding_group(&tree), 0);
        (tree.entries[0].attr.gid, tree.entries[1].attr.gid, tree.entries[1].attr.mode) = (7, 8, 0o100_640);
        assert_eq!(deciding_group(&tree), 8);
    }

    #[test]
    fn a_change_on_the_way_excuses_a_different_answer() {
        let temp = sample();
        let tree = Tree::read(temp.path()).unwrap();
        let file = tree.entries.iter().find(|e| e.path.to_bytes().ends_with(b"d/file")).unwrap();
        assert!(held_still(&tree, file));
        fs::write(temp.path().join("d/other"), "").unwrap();
        assert!(held_still(&tree, file), "a new name beside it decides nothing");
        let link = tree.entries.iter().find(|e| e.path.to_bytes().ends_with(b"link")).unwrap();
        assert!(held_still(&tree, link));
        let mut permissions = fs::metadata(temp.path().join("d")).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o711);
        fs::set_permissions(temp.path().join("d"), permissions).unwrap();
        assert!(!held_still(&tree, file));
        fs::remove_file(temp.path().join("d/file")).unwrap();
        assert!(!held_still(&tree, link));
    }
}
