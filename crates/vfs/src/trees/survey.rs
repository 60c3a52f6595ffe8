//! What several credentials may do with everything below a directory, in one walk over the tree.
//!
//! Asking [`Task::faccessat2`](crate::Task::faccessat2) for every path and every credential walks every path again. A survey goes
//! down the tree once and carries with it who can reach the directory it is in. It asks the same functions that the calls ask, and
//! remembers their answers: most files of a tree share type, permissions, owner, group and ACL with many others.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::*;
use crate::cred::Cred;
use crate::cred::commoncap;
use crate::dcache::inode::RacyAcl;
use crate::dcache::remains::NsGuard;
use crate::kernel::Kernel;
use crate::kernel::vfs::Vfs;
use crate::mount::{Path, flags};
use crate::namei::{At, Lookup};
use crate::perm::{InodeAttr, Parent, Victim, may_delete};
use rcuwalk_sync::Handle;
use std::collections::HashMap;
use std::ops::{ControlFlow, Range};

/// The most credentials that one survey can ask for.
pub const SURVEY_MAX: usize = 64;

/// Kinds of inodes to remember at most: a tree made to have more costs time instead of memory.
const MAX_KINDS: usize = 1 << 16;

/// Who may do what with one entry. In each set, bit `n` stands for credential `n` of the survey.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// `access(R_OK)` says yes: read the file, list the directory.
    pub read: u64,
    /// `access(W_OK)` says yes.
    pub write: u64,
    /// `access(X_OK)` says yes: execute the file, search the directory.
    pub exec: u64,
    /// The entry may be removed from its directory, or renamed: `unlink`, or `rmdir` of an empty directory.
    pub delete: u64,
    /// Executing it gives a user, a group or capabilities that executing another program would not give.
    pub setid: u64,
}

/// An entry that a survey has come to.
#[derive(Debug)]
#[non_exhaustive]
pub struct Surveyed<'a> {
    kernel: &'a Kernel,
    dentry: Handle,
    dir: &'a [u8],
    /// Type, permissions, owner and group, as the mount shows them.
    pub attr: InodeAttr,
    /// Whether it has an access ACL that says more than the mode.
    pub has_acl: bool,
    /// Whether it gives capabilities to a task that executes it (`security.capability`).
    pub has_caps: bool,
    /// Who can get there: has search permission on every directory on the way.
    pub reach: u64,
    /// Who may do what with it.
    pub rights: Rights,
}

impl Surveyed<'_> {
    /// The path of the directory it is in, from the root of the file system and without a slash at its end: empty for the entries
    /// of that root.
    pub fn dir(&self) -> &[u8] {
        self.dir
    }

    /// Appends its name to `out`. The root of the file system has an empty one.
    pub fn name(&self, out: &mut Vec<u8>) {
        self.kernel.store.append_name(self.dentry, out);
    }
}

/// How much a survey went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SurveyTotals {
    /// Entries looked at.
    pub entries: u64,
    /// Directories that none of the credentials can search; what is below them was passed over.
    pub closed: u64,
}

/// What every right but [`Rights::delete`] depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    attr: InodeAttr,
    /// The number of its ACL among those seen; 0 for none.
    acl: u32,
    mnt: Handle,
    /// Whether it has file capabilities: then [`Rights::setid`] is that one file's own.
    caps: bool,
}

/// What the mode, the ids and the ACL of an inode come to. Of [`Rights`], all but `delete`; `setid` without file capabilities.
type Answers = Rights;

/// How many of them there is place for where they are found without hashing; a power of two.
const NEAR: usize = 1024;

impl Kind {
    /// Its place among those. Trees made to have them all in one place are slower, and no more.
    fn near(&self) -> usize {
        let InodeAttr { mode, uid, gid, .. } = self.attr;
        let mixed =
            [uid, gid, self.acl, self.mnt].iter().fold(mode, |sum, &n| (sum ^ n).wrapping_mul(0x9e37_79b1));
        (mixed >> 16) as usize % NEAR
    }
}

/// A directory still to be gone through.
struct Pending {
    /// The dentry that has the name: the place itself, or where it is mounted.
    named: Handle,
    place: Path,
    /// Who can search it and everything above.
    reach: u64,
    /// Bytes of the path of the directory it is in.
    path: usize,
}

/// The directory being gone through.
struct Dir<'a> {
    place: Path,
    reach: u64,
    attr: InodeAttr,
    acl: RacyAcl<'a>,
    rdonly: bool,
    /// What was asked last about an entry of it, and who may take that out: mostly it is the same again.
    last: Option<(InodeAttr, u64)>,
}

impl Dir<'_> {
    /// What [`may_delete`] asks of an entry: not the permissions, and the ids only where the directory is sticky.
    fn victim(&self, attr: &InodeAttr) -> InodeAttr {
        let sticky = self.attr.mode & S_ISVTX != 0;
        let asked = |id| if sticky || id == INVALID_ID { id } else { 0 };
        InodeAttr {
            mode: attr.mode & S_IFMT,
            uid: asked(attr.uid),
            gid: asked(attr.gid),
            iflags: attr.iflags,
        }
    }
}

impl Vfs {
    /// Tells `visit` of `top` and of every entry below it that some of the credentials `who` can reach, with what each of them may do
    /// with it. Ids and capabilities are the effective ones, as with `AT_EACCESS`; links are not followed.
    ///
    /// The entries of a directory come together, in no particular order; then the directories among them, in the order of their
    /// names. Nothing in the tree changes meanwhile; `visit` must not change it. It ends the survey with `Break`.
    ///
    /// # Errors
    ///
    /// `EINVAL` (no credential, or more than [`SURVEY_MAX`]); those of the walk to `top`, which is made with every permission.
    ///
    /// ```
    /// use rcuwalk::{Cred, Vfs};
    /// use std::ops::ControlFlow;
    ///
    /// let vfs = Vfs::new()?;
    /// let root = vfs.task(Cred::root());
    /// root.mkdir(b"/tmp", 0o1777)?;
    /// root.chmod(b"/tmp", 0o1777)?;
    /// root.creat(b"/tmp/key", 0o640)?;
    ///
    /// let mut seen = Vec::new();
    /// vfs.survey(b"/", &[Cred::root(), Cred::user(1000, 1000, &[])], |entry| {
    ///     let mut name = Vec::new();
    ///     entry.name(&mut name);
    ///     seen.push((name, entry.rights.read, entry.rights.delete));
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!(seen[2], (b"key".to_vec(), 0b01, 0b01));
    /// # Ok::<(), rcuwalk::Errno>(())
    /// ```
    pub fn survey(
        &self,
        top: &[u8],
        who: &[Cred],
        mut visit: impl FnMut(&Surveyed<'_>) -> ControlFlow<()>,
    ) -> Result<SurveyTotals> {
        if who.is_empty() || who.len() > SURVEY_MAX {
            return Err(Errno::EINVAL);
        }
        let seer = self.task(Cred::root());
        let place = seer.lookup_held(At::Cwd, top, Lookup::NOFOLLOW, |_| Ok(()))?;
        let flags = AT_EACCESS | AT_SYMLINK_NOFOLLOW;
        let reach = bits(who, |cred| self.task(cred.clone()).faccessat2(AT_FDCWD, top, F_OK, flags).is_ok());
        let mut survey = Survey::new(&self.0, who);
        let above = top.iter().rposition(|&b| b != b'/').map_or(&[][..], |last| &top[..=last]);
        survey.path.extend_from_slice(&above[..above.iter().rposition(|&b| b == b'/').unwrap_or(0)]);
        let _ = survey.run(place, reach, &mut visit);
        let totals = survey.totals;
        drop(survey);
        self.0.path_put(place);
        Ok(totals)
    }
}

/// The set of those credentials that pass.
fn bits(who: &[Cred], passes: impl Fn(&Cred) -> bool) -> u64 {
    who.iter().enumerate().fold(0, |set, (i, cred)| set | u64::from(passes(cred)) << i)
}

/// A survey under way.
struct Survey<'a> {
    kernel: &'a Kernel,
    ns: NsGuard<'a>,
    who: &'a [Cred],
    totals: SurveyTotals,
    kinds: HashMap<Kind, Answers>,
    /// Some of them again, where they are found faster: most files of a tree are of few kinds.
    near: Vec<Option<(Kind, Answers)>>,
    /// The ACLs seen, entry by entry, and their numbers.
    acls: HashMap<Vec<u64>, u32>,
    /// Who may take what out of the directory being gone through.
    victims: HashMap<InodeAttr, u64>,
    /// The path of the directory being gone through.
    path: Vec<u8>,
    pending: Vec<Pending>,
    /// Those found in the directory being gone through, and where their names are in `names`.
    found: Vec<(Range<usize>, Pending)>,
    names: Vec<u8>,
}

impl<'a> Survey<'a> {
    fn new(kernel: &'a Kernel, who: &'a [Cred]) -> Survey<'a> {
        Survey {
            kernel,
            ns: kernel.store.lock(),
            who,
            totals: SurveyTotals::default(),
            kinds: HashMap::new(),
            near: vec![None; NEAR],
            acls: HashMap::new(),
            victims: HashMap::new(),
            path: Vec::new(),
            pending: Vec::new(),
            found: Vec::new(),
            names: Vec::new(),
        }
    }

    /// Goes through `top` and everything below.
    fn run(
        &mut self,
        top: Path,
        reach: u64,
        visit: &mut impl FnMut(&Surveyed<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.entry(top.dentry, top, reach, None, visit)?;
        self.descend();
        while let Some(Pending { named, place, reach, path }) = self.pending.pop() {
            self.path.truncate(path);
            let at = self.path.len();
            self.path.push(b'/');
            self.kernel.store.append_name(named, &mut self.path);
            if self.path.len() == at + 1 {
                // The root of the file system.
                self.path.truncate(at);
            }
            self.directory(place, reach, visit)?;
            self.descend();
        }
        ControlFlow::Continue(())
    }

    /// Visits the entries of a directory.
    fn directory(
        &mut self,
        place: Path,
        reach: u64,
        visit: &mut impl FnMut(&Surveyed<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let (kernel, store) = (self.kernel, &self.kernel.store);
        let i = store.inode(store.d_inode(place.dentry));
        let (attr, acl) = (kernel.attr(place.mnt, i), kernel.racy_acl(place.mnt, i));
        let mut dir = Dir { place, reach, attr, acl, rdonly: kernel.mount_rdonly(place.mnt), last: None };
        self.victims.clear();
        let mut children = store.children_oldest_first(store.d_inode(place.dentry)).peekable();
        while let Some(child) = children.next() {
            store.prefetch(children.peek().copied().unwrap_or(0));
            let mut at = Path { mnt: place.mnt, dentry: child };
            if store.see(child).meta.is_mounted() {
                at = kernel.topmost(&self.ns, at);
            }
            self.entry(child, at, reach, Some(&mut dir), visit)?;
        }
        ControlFlow::Continue(())
    }

    /// Plans the directories that were found, in the order of their names.
    fn descend(&mut self) {
        let names = &self.names;
        self.found.sort_unstable_by(|(a, _), (b, _)| names[b.clone()].cmp(&names[a.clone()]));
        self.pending.extend(self.found.drain(..).map(|(_, dir)| dir));
        self.names.clear();
    }

    /// Visits one entry, named by `named` in `dir`, who of `reach` can get to.
    fn entry(
        &mut self,
        named: Handle,
        place: Path,
        reach: u64,
        dir: Option<&mut Dir<'_>>,
        visit: &mut impl FnMut(&Surveyed<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let (kernel, store) = (self.kernel, &self.kernel.store);
        let inode = store.d_inode(place.dentry);
        let attr = kernel.attr(place.mnt, store.inode(inode));
        let blob = store.inode(inode).acl.get();
        let caps = s_isreg(attr.mode) && kernel.has_file_caps(&self.ns, inode);
        let kind =
            Kind { attr, acl: if blob == 0 { 0 } else { self.acl_number(blob) }, mnt: place.mnt, caps };
        // Something else is mounted there: what it covers cannot be taken away.
        let dir = dir.filter(|dir| dir.place.mnt == place.mnt);
        let mut rights = self.answers(kind, inode);
        if let Some(dir) = dir {
            rights.delete = self.may_delete(dir, &attr);
        }
        if caps {
            rights.setid = self.setid(place.mnt, inode);
        }
        for set in [&mut rights.read, &mut rights.write, &mut rights.exec, &mut rights.delete] {
            *set &= reach;
        }
        rights.setid &= rights.exec;
        self.totals.entries += 1;
        if s_isdir(attr.mode) {
            self.found_dir(named, place, rights.exec);
        }
        let (dir, has_acl) = (&self.path[..], blob != 0);
        visit(&Surveyed { kernel, dentry: named, dir, attr, has_acl, has_caps: caps, reach, rights })
    }

    fn found_dir(&mut self, named: Handle, place: Path, reach: u64) {
        if reach == 0 {
            self.totals.closed += 1;
            return;
        }
        let start = self.names.len();
        self.kernel.store.append_name(named, &mut self.names);
        let dir = Pending { named, place, reach, path: self.path.len() };
        self.found.push((start..self.names.len(), dir));
    }

    /// Makes equal ACLs equal numbers.
    fn acl_number(&mut self, blob: Handle) -> u32 {
        let blobs = &self.kernel.store.blobs;
        let words: Vec<u64> = (0..blobs.len(blob) as u32 / 8).map(|i| blobs.word(blob, i)).collect();
        if self.acls.len() >= MAX_KINDS {
            self.forget();
        }
        let next = self.acls.len() as u32 + 1;
        *self.acls.entry(words).or_insert(next)
    }

    /// Drops what is remembered.
    fn forget(&mut self) {
        self.acls.clear();
        self.kinds.clear();
        self.victims.clear();
        self.near.fill(None);
    }

    /// Who may do what with inodes of this kind, of which `inode` is one.
    fn answers(&mut self, kind: Kind, inode: Handle) -> Answers {
        let at = kind.near();
        if let Some((near, answers)) = &self.near[at]
            && *near == kind
        {
            return *answers;
        }
        let answers = match self.kinds.get(&kind) {
            Some(answers) => *answers,
            None => self.ask(kind, inode),
        };
        self.near[at] = Some((kind, answers));
        answers
    }

    fn ask(&mut self, kind: Kind, inode: Handle) -> Answers {
        let (kernel, file_type) = (self.kernel, kind.attr.mode & S_IFMT);
        let may =
            |mode| bits(self.who, |cred| kernel.may_access(kind.mnt, inode, file_type, cred, mode).is_ok());
        let set_id = s_isreg(kind.attr.mode) && kind.attr.mode & (S_ISUID | S_ISGID) != 0;
        let answers = Answers {
            read: may(R_OK),
            write: may(W_OK),
            exec: may(X_OK),
            delete: 0,
            setid: if set_id && !kernel.has_file_caps(&self.ns, inode) {
                self.setid(kind.mnt, inode)
            } else {
                0
            },
        };
        if self.kinds.len() < MAX_KINDS {
            self.kinds.insert(kind, answers);
        }
        answers
    }

    /// Who gains something by executing this very file.
    fn setid(&self, mnt: Handle, inode: Handle) -> u64 {
        let view = self.kernel.id_view(mnt);
        let nosuid = self.kernel.mount_has(mnt, flags::NOSUID);
        bits(self.who, |cred| {
            let gives = || self.kernel.program_gives(&self.ns, mnt, inode, cred, false);
            !nosuid
                && cred.user_ns().is_in(view.get().sb_ns)
                && gives().is_ok_and(|gives| commoncap::gains(cred, &gives))
        })
    }

    /// Who may take an entry with these attributes out of the directory.
    fn may_delete(&mut self, dir: &mut Dir<'_>, attr: &InodeAttr) -> u64 {
        let victim = dir.victim(attr);
        if let Some((last, set)) = dir.last
            && last == victim
        {
            return set;
        }
        let set = match self.victims.get(&victim) {
            Some(set) => *set,
            None => {
                let sb_rdonly = self.kernel.sb_rdonly(dir.place.mnt);
                let parent = Parent { sb_rdonly, attr: &dir.attr, acl: &dir.acl };
                let want = if s_isdir(victim.mode) { Victim::Directory } else { Victim::NonDirectory };
                let may =
                    |cred: &Cred| !dir.rdonly && may_delete(&parent, &victim, false, want, cred).is_ok();
                let set = bits(self.who, may) & dir.reach;
                if self.victims.len() < MAX_KINDS {
                    self.victims.insert(victim, set);
                }
                set
            }
        };
        dir.last = Some((victim, set));
        set
    }
}
