//! Whose access is asked about: ids, groups and capabilities, from what a person writes.
//!
//! Names are looked up where they mean something: those of the running machine through its name service
//! ([`HostNames`]), those of an image in the `passwd` and `group` files of that image ([`FileNames`]).

use std::collections::HashMap;
use std::fmt;

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use rcuwalk::Cred;
use rcuwalk::cred::{CAP_NAMES, CapSet, cap_from_name};
use rcuwalk::uapi::NGROUPS_MAX;
use rustix::process::{getegid, geteuid, getgroups};
use rustix::thread::capabilities;
use serde::{Serialize, Serializer};

/// Reads a list of capabilities: names with or without `cap_`, in either case, separated by commas or blanks; `all`,
/// `none`; or the whole set in hexadecimal, as `/proc/PID/status` shows it, after `0x`.
///
/// # Errors
///
/// [`IdentityError::NoSuchCap`] for a word that is no capability.
///
/// ```
/// use rcuwalk::{cred::CapSet, uapi::*};
/// let set = rcuwalk_host::parse_caps("CAP_CHOWN,dac_override").unwrap();
/// assert_eq!(set, CapSet::of(&[CAP_CHOWN, CAP_DAC_OVERRIDE]));
/// assert_eq!(rcuwalk_host::parse_caps("0x3"), Ok(set));
/// ```
pub fn parse_caps(text: &str) -> Result<CapSet, IdentityError> {
    let words = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
    words.map(|word| parse_cap(word, CapSet::FULL)).try_fold(CapSet::EMPTY, |set, cap| Ok(set | cap?))
}

/// Reads one word of a list. `all` is what this word stands for.
fn parse_cap(word: &str, all: CapSet) -> Result<CapSet, IdentityError> {
    let lower = word.to_ascii_lowercase();
    let known = match lower.as_str() {
        "all" => Some(all),
        "none" => Some(CapSet::EMPTY),
        name => match name.strip_prefix("0x") {
            Some(hex) => {
                u64::from_str_radix(hex, 16).ok().map(CapSet).filter(|set| set.is_subset(CapSet::FULL))
            }
            None => cap_from_name(name).map(|cap| CapSet::of(&[cap])),
        },
    };
    known.ok_or_else(|| {
        let bare = lower.strip_prefix("cap_").unwrap_or(&lower);
        let nearest = CAP_NAMES
            .iter()
            .map(|name| name["CAP_".len()..].to_ascii_lowercase())
            .map(|name| (strsim::damerau_levenshtein(bare, &name), name))
            .min();
        // A word that shares next to nothing with any name is no misspelling.
        let nearest = nearest.filter(|(distance, name)| distance * 3 <= name.len().max(3));
        IdentityError::NoSuchCap { name: word.to_owned(), nearest: nearest.map(|(_, name)| name) }
    })
}

/// Applies `+CAP,...` and `-CAP,...`, in the order written, to a set: what [`Identity::parse`] takes behind user and groups.
///
/// `all` is what the word `all` stands for.
///
/// # Errors
///
/// [`IdentityError::NoSuchCap`]; [`IdentityError::Syntax`] if it does not begin with a sign, or nothing follows one.
///
/// ```
/// use rcuwalk::{cred::CapSet, uapi::*};
/// let set = rcuwalk_host::change_caps("-all+chown,fowner-chown", CapSet::FULL, CapSet::FULL);
/// assert_eq!(set, Ok(CapSet::of(&[CAP_FOWNER])));
/// ```
pub fn change_caps(text: &str, mut set: CapSet, all: CapSet) -> Result<CapSet, IdentityError> {
    let syntax = |what| IdentityError::Syntax { text: text.to_owned(), what };
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        if !SIGNS.contains(&sign) {
            return Err(syntax("capabilities begin with '+' or '-'"));
        }
        let list = &rest[1..];
        let (list, behind) = list.split_at(list.find(SIGNS).unwrap_or(list.len()));
        // "A+b,-c" says the same as "A+b-c".
        for word in list.strip_suffix(',').filter(|_| !behind.is_empty()).unwrap_or(list).split(',') {
            let caps = match word.trim() {
                "" => return Err(syntax("a capability is missing behind '+', '-' or ','")),
                "none" => return Err(syntax("'none' adds and takes away nothing; write -all")),
                word => parse_cap(word, all)?,
            };
            set = if sign == '+' { set | caps } else { set - caps };
        }
        rest = behind;
    }
    Ok(set)
}

/// What capabilities begin with.
const SIGNS: [char; 2] = ['+', '-'];

/// The capabilities of a set by name, in lower case without `cap_`, separated by commas; `none` and `all` for the two ends.
pub fn show_caps(set: CapSet) -> String {
    match set {
        CapSet::EMPTY => "none".to_owned(),
        CapSet::FULL => "all".to_owned(),
        set => {
            let names = (0..).zip(CAP_NAMES).filter(|&(cap, _)| set.contains(cap));
            let names = names.map(|(_, name)| name["CAP_".len()..].to_ascii_lowercase());
            names.collect::<Vec<_>>().join(",")
        }
    }
}

/// A user whose access is asked about.
///
/// Its serialized form is its label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// What to call it in output: as it was written, or what it stands for.
    pub label: String,
    /// The user id: real, effective, saved and of the file system.
    pub uid: u32,
    /// The group id, likewise.
    pub gid: u32,
    /// Supplementary groups, ascending, each once.
    pub groups: Vec<u32>,
    /// Effective and permitted capabilities.
    pub caps: CapSet,
}

/// How an identity is written, for usage messages; [`IDENTITY_HELP`] explains it.
pub const IDENTITY_FORM: &str = "USER|UID[:GROUP,...][+CAP,...][-CAP,...]";

/// What [`Identity::parse`] understands, in the words of every command that takes an identity.
pub const IDENTITY_HELP: &str = "A user, by name or number, with the groups of a login; a number without a user is its own group. \
With :GROUP,... only these groups, the first as group id. User 0 has all capabilities and other users have none; +CAP,... adds \
capabilities and -CAP,... takes them away, 'all' among them";

/// Why a text names no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// A user that the name service does not know.
    #[error("there is no user '{name}' {place}; write its number, or UID:GID,GROUP,...")]
    NoSuchUser {
        /// The name.
        name: String,
        /// Where it was looked for.
        place: &'static str,
    },
    /// A group that the name service does not know.
    #[error("there is no group '{name}' {place}; write its number")]
    NoSuchGroup {
        /// The name.
        name: String,
        /// Where it was looked for.
        place: &'static str,
    },
    /// No capability has this name or number.
    #[error("there is no capability '{name}'{}; capabilities(7) lists them, 'all' and 0x with the set are understood, too",
        nearest.as_ref().map_or_else(String::new, |it| format!("; '{it}' comes nearest")))]
    NoSuchCap {
        /// What was written.
        name: String,
        /// The capability that is spelt most like it, if one is near.
        nearest: Option<String>,
    },
    /// A number that is no id.
    #[error("{0} is no id: ids go from 0 to 4294967294")]
    NoId(String),
    /// Something is missing, or there is too much of it.
    #[error("'{text}': {what}; write {IDENTITY_FORM}")]
    Syntax {
        /// What was written.
        text: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The name service cannot be asked.
    #[error("the name service does not answer for '{name}': {reason}; write numbers: UID:GID,GROUP,...")]
    Unavailable {
        /// The user or group asked about.
        name: String,
        /// What it says.
        reason: String,
    },
}

/// A user as a name service knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The login name.
    pub name: String,
    /// The user id.
    pub uid: u32,
    /// The group it logs in with.
    pub gid: u32,
    /// What initgroups(3) would give it, the login group included.
    pub groups: Vec<u32>,
}

/// Where names of users and groups are looked up.
pub trait Names {
    /// For messages: where this looks, such as `"on this machine"`.
    fn place(&self) -> &'static str;

    /// The user of this name.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Unavailable`].
    fn user(&self, name: &str) -> Result<Option<Account>, IdentityError>;

    /// The user of this number.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Unavailable`].
    fn user_by_id(&self, uid: u32) -> Result<Option<Account>, IdentityError>;

    /// The number of a group.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Unavailable`].
    fn group(&self, name: &str) -> Result<Option<u32>, IdentityError>;
}

/// The users and groups of the running machine, through its name service (nsswitch.conf).
#[derive(Clone, Copy, Debug, Default)]
pub struct HostNames;

impl HostNames {
    fn account(name: &str, user: nix::Result<Option<User>>) -> Result<Option<Account>, IdentityError> {
        let unavailable =
            |e: nix::Error| IdentityError::Unavailable { name: name.to_owned(), reason: e.desc().to_owned() };
        // Some services say "no such entry" with an error number.
        let user = match user {
            Err(nix::Error::ENOENT | nix::Error::ESRCH | nix::Error::EBADF | nix::Error::EPERM) => None,
            user => user.map_err(unavailable)?,
        };
        let Some(user) = user else { return Ok(None) };
        let c_name =
            std::ffi::CString::new(user.name.as_str()).map_err(|_| unavailable(nix::Error::EINVAL))?;
        let groups = getgrouplist(&c_name, user.gid).map_err(unavailable)?;
        let groups = groups.into_iter().map(Gid::as_raw).collect();
        Ok(Some(Account { name: user.name, uid: user.uid.as_raw(), gid: user.gid.as_raw(), groups }))
    }
}

impl Names for HostNames {
    fn place(&self) -> &'static str {
        "on this machine"
    }

    fn user(&self, name: &str) -> Result<Option<Account>, IdentityError> {
        HostNames::account(name, User::from_name(name))
    }

    fn user_by_id(&self, uid: u32) -> Result<Option<Account>, IdentityError> {
        HostNames::account(&uid.to_string(), User::from_uid(Uid::from_raw(uid)))
    }

    fn group(&self, name: &str) -> Result<Option<u32>, IdentityError> {
        match Group::from_name(name) {
            Ok(group) => Ok(group.map(|group| group.gid.as_raw())),
            Err(nix::Error::ENOENT | nix::Error::ESRCH | nix::Error::EBADF | nix::Error::EPERM) => Ok(None),
            Err(e) => Err(IdentityError::Unavailable { name: name.to_owned(), reason: e.desc().to_owned() }),
        }
    }
}

/// The users and groups that an image's own `/etc/passwd` and `/etc/group` name.
///
/// Lines that make no sense are passed over, and of several for one name the first counts, as in the C library.
///
/// ```
/// use rcuwalk_host::{FileNames, Identity};
/// let names = FileNames::new(b"app:x:101:102::/:/bin/sh\n", b"app:x:102:\nlogs:x:7:app,web\n");
/// let app = Identity::parse("app", &names).unwrap();
/// assert_eq!((app.uid, app.gid, &app.groups[..]), (101, 102, &[7, 102][..]));
/// ```
#[derive(Clone, Debug, Default)]
pub struct FileNames {
    users: Vec<(String, u32, u32)>,
    groups: Vec<(String, u32, Vec<String>)>,
}

impl FileNames {
    /// Reads the two files.
    pub fn new(passwd: &[u8], group: &[u8]) -> FileNames {
        let (passwd, group) = (String::from_utf8_lossy(passwd), String::from_utf8_lossy(group));
        let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
        let user = |line: &str| {
            let f = fields(line);
            Some((f.first()?.clone(), f.get(2)?.parse().ok()?, f.get(3)?.parse().ok()?))
        };
        let group_of = |line: &str| {
            let f = fields(line);
            let members = f.get(3).map_or("", String::as_str).split(',').map(str::to_owned).collect();
            Some((f.first()?.clone(), f.get(2)?.parse().ok()?, members))
        };
        FileNames {
            users: passwd.lines().filter_map(user).filter(|user| !user.0.is_empty()).collect(),
            groups: group.lines().filter_map(group_of).filter(|group| !group.0.is_empty()).collect(),
        }
    }

    /// All users, each with the groups of a login.
    ///
    /// ```
    /// use rcuwalk_host::FileNames;
    /// let names = FileNames::new(b"app:x:101:102::/:/bin/sh\n", b"logs:x:7:app,web\n");
    /// assert_eq!(names.accounts()[0].groups, [102, 7]);
    /// ```
    pub fn accounts(&self) -> Vec<Account> {
        let mut groups: HashMap<&str, Vec<u32>> = HashMap::new();
        for (_, gid, members) in &self.groups {
            members.iter().for_each(|member| groups.entry(member).or_default().push(*gid));
        }
        let account = |(name, uid, gid): &(String, u32, u32)| {
            let further = groups.get(name.as_str()).into_iter().flatten().copied();
            Account {
                name: name.clone(),
                uid: *uid,
                gid: *gid,
                groups: std::iter::once(*gid).chain(further).collect(),
            }
        };
        self.users.iter().map(account).collect()
    }

    fn account(&self, user: Option<&(String, u32, u32)>) -> Option<Account> {
        let (name, uid, gid) = user?.clone();
        let mine = self.groups.iter().filter(|(_, _, members)| members.contains(&name));
        let groups = std::iter::once(gid).chain(mine.map(|&(_, gid, _)| gid)).collect();
        Some(Account { name, uid, gid, groups })
    }
}

impl Names for FileNames {
    fn place(&self) -> &'static str {
        "in the tree's /etc/passwd and /etc/group"
    }

    fn user(&self, name: &str) -> Result<Option<Account>, IdentityError> {
        Ok(self.account(self.users.iter().find(|user| user.0 == name)))
    }

    fn user_by_id(&self, uid: u32) -> Result<Option<Account>, IdentityError> {
        Ok(self.account(self.users.iter().find(|user| user.1 == uid)))
    }

    fn group(&self, name: &str) -> Result<Option<u32>, IdentityError> {
        Ok(self.groups.iter().find(|group| group.0 == name).map(|group| group.1))
    }
}

impl Identity {
    /// An identity from its ids: user 0 has every capability, anybody else none.
    pub fn new(uid: u32, gid: u32, groups: &[u32]) -> Identity {
        let mut groups = groups.to_vec();
        groups.sort_unstable();
        groups.dedup();
        let caps = if uid == 0 { CapSet::FULL } else { CapSet::EMPTY };
        let mut who = Identity { label: String::new(), uid, gid, groups, caps };
        who.label = who.ids();
        who
    }

    /// The calling thread: its effective ids, its groups and its effective capabilities.
    ///
    /// # Errors
    ///
    /// What getgroups(2) and capget(2) answer.
    pub fn caller() -> std::io::Result<Identity> {
        let groups: Vec<u32> = getgroups()?.into_iter().map(rustix::process::Gid::as_raw).collect();
        let who = Identity::new(geteuid().as_raw(), getegid().as_raw(), &groups);
        let caps = CapSet(capabilities(None)?.effective.bits()) & CapSet::FULL;
        Ok(Identity { caps, ..who })
    }

    /// Reads `USER|UID[:GROUP,...][+CAP,...][-CAP,...]`.
    ///
    /// Without `:GROUP`, the groups are those that the user would log in with; a number that no user has is its own
    /// group. With it, the first group is the group id, and only the groups named are held. User 0 has every
    /// capability and any other user none; `+CAP` adds to them and `-CAP` takes away, in the order written.
    ///
    /// Names may have `+` and `-` in them: a text that as a whole names a user is that user, and what follows a sign is
    /// taken for capabilities where it names some.
    ///
    /// # Errors
    ///
    /// [`IdentityError`]: an unknown name, a number that is no id, a part that is missing.
    ///
    /// ```
    /// use rcuwalk_host::{FileNames, Identity};
    /// let nobody = FileNames::default();
    /// let who = Identity::parse("1000:100,27+dac_read_search", &nobody).unwrap();
    /// assert_eq!((who.uid, who.gid, &who.groups[..]), (1000, 100, &[27][..]));
    /// assert!(who.cred().unwrap().capable(rcuwalk::uapi::CAP_DAC_READ_SEARCH));
    /// assert!(Identity::parse("alice", &nobody).is_err());
    /// ```
    pub fn parse(text: &str, names: &dyn Names) -> Result<Identity, IdentityError> {
        Identity::parse_within(text, names, CapSet::FULL)
    }

    /// As [`parse`](Self::parse), where `all` are the capabilities that there are: those of user 0.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn parse_within(text: &str, names: &dyn Names, all: CapSet) -> Result<Identity, IdentityError> {
        let mut who = match ids(text, names, all) {
            Ok(who) => who,
            Err(whole) => with_caps(text, names, all, whole)?,
        };
        text.clone_into(&mut who.label);
        Ok(who)
    }

    /// The credential of a process that was started as this identity.
    ///
    /// # Errors
    ///
    /// `EINVAL` if an id is `u32::MAX`, or there are more than 65,536 groups.
    pub fn cred(&self) -> rcuwalk::Result<Cred> {
        Cred::builder()
            .uids(self.uid, self.uid, self.uid, self.uid)
            .gids(self.gid, self.gid, self.gid, self.gid)
            .groups(&self.groups)
            .permitted(self.caps)
            .effective(self.caps)
            .build()
    }

    /// The ids as numbers: `UID:GID,GROUP,...`, a form that [`parse`](Self::parse) reads. The group id does not come again.
    pub fn ids(&self) -> String {
        let further = self.groups.iter().filter(|&&group| group != self.gid);
        let groups: Vec<_> = further.map(|group| format!(",{group}")).collect();
        format!("{}:{}{}", self.uid, self.gid, groups.concat())
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

impl Serialize for Identity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.label)
    }
}

/// A number that can be an id; none for a name.
fn number(text: &str) -> Result<Option<u32>, IdentityError> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(None);
    }
    match text.parse::<u32>() {
        Ok(id) if id != u32::MAX => Ok(Some(id)),
        _ => Err(IdentityError::NoId(text.to_owned())),
    }
}

/// Reads `USER|UID[:GROUP,...]`.
fn ids(text: &str, names: &dyn Names, all: CapSet) -> Result<Identity, IdentityError> {
    let syntax = |what| IdentityError::Syntax { text: text.to_owned(), what };
    let (user, groups) = text.split_once(':').map_or((text, None), |(user, groups)| (user, Some(groups)));
    if user.is_empty() {
        return Err(syntax("there is no user"));
    }
    let mut who = match groups {
        None => log_in(user, names)?,
        Some(groups) if groups.split(',').any(str::is_empty) => {
            return Err(syntax("a group is missing behind ':' or ','"));
        }
        Some(groups) => {
            let groups =
                groups.split(',').map(|group| group_id(group, names)).collect::<Result<Vec<_>, _>>()?;
            Identity::new(user_id(user, names)?, groups[0], &groups[1..])
        }
    };
    if who.groups.len() > NGROUPS_MAX {
        return Err(syntax("these are more than 65536 groups"));
    }
    who.caps = who.caps & all;
    Ok(who)
}

/// Reads ids with capabilities behind them. `whole` says why the text is no user as a whole.
fn with_caps(
    text: &str,
    names: &dyn Names,
    all: CapSet,
    whole: IdentityError,
) -> Result<Identity, IdentityError> {
    let (mut no_caps, mut no_ids) = (None, None);
    // The longest text that names a user counts, as it does where it is all there is.
    for (at, _) in text.rmatch_indices(SIGNS) {
        let (head, tail) = text.split_at(at);
        match (ids(head, names, all), change_caps(tail, CapSet::EMPTY, all)) {
            (Ok(mut who), Ok(_)) => {
                who.caps = change_caps(tail, who.caps, all)?;
                return Ok(who);
            }
            // One half is understood: the other is what is wrong.
            (Ok(_), Err(e)) => no_caps = no_caps.or(Some(e)),
            (Err(e), Ok(_)) => no_ids = Some(e),
            (Err(_), Err(_)) => {}
        }
    }
    Err(no_caps.or(no_ids).unwrap_or(whole))
}

/// The identity that a user logs in with.
fn log_in(user: &str, names: &dyn Names) -> Result<Identity, IdentityError> {
    let account = match number(user)? {
        Some(uid) => match names.user_by_id(uid)? {
            Some(account) => account,
            None => return Ok(Identity::new(uid, uid, &[])),
        },
        None => names.user(user)?.ok_or_else(|| no_user(user, names))?,
    };
    Ok(Identity::new(account.uid, account.gid, &account.groups))
}

fn no_user(name: &str, names: &dyn Names) -> IdentityError {
    IdentityError::NoSuchUser { name: name.to_owned(), place: names.place() }
}

/// The number of a user.
pub(crate) fn user_id(user: &str, names: &dyn Names) -> Result<u32, IdentityError> {
    match number(user)? {
        Some(uid) => Ok(uid),
        None => Ok(names.user(user)?.ok_or_else(|| no_user(user, names))?.uid),
    }
}

/// The number of a group.
pub(crate) fn group_id(group: &str, names: &dyn Names) -> Result<u32, IdentityError> {
    let missing = || IdentityError::NoSuchGroup { name: group.to_owned(), place: names.place() };
    match number(group)? {
        Some(gid) => Ok(gid),
        None => names.group(group)?.ok_or_else(missing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcuwalk::uapi::{CAP_DAC_OVERRIDE, CAP_SETFCAP, CAP_SYS_ADMIN};

    fn names() -> FileNames {
        FileNames::new(
            b"root:x:0:0:root:/root:/bin/sh\nbroken\n:x:9:9::\napp:x:101:102::/:/bin/sh\napp:x:55:55::/:\nodd:x:-1:3::\n",
            b"root:x:0:\nlogs:x:7:web,app\napp:x:102:\nshort:x:8\n",
        )
    }

    fn ids(text: &str) -> (u32, u32, Vec<u32>) {
        let who = Identity::parse(text, &names()).unwrap();
        (who.uid, who.gid, who.groups)
    }

    #[test]
    fn users_log_in_with_their_groups_unless_groups_are_named() {
        assert_eq!(ids("app"), (101, 102, vec![7, 102]));
        assert_eq!(ids("101"), (101, 102, vec![7, 102]), "by number");
        assert_eq!(ids("4711"), (4711, 4711, vec![]), "a number that nobody has");
        assert_eq!(ids("app:logs"), (101, 7, vec![]));
        assert_eq!(ids("4711:0,short,5"), (4711, 0, vec![5, 8]));
    }

    #[test]
    fn capabilities_follow_the_user_unless_they_are_named() {
        let caps = |text| Identity::parse(text, &names()).unwrap().caps;
        assert_eq!(caps("root"), CapSet::FULL);
        assert_eq!(caps("app"), CapSet::EMPTY);
        assert_eq!(caps("root-all"), CapSet::EMPTY);
        assert_eq!(
            caps("0-setfcap,dac_override"),
            CapSet::FULL - CapSet::of(&[CAP_SETFCAP, CAP_DAC_OVERRIDE])
        );
        assert_eq!(caps("0-all+SETFCAP,-setfcap+dac_override"), CapSet::of(&[CAP_DAC_OVERRIDE]));
        assert_eq!(caps("app:5+CAP_SYS_ADMIN,setfcap"), CapSet::of(&[CAP_SYS_ADMIN, CAP_SETFCAP]));
        let few = CapSet::of(&[CAP_SETFCAP]);
        let within = |text| Identity::parse_within(text, &names(), few).unwrap().caps;
        assert_eq!((within("root"), within("app+all")), (few, few), "all that there are");
        let set = CapSet::of(&[CAP_DAC_OVERRIDE, CAP_SETFCAP]);
        assert_eq!(parse_caps(&show_caps(set)), Ok(set));
        assert_eq!((show_caps(CapSet::EMPTY), show_caps(CapSet::FULL)), ("none".into(), "all".into()));
    }

    #[test]
    fn names_may_have_signs_in_them() {
        let names = FileNames::new(b"www-data:x:33:33::/:\nup-kill:x:7:7::/:\nup:x:8:8::/:\n", b"a-b:x:4:\n");
        let read = |text| {
            let who = Identity::parse(text, &names).unwrap();
            (who.uid, who.gid, show_caps(who.caps))
        };
        assert_eq!(read("www-data"), (33, 33, "none".into()));
        assert_eq!(read("www-data+kill"), (33, 33, "kill".into()));
        assert_eq!(read("up-kill"), (7, 7, "none".into()), "a user as a whole");
        assert_eq!(read("up-kill+chown-kill"), (7, 7, "chown".into()));
        assert_eq!(read("www-data:a-b,33+kill"), (33, 4, "kill".into()));
    }

    #[test]
    fn what_names_nobody_is_refused_with_the_reason() {
        let error = |text| Identity::parse(text, &names()).unwrap_err();
        assert!(matches!(error("alice"), IdentityError::NoSuchUser { .. }));
        assert!(matches!(error("app:wheel"), IdentityError::NoSuchGroup { .. }));
        assert!(matches!(error("odd"), IdentityError::NoSuchUser { .. }));
        for text in ["4294967295", "99999999999", "app:4294967295"] {
            assert!(matches!(error(text), IdentityError::NoId(_)), "{text}");
        }
        for text in ["", ":5", "app+", "app+setfcap,", "app:", "app:5,", "app+none"] {
            assert!(matches!(error(text), IdentityError::Syntax { .. }), "{text}");
        }
        for (text, near) in
            [("app+flying", None), ("app+0x20000000000", None), ("app-dac_overide", Some("dac_override"))]
        {
            let IdentityError::NoSuchCap { nearest, .. } = error(text) else { panic!("{text}") };
            assert_eq!(nearest.as_deref(), near, "{text}");
        }
        assert!(matches!(error("alice+chown"), IdentityError::NoSuchUser { name, .. } if name == "alice"));
        assert!(
            matches!(error("web-server"), IdentityError::NoSuchUser { name, .. } if name == "web-server")
        );
    }

    #[test]
    fn the_running_machine_knows_root() {
        let root = Identity::parse("root", &HostNames).unwrap();
        assert_eq!((root.uid, root.gid, root.caps), (0, 0, CapSet::FULL));
        assert_eq!(Identity::parse("0", &HostNames).unwrap().groups, root.groups);
        assert_eq!(HostNames.group("root"), Ok(Some(0)));
        assert_eq!(HostNames.user("no such user, surely"), Ok(None));
    }
}
