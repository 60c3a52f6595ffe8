//! The explanation, as data. Its JSON form is documented in `docs/explain.md` and stable: fields are added, never changed
//! or removed, without a new [`SCHEMA`].

use serde::Serialize;

/// The version of the JSON form.
pub const SCHEMA: u32 = 1;

/// A name or path. Bytes that are no UTF-8 are replaced, and then the exact ones stand beside it, hexadecimal.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Text(pub Vec<u8>);

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl Serialize for Text {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                let mut map = serializer.serialize_map(Some(2))?;
                map.serialize_entry("text", &String::from_utf8_lossy(&self.0))?;
                let hex: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
                map.serialize_entry("hex", &hex)?;
                map.end()
            }
        }
    }
}

/// An id and the name it has on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Id {
    /// The id.
    pub id: u32,
    /// Its name, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Everything about one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The path, as it was asked for.
    pub path: Text,
    /// Who asks.
    pub identity: Who,
    /// An answer for each thing that was asked.
    pub answers: Vec<Answer>,
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Who {
    /// How it was named.
    pub label: String,
    /// File system user id: the one that is compared with owners.
    pub user: Id,
    /// File system group id.
    pub group: Id,
    /// Supplementary groups.
    pub groups: Vec<Id>,
    /// Effective capabilities.
    pub capabilities: Vec<String>,
    /// Nothing it executes gives it privileges.
    pub no_new_privs: bool,
    /// The process, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// It lives in a user namespace of its own.
    pub user_namespace: bool,
    /// The label of a security module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lsm_label: Option<String>,
}

/// What the answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The call succeeds.
    Allowed,
    /// It fails.
    Denied,
    /// It hangs on something that could not be seen, or the machine itself answers otherwise: [`Answer::deciding`] says what.
    Unknown,
}

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// `read`, `write`, `execute`, `access`, `stat`, `create`, `delete`, `rename`, `exec`, `connect`, `setxattr`, `mknod`,
    /// `call`.
    pub what: &'static str,
    /// The system call that was judged.
    pub call: String,
    /// The answer.
    pub verdict: Verdict,
    /// The error, if it is denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<&'static str>,
    /// What decided, if it is denied or unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deciding: Option<Deciding>,
    /// The walks of the call, in order: the path, that of a second path, those of interpreters, those to what a program loads.
    pub walks: Vec<Walk>,
    /// What a program needs to start that execve(2) starts, in the order in which it is loaded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<Load>,
    /// What else is worth knowing: what a set-id bit comes to, and the like.
    pub notes: Vec<String>,
    /// The smallest changes that would allow it, the one that opens least first. Each was tried on a copy.
    pub fixes: Vec<Fix>,
    /// What could not be seen and might say no.
    pub unseen: Vec<String>,
    /// What the host itself answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verify>,
}

/// The first rule that says no.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Deciding {
    /// Its name; see `docs/explain.md` for all of them.
    pub rule: &'static str,
    /// Where it says no.
    pub path: Text,
    /// In words.
    pub text: String,
}

/// A file that a program needs to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Load {
    /// `interpreter` of a script, `script` that its interpreter reads, `loader`, `library`.
    pub role: &'static str,
    /// The name by which it is asked for.
    pub name: Text,
    /// Where it is, or is refused; nothing if it is nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Text>,
    /// What needs it.
    pub by: Text,
    /// Whether the new program has it.
    pub verdict: Verdict,
    /// The error, if it is denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<&'static str>,
    /// What decides, if it is denied or unknown, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Which of [`Answer::walks`] leads there, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub walk: Option<usize>,
}

/// One walk from a start along a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Walk {
    /// The path that is walked.
    pub path: Text,
    /// The places it comes to, from where it starts.
    pub components: Vec<Component>,
}

/// How a walk came to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// It is where the walk, or a link with an absolute body, starts.
    Start,
    /// It is an entry of the directory before.
    Name,
    /// By `..`.
    Up,
    /// It was looked for and is not there.
    Missing,
    /// It was looked for, and nobody could see whether it is there.
    Unseen,
}

/// A place that a walk comes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Component {
    /// Its path.
    pub path: Text,
    /// How the walk came there.
    pub via: Via,
    /// What is there; nothing if it is missing.
    #[serde(flatten)]
    pub facts: Option<Facts>,
    /// What was asked of it.
    pub checks: Vec<Check>,
    /// What the walk follows, if it is a link that is followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Text>,
    /// The mount that begins here, if the walk crosses into one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<MountFacts>,
}

/// What a file system object is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// `directory`, `regular file`, `symbolic link`, `fifo`, `socket`, `character device`, `block device`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Type and permissions, as ls(1) writes them.
    pub permissions: String,
    /// Permissions, as a number.
    pub mode: u32,
    /// The owner, as the mount shows it.
    pub owner: Id,
    /// The group, as the mount shows it.
    pub group: Id,
    /// Owner and group as the user namespace of the identity shows them, if that is another one; the overflow id for one
    /// that it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown_as: Option<(u32, u32)>,
    /// The entries of the access ACL, as getfacl(1) writes them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub acl: Vec<String>,
    /// `immutable`, `append-only`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<&'static str>,
}

/// What a mount is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MountFacts {
    /// Where it is mounted.
    pub point: Text,
    /// The type of file system.
    pub fstype: String,
    /// What is mounted.
    pub source: String,
    /// Options of the mount that restrict: `ro`, `noexec`, `nosuid`, `nodev`, `nosymfollow`, `idmapped`.
    pub options: Vec<&'static str>,
    /// The superblock is read-only.
    pub superblock_read_only: bool,
}

/// A question that was put to an object, and how it was answered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Check {
    /// `search`, `read`, `write`, `execute`, joined by `+`; or `remove` (sticky, immutable), `follow`, `own`, `use`.
    pub asks: String,
    /// Which class of the mode, or entry of the ACL, spoke for the identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<&'static str>,
    /// The same in words: who that is, and what it grants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Whether the class grants it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granted: Option<bool>,
    /// The capability that overrode the refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overridden_by: Option<String>,
    /// Capabilities that would have, had the identity had them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub would_override: Vec<String>,
    /// Capabilities that do not count, because the user namespace has no id for owner or group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unmapped: Vec<String>,
    /// The rule that said no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<&'static str>,
    /// The whole question came to this.
    pub passed: bool,
}

/// A change that would allow what is denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// `group`, `acl`, `mode`, `capability`, `attribute`, `mount`, `sysctl`, `interpreter`, `owner`; of several steps, the
    /// one that opens most.
    pub kind: &'static str,
    /// What to run as root, in order.
    pub commands: Vec<String>,
    /// What it opens, in words, and to whom.
    pub opens: String,
    /// Who else gains by it, of the users and groups of this machine.
    pub gains: Vec<Gain>,
}

/// What others may do after a [`Fix`], and not before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gain {
    /// `everybody`, or groups and users.
    pub who: String,
    /// How many users that are now; `None` is everybody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<usize>,
    /// `read`, `write`, `execute`, `search`, joined by `+`.
    pub what: String,
    /// With what.
    pub path: Text,
}

/// What the host answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verify {
    /// `agrees`: the call itself answers so. `stand-in`: calls that were made in its place do, which ask the same permissions
    /// and change nothing. `disagrees`: the verdict is unknown. `impossible`: nothing was asked.
    pub outcome: &'static str,
    /// The calls that were made, with what was expected and what came.
    pub calls: Vec<Verified>,
    /// Why it disagrees, most likely; why nothing could be asked; or what a stand-in does not ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A call that was made on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// The call.
    pub call: String,
    /// What the engine says: `ok`, or an error.
    pub expected: String,
    /// What the host said.
    pub got: String,
}
