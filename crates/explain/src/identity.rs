//! Who asks: a user, or a process with all that decides what it may do.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

use nix::unistd::{Gid, Group, Uid, User};
use rcuwalk::cred::{CAP_NAMES, CapSet, Cred};
use rcuwalk::userns::{IdExtent, UserNamespace};
use rcuwalk_host::{HostNames, Identity, IdentityError, Names as _, change_caps};

use crate::error::{Error, io_errno};
use crate::proc::{self, Status};

/// A user namespace other than this process's own, by its maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdMaps {
    /// From ids inside to ids as this process sees them.
    pub uid_map: Vec<(u32, u32, u32)>,
    /// The same for groups.
    pub gid_map: Vec<(u32, u32, u32)>,
}

/// A credential, and what else of a process decides what it may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// How it was asked for: `user alice`, `process 1234`, `this process`.
    pub label: String,
    /// Real, effective, saved and file system user id, as this process's user namespace shows them.
    pub uids: [u32; 4],
    /// The same for groups.
    pub gids: [u32; 4],
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Inheritable, permitted, effective, bounding and ambient capabilities.
    pub caps: [CapSet; 5],
    /// `SECBIT_*`; of another process they cannot be seen, and are taken as 0.
    pub securebits: u32,
    /// Nothing it executes gives it privileges.
    pub no_new_privs: bool,
    /// The user namespace, if it is another one than this process's.
    pub user_ns: Option<IdMaps>,
    /// The process, if it is one.
    pub pid: Option<i32>,
    /// The label of a security module, such as an AppArmor profile or an SELinux context.
    pub label_lsm: Option<String>,
    /// System calls are filtered.
    pub seccomp: bool,
    /// Its umask.
    pub umask: u32,
    /// It has a controlling terminal; `None` if that is not known, as of a user.
    pub terminal: Option<bool>,
    /// It is in another cgroup than this process, so that another device cgroup may apply.
    pub other_cgroup: bool,
    /// `LD_LIBRARY_PATH` of the programs that it executes; empty for none, whatever its own environment says.
    pub library_path: Vec<u8>,
}

const THIS_PROCESS: &str = "this process";
const EFFECTIVE: usize = 2;
const BOUNDING: usize = 3;

impl Subject {
    /// This process.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] if `/proc` cannot be read.
    pub fn caller() -> Result<Subject, Error> {
        let status = read_status("thread-self")?;
        let securebits = securebits();
        Ok(Subject { label: THIS_PROCESS.to_owned(), securebits, ..from_status(status, "thread-self", None) })
    }

    /// Process `pid`: real credentials, capabilities and user namespace.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] if there is no such process, or it may not be looked at.
    pub fn of_process(pid: i32) -> Result<Subject, Error> {
        let who = pid.to_string();
        let mut identity = from_status(read_status(&who)?, &who, Some(pid));
        let namespace =
            |who: &str| std::fs::metadata(format!("/proc/{who}/ns/user")).map(|m| (m.dev(), m.ino()));
        let failed = |file: &str, e: &std::io::Error| Error::Host {
            what: "looking at a process",
            path: format!("/proc/{pid}/{file}"),
            errno: io_errno(e),
            hint: "run as root",
        };
        let theirs = namespace(&who).map_err(|e| failed("ns/user", &e))?;
        if namespace("self").ok() != Some(theirs) {
            let map = |name: &str| {
                let text =
                    std::fs::read_to_string(format!("/proc/{pid}/{name}")).map_err(|e| failed(name, &e))?;
                Ok::<_, Error>(proc::id_map(&text).iter().map(|e| (e.first, e.lower, e.count)).collect())
            };
            identity.user_ns = Some(IdMaps { uid_map: map("uid_map")?, gid_map: map("gid_map")? });
        }
        Ok(identity)
    }

    /// A user as [`Identity::parse`] reads it, with the names of this machine. `all` capabilities, which are root's, are
    /// those that this process could have.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] for a text that names no identity.
    pub fn of_user(text: &str) -> Result<Subject, Error> {
        let bounding = read_status("thread-self")?.bounding;
        // What this process does not have itself, nothing that it becomes can have.
        let who = Identity::parse_within(text, &HostNames, bounding).map_err(usage)?;
        let account = HostNames.user_by_id(who.uid).map_err(usage)?;
        Ok(Subject {
            label: account.map_or_else(|| format!("uid {}", who.uid), |user| format!("user {}", user.name)),
            uids: [who.uid; 4],
            gids: [who.gid; 4],
            groups: who.groups,
            caps: [CapSet::EMPTY, who.caps, who.caps, bounding, CapSet::EMPTY],
            securebits: 0,
            no_new_privs: false,
            user_ns: None,
            pid: None,
            label_lsm: None,
            seccomp: false,
            umask: 0o022,
            terminal: None,
            other_cgroup: false,
            library_path: Vec::new(),
        })
    }

    /// Changes the capabilities in force: `+CAP,...` and `-CAP,...`, in the order written, with `all` for those that there
    /// can be.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] for a capability that does not exist, or a list that does not begin with a sign.
    pub fn change_caps(&mut self, text: &str) -> Result<(), Error> {
        let set = change_caps(text, self.caps[EFFECTIVE], self.caps[BOUNDING]).map_err(usage)?;
        self.grant(set);
        Ok(())
    }

    /// Makes these the permitted and effective capabilities.
    pub(crate) fn grant(&mut self, set: CapSet) {
        let [inheritable, _, _, bounding, ambient] = self.caps;
        self.caps = [inheritable, set, set, bounding, ambient & set & inheritable];
    }

    /// The capabilities in force.
    pub fn effective(&self) -> CapSet {
        self.caps[EFFECTIVE]
    }

    /// Whether it is this process.
    pub(crate) fn is_caller(&self) -> bool {
        self.label == THIS_PROCESS
    }

    /// The capabilities that a program it starts can have.
    pub(crate) fn bounding(&self) -> CapSet {
        self.caps[BOUNDING]
    }

    /// The credential, with a user namespace like the process's.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] for ids or maps that no process can have.
    pub(crate) fn cred(&self) -> Result<Cred, Error> {
        let [uid, euid, suid, fsuid] = self.uids;
        let [gid, egid, sgid, fsgid] = self.gids;
        let [inheritable, permitted, effective, bounding, ambient] = self.caps;
        let wrong =
            |errno| Error::Usage(format!("{}: no process can have this credential: {errno}", self.label));
        let builder = Cred::builder()
            .uids(uid, euid, suid, fsuid)
            .gids(gid, egid, sgid, fsgid)
            .groups(&self.groups)
            .inheritable(inheritable)
            .permitted(permitted)
            .effective(effective)
            .bounding(bounding)
            .ambient(ambient)
            .securebits(self.securebits);
        let builder = match &self.user_ns {
            None => builder,
            Some(maps) => {
                let ns = UserNamespace::new_child(&UserNamespace::init(), 0, 0, true).map_err(wrong)?;
                let extents = |map: &[(u32, u32, u32)]| -> Vec<IdExtent> {
                    map.iter().map(|&(first, lower, count)| IdExtent { first, lower, count }).collect()
                };
                // Without a map no id is mapped, which is what leaving it unset says, too.
                if !maps.uid_map.is_empty() {
                    ns.set_uid_map(&extents(&maps.uid_map)).map_err(wrong)?;
                }
                if !maps.gid_map.is_empty() {
                    ns.set_gid_map(&extents(&maps.gid_map)).map_err(wrong)?;
                }
                builder.user_ns(ns)
            }
        };
        builder.build().map_err(wrong)
    }
}

fn sorted(mut ids: Vec<u32>) -> Vec<u32> {
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The securebits of this thread; no other's can be seen.
fn securebits() -> u32 {
    rustix::thread::capabilities_secure_bits().map_or(0, |bits| bits.bits())
}

fn read_status(who: &str) -> Result<Status, Error> {
    let path = format!("/proc/{who}/status");
    let failed = |errno| Error::Host {
        what: "reading the credentials",
        path: path.clone(),
        errno,
        hint: "name a process that runs, or run as root",
    };
    let text = std::fs::read_to_string(&path).map_err(|e| failed(io_errno(&e)))?;
    proc::status(&text).ok_or_else(|| failed(rcuwalk::Errno::EINVAL))
}

fn from_status(status: Status, who: &str, pid: Option<i32>) -> Subject {
    let lsm = std::fs::read_to_string(format!("/proc/{who}/attr/current")).ok();
    let lsm = lsm.map(|label| label.trim_end_matches(['\0', '\n']).to_owned());
    Subject {
        label: format!("process {who}"),
        uids: status.uids,
        gids: status.gids,
        groups: sorted(status.groups),
        caps: [status.inheritable, status.permitted, status.effective, status.bounding, status.ambient],
        securebits: 0,
        no_new_privs: status.no_new_privs,
        user_ns: None,
        pid,
        label_lsm: lsm.filter(|label| !label.is_empty() && label != "unconfined"),
        seccomp: status.seccomp,
        umask: status.umask,
        terminal: std::fs::read_to_string(format!("/proc/{who}/stat"))
            .ok()
            .and_then(|it| proc::terminal(&it)),
        other_cgroup: cgroup(who).is_none_or(|theirs| cgroup("self") != Some(theirs)),
        library_path: Vec::new(),
    }
}

fn cgroup(who: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{who}/cgroup")).ok()
}

fn usage(error: IdentityError) -> Error {
    Error::Usage(error.to_string())
}

/// Whether a login of the user would have this group by now.
pub(crate) fn in_group_by_now(user: &str, gid: u32) -> bool {
    let account = HostNames.user(user).ok().flatten();
    account.is_some_and(|account| account.gid == gid || account.groups.contains(&gid))
}

/// Names of users and groups, each looked up once.
#[derive(Debug, Default)]
pub(crate) struct Names {
    users: BTreeMap<u32, Option<String>>,
    groups: BTreeMap<u32, Option<String>>,
}

impl Names {
    /// The name of a user, if it has one.
    pub(crate) fn user(&mut self, uid: u32) -> Option<String> {
        let find = || User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name);
        self.users.entry(uid).or_insert_with(find).clone()
    }

    /// The name of a group, if it has one.
    pub(crate) fn group(&mut self, gid: u32) -> Option<String> {
        let find = || Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name);
        self.groups.entry(gid).or_insert_with(find).clone()
    }
}

/// `CAP_CHOWN` for 0, and so on.
pub(crate) fn cap_name(cap: u32) -> String {
    CAP_NAMES.get(cap as usize).map_or_else(|| format!("CAP_{cap}"), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcuwalk::uapi::{CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_MKNOD};

    #[test]
    fn identities_are_read() {
        let root = Subject::of_user("root").unwrap();
        assert_eq!((root.uids, root.label.as_str()), ([0; 4], "user root"));
        assert!(root.effective().contains(CAP_DAC_OVERRIDE) || root.caps[3].is_empty());
        let nobody = Subject::of_user("4000000000:7,9,8").unwrap();
        assert_eq!((nobody.gids, nobody.groups.as_slice()), ([7; 4], &[8, 9][..]));
        assert_eq!(nobody.effective(), CapSet::EMPTY);
        assert_eq!(Subject::of_user("4000000000").unwrap().gids, [4_000_000_000; 4]);
        for wrong in ["", "no such user", "4294967295", "0:", "0:no such group", "0:1,"] {
            assert!(matches!(Subject::of_user(wrong), Err(Error::Usage(_))), "{wrong}");
        }
    }

    #[test]
    fn capabilities_are_changed() {
        let mut who = Subject::of_user("4000000000+chown,FOWNER").unwrap();
        assert_eq!(who.effective(), CapSet::of(&[CAP_CHOWN, CAP_FOWNER]));
        who.change_caps("-chown+dac_override").unwrap();
        assert_eq!(who.effective(), CapSet::of(&[CAP_FOWNER, CAP_DAC_OVERRIDE]));
        who.change_caps("+all-dac_read_search").unwrap();
        assert_eq!(who.effective(), who.caps[BOUNDING] - CapSet::of(&[CAP_DAC_READ_SEARCH]));
        who.change_caps("-all").unwrap();
        assert!(who.effective().is_empty());
        assert!(who.change_caps("+flying").is_err() && who.change_caps("chown").is_err());
        assert_eq!(cap_name(CAP_MKNOD), "CAP_MKNOD");
    }

    #[test]
    fn this_process_is_what_it_is() {
        let me = Subject::caller().unwrap();
        assert_eq!(me.uids[1], nix::unistd::geteuid().as_raw());
        let again = Subject::of_process(std::process::id() as i32).unwrap();
        assert_eq!((again.uids, again.user_ns.as_ref()), (me.uids, None));
        me.cred().unwrap();
        assert!(Subject::of_process(i32::MAX).is_err());
    }
}
