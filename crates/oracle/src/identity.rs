//! Who makes the calls: the `as` of a row.

use serde::{Deserialize, Serialize};

use crate::args::{Arg, Id, IdList, Mem};
use crate::read::{Node, Read, Table};
use crate::words::{CapSet, Mode, Securebits};

/// Credentials and surroundings of a task at its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Real, effective, saved, filesystem user id.
    pub uids: [u32; 4],
    /// Real, effective, saved, filesystem group id.
    pub gids: [u32; 4],
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Effective set.
    pub effective: CapSet,
    /// Permitted set.
    pub permitted: CapSet,
    /// Inheritable set.
    pub inheritable: CapSet,
    /// Ambient set.
    pub ambient: CapSet,
    /// Bounding set.
    pub bounding: CapSet,
    /// Securebits.
    pub securebits: Securebits,
    /// Whether `PR_SET_NO_NEW_PRIVS` was called.
    pub no_new_privs: bool,
    /// Working directory.
    pub cwd: Vec<u8>,
    /// File mode creation mask.
    pub umask: Mode,
}

impl Identity {
    /// Root with every capability, in `/`, umask 022.
    pub fn root() -> Identity {
        Identity::user(0, 0, &[])
    }

    /// All four user ids `uid`, all four group ids `gid`; capabilities as the kernel leaves them: all for root, none
    /// for anybody else.
    pub fn user(uid: u32, gid: u32, groups: &[u32]) -> Identity {
        let caps = if uid == 0 { CapSet::FULL } else { CapSet::NONE };
        Identity {
            uids: [uid; 4],
            gids: [gid; 4],
            groups: groups.to_vec(),
            effective: caps,
            permitted: caps,
            inheritable: CapSet::NONE,
            ambient: CapSet::NONE,
            bounding: CapSet::FULL,
            securebits: Securebits(0),
            no_new_privs: false,
            cwd: b"/".to_vec(),
            umask: Mode(0o022),
        }
    }

    /// Reads the table of a row.
    ///
    /// # Errors
    ///
    /// What is wrong, and where.
    pub fn read(node: Node<'_>) -> Read<Identity> {
        let mut table = node.table("an identity (`as`, or one of `tasks`)")?;
        let uids = ids(&mut table, ["uid", "euid", "suid", "fsuid"], 0)?;
        let gids = ids(&mut table, ["gid", "egid", "sgid", "fsgid"], uids[0])?;
        let mut who = Identity { uids, gids, ..Identity::root() };
        if let Some(n) = table.take("groups") {
            who.groups = IdList::read(n)?.0;
        }
        // What setresuid from root would have left.
        who.permitted = if uids[..3].contains(&0) { CapSet::FULL } else { CapSet::NONE };
        who.effective = if uids[1] == 0 { CapSet::FULL } else { CapSet::NONE };
        if let Some(n) = table.take("caps") {
            who.permitted = CapSet::read(n)?;
            who.effective = who.permitted;
        }
        for (key, set) in [
            ("permitted", &mut who.permitted),
            ("effective", &mut who.effective),
            ("inheritable", &mut who.inheritable),
            ("ambient", &mut who.ambient),
            ("bounding", &mut who.bounding),
        ] {
            if let Some(n) = table.take(key) {
                *set = CapSet::read(n)?;
            }
        }
        if let Some(n) = table.take("securebits") {
            who.securebits = Securebits::read(n)?;
        }
        who.no_new_privs = table.take("no_new_privs").map_or(Ok(false), |n| n.bool())?;
        if let Some(n) = table.take("cwd") {
            match Mem::parse(n)? {
                Mem::Bytes(cwd) => who.cwd = cwd,
                _ => return Err(n.problem("a working directory is a path")),
            }
        }
        if let Some(n) = table.take("umask") {
            who.umask = Mode::read(n)?;
        }
        let at = table.at();
        table.finish()?;
        let possible = who.effective.0 & !who.permitted.0 == 0
            && who.ambient.0 & !(who.permitted.0 & who.inheritable.0) == 0;
        if !possible {
            let message = "impossible capabilities: effective must be within permitted, ambient within permitted and \
                           inheritable";
            return Err(crate::read::Problem::new(at, message));
        }
        Ok(who)
    }

    /// Prints the table of a row; the inverse of [`Identity::read`] for what the fuzzer makes.
    pub fn print(&self) -> String {
        let mut out = vec![format!("uid = {}", self.uids[0])];
        for (name, id) in ["euid", "suid", "fsuid"].iter().zip(&self.uids[1..]) {
            out.push(format!("{name} = {id}"));
        }
        for (name, id) in ["gid", "egid", "sgid", "fsgid"].iter().zip(&self.gids) {
            out.push(format!("{name} = {id}"));
        }
        if self.uids.iter().all(|u| *u == self.uids[0]) {
            out.truncate(1);
            out.push(format!("gid = {}", self.gids[0]));
        }
        if !self.groups.is_empty() {
            out.push(format!("groups = {}", IdList(self.groups.clone()).print()));
        }
        for (name, set) in [("permitted", self.permitted), ("effective", self.effective)] {
            out.push(format!("{name} = {}", set.print()));
        }
        for (name, set) in [("inheritable", self.inheritable), ("ambient", self.ambient)] {
            if set != CapSet::NONE {
                out.push(format!("{name} = {}", set.print()));
            }
        }
        if self.securebits.0 != 0 {
            out.push(format!("securebits = {}", self.securebits.print()));
        }
        if self.umask.0 != 0o022 {
            out.push(format!("umask = {}", self.umask.print()));
        }
        format!("{{ {} }}", out.join(", "))
    }
}

/// Real, effective, saved, filesystem id; a missing one is as setres*id would leave it.
fn ids(table: &mut Table<'_>, keys: [&'static str; 4], default: u32) -> Read<[u32; 4]> {
    let mut take = |key, default| table.take(key).map_or(Ok(default), |n| Id::read(n).map(|id| id.0));
    let real = take(keys[0], default)?;
    let effective = take(keys[1], real)?;
    let saved = take(keys[2], effective)?;
    let fs = take(keys[3], effective)?;
    Ok([real, effective, saved, fs])
}

#[cfg(test)]
mod tests {
    use super::*;
    use toml::de::DeTable;

    fn parse(text: &str) -> Result<Identity, String> {
        let doc = format!("as = {text}");
        let table = DeTable::parse(&doc).map_err(|e| e.to_string())?;
        let node = Node::new(table.get_ref().get("as").ok_or("missing")?);
        Identity::read(node).map_err(|p| p.message)
    }

    #[test]
    fn a_user_has_the_group_of_the_same_number_and_no_capability() {
        let who = parse("{ uid = 1000 }").expect("valid");
        assert_eq!(who, Identity::user(1000, 1000, &[]));
    }

    #[test]
    fn capabilities_follow_the_ids_as_setresuid_leaves_them() {
        let who = parse("{ uid = 0, euid = 1000, suid = 0 }").expect("valid");
        assert_eq!((who.permitted, who.effective), (CapSet::FULL, CapSet::NONE));
        assert_eq!(who.uids, [0, 1000, 0, 1000]);
    }

    #[test]
    fn impossible_capabilities_are_refused() {
        assert!(
            parse(r#"{ uid = 1, effective = "CAP_CHOWN" }"#).expect_err("refused").contains("impossible")
        );
    }

    #[test]
    fn what_is_printed_reads_back() {
        for who in [
            Identity::user(1000, 100, &[5, 6]),
            Identity::root(),
            Identity { uids: [0, 0, 0, 7], ..Identity::root() },
        ] {
            assert_eq!(parse(&who.print()), Ok(who));
        }
    }
}
