//! Who asks.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

use nix::unistd::{Gid, Group, Uid, User};
use rcuwalk::cred::{CapSet, Cred};
use rcuwalk::uapi::NGROUPS_MAX;
use rcuwalk::userns::{IdExtent, UserNamespace};
use rcuwalk_host::{Account, HostNames, IdentityError, Names as _, parse_caps};

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
pub struct Identity {
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
}

const EFFECTIVE: usize = 2;
const BOUNDING: usize = 3;

impl Identity {
    /// This process.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] if `/proc` cannot be read.
    pub fn caller() -> Result<Identity, Error> {
        let status = read_status("thread-self")?;
        let securebits = securebits();
        Ok(Identity {
            label: "this process".to_owned(),
            securebits,
            ..from_status(status, "thread-self", None)
        })
    }

    /// Process `pid`: real credentials, capabilities and user namespace.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] if there is no such process, or it may not be looked at.
    pub fn of_process(pid: i32) -> Result<Identity, Error> {
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

    /// `USER`, `UID`, `USER:GROUP[,GROUP...]` or `UID:GID[,GID...]`. Without groups, those that a login of the user gets;
    /// of a uid that has no user, the group of the same number. Root gets all capabilities that this process could have,
    /// anybody else none.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] for a user or group that does not exist.
    pub fn of_user(text: &str) -> Result<Identity, Error> {
        let (user, groups) = text.split_once(':').map_or((text, None), |(user, groups)| (user, Some(groups)));
        let (uid, account) = find_user(user)?;
        let (gid, groups) = match groups {
            Some(list) => {
                let mut gids = list.split(',').map(find_group).collect::<Result<Vec<u32>, Error>>()?;
                (gids.remove(0), gids)
            }
            // What a login of the user gives.
            None => account.as_ref().map_or((uid, Vec::new()), |user| (user.gid, user.groups.clone())),
        };
        if groups.len() > NGROUPS_MAX {
            return Err(Error::Usage(format!("more than {NGROUPS_MAX} groups")));
        }
        let name = account.map_or_else(|| format!("uid {uid}"), |user| format!("user {}", user.name));
        let bounding = read_status("thread-self")?.bounding;
        let full = if uid == 0 { bounding } else { CapSet::EMPTY };
        Ok(Identity {
            label: name,
            uids: [uid; 4],
            gids: [gid; 4],
            groups: sorted(groups),
            caps: [CapSet::EMPTY, full, full, bounding, CapSet::EMPTY],
            securebits: 0,
            no_new_privs: false,
            user_ns: None,
            pid: None,
            label_lsm: None,
            seccomp: false,
            umask: 0o022,
        })
    }

    /// Replaces the capabilities in force: `none`, `all` that there are on this machine, or a list of names with or without `cap_`, each with `-` in
    /// front to take it away from what there was, or `+` to add it. A list without signs says all there are.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] for a capability that does not exist.
    pub fn set_caps(&mut self, text: &str) -> Result<(), Error> {
        let mut set = self.caps[EFFECTIVE];
        let words: Vec<&str> = text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
        if words.iter().any(|word| !word.starts_with(['+', '-'])) {
            set = CapSet::EMPTY;
        }
        for word in words {
            let (minus, name) = match word.strip_prefix('-') {
                Some(name) => (true, name),
                None => (false, word.strip_prefix('+').unwrap_or(word)),
            };
            let named = match name {
                "none" => CapSet::EMPTY,
                // What this process does not have itself, nobody whom it becomes can have.
                "all" => self.caps[BOUNDING],
                name => parse_caps(name).map_err(|_| {
                    Error::Usage(format!("'{name}' is no capability; capabilities(7) lists them"))
                })?,
            };
            set = if minus { set - named } else { set | named };
        }
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

fn from_status(status: Status, who: &str, pid: Option<i32>) -> Identity {
    let lsm = std::fs::read_to_string(format!("/proc/{who}/attr/current")).ok();
    let lsm = lsm.map(|label| label.trim_end_matches(['\0', '\n']).to_owned());
    Identity {
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
    }
}

fn find_user(text: &str) -> Result<(u32, Option<Account>), Error> {
    if let Ok(uid) = text.parse::<u32>() {
        if uid == u32::MAX {
            return Err(reserved(text));
        }
        return Ok((uid, HostNames.user_by_id(uid).map_err(unavailable)?));
    }
    if is_number(text) {
        return Err(reserved(text));
    }
    let account = HostNames.user(text).map_err(unavailable)?;
    let missing = || Error::Usage(format!("no user is named '{text}'; `getent passwd` lists them"));
    account.map(|account| (account.uid, Some(account))).ok_or_else(missing)
}

fn find_group(text: &str) -> Result<u32, Error> {
    match text.parse::<u32>() {
        Ok(u32::MAX) => Err(reserved(text)),
        Ok(gid) => Ok(gid),
        Err(_) if is_number(text) => Err(reserved(text)),
        Err(_) => {
            let missing = || Error::Usage(format!("no group is named '{text}'; `getent group` lists them"));
            HostNames.group(text).map_err(unavailable)?.ok_or_else(missing)
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn reserved(id: &str) -> Error {
    Error::Usage(format!("{id} is no id: they go from 0 to 4294967294"))
}

fn unavailable(error: IdentityError) -> Error {
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
pub fn cap_name(cap: u32) -> String {
    rcuwalk_host::cap_name(cap)
        .map_or_else(|| format!("CAP_{cap}"), |name| format!("CAP_{}", name.to_uppercase()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcuwalk::uapi::{
        CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_LAST_CAP, CAP_MKNOD,
    };

    #[test]
    fn identities_are_read() {
        let root = Identity::of_user("root").unwrap();
        assert_eq!((root.uids, root.label.as_str()), ([0; 4], "user root"));
        assert!(root.effective().contains(CAP_DAC_OVERRIDE) || root.caps[3].is_empty());
        let nobody = Identity::of_user("4000000000:7,9,8").unwrap();
        assert_eq!((nobody.gids, nobody.groups.as_slice()), ([7; 4], &[8, 9][..]));
        assert_eq!(nobody.effective(), CapSet::EMPTY);
        assert_eq!(Identity::of_user("4000000000").unwrap().gids, [4_000_000_000; 4]);
        for wrong in ["", "no such user", "4294967295", "0:", "0:no such group", "0:1,"] {
            assert!(matches!(Identity::of_user(wrong), Err(Error::Usage(_))), "{wrong}");
        }
    }

    #[test]
    fn capabilities_are_read() {
        let mut who = Identity::of_user("4000000000").unwrap();
        who.set_caps("cap_chown,FOWNER").unwrap();
        assert_eq!(who.effective(), CapSet::of(&[CAP_CHOWN, CAP_FOWNER]));
        who.set_caps("-chown,+dac_override").unwrap();
        assert_eq!(who.effective(), CapSet::of(&[CAP_FOWNER, CAP_DAC_OVERRIDE]));
        who.set_caps("all,-dac_read_search").unwrap();
        assert_eq!(who.effective(), who.caps[BOUNDING] - CapSet::of(&[CAP_DAC_READ_SEARCH]));
        who.set_caps("none").unwrap();
        assert!(who.effective().is_empty() && who.set_caps("flying").is_err());
        assert_eq!(cap_name(CAP_MKNOD), "CAP_MKNOD");
        assert_eq!(cap_name(CAP_LAST_CAP), "CAP_CHECKPOINT_RESTORE");
    }

    #[test]
    fn this_process_is_what_it_is() {
        let me = Identity::caller().unwrap();
        assert_eq!(me.uids[1], nix::unistd::geteuid().as_raw());
        let again = Identity::of_process(std::process::id() as i32).unwrap();
        assert_eq!((again.uids, again.user_ns.as_ref()), (me.uids, None));
        me.cred().unwrap();
        assert!(Identity::of_process(i32::MAX).is_err());
    }
}
