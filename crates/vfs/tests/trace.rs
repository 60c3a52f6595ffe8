//! What a recording tells of walks and checks.

use rcuwalk::acl::{ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER, ACL_USER_OBJ, AclEntry, UncheckedAcl};
use rcuwalk::cred::CapSet;
use rcuwalk::perm::{MAY_EXEC, MAY_READ, MAY_WRITE};
use rcuwalk::trace::{Class, Event, Fact, Held, Rule};
use rcuwalk::uapi::*;
use rcuwalk::userns::UserNamespace;
use rcuwalk::{Cred, Errno, MountOptions, NewInode, NewMount, Vfs, WalkMode};

fn facts(events: &[Event]) -> Vec<Fact> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Fact { fact, .. } => Some(*fact),
            _ => None,
        })
        .collect()
}

fn refused(events: &[Event]) -> Option<Rule> {
    facts(events).into_iter().rev().find_map(|fact| match fact {
        Fact::Refused { rule, .. } => Some(rule),
        _ => None,
    })
}

fn names(events: &[Event]) -> Vec<String> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Walk { path, .. } => Some(format!("walk {}", path.escape_ascii())),
            Event::Found { name, .. } => Some(format!("found {}", name.escape_ascii())),
            Event::Missing { name, .. } => Some(format!("missing {}", name.escape_ascii())),
            Event::Crossed { .. } => Some("crossed".to_owned()),
            Event::Up { .. } => Some("up".to_owned()),
            Event::Link { body, .. } => Some(format!("link {}", body.escape_ascii())),
            _ => None,
        })
        .collect()
}

fn user() -> Cred {
    Cred::user(1000, 1000, &[50])
}

#[test]
fn a_walk_tells_each_step() {
    let vfs = Vfs::new().unwrap();
    let root = vfs.task(Cred::root());
    root.mkdir(b"/a", 0o755).unwrap();
    root.mkdir(b"/a/b", 0o755).unwrap();
    root.mkdir(b"/mnt", 0o755).unwrap();
    root.symlink(b"/a/b", b"/mnt/abs").unwrap();
    root.symlink(b"abs", b"/mnt/rel").unwrap();
    root.mount(b"t", b"/a/b", b"tmpfs", 0, b"").unwrap();
    let (answer, events) = vfs.record(|| root.stat(b"/mnt/rel/../x"));
    assert_eq!(answer.unwrap_err(), Errno::ENOENT);
    let expected = [
        "walk /mnt/rel/../x",
        "found mnt",
        "found rel",
        "link abs",
        "found abs",
        "link /a/b",
        "walk /a/b/../x",
        "found a",
        "found b",
        "crossed",
        "up",
        "missing x",
    ];
    assert_eq!(names(&events), expected);
    let (_, events) = vfs.record(|| ());
    assert!(events.is_empty(), "a recording begins empty: {events:?}");
}

#[test]
fn a_recording_leaves_the_walk_mode_as_it_was() {
    let vfs = Vfs::new().unwrap();
    let task = vfs.task(user());
    for mode in [WalkMode::Direct, WalkMode::Rcu, WalkMode::RefOnly] {
        vfs.set_walk_mode(mode);
        let before = vfs.stats().bails;
        assert_eq!(vfs.record(|| task.stat(b"/").is_ok()).0, task.stat(b"/").is_ok());
        assert_eq!(vfs.stats().bails, before);
    }
}

#[test]
fn the_class_and_the_capabilities_are_told() {
    let vfs = Vfs::new().unwrap();
    let root = vfs.task(Cred::root());
    root.open(b"/f", O_CREAT | O_RDWR, 0).unwrap();
    root.chown(b"/f", 5, 50).unwrap();
    let ask = |mode: u32, cred: Cred, bits: i32| {
        root.chmod(b"/f", mode).unwrap();
        let task = vfs.task(cred);
        let (answer, events) = vfs.record(|| task.access(b"/f", bits));
        (answer, facts(&events).into_iter().skip(2).collect::<Vec<_>>())
    };
    let class = |class, bits, granted| Fact::Class { class, bits, mask: None, granted };
    let no = Fact::Refused { rule: Rule::Permission, errno: Errno::EACCES };
    let cap = |cap, held| Fact::Capability { cap, held };

    let (answer, told) = ask(0o444, user(), R_OK);
    assert_eq!(answer, Ok(()));
    assert_eq!(told[1..], [class(Class::Everyone, 4, true)]);
    let (answer, told) = ask(0o004, user(), R_OK);
    assert_eq!(answer, Err(Errno::EACCES), "the group's class shadows that of others");
    let lacks = [cap(CAP_DAC_READ_SEARCH, Held::No), cap(CAP_DAC_OVERRIDE, Held::No)];
    assert_eq!(told[1..], [class(Class::Group, 0, false), lacks[0], lacks[1], no]);
    let (answer, told) = ask(0o022, user(), R_OK);
    assert_eq!(answer, Err(Errno::EACCES));
    let shared = [class(Class::Other, 2, false), lacks[0], lacks[1], no];
    assert_eq!(
        told[1..],
        shared,
        "where the two classes agree, nobody asks whether it is the caller's group"
    );
    let (answer, told) = ask(0o070, Cred::user(5, 5, &[50]), W_OK);
    assert_eq!(answer, Err(Errno::EACCES));
    assert_eq!(told[1..], [class(Class::Owner, 0, false), cap(CAP_DAC_OVERRIDE, Held::No), no]);
    let (answer, told) = ask(0o000, Cred::root(), W_OK);
    assert_eq!(answer, Ok(()));
    assert_eq!(told[1..], [class(Class::Other, 0, false), cap(CAP_DAC_OVERRIDE, Held::Yes)]);
    assert!(matches!(told[0], Fact::Asked { mask, .. } if mask & 7 == MAY_WRITE), "{told:?}");
}

#[test]
fn the_entry_and_the_mask_of_an_acl_are_told() {
    let vfs = Vfs::new().unwrap();
    let root = vfs.task(Cred::root());
    root.open(b"/f", O_CREAT | O_RDWR, 0o600).unwrap();
    let set = |named: AclEntry, mask: u16| {
        let acl = [
            AclEntry::new(ACL_USER_OBJ, 6),
            AclEntry::new(ACL_GROUP_OBJ, 0),
            named,
            AclEntry::new(ACL_MASK, mask),
            AclEntry::new(ACL_OTHER, 0),
        ];
        let mut acl = acl.to_vec();
        acl.sort_by_key(|entry| entry.tag);
        let acl = UncheckedAcl::new(acl).validate(&UserNamespace::init()).unwrap();
        root.setxattr(b"/f", b"system.posix_acl_access", &acl.to_xattr(|id| id, |id| id), 0).unwrap();
        let task = vfs.task(user());
        let (_, events) = vfs.record(|| task.access(b"/f", R_OK));
        facts(&events)
            .into_iter()
            .find(|fact| matches!(fact, Fact::Class { class, .. } if *class != Class::Everyone))
    };
    let told = |class, mask, granted| Some(Fact::Class { class, bits: 4, mask: Some(mask), granted });
    assert_eq!(set(AclEntry::user(1000, 4), 4), told(Class::NamedUser(1000), 4, true));
    assert_eq!(set(AclEntry::user(1000, 4), 2), told(Class::NamedUser(1000), 2, false));
    assert_eq!(set(AclEntry::group(50, 4), 4), told(Class::NamedGroup(50), 4, true));
    let none = Fact::Class { class: Class::NoGroupEntry, bits: 0, mask: None, granted: false };
    assert_eq!(set(AclEntry::group(50, 2), 7), Some(none));
}

#[test]
fn each_rule_that_refuses_is_named() {
    let vfs = Vfs::builder()
        .protected(rcuwalk::perm::Protected { symlinks: true, hardlinks: true, regular: 2, fifos: 2 })
        .build()
        .unwrap();
    let root = vfs.task(Cred::root());
    root.mkdir(b"/tmp", 0o755).unwrap();
    root.chmod(b"/tmp", 0o1777).unwrap();
    root.open(b"/tmp/f", O_CREAT | O_RDWR, 0o644).unwrap();
    let other = vfs.task(Cred::user(7, 7, &[]));
    other.symlink(b"f", b"/tmp/l").unwrap();
    other.open(b"/tmp/g", O_CREAT | O_RDWR, 0o666).unwrap();
    let task = vfs.task(user());
    let says = |call: &dyn Fn() -> bool| {
        let (ok, events) = vfs.record(call);
        assert!(!ok, "{events:?}");
        refused(&events)
    };
    assert_eq!(says(&|| task.unlink(b"/tmp/f").is_ok()), Some(Rule::Sticky));
    assert_eq!(says(&|| task.stat(b"/tmp/l").is_ok()), Some(Rule::ProtectedSymlinks));
    assert_eq!(says(&|| task.link(b"/tmp/f", b"/tmp/h").is_ok()), Some(Rule::ProtectedHardlinks));
    assert_eq!(says(&|| task.open(b"/tmp/g", O_CREAT | O_RDWR, 0).is_ok()), Some(Rule::ProtectedCreate));
    assert_eq!(says(&|| task.mkdir(b"/d", 0o755).is_ok()), Some(Rule::Permission));
    let chown = CapSet::of(&[CAP_CHOWN]);
    let giver = vfs.task(user().to_builder().permitted(chown).effective(chown).build().unwrap());
    root.chmod(b"/tmp/f", 0o6755).unwrap();
    assert_eq!(says(&|| task.chown(b"/tmp/f", 1000, INVALID_ID).is_ok()), Some(Rule::Chown));
    let to_nobody = || giver.chown(b"/tmp/f", INVALID_ID, INVALID_ID).is_ok();
    assert_eq!(says(&to_nobody), Some(Rule::NotOwner), "taking the set-id bits away is a change of mode");
    assert_eq!(says(&|| giver.chown(b"/tmp/f", 1000, INVALID_ID).is_ok()), Some(Rule::NotOwner), "likewise");
    vfs.set_read_only(true);
    assert_eq!(says(&|| task.access(b"/tmp/f", W_OK).is_ok()), Some(Rule::ReadOnlySuperblock));
    assert_eq!(says(&|| root.mkdir(b"/d", 0o755).is_ok()), Some(Rule::ReadOnlySuperblock));
    vfs.set_read_only(false);
    vfs.set_mount_options(MountOptions::default().with_read_only(true).with_noexec(true));
    assert_eq!(says(&|| task.access(b"/tmp/f", W_OK).is_ok()), Some(Rule::Permission), "before the mount");
    assert_eq!(says(&|| root.access(b"/tmp/f", W_OK).is_ok()), Some(Rule::ReadOnlyMount));
    assert_eq!(says(&|| root.mkdir(b"/d", 0o755).is_ok()), Some(Rule::ReadOnlyMount));
    assert_eq!(says(&|| root.access(b"/tmp/f", X_OK).is_ok()), Some(Rule::NoExec));
}

#[test]
fn loaded_mounts_restrict_and_are_told() {
    let vfs = Vfs::new().unwrap();
    let mut loader = vfs.loader();
    let dir = |ino| NewInode::new(0o040755).with_ino(Some(ino));
    let at = loader.add(loader.root(), b"m", &dir(10)).unwrap();
    let new = NewMount::new(dir(20)).with_sb_read_only(true);
    let (mount, top) = loader.mount(loader.root_mount(), at, &new).unwrap();
    loader.add(top, b"f", &NewInode::new(0o100666).with_ino(Some(21))).unwrap();
    let nested = loader.add(top, b"n", &dir(22)).unwrap();
    let (inner, _) = loader.mount(mount, nested, &NewMount::new(dir(30))).unwrap();
    let (mount, inner) = (loader.mount_number(mount), loader.mount_number(inner));
    let file = NewInode::new(0o100644);
    assert_eq!(loader.mount(loader.root_mount(), at, &NewMount::new(file)), Err(Errno::ENOTDIR));
    drop(loader);

    let task = vfs.task(user());
    let (answer, events) = vfs.record(|| task.access(b"/m/f", W_OK));
    assert_eq!(answer, Err(Errno::EROFS));
    assert_eq!(refused(&events), Some(Rule::ReadOnlySuperblock));
    let crossed = events.iter().find_map(|event| match event {
        Event::Crossed { to } => Some((to.mount, to.ino)),
        _ => None,
    });
    assert_eq!(crossed, Some((mount, 20)));
    let (answer, events) = vfs.record(|| task.stat(b"/m/n/../f"));
    assert_eq!(answer.unwrap().ino, 21);
    let crossings: Vec<u64> = events
        .iter()
        .filter_map(|event| match event {
            Event::Crossed { to } => Some(to.mount),
            _ => None,
        })
        .collect();
    assert_eq!(crossings, [mount, inner]);
    assert_eq!(vfs.task(Cred::root()).rmdir(b"/m/n"), Err(Errno::EROFS));
    let searched = facts(&events);
    assert!(searched.iter().any(|fact| matches!(fact, Fact::Asked { mask, .. } if mask & 7 == MAY_EXEC)));
    assert!(searched.iter().all(|fact| !matches!(fact, Fact::Asked { mask, .. } if mask & MAY_READ != 0)));
}
