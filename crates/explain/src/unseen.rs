//! What could not be seen, and might say no.

use rcuwalk::uapi::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFLNK, S_IFREG, makedev};

use crate::beside::TTY;
use crate::call::Call;
use crate::identity::Subject;
use crate::proc;
use crate::report::Verdict;
use crate::scene::{Mount, Node, NodeIx, Object, Scene, Swap};
use crate::sys;

/// File systems whose server decides, whatever modes say.
const REMOTE: [&str; 10] = ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "afs", "coda", "gfs2", "lustre"];

/// File systems that the kernel makes up: what a file of theirs does when it is opened, its own code decides.
const SPECIAL: [&str; 12] = [
    "proc",
    "sysfs",
    "cgroup",
    "cgroup2",
    "debugfs",
    "tracefs",
    "configfs",
    "securityfs",
    "bpf",
    "efivarfs",
    "pstore",
    "binfmt_misc",
];

/// Security modules that judge paths or labels: `LSM_ID_*`, and the name.
const MODULES: [(u64, &str); 3] = [(101, "selinux"), (102, "smack"), (103, "tomoyo")];
const APPARMOR: (u64, &str) = (104, "apparmor");
const LANDLOCK: (u64, &str) = (110, "landlock");

/// Devices that every process may open whose mode lets it: /dev/null, zero, full, random, urandom.
const PLAIN_DEVICES: [u64; 5] = [makedev(1, 3), makedev(1, 5), makedev(1, 7), makedev(1, 8), makedev(1, 9)];

/// What a layer that was not seen may do to a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum May {
    /// It may refuse what is allowed otherwise.
    Refuse,
    /// It decides by itself.
    Decide,
}

/// A layer that may decide, and was not seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Doubt {
    pub(crate) text: String,
    may: May,
    /// A call that a child of this process makes meets it: where that call answers as expected, the doubt is gone.
    pub(crate) settled: bool,
}

impl Doubt {
    fn new(may: May, settled: bool, text: String) -> Doubt {
        Doubt { text, may, settled }
    }

    /// Whether a verdict hangs on it.
    pub(crate) fn hangs(&self, verdict: Verdict) -> bool {
        match self.may {
            May::Decide => verdict != Verdict::Unknown,
            May::Refuse => verdict == Verdict::Allowed,
        }
    }
}

/// What of a question decides which layers there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Landlock can have rules for what is asked.
    pub(crate) meets_landlock: bool,
    /// The process sees other file systems than this one.
    pub(crate) foreign: bool,
}

/// What may decide beside what was seen along the way: the nodes that the walks came to.
pub(crate) fn doubts(
    scene: &Scene,
    nodes: &[NodeIx],
    who: &Subject,
    call: &Call,
    Seen { meets_landlock, foreign }: Seen,
) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let mut mounts: Vec<&Mount> = Vec::new();
    for &at in nodes {
        let Some(node) = scene.nodes.get(at) else { continue };
        let path = String::from_utf8_lossy(&scene.path(at)).into_owned();
        let unseen = node.object.unseen.iter();
        doubts.extend(unseen.map(|what| Doubt::new(May::Decide, true, format!("{path}: {what}"))));
        let may_refuse = node.object.may_refuse.iter();
        doubts.extend(may_refuse.map(|what| Doubt::new(May::Refuse, true, format!("{path}: {what}"))));
        if let Swap::Unseen(why) = &node.object.swap {
            // What is swapped to is opened, and then not written to.
            doubts.push(Doubt::new(May::Refuse, false, format!("{path}: {why}")));
        }
        let mount = &scene.mounts[node.mount];
        if !mounts.iter().any(|known| known.id == mount.id) {
            mounts.push(mount);
        }
        doubts.extend(of_node(node, mount, &path, who, call));
        if is_magic(scene, at) {
            let text =
                format!("{path} is a magic link, which leads to an open object and not along its body");
            doubts.push(Doubt::new(May::Decide, false, text));
        }
        if is_self(node, mount) && !(who.is_caller() || who.pid.is_some() && !foreign) {
            let text = format!("{path} leads to the process that asks, and which that is could not be seen");
            doubts.push(Doubt::new(May::Decide, false, text));
        }
    }
    if matches!(call, Call::Exec(_)) {
        doubts.extend(of_handlers(scene, nodes));
    }
    doubts.extend(mounts.iter().filter_map(|mount| of_mount(mount, who, call)));
    doubts.extend(of_modules(who, meets_landlock, call.opens()));
    if who.seccomp {
        // A child of this process has its filter; one of another process has not.
        let text = "a seccomp filter of the process may refuse the call".to_owned();
        doubts.push(Doubt::new(May::Refuse, who.pid.is_none(), text));
    }
    let hidden = nodes.iter().filter_map(|&at| scene.nodes.get(at)).any(|node| has_overflow(&node.object));
    if hidden && !ids_are_whole() {
        let text =
            "ids shown as 65534 may be any that this process's user namespace does not have".to_owned();
        doubts.push(Doubt::new(May::Decide, true, text));
    }
    doubts.sort_by(|a, b| a.text.cmp(&b.text));
    doubts.dedup();
    doubts
}

fn has_overflow(object: &Object) -> bool {
    object.uid == 65_534 || object.gid == 65_534
}

/// What the object itself decides: a device, or a file that the kernel makes up.
fn of_node(node: &Node, mount: &Mount, path: &str, who: &Subject, call: &Call) -> Vec<Doubt> {
    let object = &node.object;
    match object.kind() {
        S_IFDIR
            if matches!(call, Call::Rename(..))
                && mount.fstype == "overlay"
                && !mount.has("redirect_dir=on") =>
        {
            let text =
                format!("{path}: overlayfs does not rename a directory that a lower layer has (EXDEV)");
            vec![Doubt::new(May::Refuse, false, text)]
        }
        S_IFCHR | S_IFBLK if call.uses_contents() && !PLAIN_DEVICES.contains(&object.rdev) => {
            of_device(object, path, who, call)
        }
        S_IFREG if call.uses_contents() && SPECIAL.contains(&mount.fstype.as_str()) => {
            let text = format!("{path} is a file of {}, which may refuse by rules of its own", mount.fstype);
            vec![Doubt::new(May::Refuse, call.opens(), text)]
        }
        S_IFREG if matches!(call, Call::Exec(_)) && is_narrow(object) => {
            let text = format!("{path} is a program for 32 bits, which some kernels run");
            vec![Doubt::new(May::Decide, true, text)]
        }
        _ if mount.fstype == "proc" && mount.hides_processes() && is_of_process(path, mount) => {
            let text = format!("{path}: /proc is mounted with hidepid, which hides processes of other users");
            vec![Doubt::new(May::Decide, true, text)]
        }
        _ if mount.idmapped && has_overflow(object) => {
            let text = format!("{path}: its mount is idmapped, and an id that it shows as 65534 may be none");
            vec![Doubt::new(May::Decide, true, text)]
        }
        _ => Vec::new(),
    }
}

/// Whether this is an ELF file of 32 bits, for i386 or with the x32 ABI.
fn is_narrow(object: &Object) -> bool {
    let window =
        object.contents.as_ref().and_then(|pieces| pieces.first()).map(|(_, bytes)| bytes.as_slice());
    window.is_some_and(|bytes| bytes.starts_with(b"\x7fELF\x01"))
}

fn of_device(object: &Object, path: &str, who: &Subject, call: &Call) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    // A child of this process is in its cgroup.
    let mut doubt = |text: &str| {
        doubts.push(Doubt::new(May::Refuse, who.pid.is_none(), format!("{path}: {text}")));
    };
    if who.other_cgroup || object.cgroup_refuses.is_none() {
        doubt("the device cgroup may refuse");
    }
    match (object.rdev, who.terminal) {
        (TTY, Some(_)) => {}
        (TTY, None) => doubt("a process without a controlling terminal cannot open it"),
        _ if call.opens() => doubt("the device's driver may refuse"),
        _ => {}
    }
    doubts
}

/// Programs that a handler of `binfmt_misc` runs: it is asked before the kernel looks for itself.
fn of_handlers(scene: &Scene, nodes: &[NodeIx]) -> Vec<Doubt> {
    let entries = std::fs::read_dir("/proc/sys/fs/binfmt_misc").into_iter().flatten().flatten();
    let texts = entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    let handlers: Vec<proc::Handler> = texts.filter_map(|text| proc::handler(&text)).collect();
    let programs =
        nodes.iter().filter_map(|&at| Some((at, scene.nodes.get(at)?.object.contents.as_ref()?.first()?)));
    let mut doubts = Vec::new();
    for (at, (_, window)) in programs {
        let path = scene.path(at);
        if let Some(handler) = handlers.iter().find(|handler| handler.takes(&scene.nodes[at].name, window)) {
            let (path, by) = (String::from_utf8_lossy(&path), &handler.interpreter);
            let text =
                format!("{path}: binfmt_misc has {by} run it, and whether that runs was not looked at");
            doubts.push(Doubt::new(May::Decide, true, text));
        }
    }
    doubts
}

/// Whether a path of a proc file system lies in the directory of a process.
fn is_of_process(path: &str, mount: &Mount) -> bool {
    let point = String::from_utf8_lossy(&mount.point).into_owned();
    let rest = path.strip_prefix(point.as_str()).unwrap_or(path).trim_start_matches('/');
    rest.starts_with(|c: char| c.is_ascii_digit())
}

fn of_mount(mount: &Mount, who: &Subject, call: &Call) -> Option<Doubt> {
    let point = String::from_utf8_lossy(&mount.point).into_owned();
    let fstype = mount.fstype.as_str();
    let (may, text) = if mount.unseen {
        let text = format!("mount number {} is not listed: what it forbids is known in part only", mount.id);
        (May::Refuse, text)
    } else if REMOTE.contains(&fstype) {
        (May::Decide, format!("{point} is {fstype}: its server decides, whatever the modes say here"))
    } else if mount.is_fuse() && !mount.has("default_permissions") && !mount.shuts_out(who.uids, who.gids) {
        (May::Decide, format!("{point} is {fstype} without default_permissions: its program decides"))
    } else if fstype == "ecryptfs" || fstype == "overlay" && mount.has("userxattr") {
        let text =
            format!("{point} is {fstype}, which asks the file systems below as the user who mounted it");
        (May::Refuse, text)
    } else if mount.idmapped && call.creates() {
        (May::Refuse, format!("{point} is idmapped, and which ids it can store is not known"))
    } else {
        return None;
    };
    Some(Doubt::new(may, true, text))
}

fn of_modules(who: &Subject, meets_landlock: bool, opens: bool) -> Vec<Doubt> {
    let numbers = sys::security_modules();
    let list = std::fs::read_to_string("/sys/kernel/security/lsm").ok();
    if numbers.is_none() && list.is_none() {
        let text = "which security modules are active could not be seen".to_owned();
        return vec![Doubt::new(May::Refuse, who.pid.is_none(), text)];
    }
    let active = |(number, name): (u64, &str)| match &numbers {
        Some(numbers) => numbers.contains(&number),
        None => list.iter().any(|list| list.trim().split(',').any(|it| it == name)),
    };
    let mut doubts = Vec::new();
    // A child of this process has its label.
    let mut doubt = |text| doubts.push(Doubt::new(May::Refuse, who.pid.is_none(), text));
    let label = who.label_lsm.as_ref().map_or_else(String::new, |label| format!(" (label {label})"));
    for module in MODULES.into_iter().filter(|module| active(*module)) {
        doubt(format!("{} may refuse more{label}", module.1));
    }
    if active(APPARMOR) && !label.is_empty() {
        doubt(format!("{} may refuse more{label}", APPARMOR.1));
    }
    if meets_landlock && active(LANDLOCK) && who.no_new_privs {
        // Of what a child of this process may ask without changing anything, opening alone meets its rules.
        let text = "Landlock rules of the process, if it has any, cannot be seen".to_owned();
        doubts.push(Doubt::new(May::Refuse, who.pid.is_none() && opens, text));
    }
    doubts
}

/// Whether this process sees every id.
fn ids_are_whole() -> bool {
    let whole = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        proc::is_identity(&proc::id_map(&text))
    };
    whole("uid_map") && whole("gid_map")
}

/// Whether this is a link of a proc file system to the process that follows it.
fn is_self(node: &Node, mount: &Mount) -> bool {
    mount.fstype == "proc"
        && node.object.kind() == S_IFLNK
        && [b"self".as_slice(), b"thread-self"].contains(&node.name.as_slice())
}

/// Whether a link is one that `/proc` makes up: following it does not lead along its body.
fn is_magic(scene: &Scene, node: NodeIx) -> bool {
    const PLAIN: [&[u8]; 4] = [b"self", b"thread-self", b"mounts", b"net"];
    scene.nodes.get(node).is_some_and(|node| {
        node.object.kind() == S_IFLNK
            && scene.mounts[node.mount].fstype == "proc"
            && !PLAIN.contains(&node.name.as_slice())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_with_rules_of_their_own_are_named() {
        let who = Subject::of_user("4000000000").unwrap();
        let (read, create) = (Call::Open(b"/f".to_vec(), 0, 0), Call::Mkdir(b"/f".to_vec(), 0o755));
        let mount = |fstype: &str, super_options: &str| Mount {
            fstype: fstype.into(),
            super_options: super_options.into(),
            ..Mount::default()
        };
        let doubt = |fstype: &str, options: &str| of_mount(&mount(fstype, options), &who, &read);
        let text = |fstype: &str, options: &str| doubt(fstype, options).map(|it| it.text).unwrap_or_default();
        assert_eq!(doubt("ext4", "rw"), None);
        assert!(text("nfs4", "rw").contains("server"));
        assert!(doubt("nfs4", "rw").unwrap().hangs(Verdict::Denied), "the server may allow it, too");
        assert_eq!(
            doubt("fuse.sshfs", "rw,user_id=0,group_id=0"),
            None,
            "nobody else gets in: that is known"
        );
        assert!(text("fuse.sshfs", "rw,user_id=4000000000").contains("default_permissions"));
        assert_eq!(doubt("fuse", "rw,user_id=0,allow_other,default_permissions"), None);
        assert_eq!(doubt("overlay", "rw,lowerdir=/a"), None);
        let stacked = doubt("overlay", "rw,userxattr").unwrap();
        assert!(stacked.hangs(Verdict::Allowed) && !stacked.hangs(Verdict::Denied));
        let idmapped = Mount { idmapped: true, ..mount("ext4", "rw") };
        assert!(of_mount(&idmapped, &who, &read).is_none() && of_mount(&idmapped, &who, &create).is_some());
    }

    #[test]
    fn fuse_lets_in_the_user_who_mounted() {
        let mount = |options: &str| Mount {
            fstype: "fuse.x".into(),
            super_options: options.into(),
            ..Mount::default()
        };
        let own = mount("rw,user_id=7,group_id=8");
        assert!(!own.shuts_out([7; 4], [8; 4]));
        assert!(own.shuts_out([0; 4], [0; 4]), "root neither");
        assert!(own.shuts_out([7, 7, 0, 7], [8; 4]) && own.shuts_out([7; 4], [9; 4]), "all ids count");
        assert!(!mount("rw,user_id=7,group_id=8,allow_other").shuts_out([9; 4], [9; 4]));
    }

    #[test]
    fn what_a_process_hides_behind_is_named() {
        let mut who = Subject::of_user("4000000000").unwrap();
        let scene = Scene::default();
        let read = Call::Open(b"/f".to_vec(), 0, 0);
        let before = doubts(&scene, &[], &who, &read, Seen { meets_landlock: true, foreign: false });
        (who.seccomp, who.pid) = (true, Some(1));
        let with = doubts(&scene, &[], &who, &read, Seen { meets_landlock: true, foreign: false });
        let filter = with.iter().find(|doubt| doubt.text.contains("seccomp")).unwrap();
        assert!(!before.contains(filter) && filter.hangs(Verdict::Allowed) && !filter.settled);
        assert!(!filter.hangs(Verdict::Denied), "a filter allows nothing");
    }
}
