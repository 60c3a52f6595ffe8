//! Who a systemd service runs as.

use rcuwalk::cred::CapSet;
use rcuwalk_host::{Files, Identity, IdentityError, Names, parse_caps};

/// Where units lie, first what counts most. systemd.unit(5).
const UNIT_DIRS: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// The first user id that `DynamicUser=` takes.
const DYNAMIC_UID: u32 = 61184;

/// Directives that change which files a service sees, or what it may do with them, independent of its user.
const NARROWING: [&str; 16] = [
    "BindPaths",
    "BindReadOnlyPaths",
    "ExecPaths",
    "InaccessiblePaths",
    "NoExecPaths",
    "NoNewPrivileges",
    "PrivateDevices",
    "PrivateTmp",
    "PrivateUsers",
    "ProtectHome",
    "ProtectSystem",
    "ReadOnlyPaths",
    "ReadWritePaths",
    "RootDirectory",
    "RootImage",
    "TemporaryFileSystem",
];

/// What the unit file of a service says about who it runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Who, labelled with the name of the service.
    pub identity: Identity,
    /// The unit file, and its drop-ins in the order in which they were read.
    pub files: Vec<String>,
    /// Directives that change which files the service sees, or what it may do with them. They are not taken into account.
    pub narrowed_by: Vec<String>,
}

/// Why it cannot be said who a service runs as.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// There is no such unit.
    #[error(
        "there is no unit file for service '{0}' in the systemd directories of the tree; `systemctl list-unit-files` shows the names"
    )]
    NoUnit(String),
    /// It is a name that no unit has.
    #[error("'{0}' is no name of a service")]
    Name(String),
    /// The unit names a user, a group or a capability that does not exist.
    #[error("service '{name}': {error}")]
    Identity {
        /// The service.
        name: String,
        /// What is wrong.
        error: IdentityError,
    },
}

/// The directives of `[Service]` that matter, drop-ins applied.
#[derive(Debug, Default)]
struct Directives {
    user: String,
    group: String,
    dynamic: bool,
    groups: Vec<String>,
    /// Each assignment adds, or with `~` takes away; an empty one starts anew.
    bounding: Option<CapSet>,
    ambient: CapSet,
    narrowed_by: Vec<String>,
}

impl Service {
    /// Reads the unit file of a service, and its drop-ins, from the systemd directories of a tree. `name` may end in `.service`; an
    /// instance `name@instance` uses the template `name@`.
    ///
    /// # Errors
    ///
    /// [`ServiceError`].
    pub fn read(name: &str, files: &Files, names: &dyn Names) -> Result<Service, ServiceError> {
        let stem = name.strip_suffix(".service").unwrap_or(name);
        if stem.is_empty() || stem.len() > 255 || stem.contains('/') || stem.starts_with('.') {
            return Err(ServiceError::Name(name.to_owned()));
        }
        let (template, instance) = match stem.split_once('@') {
            Some((template, instance)) => (Some(format!("{template}@")), instance),
            None => (None, ""),
        };
        let stems: Vec<&str> = std::iter::once(stem).chain(template.as_deref()).collect();
        let unit = stems.iter().find_map(|stem| {
            UNIT_DIRS.iter().find_map(|dir| {
                let path = format!("{dir}/{stem}.service");
                Some((files.read(path.as_bytes())?, path))
            })
        });
        let (text, path) = unit.ok_or_else(|| ServiceError::NoUnit(name.to_owned()))?;
        let mut read = vec![path];
        let mut directives = Directives::default();
        let wrong = |error| ServiceError::Identity { name: name.to_owned(), error };
        directives.apply(&text, instance).map_err(wrong)?;
        for path in drop_ins(&stems, files) {
            directives.apply(&files.read(path.as_bytes()).unwrap_or_default(), instance).map_err(wrong)?;
            read.push(path);
        }
        let mut identity = directives.identity(names).map_err(wrong)?;
        identity.label = format!("{stem}.service");
        let mut narrowed_by = directives.narrowed_by;
        narrowed_by.sort_unstable();
        narrowed_by.dedup();
        Ok(Service { identity, files: read, narrowed_by })
    }
}

/// The drop-ins of a unit: by file name, the first directory wins where two have the same.
fn drop_ins(stems: &[&str], files: &Files) -> Vec<String> {
    let mut found: Vec<(Vec<u8>, String)> = Vec::new();
    let dirs = stems.iter().flat_map(|stem| UNIT_DIRS.map(|dir| format!("{dir}/{stem}.service.d")));
    let everyone = UNIT_DIRS.map(|dir| format!("{dir}/service.d"));
    for dir in dirs.chain(everyone) {
        for name in files.list(dir.as_bytes()) {
            if name.ends_with(b".conf") && !found.iter().any(|(known, _)| *known == name) {
                let path = format!("{dir}/{}", String::from_utf8_lossy(&name));
                found.push((name, path));
            }
        }
    }
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

impl Directives {
    /// Reads a unit file or drop-in.
    fn apply(&mut self, text: &[u8], instance: &str) -> Result<(), IdentityError> {
        let text = String::from_utf8_lossy(text).replace("\\\n", " ");
        let mut in_service = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with('[') {
                in_service = line == "[Service]";
            } else if in_service
                && !line.starts_with(['#', ';'])
                && let Some((key, value)) = line.split_once('=')
            {
                let value = value.trim().replace("%i", instance).replace("%I", instance).replace("%%", "%");
                self.set(key.trim(), value)?;
            }
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: String) -> Result<(), IdentityError> {
        let is_yes = matches!(value.to_ascii_lowercase().as_str(), "1" | "yes" | "true" | "on");
        match key {
            "User" => self.user = value,
            "Group" => self.group = value,
            "DynamicUser" => self.dynamic = is_yes,
            "SupplementaryGroups" if value.is_empty() => self.groups.clear(),
            "SupplementaryGroups" => self.groups.extend(value.split_whitespace().map(str::to_owned)),
            "AmbientCapabilities" => {
                self.ambient = merge(Some(self.ambient), &value)?.unwrap_or(CapSet::EMPTY)
            }
            "CapabilityBoundingSet" => self.bounding = merge(self.bounding, &value)?,
            key if NARROWING.contains(&key) => {
                let off = value.is_empty()
                    || matches!(value.to_ascii_lowercase().as_str(), "0" | "no" | "false" | "off");
                self.narrowed_by.retain(|known| !(off && known == key));
                if !off {
                    self.narrowed_by.push(key.to_owned());
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Who that is. systemd.exec(5).
    fn identity(&self, names: &dyn Names) -> Result<Identity, IdentityError> {
        let mut who = match (&*self.user, self.dynamic) {
            ("", true) => Identity::new(DYNAMIC_UID, DYNAMIC_UID, &[]),
            ("", false) => Identity::new(0, 0, &[]),
            // A dynamic user may have a name that nobody has yet.
            (user, true) => Identity::parse(user, names)
                .or_else(|_| Ok::<_, IdentityError>(Identity::new(DYNAMIC_UID, DYNAMIC_UID, &[])))?,
            (user, false) => Identity::parse(user, names)?,
        };
        let group = |name: &str| Ok(Identity::parse(&format!("0:{name}"), names)?.gid);
        if !self.group.is_empty() {
            // Groups are looked up with this one in the place of the user's own.
            let own = std::mem::replace(&mut who.gid, group(&self.group)?);
            who.groups.retain(|&group| group != own);
        }
        for name in &self.groups {
            who.groups.push(group(name)?);
        }
        who.groups.sort_unstable();
        who.groups.dedup();
        let bounding = self.bounding.unwrap_or(CapSet::FULL);
        who.caps = if who.uid == 0 { CapSet::FULL } else { self.ambient } & bounding;
        Ok(who)
    }
}

/// A list of capabilities added to a set, or with `~` taken out of it; an empty list empties the set.
fn merge(old: Option<CapSet>, value: &str) -> Result<Option<CapSet>, IdentityError> {
    Ok(match value.strip_prefix('~') {
        Some("") => Some(CapSet::FULL),
        Some(without) => Some(old.unwrap_or(CapSet::FULL) - parse_caps(without)?),
        None if value.is_empty() => Some(CapSet::EMPTY),
        None => Some(old.unwrap_or(CapSet::EMPTY) | parse_caps(value)?),
    })
}
