//! Who gains by a change: every user and group of this machine, before and after it.
//!
//! Each may do with an object what the engine says to access(2) with its path, in the scene as it is and as it would be. Users who
//! are alike to everything in the scene are asked once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use rcuwalk::acl::{ACL_GROUP, ACL_USER};
use rcuwalk::uapi::{AT_EACCESS, AT_FDCWD, R_OK, S_IFDIR, W_OK, X_OK};
use rcuwalk::{Cred, Task};
use rcuwalk_host::{Account, Files};

use crate::error::Error;
use crate::identity::{Names, Subject};
use crate::judge::{asked, label};
use crate::report::{Gain, Text};
use crate::scene::{NodeIx, Scene, View, World};

/// Users of a database that are looked at. Beyond them, a user counts as anybody.
const MOST_USERS: usize = 8192;
/// Names that are told of those who gain.
const MOST_NAMES: usize = 3;

/// The users of this machine's `/etc/passwd`, with their groups.
pub(crate) fn population() -> Vec<Account> {
    let mut accounts =
        Files::of_dir(Path::new("/")).map_or_else(|_| Vec::new(), |files| files.names().accounts());
    accounts.truncate(MOST_USERS);
    accounts
}

/// Those that are alike to every object: a user that objects know, and the groups that they know.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Class {
    uid: Option<u32>,
    gids: BTreeSet<u32>,
}

/// A user and group that no object knows.
const NOBODY_KNOWN: u32 = u32::MAX - 7;

impl Class {
    fn cred(&self) -> Cred {
        let gids: Vec<u32> = self.gids.iter().copied().collect();
        Cred::user(self.uid.unwrap_or(NOBODY_KNOWN), NOBODY_KNOWN, &gids)
    }
}

/// The users and groups that decide about an object of the scene.
fn known(scenes: [&Scene; 2]) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let (mut uids, mut gids) = (BTreeSet::new(), BTreeSet::new());
    for object in scenes.iter().flat_map(|scene| &scene.nodes).map(|node| &node.object) {
        uids.insert(object.uid);
        gids.insert(object.gid);
        for entry in object.acl.iter().flat_map(|acl| acl.entries()) {
            match entry.tag {
                ACL_USER => drop(uids.insert(entry.id)),
                ACL_GROUP => drop(gids.insert(entry.id)),
                _ => {}
            }
        }
    }
    // Root may do everything before, too.
    uids.remove(&0);
    (uids, gids)
}

/// What those of a class may do with an object.
fn rights(task: &mut Task, class: &Class, path: &[u8]) -> u32 {
    task.set_cred(class.cred());
    let may = |mode: i32| task.faccessat2(AT_FDCWD, path, mode, AT_EACCESS).is_ok();
    [R_OK, W_OK, X_OK].into_iter().filter(|&mode| may(mode)).fold(0, |all, mode| all | mode as u32)
}

/// Who but `who` may do more with the changed objects after the change than before, and what.
pub(crate) fn gains(
    before: &Scene,
    after: &Scene,
    changed: &[NodeIx],
    who: &Subject,
    users: &[Account],
    names: &mut Names,
) -> Result<Vec<Gain>, Error> {
    let (uids, gids) = known([before, after]);
    let world = |scene| World::new(scene, View::Real).map_err(|e| Error::Engine("what was found", e));
    let (old, new) = (world(before)?, world(after)?);
    let (mut old, mut new) = (old.vfs.task(Cred::root()), new.vfs.task(Cred::root()));
    let class_of = |uid: u32, groups: &[u32]| Class {
        uid: uids.contains(&uid).then_some(uid),
        gids: groups.iter().copied().filter(|gid| gids.contains(gid)).collect(),
    };
    let others = || {
        let others = users.iter().filter(|user| user.uid != 0 && user.uid != who.uids[3]);
        others.map(|user| (user.uid, &user.groups[..], Some(user.name.as_str())))
    };
    // Users whom an ACL names and no database does.
    let unnamed = || {
        let unknown = |uid: &&u32| **uid != who.uids[3] && !users.iter().any(|user| user.uid == **uid);
        uids.iter().filter(unknown).map(|&uid| (uid, &[][..], None))
    };
    let mut told = Vec::new();
    for &at in changed {
        let path = after.path(at);
        let mut cache: HashMap<Class, u32> = HashMap::new();
        let mut gained = |class: Class| {
            *cache
                .entry(class)
                .or_insert_with_key(|class| rights(&mut new, class, &path) & !rights(&mut old, class, &path))
        };
        let everybody = gained(class_of(NOBODY_KNOWN, &[]));
        // By what is gained: groups, and users who gain it by none of these groups.
        let mut by_mask: BTreeMap<u32, (Vec<u32>, Vec<String>, usize)> = BTreeMap::new();
        for &gid in &gids {
            let mask = gained(class_of(NOBODY_KNOWN, &[gid])) & !everybody;
            if mask != 0 {
                by_mask.entry(mask).or_default().0.push(gid);
            }
        }
        for (uid, groups, name) in others().chain(unnamed()) {
            let mask = gained(class_of(uid, groups)) & !everybody;
            if mask != 0 {
                let entry = by_mask.entry(mask).or_default();
                entry.2 += 1;
                if !groups.iter().any(|gid| entry.0.contains(gid)) {
                    entry.1.push(name.map_or_else(|| uid.to_string(), str::to_owned));
                }
            }
        }
        let is_dir = after.nodes[at].object.kind() == S_IFDIR;
        let mut tell = |mask: u32, who: String, users: Option<usize>| {
            told.push(Gain { what: asked(mask, is_dir), path: Text(path.clone()), who, users });
        };
        if everybody != 0 {
            tell(everybody, "everybody".to_owned(), None);
        }
        for (mask, (groups, users, count)) in by_mask {
            let mut list: Vec<String> =
                groups.iter().map(|&gid| format!("group {}", label(gid, names.group(gid)))).collect();
            let more = users.len().saturating_sub(MOST_NAMES);
            list.extend(users.into_iter().take(MOST_NAMES));
            if more != 0 {
                list.push(format!("{more} more users"));
            }
            tell(mask, list.join(", "), Some(count));
        }
    }
    Ok(told)
}
