//! The smallest changes that would allow what is denied.
//!
//! A change is looked for in each of several manners: a group, an ACL entry, another owner, a mode bit, a capability. In
//! each, what says no is changed on a copy, the engine makes the call again, and so on until it says yes; a manner that
//! has no answer to some rule is given up. So every fix that is shown was tried.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use rcuwalk::acl::{
    ACL_GROUP, ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER, ACL_USER, ACL_USER_OBJ, Acl, AclEntry, UncheckedAcl,
};
use rcuwalk::cred::CapSet;
use rcuwalk::perm::{IFLAG_APPEND, IFLAG_IMMUTABLE, MAY_WRITE};
use rcuwalk::trace::Class;
use rcuwalk::uapi::*;
use rcuwalk::userns::UserNamespace;

use crate::call::{Call, mask_letters};
use crate::error::Error;
use crate::gain::{gains, population};
use crate::identity::{Names, Subject, cap_name, in_group_by_now};
use crate::judge::{Reader, Reason, asked, label};
use crate::report::{Fix, Gain, Verdict};
use crate::scene::{Mount, NodeIx, Scene};
use crate::trial::{judge, try_call};

/// Changes of one fix.
const MOST_STEPS: usize = 8;

/// How a change is looked for; the one that opens least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Group,
    Acl,
    Owner,
    Mode,
    Capability,
    Setting,
}

const MANNERS: [Manner; 6] =
    [Manner::Group, Manner::Acl, Manner::Owner, Manner::Mode, Manner::Capability, Manner::Setting];

/// One change, made on the copy already.
struct Step {
    kind: &'static str,
    command: String,
    opens: String,
    /// Of a capability, which; `command` runs a program with it.
    cap: Option<u32>,
    /// What a later change of the same sets anew, with what this one sets: an entry of an ACL.
    sets: Option<(NodeIx, String)>,
    /// The object whose mode, owner or ACL it changes.
    changes: Option<NodeIx>,
}

impl Step {
    /// The same, of the mode, owner or ACL of an object.
    fn of(at: NodeIx, kind: &'static str, command: String, opens: String) -> Step {
        Step { changes: Some(at), ..Step::new(kind, command, opens) }
    }

    fn new(kind: &'static str, command: String, opens: String) -> Step {
        Step { kind, command, opens, cap: None, sets: None, changes: None }
    }

    /// When its turn is: nothing can be changed on a read-only mount, nothing of an immutable file, and a program that is
    /// to have a capability is run when all else is done.
    fn turn(&self) -> u8 {
        match self.kind {
            "mount" => 0,
            "attribute" => 1,
            "capability" => 3,
            _ => 2,
        }
    }
}

/// Groups whose members are as good as root, or can read everybody's files: they own disks, start containers, or become
/// root by rule.
const POWERFUL: [&str; 16] = [
    "root",
    "disk",
    "docker",
    "lxd",
    "incus",
    "incus-admin",
    "libvirt",
    "kvm",
    "sudo",
    "wheel",
    "admin",
    "shadow",
    "kmem",
    "adm",
    "systemd-journal",
    "tape",
];

/// How much a fix opens: to whom, then how many they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Width {
    /// To the identity alone, with these objects alone.
    Narrow,
    /// To the identity alone, with all that a group may do; it takes an object from its owner; or to this many others.
    Some(usize),
    /// To everybody, with these objects.
    Everybody,
    /// All that a program or a powerful group may do, and what it may do is without bounds.
    Power,
    /// A protection of a file system or of the machine goes.
    Machine(usize),
}

fn width(steps: &[Step], gains: &[Gain]) -> Width {
    let of_step = |step: &Step| match step.kind {
        "login" | "acl" | "mode" | "interpreter" => Width::Narrow,
        "group" | "owner" => Width::Some(0),
        "power" | "capability" => Width::Power,
        "attribute" => Width::Machine(0),
        "mount" => Width::Machine(1),
        _ => Width::Machine(2),
    };
    let of_gain = |gain: &Gain| gain.users.map_or(Width::Everybody, |users| Width::Some(users.max(1)));
    steps.iter().map(of_step).chain(gains.iter().map(of_gain)).max().unwrap_or(Width::Narrow)
}

/// How much a kind of change opens, by rank; a fix is as wide as its widest step.
fn rank(kind: &str) -> usize {
    const KINDS: [&str; 11] = [
        "login",
        "acl",
        "interpreter",
        "mode",
        "group",
        "owner",
        "power",
        "capability",
        "attribute",
        "mount",
        "sysctl",
    ];
    KINDS.iter().position(|it| *it == kind).unwrap_or(KINDS.len())
}

/// The kind as the report has it.
fn shown(kind: &'static str) -> &'static str {
    if matches!(kind, "login" | "power") { "group" } else { kind }
}

/// Changes after which the engine allows `call`, the one that opens least first.
pub(crate) fn fixes(
    scene: &Scene,
    who: &Subject,
    names: &mut Names,
    call: &Call,
    interpreters: &[Vec<u8>],
) -> Result<Vec<Fix>, Error> {
    let users = population();
    let mut found: Vec<(Width, Fix)> = Vec::new();
    for manner in MANNERS {
        let copy = Copy { scene: scene.copy(), who: who.clone(), names, call, interpreters };
        let Some((steps, after)) = copy.steps(manner)? else { continue };
        let changed: BTreeSet<NodeIx> = steps.iter().filter_map(|step| step.changes).collect();
        let changed: Vec<NodeIx> = changed.into_iter().collect();
        let gains = gains(scene, &after, &changed, who, &users, names)?;
        let width = width(&steps, &gains);
        if let Some(fix) = joined(steps, gains)
            && !found.iter().any(|(_, it)| it.commands == fix.commands)
        {
            found.push((width, fix));
        }
    }
    found.sort_by_key(|(width, fix)| (*width, rank(fix.kind), fix.commands.len()));
    Ok(found.into_iter().map(|(_, fix)| fix).collect())
}

/// The steps as one fix: in the order in which they can be carried out, none of them twice.
fn joined(mut steps: Vec<Step>, gains: Vec<Gain>) -> Option<Fix> {
    let kind = steps.iter().map(|step| step.kind).max_by_key(|kind| rank(kind))?;
    let caps: Vec<u32> = steps.iter().filter_map(|step| step.cap).collect();
    if caps.contains(&CAP_DAC_OVERRIDE) {
        // It passes whatever the other does.
        steps.retain(|step| step.cap != Some(CAP_DAC_READ_SEARCH));
    }
    let last_of = |at: usize, steps: &[Step]| {
        let sets = steps[at].sets.as_ref();
        sets.is_none_or(|sets| !steps[at + 1..].iter().any(|later| later.sets.as_ref() == Some(sets)))
    };
    let kept: Vec<bool> = (0..steps.len()).map(|at| last_of(at, &steps)).collect();
    let mut kept = kept.into_iter();
    steps.retain(|_| kept.next().unwrap_or(true));
    steps.sort_by_key(Step::turn);
    let one = steps.iter().position(|step| step.cap.is_some());
    if let Some(first) = one {
        // One program has them all.
        let names: Vec<String> = steps[first..].iter().filter_map(|step| step.cap).map(option_name).collect();
        let list = format!("+{}", names.join(",+"));
        let opens: Vec<&str> = steps[first..].iter().map(|step| step.opens.as_str()).collect();
        let opens = opens.join("; and ");
        let prefix = std::mem::take(&mut steps[first].command);
        steps.truncate(first);
        let command = format!("{prefix} --inh-caps {list} --ambient-caps {list} COMMAND");
        steps.push(Step::new("capability", command, opens));
    }
    let opens: Vec<&str> = steps.iter().map(|step| step.opens.as_str()).collect();
    let mut opens = format!("opens {}", opens.join("; and "));
    // Of what everybody gains by a mode the step itself says so.
    for gain in gains.iter().filter(|gain| gain.users.is_some() || kind != "mode") {
        let path = quoted(&gain.path.0);
        let _ = write!(opens, "; besides, {} of {path} to {}", gain.what, gain.who);
    }
    let commands = steps.into_iter().map(|step| step.command).collect();
    Some(Fix { kind: shown(kind), commands, opens, gains })
}

/// A capability as setpriv(1) wants it.
fn option_name(cap: u32) -> String {
    cap_name(cap).trim_start_matches("CAP_").to_lowercase()
}

/// The host as it would be.
struct Copy<'a> {
    scene: Scene,
    who: Subject,
    names: &'a mut Names,
    call: &'a Call,
    /// Where programs of the names of missing interpreters are.
    interpreters: &'a [Vec<u8>],
}

impl Copy<'_> {
    /// Changes in one manner until the call is allowed, and how things are then; `None` if that leads nowhere.
    fn steps(mut self, manner: Manner) -> Result<Option<(Vec<Step>, Scene)>, Error> {
        let mut steps = Vec::new();
        while steps.len() < MOST_STEPS {
            let cred = self.who.cred()?;
            let trial = try_call(&self.scene, &cred, &self.who, self.call)?;
            let executes = matches!(self.call, Call::Exec(_));
            let mut reader = Reader::new(&self.scene, &cred, self.names, executes);
            reader.read(trial.events);
            let reason = match judge(&self.scene, &reader, &trial.result, &self.who, self.call) {
                (Verdict::Allowed, _) => return Ok(Some((steps, self.scene))),
                (Verdict::Unknown, _) | (_, None) => return Ok(None),
                (Verdict::Denied, Some((reason, _))) => reason,
            };
            // The program that names the interpreter: where the walk before this one ended.
            let before = reason.walk.checked_sub(1).and_then(|walk| reader.walks.get(walk));
            let program = before.and_then(|walk| walk.places.iter().rev().find_map(|place| place.node));
            let wanted = reader.walks.get(reason.walk).map(|walk| walk.path.clone());
            let step = match (reason.rule, program, wanted) {
                ("missing-interpreter", Some(program), Some(path)) => self.interpreter(program, &path),
                _ => self.change(manner, &reason),
            };
            match step {
                Some(step) => steps.push(step),
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Changes what says no.
    fn change(&mut self, manner: Manner, reason: &Reason) -> Option<Step> {
        let at = reason.node.filter(|&node| node < self.scene.nodes.len())?;
        match reason.rule {
            "permission" => match manner {
                Manner::Group => self.join_group(at, reason),
                Manner::Acl => self.add_entry(at, reason),
                Manner::Owner => self.map_owner(at),
                Manner::Mode => self.add_bits(at, reason),
                Manner::Capability => self.add_dac_capability(at, reason),
                Manner::Setting => None,
            },
            "mknod" if manner == Manner::Capability && self.who.user_ns.is_none() => {
                self.add_capability(CAP_MKNOD, "making and so reading and writing of every device")
            }
            "attribute-name" if manner == Manner::Capability && self.who.user_ns.is_none() => {
                self.add_capability(CAP_SYS_ADMIN, "administration of this machine")
            }
            "sticky" => match manner {
                Manner::Owner => self.give(at),
                Manner::Mode => self.unstick(at),
                Manner::Capability => self.add_capability(CAP_FOWNER, "what only owners may do, everywhere"),
                _ => None,
            },
            "not-owner" | "protected-hardlinks" if manner == Manner::Capability => {
                self.add_capability(CAP_FOWNER, "what only owners may do, everywhere")
            }
            "not-owner" if manner == Manner::Owner => self.give(at),
            "chown" if manner == Manner::Capability => {
                self.add_capability(CAP_CHOWN, "giving every file to anybody")
            }
            "protected-symlinks" | "protected-create" if manner == Manner::Owner => self.give(at),
            "protected-symlinks" | "protected-create" | "protected-hardlinks"
                if manner == Manner::Setting =>
            {
                self.unprotect(at, reason.rule)
            }
            "immutable" | "append-only" => self.unflag(at, reason.rule),
            "read-only-mount" | "read-only-superblock" | "noexec" | "nodev" | "nosymfollow" => {
                self.remount(at, reason.rule)
            }
            _ => None,
        }
    }

    fn path(&self, node: NodeIx) -> String {
        quoted(&self.scene.path(node))
    }

    /// The name or number of the user, for commands.
    fn user(&mut self) -> String {
        let uid = self.who.uids[3];
        label(uid, self.names.user(uid))
    }

    fn asks(&self, at: NodeIx, want: u32) -> String {
        let path = self.path(at);
        match asked(want, self.scene.nodes[at].object.kind() == S_IFDIR).as_str() {
            "read" => format!("reading of {path}"),
            "write" => format!("writing of {path}"),
            "search" => format!("searching of {path}"),
            "execute" => format!("executing of {path}"),
            "write+search" => format!("adding and removing of names in {path}"),
            both => format!("{both} of {path}"),
        }
    }

    /// Makes the identity a member of a group that has what is wanted.
    fn join_group(&mut self, at: NodeIx, reason: &Reason) -> Option<Step> {
        if matches!(reason.class, Some(Class::Owner | Class::NamedUser(_))) {
            return None;
        }
        let want = (reason.mask & 7) as u16;
        let object = &self.scene.nodes[at].object;
        let entries = object.acl.iter().flat_map(|acl| acl.entries()).copied();
        let mask = entries.clone().find(|entry| entry.tag == ACL_MASK).map_or(7, |entry| entry.perm);
        let named = entries.filter(|entry| matches!(entry.tag, ACL_GROUP | ACL_GROUP_OBJ)).map(|entry| {
            let gid = if entry.tag == ACL_GROUP { entry.id } else { object.gid };
            (gid, entry.perm & mask)
        });
        let by_mode = object.acl.is_none().then_some((object.gid, (object.mode >> 3 & 7) as u16));
        let member = |gid: u32| self.who.gids[3] == gid || self.who.groups.contains(&gid);
        // Group 0 is root's: its members may do much that has nothing to do with this.
        let gid = by_mode
            .into_iter()
            .chain(named)
            .find(|&(gid, perm)| gid != 0 && gid != u32::MAX && want & !perm == 0 && !member(gid))?
            .0;
        self.who.groups.push(gid);
        let group = label(gid, self.names.group(gid));
        let user = self.names.user(self.who.uids[3])?;
        // It may have become a member after it logged in.
        if in_group_by_now(&user, gid) {
            return Some(Step::new(
                "login",
                format!("su - {user}"),
                format!("nothing new: {user} is in group {group} by now, and a new login has it"),
            ));
        }
        let powerful = POWERFUL.contains(&group.as_str());
        let much = if powerful { ", which is as much as root may, or all that is secret here," } else { "" };
        Some(Step::new(
            if powerful { "power" } else { "group" },
            format!("usermod -aG {group} {user}"),
            format!("everything that group {group} may do{much} to {user}, from the next login on"),
        ))
    }

    /// Gives the identity an entry of the ACL, or the mask the bits that it holds back.
    fn add_entry(&mut self, at: NodeIx, reason: &Reason) -> Option<Step> {
        let (want, uid) = ((reason.mask & 7) as u16, self.who.uids[3]);
        let node = &self.scene.nodes[at];
        // Through an idmapped mount, ids are stored as others.
        let idmapped = self.scene.mounts[node.mount].idmapped;
        if reason.class == Some(Class::Owner) || node.object.no_acls || idmapped || !self.can_change(at) {
            return None;
        }
        let held_back = reason.acl_mask.is_some_and(|mask| reason.mask & 7 & !mask != 0)
            && reason.mask & 7 & !reason.bits == 0;
        let had = acl_perm(node.object.acl.as_ref(), ACL_MASK, 0);
        // An entry of the user's own takes the place of all that others and groups give, so it has that, too.
        let has = (reason.bits & reason.acl_mask.unwrap_or(7) & 7) as u16;
        let acl = wider_acl(&node.object, uid, if held_back { want } else { want | has }, held_back)?;
        let mask = acl_perm(Some(&acl), ACL_MASK, 0);
        let named = acl_perm(Some(&acl), ACL_USER, uid);
        let (user, path, asks) = (self.user(), self.path(at), self.asks(at, reason.mask));
        self.scene.change(at, |object| {
            object.mode = object.mode & !0o777 | acl.equiv_mode().0;
            object.acl = Some(acl.clone());
        });
        let letters = |perm: Option<u16>| mask_letters(u32::from(perm.unwrap_or(0)));
        Some(if held_back {
            let command = format!("setfacl -m m::{} {path}", letters(mask));
            Step::of(at, "acl", command, format!("{asks} to all whom its ACL grants more than the mask does"))
        } else {
            // With a mask there, setfacl(1) would make it what all entries have together, and open what it held back.
            let entries = match had {
                None => format!("-m u:{user}:{}", letters(named)),
                Some(_) if had == mask => format!("-n -m u:{user}:{}", letters(named)),
                Some(_) => format!("-n -m u:{user}:{},m::{}", letters(named), letters(mask)),
            };
            let command = format!("setfacl {entries} {path}");
            let step = Step::of(at, "acl", command, format!("{asks} to {user}"));
            Step { sets: Some((at, user.clone())), ..step }
        })
    }

    /// Gives an object whose owner the user namespace does not have to the namespace's root.
    fn map_owner(&mut self, at: NodeIx) -> Option<Step> {
        let maps = self.who.user_ns.as_ref()?;
        let root = |map: &[(u32, u32, u32)]| map.iter().find(|extent| extent.0 == 0).map(|extent| extent.1);
        let (uid, gid) = (root(&maps.uid_map)?, root(&maps.gid_map)?);
        let object = &self.scene.nodes[at].object;
        if (object.uid, object.gid) == (uid, gid) || !self.can_give(at) {
            return None;
        }
        let path = self.path(at);
        self.scene.change(at, |object| (object.uid, object.gid) = (uid, gid));
        Some(Step::of(
            at,
            "owner",
            format!("chown {uid}:{gid} {path}"),
            format!("{path} to root of the user namespace, and takes it from its owner"),
        ))
    }

    /// Gives an object to the identity.
    fn give(&mut self, at: NodeIx) -> Option<Step> {
        if !self.can_give(at) {
            return None;
        }
        let (uid, user, path) = (self.who.uids[3], self.user(), self.path(at));
        self.scene.change(at, |object| object.uid = uid);
        Some(Step::of(
            at,
            "owner",
            format!("chown -h {user} {path}"),
            format!("{path} to {user}, and takes it from its owner"),
        ))
    }

    /// Whether mode and ACL can be changed there: some file systems decide about them by themselves, and nothing can be changed
    /// that is read-only or immutable, or whose owner the mount has no id for.
    fn can_change(&self, at: NodeIx) -> bool {
        const KEEPS: [&str; 10] =
            ["proc", "vfat", "msdos", "exfat", "ntfs3", "iso9660", "squashfs", "erofs", "cramfs", "efivarfs"];
        let node = &self.scene.nodes[at];
        let mount = &self.scene.mounts[node.mount];
        let unmapped = mount.idmapped && (node.object.uid == OVERFLOW_ID || node.object.gid == OVERFLOW_ID);
        !(KEEPS.contains(&mount.fstype.as_str())
            || mount.options.read_only
            || mount.sb_read_only
            || unmapped
            || node.object.iflags & (IFLAG_IMMUTABLE | IFLAG_APPEND) != 0)
    }

    /// Whether an owner can be set there; an idmapped mount stores others.
    fn can_give(&self, at: NodeIx) -> bool {
        self.can_change(at) && !self.scene.mounts[self.scene.nodes[at].mount].idmapped
    }

    /// Adds permission bits to the class that answered.
    fn add_bits(&mut self, at: NodeIx, reason: &Reason) -> Option<Step> {
        if !self.can_change(at) {
            return None;
        }
        let has_acl = self.scene.nodes[at].object.acl.is_some();
        // Where group and others have the same, the kernel does not ask for groups; the group is enough for a member.
        let gid = self.scene.nodes[at].object.gid;
        let member = self.who.gids[3] == gid || self.who.groups.contains(&gid);
        let (letter, shift) = match reason.class? {
            Class::Other if member && !has_acl => ('g', 3),
            Class::Owner => ('u', 6),
            Class::Group if !has_acl => ('g', 3),
            Class::Other => ('o', 0),
            _ => return None,
        };
        let missing = reason.mask & 7 & !reason.bits;
        let letters: String = mask_letters(missing).chars().filter(|&c| c != '-').collect();
        let (path, asks) = (self.path(at), self.asks(at, missing));
        let group = label(gid, self.names.group(gid));
        self.scene.change(at, |object| {
            object.mode |= missing << shift;
            if let Some(acl) = &object.acl {
                let mut acl = acl.clone();
                acl.chmod_masq(object.mode);
                object.acl = Some(acl);
            }
        });
        let whom = match letter {
            'u' => "its owner".to_owned(),
            'g' => format!("group {group}"),
            _ => "everybody".to_owned(),
        };
        Some(Step::of(at, "mode", format!("chmod {letter}+{letters} {path}"), format!("{asks} to {whom}")))
    }

    fn unstick(&mut self, victim: NodeIx) -> Option<Step> {
        let dir = self.scene.nodes[victim].parent;
        if !self.can_change(dir) {
            return None;
        }
        let path = self.path(dir);
        self.scene.change(dir, |object| object.mode &= !S_ISVTX);
        Some(Step::new(
            "mode",
            format!("chmod -t {path}"),
            format!("everybody's entries in {path} to all who may write there"),
        ))
    }

    fn add_dac_capability(&mut self, at: NodeIx, reason: &Reason) -> Option<Step> {
        let is_dir = self.scene.nodes[at].object.kind() == S_IFDIR;
        let reads = if is_dir { reason.mask & MAY_WRITE == 0 } else { reason.mask & 7 == 4 };
        if reads {
            self.add_capability(CAP_DAC_READ_SEARCH, "reading of every file and directory")
        } else {
            self.add_capability(CAP_DAC_OVERRIDE, "reading and writing of everything")
        }
    }

    fn add_capability(&mut self, cap: u32, what: &str) -> Option<Step> {
        let set = self.who.effective() | CapSet::of(&[cap]);
        // Nothing brings back what the bounding set lacks.
        if set == self.who.effective() || !self.who.bounding().contains(cap) {
            return None;
        }
        self.who.grant(set);
        let [_, gid, ..] = self.who.gids;
        let uid = self.who.uids[3];
        let groups = match (self.names.user(uid), &self.who.groups[..]) {
            (Some(_), _) => "--init-groups".to_owned(),
            (None, []) => "--clear-groups".to_owned(),
            (None, groups) => {
                let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
                format!("--groups {}", groups.join(","))
            }
        };
        let user = self.user();
        let command = format!("setpriv --reuid {uid} --regid {gid} {groups}");
        let opens = format!("{what} to that program of {user}");
        Some(Step { cap: Some(cap), ..Step::new("capability", command, opens) })
    }

    fn unflag(&mut self, at: NodeIx, rule: &str) -> Option<Step> {
        let (letter, flag) = if rule == "immutable" { ('i', IFLAG_IMMUTABLE) } else { ('a', IFLAG_APPEND) };
        let path = self.path(at);
        self.scene.change(at, |object| object.iflags &= !flag);
        Some(Step::new(
            "attribute",
            format!("chattr -{letter} {path}"),
            format!("{path} to all who have permission"),
        ))
    }

    fn remount(&mut self, at: NodeIx, rule: &str) -> Option<Step> {
        let ix = self.scene.nodes[at].mount;
        let mount = &mut self.scene.mounts[ix];
        let fixed = ["iso9660", "squashfs", "erofs", "cramfs", "romfs"].contains(&mount.fstype.as_str())
            || mount.fstype == "overlay" && !mount.super_options.contains("upperdir=")
            || is_read_only_device(self.scene.nodes[at].object.host.0);
        if mount.unseen
            || mount.sb_read_only && fixed && matches!(rule, "read-only-superblock" | "read-only-mount")
        {
            return None;
        }
        let point = quoted(&mount.point);
        let superblock = rule == "read-only-superblock";
        let (word, opens) = match rule {
            "noexec" => ("exec", "running of programs"),
            "nodev" => ("dev", "devices"),
            "nosymfollow" => ("symfollow", "links"),
            _ => ("rw", "writing"),
        };
        mount.options.read_only &= word != "rw";
        mount.options.noexec &= word != "exec";
        mount.options.nodev &= word != "dev";
        mount.options.nosymfollow &= word != "symfollow";
        if superblock {
            mount.sb_read_only = false;
        }
        let bind = if superblock { "" } else { "bind," };
        let kept = kept_options(mount);
        Some(Step::new(
            "mount",
            format!("mount -o remount,{bind}{word}{kept} {point}"),
            format!("{opens} below {point} to all who have permission"),
        ))
    }

    fn unprotect(&mut self, at: NodeIx, rule: &str) -> Option<Step> {
        let protected = &mut self.scene.protected;
        let name = match rule {
            "protected-symlinks" => {
                protected.symlinks = false;
                "protected_symlinks"
            }
            "protected-hardlinks" => {
                protected.hardlinks = false;
                "protected_hardlinks"
            }
            _ if self.scene.nodes[at].object.kind() == S_IFIFO => {
                protected.fifos = 0;
                "protected_fifos"
            }
            _ => {
                protected.regular = 0;
                "protected_regular"
            }
        };
        Some(Step::new(
            "sysctl",
            format!("sysctl -w fs.{name}=0"),
            "traps in sticky directories, to everybody on this machine".to_owned(),
        ))
    }

    /// Has a script name an interpreter that is there.
    fn interpreter(&mut self, script: NodeIx, missing: &[u8]) -> Option<Step> {
        let without_cr = missing.strip_suffix(b"\r");
        let base = |path: &[u8]| path.rsplit(|&byte| byte == b'/').next().map(<[u8]>::to_vec);
        let found = match without_cr {
            Some(path) => self.interpreters.iter().find(|it| *it == path)?,
            None => self.interpreters.iter().find(|it| base(it) == base(missing) && *it != missing)?,
        };
        let line = self.scene.nodes[script].object.contents.as_ref()?.first()?.1.clone();
        let at =
            line.starts_with(b"#!").then(|| line.windows(missing.len()).position(|it| it == missing))??;
        let mut new = line[..at].to_vec();
        new.extend_from_slice(found);
        new.extend_from_slice(&line[at + missing.len()..]);
        let path = self.path(script);
        let command = match without_cr {
            Some(_) => format!("sed -i '1s/\\r$//' {path}"),
            None => format!("sed -i '1s|{}|{}|' {path}", missing.escape_ascii(), found.escape_ascii()),
        };
        let opens = format!("nothing: {path} runs with {}", found.escape_ascii());
        self.scene.change(script, |object| {
            object.size = object.size.saturating_sub(line.len() as u64) + new.len() as u64;
            object.contents = Some(vec![(0, new.clone())]);
        });
        Some(Step::new("interpreter", command, opens))
    }
}

/// What an entry of an ACL has, if there is one.
fn acl_perm(acl: Option<&Acl>, tag: u16, id: u32) -> Option<u16> {
    let mut entries = acl?.entries().iter();
    entries.find(|entry| entry.tag == tag && (tag == ACL_MASK || entry.id == id)).map(|entry| entry.perm)
}

/// Whether a file system is on a device that cannot be written to.
fn is_read_only_device(dev: u64) -> bool {
    let path = format!("/sys/dev/block/{}:{}/ro", rustix::fs::major(dev), rustix::fs::minor(dev));
    std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
}

/// The id that stands for one that a mount or namespace does not have.
const OVERFLOW_ID: u32 = 65_534;

/// The ACL with an entry for the user, or with a wider mask.
fn wider_acl(object: &crate::scene::Object, uid: u32, want: u16, mask_only: bool) -> Option<Acl> {
    let mode = object.mode;
    let mut entries: Vec<AclEntry> = match &object.acl {
        Some(acl) => acl.entries().to_vec(),
        None => [(ACL_USER_OBJ, 6), (ACL_GROUP_OBJ, 3), (ACL_OTHER, 0)]
            .map(|(tag, shift)| AclEntry::new(tag, (mode >> shift & 7) as u16))
            .to_vec(),
    };
    if mask_only {
        entries.iter_mut().filter(|entry| entry.tag == ACL_MASK).for_each(|entry| entry.perm |= want);
    } else {
        match entries.iter_mut().find(|entry| entry.tag == ACL_USER && entry.id == uid) {
            Some(entry) => entry.perm |= want,
            None => entries.push(AclEntry::user(uid, want)),
        }
        // A mask grows as little as it can. A new one is what all entries that it bounds have together.
        let named = acl_user_perm(&entries, uid);
        match entries.iter_mut().find(|entry| entry.tag == ACL_MASK) {
            Some(mask) => mask.perm |= want,
            None => {
                let group = entries.iter().find(|entry| entry.tag == ACL_GROUP_OBJ).map_or(0, |it| it.perm);
                entries.push(AclEntry::new(ACL_MASK, group | named));
            }
        }
    }
    entries.sort_by_key(|entry| (entry.tag, entry.id));
    UncheckedAcl::new(entries).validate(&UserNamespace::init()).ok()
}

fn acl_user_perm(entries: &[AclEntry], uid: u32) -> u16 {
    entries.iter().find(|entry| entry.tag == ACL_USER && entry.id == uid).map_or(0, |entry| entry.perm)
}

/// The restrictions that a remount must name to keep them.
fn kept_options(mount: &Mount) -> String {
    let o = mount.options;
    let all = [
        (o.read_only, ",ro"),
        (o.nosuid, ",nosuid"),
        (o.nodev, ",nodev"),
        (o.noexec, ",noexec"),
        (o.nosymfollow, ",nosymfollow"),
    ];
    all.into_iter().filter(|(on, _)| *on).map(|(_, word)| word).collect()
}

/// A path for a shell.
fn quoted(path: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+@:,%".contains(byte);
    match std::str::from_utf8(path) {
        Ok(text) if path.iter().all(plain) && !path.starts_with(b"-") => text.to_owned(),
        Ok(text) if !text.chars().any(char::is_control) => format!("'{}'", text.replace('\'', "'\\''")),
        _ => {
            let escaped: String = path
                .iter()
                .map(|&byte| match byte {
                    b'\'' | b'\\' => format!("\\{}", byte as char),
                    0x20..0x7f => (byte as char).to_string(),
                    byte => format!("\\x{byte:02x}"),
                })
                .collect();
            format!("$'{escaped}'")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_a_shell() {
        assert_eq!(quoted(b"/a/b.c"), "/a/b.c");
        assert_eq!(quoted(b"/a b'c"), r"'/a b'\''c'");
        assert_eq!(quoted(b"/a\n\xff'"), r"$'/a\x0a\xff\''");
    }

    #[test]
    fn steps_come_in_an_order_that_works() {
        let entry = |letters: &str, at: NodeIx| Step {
            sets: Some((at, "alice".to_owned())),
            ..Step::new("acl", format!("setfacl {letters} {at}"), format!("{letters} of {at}"))
        };
        let cap =
            |cap| Step { cap: Some(cap), ..Step::new("capability", "setpriv".into(), option_name(cap)) };
        let mount = || Step::new("mount", "mount".into(), "writing".into());
        let commands = |steps| {
            joined(steps, Vec::new()).map(|fix| (fix.kind, fix.commands.join("; "), fix.opens)).unwrap()
        };
        assert_eq!(
            commands(vec![entry("--x", 1), entry("-wx", 2), entry("-wx", 1), mount()]),
            (
                "mount",
                "mount; setfacl -wx 2; setfacl -wx 1".into(),
                "opens writing; and -wx of 2; and -wx of 1".into()
            )
        );
        let one = "setpriv --inh-caps +dac_override,+fowner --ambient-caps +dac_override,+fowner COMMAND";
        assert_eq!(
            commands(vec![cap(CAP_DAC_READ_SEARCH), cap(CAP_DAC_OVERRIDE), mount(), cap(CAP_FOWNER)]),
            ("mount", format!("mount; {one}"), "opens writing; and dac_override; and fowner".into())
        );
    }

    #[test]
    fn a_remount_keeps_what_else_is_forbidden() {
        let mut mount = Mount::default();
        (mount.options.nosuid, mount.options.noexec) = (true, true);
        assert_eq!(kept_options(&mount), ",nosuid,noexec");
    }
}
