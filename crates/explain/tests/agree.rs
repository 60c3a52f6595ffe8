//! Random questions: the verdict is the host's answer, for every one of them.

use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use fastrand::Rng;
use rcuwalk::acl::{
    ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER, ACL_USER_OBJ, AclEntry, UncheckedAcl, XATTR_NAME_POSIX_ACL_ACCESS,
};
use rcuwalk::userns::UserNamespace;
use rcuwalk_explain::{Call, Explainer, Options, Subject, Verdict, What};
use rustix::fs::XattrFlags;

/// Questions about each of the two trees.
const QUESTIONS: usize = 2_600;

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: only root can ask the host as other users");
    }
    root
}

const IDS: [u32; 5] = [0, 3000, 3001, 3002, 3003];

fn identities(rng: &mut Rng) -> Vec<Subject> {
    let caps = ["dac_override", "dac_read_search", "fowner", "chown", "fsetid", "dac_read_search,fowner"];
    (0..24)
        .map(|at| {
            let groups: Vec<String> =
                (0..=rng.usize(..3)).map(|_| rng.choice(&IDS).unwrap().to_string()).collect();
            let text = format!("{}:{}", rng.choice(&IDS).unwrap(), groups.join(","));
            let mut who = Subject::of_user(&text).unwrap();
            match at % 4 {
                0 => who.change_caps("-all").unwrap(),
                1 => who.change_caps(&format!("-all+{}", caps[rng.usize(..caps.len())])).unwrap(),
                _ => {}
            }
            // One whose real ids are others'.
            if at % 5 == 0 {
                (who.uids[0], who.gids[0]) = (*rng.choice(&IDS).unwrap(), *rng.choice(&IDS).unwrap());
            }
            who
        })
        .collect()
}

fn random_acl(rng: &mut Rng, path: &Path) {
    let perm = |rng: &mut Rng| rng.usize(..8) as u16;
    let mut entries = vec![
        AclEntry::new(ACL_USER_OBJ, perm(rng)),
        AclEntry::user(*rng.choice(&IDS).unwrap(), perm(rng)),
        AclEntry::new(ACL_GROUP_OBJ, perm(rng)),
        AclEntry::group(*rng.choice(&IDS).unwrap(), perm(rng)),
        AclEntry::new(ACL_MASK, perm(rng)),
        AclEntry::new(ACL_OTHER, perm(rng)),
    ];
    entries.sort_by_key(|entry| (entry.tag, entry.id));
    let acl = UncheckedAcl::new(entries).validate(&UserNamespace::init()).unwrap();
    let name = std::str::from_utf8(XATTR_NAME_POSIX_ACL_ACCESS).unwrap();
    let value = acl.to_xattr(|id| id, |id| id);
    // Where the file system has no ACLs there are simply none.
    let _ = rustix::fs::setxattr(path, name, &value, XattrFlags::empty());
}

/// Directories three deep, files, programs, scripts and links with random modes, owners and ACLs; the names of all.
fn generate(rng: &mut Rng, top: &Path) -> Vec<PathBuf> {
    let modes = [0o755, 0o750, 0o700, 0o711, 0o1777, 0o770, 0o751, 0o000, 0o055, 0o2775, 0o1770];
    let mut dirs = vec![top.to_owned()];
    let mut all = Vec::new();
    for at in 0..40 {
        let dir = dirs[rng.usize(..dirs.len())].join(format!("d{at}"));
        if dir.components().count() < top.components().count() + 5 {
            std::fs::create_dir(&dir).unwrap();
            dirs.push(dir.clone());
            all.push(dir);
        }
    }
    for at in 0..120 {
        let path = rng.choice(&dirs).unwrap().join(format!("f{at}"));
        match rng.usize(..6) {
            0 => {
                let to = all.get(rng.usize(..all.len())).unwrap();
                let to = if rng.usize(..2) == 0 {
                    to.clone()
                } else {
                    Path::new("..").join(to.file_name().unwrap())
                };
                symlink(to, &path).unwrap();
            }
            1 => std::fs::write(&path, "#!/bin/sh\n").unwrap(),
            2 => drop(std::fs::copy("/bin/true", &path).unwrap()),
            3 => std::fs::write(&path, format!("#!{}\n", all[rng.usize(..all.len())].display())).unwrap(),
            _ => std::fs::write(&path, "").unwrap(),
        }
        all.push(path);
    }
    for path in &all {
        let link = path.is_symlink();
        std::os::unix::fs::lchown(path, Some(*rng.choice(&IDS).unwrap()), Some(*rng.choice(&IDS).unwrap()))
            .unwrap();
        if !link {
            let mode =
                if path.is_dir() { *rng.choice(&modes).unwrap() } else { rng.usize(..0o10_000) as u32 };
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
            if rng.usize(..3) == 0 {
                random_acl(rng, path);
            }
        }
    }
    chown(top, Some(0), Some(0)).unwrap();
    std::fs::set_permissions(top, std::fs::Permissions::from_mode(0o1777)).unwrap();
    all
}

/// A path: one of those that are there, with something behind it, or with a detour.
fn some_path(rng: &mut Rng, all: &[PathBuf]) -> PathBuf {
    let path = rng.choice(all).unwrap().clone();
    match rng.usize(..8) {
        0 => path.join("missing"),
        1 => path.join(".."),
        2 => path.join("../..").join(path.file_name().unwrap_or_default()),
        3 => PathBuf::from(format!("{}/", path.display())),
        _ => path,
    }
}

fn some_question(rng: &mut Rng, all: &[PathBuf]) -> What {
    match rng.usize(..10) {
        0 | 1 => What::Read,
        2 | 3 => What::Write,
        4 => What::Execute,
        5 => What::Stat,
        6 => What::Create,
        7 => What::Delete,
        8 => What::RenameTo(some_path(rng, all).as_os_str().as_encoded_bytes().to_vec()),
        _ => What::Exec,
    }
}

/// Asks, and counts the verdicts.
fn ask(rng: &mut Rng, all: &[PathBuf]) {
    let explainer = Explainer::new(None).unwrap();
    let identities = identities(rng);
    let mut counts = [0; 2];
    let options = Options { fixes: false, verify: true };
    for at in 0..QUESTIONS {
        let (who, path, what) =
            (rng.choice(&identities).unwrap(), some_path(rng, all), some_question(rng, all));
        let bytes = path.as_os_str().as_encoded_bytes();
        // execve(2) alone: what the program loads is held against the program elsewhere.
        let what = if what == What::Exec { What::Call(Call::Exec(bytes.to_vec())) } else { what };
        let report = explainer.explain(who, bytes, std::slice::from_ref(&what), options).unwrap();
        let answer = &report.answers[0];
        let verify = answer.verify.as_ref().unwrap();
        let replaced = verify.calls.iter().any(|it| it.call != answer.call);
        assert_eq!(
            verify.outcome,
            if replaced { "stand-in" } else { "agrees" },
            "question {at}: {what:?} {} as {who:?}:\n{verify:#?}\n{:#?}",
            path.display(),
            answer.deciding
        );
        // What stands for a call that would change something asks the same permissions; anything else is the call itself.
        if !matches!(what, What::Create | What::Delete | What::RenameTo(_)) {
            let host = &verify.calls[0].got;
            let own = answer.errno.unwrap_or("ok");
            assert_eq!(host, own, "question {at}: {what:?} {} as {who:?}", path.display());
        }
        match answer.verdict {
            Verdict::Allowed => counts[0] += 1,
            Verdict::Denied => counts[1] += 1,
            Verdict::Unknown => panic!("question {at}: {what:?} {}: unknown", path.display()),
        }
        let allowed = answer.verdict == Verdict::Allowed;
        assert_eq!(allowed, answer.deciding.is_none(), "question {at}");
    }
    println!("{} allowed, {} denied", counts[0], counts[1]);
    assert!(counts.iter().all(|&n| n > QUESTIONS / 10), "too few of one kind: {counts:?}");
}

#[test]
fn a_generated_tree_is_judged_as_the_host_judges_it() {
    if !is_root() {
        return;
    }
    let mut rng = Rng::with_seed(0x5eed_0001);
    let temp = tempfile::tempdir().unwrap();
    std::fs::set_permissions(temp.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let top = temp.path().join("top");
    std::fs::create_dir(&top).unwrap();
    let all = generate(&mut rng, &top);
    ask(&mut rng, &all);
}

#[test]
fn the_system_is_judged_as_the_host_judges_it() {
    if !is_root() {
        return;
    }
    let mut rng = Rng::with_seed(0x5eed_0002);
    let mut all = Vec::new();
    let mut dirs = vec![PathBuf::from("/etc"), PathBuf::from("/usr")];
    // A walk that takes some of each directory, so that it is deep as well as wide.
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.flatten().take(40) {
            let path = entry.path();
            if path.is_dir() && !path.is_symlink() && rng.usize(..3) == 0 {
                dirs.push(path.clone());
            }
            all.push(path);
        }
        if all.len() > 4_000 {
            break;
        }
    }
    // Those that are not everybody's are the interesting ones.
    let private: Vec<PathBuf> =
        ["/etc/shadow", "/etc/gshadow", "/root", "/etc/sudoers", "/etc/ssl/private/x"]
            .iter()
            .map(PathBuf::from)
            .collect();
    for _ in 0..all.len() / 20 {
        all.extend(private.iter().cloned());
    }
    ask(&mut rng, &all);
}
