//! From what the engine told to what people read.

use rcuwalk::acl::{ACL_GROUP, ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER, ACL_USER, ACL_USER_OBJ, AclEntry};
use rcuwalk::cred::Cred;
use rcuwalk::errno::Errno;
use rcuwalk::perm::{IFLAG_APPEND, IFLAG_IMMUTABLE, MAY_EXEC, MAY_READ, MAY_WRITE};
use rcuwalk::trace::{Class, Event, Fact, Held, Rule, Spot};
use rcuwalk::uapi::*;

use crate::call::{Call, mask_letters};
use crate::identity::{Names, cap_name};
use crate::report::{Check, Component, Deciding, Facts, Id, MountFacts, Text, Via, Walk};
use crate::scene::{Entry, Mount, MountIx, Node, NodeIx, Scene, World};

/// A place of a walk, with the node it is.
pub(crate) struct Place {
    pub(crate) node: Option<NodeIx>,
    pub(crate) shown: Component,
}

/// A walk under construction.
pub(crate) struct Steps {
    pub(crate) path: Vec<u8>,
    pub(crate) places: Vec<Place>,
}

/// Where and why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) rule: &'static str,
    /// The node that says no, or the directory in which something is missing.
    pub(crate) node: Option<NodeIx>,
    /// The walk in which it happened.
    pub(crate) walk: usize,
    /// What was asked, where permissions say no.
    pub(crate) mask: u32,
    /// Who the identity is to the node, where permissions say no.
    pub(crate) class: Option<Class>,
    /// A name that is missing.
    pub(crate) name: Option<Vec<u8>>,
    /// The mask of the ACL, where it decided.
    pub(crate) acl_mask: Option<u32>,
    /// Bits of the class that decided.
    pub(crate) bits: u32,
}

impl Reason {
    fn new(rule: &'static str, walk: usize, node: Option<NodeIx>) -> Reason {
        Reason { rule, node, walk, mask: 0, class: None, name: None, acl_mask: None, bits: 0 }
    }
}

/// Reads the events of one call.
pub(crate) struct Reader<'a> {
    scene: &'a Scene,
    cred: &'a Cred,
    names: &'a mut Names,
    pub(crate) walks: Vec<Steps>,
    /// The last thing a walk did was to follow a link with an absolute body.
    restarts: bool,
    /// The check that facts belong to: walk, place, and the node they are of.
    open: Option<(usize, usize, NodeIx)>,
    /// What was last asked, and of whom, for the reason.
    last: Reason,
    refused: Option<(Reason, Errno)>,
    /// The first name that was looked for and could not be seen: in the engine it is not there.
    pub(crate) blind: Option<Reason>,
    ignore_reads: bool,
}

impl<'a> Reader<'a> {
    /// `executes`: questions whether a program can be read decide nothing, and are left out.
    pub(crate) fn new(scene: &'a Scene, cred: &'a Cred, names: &'a mut Names, executes: bool) -> Reader<'a> {
        let last = Reason::new("call", 0, None);
        Reader {
            scene,
            cred,
            names,
            walks: Vec::new(),
            restarts: false,
            open: None,
            last,
            refused: None,
            blind: None,
            ignore_reads: executes,
        }
    }

    /// Takes all events in.
    pub(crate) fn read(&mut self, events: Vec<Event>) {
        for event in events {
            let restarts = std::mem::take(&mut self.restarts);
            if !matches!(event, Event::Fact { .. }) {
                self.refused = None;
                self.open = None;
            }
            match event {
                Event::Walk { path, at } => {
                    if !restarts || self.walks.is_empty() {
                        self.walks.push(Steps { path, places: Vec::new() });
                    }
                    self.arrive(Via::Start, at);
                }
                Event::Found { at, .. } => self.arrive(Via::Name, at),
                Event::Up { to } => self.arrive(Via::Up, to),
                Event::Crossed { to } => self.cross(to),
                Event::Missing { name, dir } => self.miss(World::node(dir), name),
                Event::Link { link, body, .. } => {
                    self.restarts = body.first() == Some(&b'/');
                    let node = World::node(link);
                    if let Some(place) =
                        self.find(node).map(|(walk, place)| &mut self.walks[walk].places[place])
                    {
                        place.shown.link = Some(Text(body));
                    }
                }
                Event::Fact { of, fact } => self.fact(World::node(of), fact),
                _ => {}
            }
        }
    }

    fn places(&mut self) -> &mut Vec<Place> {
        if self.walks.is_empty() {
            self.walks.push(Steps { path: Vec::new(), places: Vec::new() });
        }
        let last = self.walks.len() - 1;
        &mut self.walks[last].places
    }

    fn arrive(&mut self, via: Via, at: Spot) {
        let node = World::node(at);
        // What removes looks again with the directory locked.
        let again = |place: &Place| via == Via::Name && place.node == Some(node);
        if self.places().last().is_some_and(again) {
            return;
        }
        let shown = self.component(via, node);
        self.places().push(Place { node: Some(node), shown });
    }

    fn component(&mut self, via: Via, at: NodeIx) -> Component {
        let node = self.scene.nodes.get(at);
        Component {
            path: Text(self.scene.path(at.min(self.scene.nodes.len() - 1))),
            via,
            facts: node.map(|node| facts(node, self.cred, self.names)),
            checks: Vec::new(),
            link: None,
            mount: node.filter(|_| via == Via::Start).map(|node| mount_facts(&self.scene.mounts[node.mount])),
        }
    }

    fn cross(&mut self, to: Spot) {
        let node = World::node(to);
        let mount = self.scene.nodes.get(node).map(|node| mount_facts(&self.scene.mounts[node.mount]));
        if let Some(place) = self.places().last_mut() {
            place.node = Some(node);
            place.shown.mount = mount;
        }
    }

    fn miss(&mut self, dir: NodeIx, name: Vec<u8>) {
        let entry = self.scene.nodes.get(dir).and_then(|node| node.entries.get(&name));
        let unseen = !matches!(entry, Some(Entry::Missing | Entry::Node(_)));
        let shut_out = matches!(entry, Some(Entry::Closed(mount)) if self.is_shut_out(*mount));
        let mut path = self.scene.path(dir.min(self.scene.nodes.len() - 1));
        if path != b"/" {
            path.push(b'/');
        }
        path.extend_from_slice(&name);
        let shown = Component {
            path: Text(path),
            via: if unseen { Via::Unseen } else { Via::Missing },
            facts: None,
            checks: Vec::new(),
            link: None,
            mount: None,
        };
        // What creates looks once on the way and once with the directory locked.
        if self.places().last().is_none_or(|place| place.shown.path != shown.path) {
            self.places().push(Place { node: None, shown });
        }
        let walk = self.walks.len() - 1;
        let rule = match (unseen, walk) {
            _ if shut_out => "fuse-owner",
            (true, _) => "unseen",
            (false, 0) => "missing",
            (false, _) => "missing-interpreter",
        };
        let reason = Reason { name: Some(name), ..Reason::new(rule, walk, Some(dir)) };
        if unseen && self.blind.is_none() {
            self.blind = Some(reason.clone());
        }
        self.refused = Some((reason, Errno::ENOENT));
    }

    /// The latest place that is this node.
    fn find(&self, node: NodeIx) -> Option<(usize, usize)> {
        let walks = self.walks.iter().enumerate().rev();
        walks
            .flat_map(|(w, walk)| (0..walk.places.len()).rev().map(move |p| (w, p)))
            .find(|&(w, p)| self.walks[w].places[p].node == Some(node))
    }

    fn fact(&mut self, node: NodeIx, fact: Fact) {
        let Some((walk, place)) = self.find(node) else { return };
        if let Fact::Asked { mask, .. } = fact {
            if self.ignore_reads && mask == MAY_READ {
                self.open = None;
                return;
            }
            self.last = Reason { mask, ..Reason::new("permission", walk, Some(node)) };
            self.begin(walk, place, node, asked(mask, self.is_dir(node)));
            return;
        }
        if self.open.is_none_or(|(_, _, of)| of != node) {
            match fact {
                // What follows belongs to a question that was left out.
                Fact::Class { .. } => return,
                Fact::Capability { .. } if self.open.is_none() && self.ignore_reads => return,
                Fact::Refused { rule, .. } => self.begin(walk, place, node, verb(rule).to_owned()),
                _ => self.begin(walk, place, node, "change".to_owned()),
            }
            self.last = Reason::new("call", walk, Some(node));
        }
        self.answer(walk, place, node, fact);
    }

    fn is_socket(&self, node: NodeIx) -> bool {
        self.scene.nodes.get(node).is_some_and(|node| node.object.kind() == S_IFSOCK)
    }

    fn is_dir(&self, node: NodeIx) -> bool {
        self.scene.nodes.get(node).is_some_and(|node| node.object.kind() == S_IFDIR)
    }

    fn begin(&mut self, walk: usize, place: usize, node: NodeIx, asks: String) {
        let checks = &mut self.walks[walk].places[place].shown.checks;
        checks.push(Check { asks, passed: true, ..Check::default() });
        self.open = Some((walk, place, node));
    }

    fn answer(&mut self, walk: usize, place: usize, node: NodeIx, fact: Fact) {
        let because = match fact {
            Fact::Class { class, bits, mask, .. } => Some(self.because(node, class, bits, mask)),
            _ => None,
        };
        let Some(check) = self.walks[walk].places[place].shown.checks.last_mut() else { return };
        match fact {
            Fact::Class { class, granted, mask, bits } => {
                check.class = Some(class_word(class));
                check.because = because;
                check.granted = Some(granted);
                self.last.class = Some(class);
                self.last.acl_mask = mask;
                self.last.bits = bits;
            }
            Fact::Capability { cap, held } => match held {
                Held::Yes => check.overridden_by = Some(cap_name(cap)),
                Held::No => check.would_override.push(cap_name(cap)),
                Held::Unmapped => check.unmapped.push(cap_name(cap)),
            },
            Fact::Refused { rule, errno } => {
                let word = rule_word(rule);
                check.refused = Some(word);
                check.passed = false;
                self.refused = Some((Reason { rule: word, ..self.last.clone() }, errno));
            }
            _ => {}
        }
    }

    /// Who the identity is to a node, and what that grants.
    fn because(&mut self, node: NodeIx, class: Class, bits: u32, mask: Option<u32>) -> String {
        let has = mask_letters(bits);
        let object = &self.scene.nodes[node].object;
        let bounded = match mask {
            Some(mask) if bits & !mask != 0 => {
                format!(", of which the mask {} leaves {}", mask_letters(mask), mask_letters(bits & mask))
            }
            _ => String::new(),
        };
        let group = |names: &mut Names, gid| label(gid, names.group(gid));
        match class {
            Class::Everyone => "everybody may".to_owned(),
            Class::Owner => format!("is the owner, who has {has}"),
            Class::NamedUser(uid) => {
                format!("the ACL has user:{}:{has}{bounded}", label(uid, self.names.user(uid)))
            }
            Class::Group => {
                format!("is in group {}, which has {has}{bounded}", group(self.names, object.gid))
            }
            Class::NamedGroup(gid) => format!("the ACL has group:{}:{has}{bounded}", group(self.names, gid)),
            Class::NoGroupEntry => "is in groups that the ACL knows, and none of them has it all".to_owned(),
            Class::Other if self.cred.in_group(object.gid) => {
                format!("is in group {}, which has no less than others: {has}", group(self.names, object.gid))
            }
            Class::Other => format!("is neither owner nor in the group; others have {has}"),
        }
    }

    fn is_shut_out(&self, mount: MountIx) -> bool {
        let c = self.cred;
        let (uids, gids) =
            ([c.uid(), c.euid(), c.suid(), c.fsuid()], [c.gid(), c.egid(), c.sgid(), c.fsgid()]);
        self.scene.mounts.get(mount).is_some_and(|mount| mount.shuts_out(uids, gids))
    }

    /// The first place in a FUSE file system that does not let the identity in. The engine knows nothing of that rule.
    pub(crate) fn shut_out(&self) -> Option<Reason> {
        let places =
            self.walks.iter().enumerate().flat_map(|(w, walk)| walk.places.iter().map(move |it| (w, it)));
        let mut nodes = places.filter_map(|(walk, place)| Some((walk, place.node?)));
        nodes
            .find(|&(_, node)| self.scene.nodes.get(node).is_some_and(|node| self.is_shut_out(node.mount)))
            .map(|(walk, node)| Reason::new("fuse-owner", walk, Some(node)))
    }

    /// What the path of the call, which has one, leads to.
    pub(crate) fn target(&self) -> Option<NodeIx> {
        self.walks.last()?.places.last()?.node
    }

    /// All that the paths of the call lead through, and to.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeIx> {
        self.walks.iter().flat_map(|walk| &walk.places).filter_map(|place| place.node)
    }

    /// What a path of the call leads to says no.
    pub(crate) fn refused_at(&self, node: NodeIx, rule: &'static str) -> Reason {
        Reason::new(rule, self.find(node).map_or(0, |(walk, _)| walk), Some(node))
    }

    pub(crate) fn names(&mut self) -> &mut Names {
        self.names
    }

    /// Why `call` failed with `errno`.
    pub(crate) fn reason(&self, call: &Call, errno: Errno) -> Reason {
        if let Some((reason, told)) = &self.refused
            && *told == errno
        {
            return reason.clone();
        }
        let walk = self.walks.len().saturating_sub(1);
        let node = self.walks.last().and_then(|walk| walk.places.iter().rev().find_map(|place| place.node));
        let rule = match errno {
            Errno::EPERM if matches!(call, Call::Mknod(..)) => "mknod",
            Errno::EPERM if matches!(call, Call::Exec(_)) => "bounding-set",
            Errno::EPERM if call.attribute().is_some() => "attribute-name",
            Errno::EOPNOTSUPP if call.attribute().is_some() => "no-attributes",
            Errno::ECONNREFUSED => "not-a-socket",
            Errno::ENXIO if node.is_some_and(|node| self.is_socket(node)) => "socket",
            Errno::EISDIR => "is-a-directory",
            Errno::EEXIST => "exists",
            Errno::ENOTDIR => "not-a-directory",
            Errno::ENOEXEC | Errno::ELIBBAD => "not-a-program",
            Errno::ENODATA => "unseen",
            _ => "call",
        };
        Reason::new(rule, walk, node)
    }

    /// The walks, without the questions that were asked twice.
    pub(crate) fn finish(self) -> Vec<Walk> {
        let component = |place: Place| {
            let mut shown = place.shown;
            let mut checks: Vec<Check> = Vec::new();
            for check in shown.checks {
                if !checks.contains(&check) {
                    checks.push(check);
                }
            }
            shown.checks = checks;
            shown
        };
        let walk = |steps: Steps| Walk {
            path: Text(steps.path),
            components: steps.places.into_iter().map(component).collect(),
        };
        self.walks.into_iter().map(walk).collect()
    }
}

/// `alice (1000)`, or `1000`.
pub(crate) fn label(id: u32, name: Option<String>) -> String {
    name.unwrap_or_else(|| id.to_string())
}

/// What a mask asks for.
pub(crate) fn asked(mask: u32, is_dir: bool) -> String {
    let words =
        [(MAY_READ, "read"), (MAY_WRITE, "write"), (MAY_EXEC, if is_dir { "search" } else { "execute" })];
    let words: Vec<&str> =
        words.into_iter().filter(|(bit, _)| mask & bit != 0).map(|(_, word)| word).collect();
    words.join("+")
}

/// What a rule outside of permissions forbids.
fn verb(rule: Rule) -> &'static str {
    match rule {
        Rule::Sticky | Rule::AppendOnly | Rule::Immutable | Rule::UnmappedOwner => "change",
        Rule::ProtectedSymlinks | Rule::NoSymFollow | Rule::NoSymlinks | Rule::TooManyLinks => "follow",
        Rule::ReadOnlySuperblock | Rule::ReadOnlyMount => "write",
        Rule::NoExec | Rule::NotAProgram => "execute",
        Rule::NotOwner | Rule::Chown => "own",
        _ => "use",
    }
}

fn class_word(class: Class) -> &'static str {
    match class {
        Class::Everyone => "everyone",
        Class::Owner => "owner",
        Class::NamedUser(_) => "named-user",
        Class::Group => "group",
        Class::NamedGroup(_) => "named-group",
        Class::NoGroupEntry => "no-group-entry",
        _ => "other",
    }
}

fn rule_word(rule: Rule) -> &'static str {
    match rule {
        Rule::ReadOnlySuperblock => "read-only-superblock",
        Rule::ReadOnlyMount => "read-only-mount",
        Rule::Immutable => "immutable",
        Rule::AppendOnly => "append-only",
        Rule::UnmappedOwner => "unmapped-owner",
        Rule::Permission => "permission",
        Rule::MalformedAcl => "malformed-acl",
        Rule::Sticky => "sticky",
        Rule::NotOwner => "not-owner",
        Rule::Chown => "chown",
        Rule::NoExec => "noexec",
        Rule::NotAProgram => "not-a-program",
        Rule::NoDev => "nodev",
        Rule::NoSymFollow => "nosymfollow",
        Rule::ProtectedSymlinks => "protected-symlinks",
        Rule::ProtectedHardlinks => "protected-hardlinks",
        Rule::ProtectedCreate => "protected-create",
        Rule::CannotStore => "cannot-store",
        Rule::TooManyLinks => "too-many-links",
        Rule::NoSymlinks => "no-symlinks",
        _ => "call",
    }
}

fn kind_word(mode: u32) -> (&'static str, char) {
    match mode & S_IFMT {
        S_IFDIR => ("directory", 'd'),
        S_IFLNK => ("symbolic link", 'l'),
        S_IFIFO => ("fifo", 'p'),
        S_IFSOCK => ("socket", 's'),
        S_IFCHR => ("character device", 'c'),
        S_IFBLK => ("block device", 'b'),
        _ => ("regular file", '-'),
    }
}

/// As ls(1) writes them.
pub(crate) fn permissions(mode: u32) -> String {
    let special = |bit: u32, x: bool, letter: char| match (mode & bit != 0, x) {
        (true, true) => letter,
        (true, false) => letter.to_ascii_uppercase(),
        (false, true) => 'x',
        (false, false) => '-',
    };
    let mut text = String::from(kind_word(mode).1);
    for (shift, bit, letter) in [(6, S_ISUID, 's'), (3, S_ISGID, 's'), (0, S_ISVTX, 't')] {
        text.push(if mode >> shift & 4 != 0 { 'r' } else { '-' });
        text.push(if mode >> shift & 2 != 0 { 'w' } else { '-' });
        text.push(special(bit, mode >> shift & 1 != 0, letter));
    }
    text
}

fn facts(node: &Node, cred: &Cred, names: &mut Names) -> Facts {
    let object = &node.object;
    let ns = cred.user_ns();
    let shown = (ns.from_kuid_munged(object.uid), ns.from_kgid_munged(object.gid));
    let flags = [(IFLAG_IMMUTABLE, "immutable"), (IFLAG_APPEND, "append-only")];
    let acl = object.acl.iter().flat_map(|acl| acl.entries());
    Facts {
        kind: kind_word(object.mode).0,
        permissions: permissions(object.mode),
        mode: object.mode & 0o7777,
        owner: Id { id: object.uid, name: names.user(object.uid) },
        group: Id { id: object.gid, name: names.group(object.gid) },
        shown_as: (!ns.is_init()).then_some(shown),
        acl: acl.map(|entry| acl_text(*entry, names)).collect(),
        flags: flags.into_iter().filter(|(bit, _)| object.iflags & bit != 0).map(|(_, word)| word).collect(),
    }
}

fn acl_text(entry: AclEntry, names: &mut Names) -> String {
    let (tag, who) = match entry.tag {
        ACL_USER_OBJ => ("user", String::new()),
        ACL_USER => ("user", label(entry.id, names.user(entry.id))),
        ACL_GROUP_OBJ => ("group", String::new()),
        ACL_GROUP => ("group", label(entry.id, names.group(entry.id))),
        ACL_MASK => ("mask", String::new()),
        ACL_OTHER => ("other", String::new()),
        _ => ("?", String::new()),
    };
    format!("{tag}:{who}:{}", mask_letters(u32::from(entry.perm)))
}

pub(crate) fn mount_facts(mount: &Mount) -> MountFacts {
    let o = mount.options;
    let options = [
        (o.read_only, "ro"),
        (o.noexec, "noexec"),
        (o.nosuid, "nosuid"),
        (o.nodev, "nodev"),
        (o.nosymfollow, "nosymfollow"),
        (mount.idmapped, "idmapped"),
    ];
    MountFacts {
        point: Text(mount.point.clone()),
        fstype: mount.fstype.clone(),
        source: mount.source.clone(),
        options: options.into_iter().filter(|(on, _)| *on).map(|(_, word)| word).collect(),
        superblock_read_only: mount.sb_read_only,
    }
}

/// The reason in words.
pub(crate) fn tell(scene: &Scene, cred: &Cred, names: &mut Names, reason: &Reason, errno: Errno) -> Deciding {
    let at = reason.node.filter(|&node| node < scene.nodes.len());
    let mut path = at.map_or_else(Vec::new, |node| scene.path(node));
    if let Some(name) = &reason.name {
        if path != b"/" {
            path.push(b'/');
        }
        path.extend_from_slice(name);
    }
    let text = words(scene, cred, names, reason, errno);
    Deciding { rule: reason.rule, path: Text(path), text }
}

fn words(scene: &Scene, cred: &Cred, names: &mut Names, reason: &Reason, errno: Errno) -> String {
    let node = reason.node.and_then(|node| scene.nodes.get(node));
    let mount = node.map(|node| &scene.mounts[node.mount]);
    let point = mount.map_or_else(String::new, |mount| String::from_utf8_lossy(&mount.point).into_owned());
    match (reason.rule, node) {
        ("permission", Some(node)) => refusal(node, cred, names, reason),
        ("read-only-superblock", _) => format!("the file system at {point} is read-only, which is tested before permissions"),
        ("read-only-mount", _) => format!("the mount at {point} is read-only; permissions were fine"),
        ("immutable", _) => "it is immutable (chattr +i); not even root may change it".to_owned(),
        ("append-only", _) => "it is append-only (chattr +a)".to_owned(),
        ("unmapped-owner", _) => "its owner or group has no id in this mount or user namespace".to_owned(),
        ("malformed-acl", _) => "its ACL makes no sense".to_owned(),
        ("sticky", Some(victim)) => {
            let dir = &scene.nodes[victim.parent].object;
            format!(
                "its directory is sticky: only the owner of the entry ({}) or of the directory ({}) may take it away",
                label(victim.object.uid, names.user(victim.object.uid)),
                label(dir.uid, names.user(dir.uid)),
            )
        }
        ("not-owner", _) => "only its owner, or CAP_FOWNER, may do that".to_owned(),
        ("chown", _) => {
            "its group is its owner's to change, to one that the owner is in; all else needs CAP_CHOWN".to_owned()
        }
        ("noexec", _) => format!("the mount at {point} is noexec: no program of it can be run"),
        ("nodev", _) => format!("the mount at {point} is nodev: no device of it can be opened"),
        ("nosymfollow", _) => format!("the mount at {point} is nosymfollow: no link of it is followed"),
        ("not-a-program", _) if errno == Errno::EACCES => "it is not a regular file".to_owned(),
        ("not-a-program", _) => "it is neither a script nor a program for this machine".to_owned(),
        ("protected-symlinks", Some(link)) => format!(
            "fs.protected_symlinks is on: a link of another user ({}) in a sticky directory that all may write to is not \
             followed, unless the directory is its owner's",
            label(link.object.uid, names.user(link.object.uid)),
        ),
        ("protected-hardlinks", _) => {
            "fs.protected_hardlinks is on: only the owner may link a file that is not theirs to read and write".to_owned()
        }
        ("protected-create", _) => {
            "fs.protected_regular or fs.protected_fifos: O_CREAT does not open another user's file in a sticky directory"
                .to_owned()
        }
        ("cannot-store", _) => "the file system cannot store files of this user or group".to_owned(),
        ("too-many-links", _) => "more than 40 symbolic links, or a loop of them".to_owned(),
        ("no-symlinks", _) => "RESOLVE_NO_SYMLINKS forbids to follow it".to_owned(),
        ("missing", Some(dir)) if is_removed(scene, dir) => {
            "the current directory was removed: nothing is in it, and nothing can be made in it".to_owned()
        }
        ("missing", _) => "there is nothing of that name".to_owned(),
        ("mknod", _) => "to make a device takes CAP_MKNOD in the initial user namespace, whatever the directory's mode says".to_owned(),
        ("bounding-set", _) => {
            "the program's file capabilities (getcap) want one that the bounding set of the process lacks, and its effective \
             bit is set: it is not started with less".to_owned()
        }
        ("attribute-name", _) => {
            "user.* attributes are for regular files and directories alone, trusted.* and security.* take CAP_SYS_ADMIN"
                .to_owned()
        }
        ("not-a-socket", _) => "it is not a socket".to_owned(),
        ("socket", _) => "open(2) opens no sockets: connect(2) does".to_owned(),
        ("is-a-directory", _) => "it is a directory".to_owned(),
        ("exists", _) => "it is there already".to_owned(),
        ("device-cgroup", _) => "the device cgroup of this process refuses the device, whatever its mode says".to_owned(),
        ("no-terminal", _) => "it stands for the controlling terminal, and the process has none".to_owned(),
        ("running", Some(node)) => format!(
            "process {} runs it, and a program that runs is not written to",
            node.object.run_by.unwrap_or_default()
        ),
        ("swap", _) => SWAP.to_owned(),
        ("verity", _) => "it is sealed by fs-verity: nobody may write to it".to_owned(),
        ("no-attributes", _) => {
            format!("{} does not store such attributes", mount.map_or("the file system", |mount| &mount.fstype))
        }
        ("missing-interpreter", _) => "the interpreter that the program names is not there".to_owned(),
        ("not-a-directory", _) => "it is not a directory".to_owned(),
        ("fuse-owner", _) => {
            "a FUSE file system without allow_other lets in the user who mounted it and no other, root neither".to_owned()
        }
        ("unseen", _) if errno == Errno::ENODATA => {
            "what is in the program could not be read, so its interpreter is not known".to_owned()
        }
        ("unseen", _) => "whether it is there could not be seen: this process may not look".to_owned(),
        _ => format!("{errno}"),
    }
}

/// Why what the kernel swaps to stays as it is.
pub(crate) const SWAP: &str = "the kernel swaps to it: until swapoff(8), not even root may write to it, change its size or take its name away";

/// Whether this is the current directory, after it was removed.
fn is_removed(scene: &Scene, dir: &Node) -> bool {
    scene.cwd_removed && scene.cwd.ends_with(&dir.name) && dir.name.ends_with(b" (deleted)")
}

/// Why bits, ACL and capabilities refuse.
fn refusal(node: &Node, cred: &Cred, names: &mut Names, reason: &Reason) -> String {
    let object = &node.object;
    let asks = match asked(reason.mask, object.kind() == S_IFDIR) {
        both if both == "write+search" => "add or remove names".to_owned(),
        asks => asks,
    };
    let want = reason.mask & 7;
    let has = mask_letters(reason.bits & reason.acl_mask.unwrap_or(7));
    let other = object.mode & want == want;
    let group = object.mode >> 3 & want == want;
    let class = match reason.class {
        Some(Class::Owner) if group || other => format!(
            "the owner has {has}, and the owner's class alone counts for the owner, though {} more",
            if other { "others have" } else { "the group has" }
        ),
        Some(Class::Owner) => format!("the owner has {has}"),
        Some(Class::NamedUser(_) | Class::Group | Class::NamedGroup(_))
            if reason.acl_mask.is_some_and(|mask| want & !mask != 0) && want & !reason.bits == 0 =>
        {
            format!("an entry of the ACL grants {}, but its mask leaves {has}", mask_letters(reason.bits))
        }
        Some(Class::NamedUser(_)) => format!("the ACL's entry for this user has {has}"),
        Some(Class::Group) if other => format!(
            "group {} has {has}, and the group's class counts for its members, though others have more",
            label(object.gid, names.group(object.gid))
        ),
        Some(Class::Group) => format!("group {} has {has}", label(object.gid, names.group(object.gid))),
        Some(Class::NamedGroup(gid)) => {
            format!("the ACL's entry for group {} has {has}", label(gid, names.group(gid)))
        }
        Some(Class::NoGroupEntry) => "no entry of the ACL for a group of this user has it all".to_owned(),
        _ => format!("others have {has}"),
    };
    let root = if cred.fsuid() == 0 && cred.user_ns().is_init() {
        "; user 0 is nobody special without CAP_DAC_OVERRIDE"
    } else if !(cred.user_ns().is_init()
        || cred.user_ns().has_uid(object.uid) && cred.user_ns().has_gid(object.gid))
    {
        "; its owner or group has no id in the user namespace, so capabilities do not count"
    } else {
        ""
    };
    format!("may not {asks}: {class}{root}")
}
