//! What could not be seen, and might say no.

use rcuwalk::uapi::S_IFLNK;

use crate::identity::Subject;
use crate::proc;
use crate::scene::{Mount, NodeIx, Scene};

/// File systems whose server decides, whatever modes say.
const REMOTE: [&str; 10] = ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "afs", "coda", "gfs2", "lustre"];

/// File systems that are made up, with checks of their own for some files.
const SPECIAL: [&str; 3] = ["proc", "cgroup", "cgroup2"];

/// Security modules that judge paths or labels.
const MODULES: [&str; 4] = ["selinux", "apparmor", "smack", "tomoyo"];

/// What may decide beside what was seen along the way: the nodes that the walks came to.
pub(crate) fn doubts(scene: &Scene, nodes: &[NodeIx], who: &Subject) -> Vec<String> {
    let mut doubts = Vec::new();
    let mut mounts: Vec<&Mount> = Vec::new();
    for &at in nodes {
        let Some(node) = scene.nodes.get(at) else { continue };
        let path = String::from_utf8_lossy(&scene.path(at)).into_owned();
        doubts.extend(node.object.unseen.iter().map(|what| format!("{path}: {what}")));
        let mount = &scene.mounts[node.mount];
        if !mounts.iter().any(|known| known.id == mount.id) {
            mounts.push(mount);
        }
    }
    doubts.extend(mounts.iter().filter_map(|mount| of_mount(mount, who)));
    doubts.extend(of_modules(who));
    if who.seccomp {
        doubts.push("a seccomp filter of the process may refuse the call".to_owned());
    }
    let overflow = |id: u32| id == 65_534;
    let hidden = nodes
        .iter()
        .filter_map(|&at| scene.nodes.get(at))
        .any(|n| overflow(n.object.uid) || overflow(n.object.gid));
    if hidden && !ids_are_whole() {
        doubts.push(
            "ids shown as 65534 may be any that this process's user namespace does not have".to_owned(),
        );
    }
    doubts.sort_unstable();
    doubts.dedup();
    doubts
}

fn of_mount(mount: &Mount, who: &Subject) -> Option<String> {
    let point = String::from_utf8_lossy(&mount.point).into_owned();
    let fstype = mount.fstype.as_str();
    let has = |option: &str| mount.super_options.split(',').any(|it| it == option);
    if mount.unseen {
        return Some(format!(
            "mount number {} is not listed: what it forbids is known in part only",
            mount.id
        ));
    }
    if REMOTE.contains(&fstype) {
        return Some(format!("{point} is {fstype}: its server decides, whatever the modes say here"));
    }
    if fstype == "fuse" || fstype.starts_with("fuse.") || fstype == "fuseblk" {
        let owner = format!("user_id={}", who.uids[3]);
        if !has("allow_other") && !has(&owner) {
            return Some(format!(
                "{point} is {fstype} without allow_other: only the user who mounted it gets in"
            ));
        }
        return (!has("default_permissions"))
            .then(|| format!("{point} is {fstype} without default_permissions: its program decides"));
    }
    if mount.idmapped {
        return Some(format!(
            "{point} is idmapped: ids are as it shows them, 65534 may stand for none, and which ids it can store is not \
             known"
        ));
    }
    SPECIAL
        .contains(&fstype)
        .then(|| format!("{point} is {fstype}: some of its files have rules of their own"))
}

fn of_modules(who: &Subject) -> Vec<String> {
    let list = std::fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
    let active = |name: &str| list.trim().split(',').any(|it| it == name);
    let label = who.label_lsm.as_ref().map_or_else(String::new, |label| format!(" (label {label})"));
    let module = MODULES.iter().filter(|name| active(name));
    let mut doubts: Vec<String> = module.map(|name| format!("{name} may refuse more{label}")).collect();
    if doubts.is_empty() && !label.is_empty() {
        doubts.push(format!("a security module may refuse more{label}"));
    }
    if who.pid.is_some() && active("landlock") && who.no_new_privs {
        doubts.push("Landlock rules of the process, if it has any, cannot be seen".to_owned());
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

/// Whether a link is one that `/proc` makes up: following it does not lead along its body.
pub(crate) fn is_magic(scene: &Scene, node: NodeIx) -> bool {
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
        let doubt = |fstype: &str, super_options: &str| {
            let mount =
                Mount { fstype: fstype.into(), super_options: super_options.into(), ..Mount::default() };
            of_mount(&mount, &who).unwrap_or_default()
        };
        assert_eq!(doubt("ext4", "rw"), "");
        assert!(doubt("nfs4", "rw").contains("server"));
        assert!(doubt("fuse.sshfs", "rw,user_id=0").contains("allow_other"));
        assert!(doubt("fuse.sshfs", "rw,user_id=4000000000").contains("default_permissions"));
        assert_eq!(doubt("fuse", "rw,user_id=0,allow_other,default_permissions"), "");
        assert!(doubt("proc", "rw").contains("rules of their own"));
    }
}
