//! Who gains by a fix: what it opens to others is said, and the fix that opens least comes first.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use rcuwalk::acl::{
    ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER, ACL_USER_OBJ, AclEntry, UncheckedAcl, XATTR_NAME_POSIX_ACL_ACCESS,
};
use rcuwalk::userns::UserNamespace;
use rcuwalk_explain::report::Fix;
use rcuwalk_explain::{Explainer, Options, Subject, Verdict, What};
use rustix::fs::XattrFlags;

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: only root can give files away");
    }
    root
}

fn ask(who: &str, path: &Path, what: What) -> (Verdict, Vec<Fix>) {
    let who = Subject::of_user(who).unwrap();
    let explainer = Explainer::new(None).unwrap();
    let path = path.as_os_str().as_encoded_bytes();
    let mut report = explainer.explain(&who, path, &[what], Options { fixes: true, verify: true }).unwrap();
    let answer = report.answers.remove(0);
    (answer.verdict, answer.fixes)
}

/// A place that everybody can reach, with a file of user 3001 and group 3002.
fn place(mode: u32) -> (tempfile::TempDir, std::path::PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    std::fs::set_permissions(temp.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = temp.path().join("file");
    std::fs::write(&file, "").unwrap();
    chown(&file, Some(3001), Some(3002)).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    (temp, file)
}

fn set_acl(path: &Path, entries: Vec<AclEntry>) {
    let acl = UncheckedAcl::new(entries).validate(&UserNamespace::init()).unwrap();
    let name = std::str::from_utf8(XATTR_NAME_POSIX_ACL_ACCESS).unwrap();
    rustix::fs::setxattr(path, name, &acl.to_xattr(|id| id, |id| id), XattrFlags::empty()).unwrap();
}

fn commands(fixes: &[Fix]) -> Vec<String> {
    fixes.iter().map(|fix| fix.commands.join(" && ")).collect()
}

#[test]
fn a_mask_that_holds_a_group_back_stays() {
    if !is_root() {
        return;
    }
    let (_temp, file) = place(0o640);
    let entries = |mask: u16| {
        vec![
            AclEntry::new(ACL_USER_OBJ, 6),
            AclEntry::new(ACL_GROUP_OBJ, 4),
            AclEntry::group(3003, 6),
            AclEntry::new(ACL_MASK, mask),
            AclEntry::new(ACL_OTHER, 0),
        ]
    };
    set_acl(&file, entries(4));
    let (_, fixes) = ask("3000:3000", &file, What::Read);
    let path = file.display();
    assert_eq!(fixes[0].commands, [format!("setfacl -n -m u:3000:r-- {path}")], "{fixes:#?}");
    assert!(fixes[0].gains.is_empty(), "{fixes:#?}");
    // Where the mask has to grow, it is said who gains by that.
    let (_, fixes) = ask("3000:3000", &file, What::Write);
    let acl = fixes.iter().find(|fix| fix.kind == "acl").unwrap();
    assert_eq!(acl.commands, [format!("setfacl -n -m u:3000:-w-,m::rw- {path}")], "{fixes:#?}");
    assert_eq!(
        (acl.gains[0].who.as_str(), acl.gains[0].what.as_str()),
        ("group 3003", "write"),
        "{fixes:#?}"
    );
    assert!(acl.opens.contains(&format!("besides, write of {path} to group 3003")), "{}", acl.opens);
}

#[test]
fn a_member_of_the_group_needs_nothing_for_others() {
    if !is_root() {
        return;
    }
    let (_temp, file) = place(0o600);
    let (_, fixes) = ask("3000:3002", &file, What::Read);
    let all = commands(&fixes);
    assert!(all.contains(&format!("chmod g+r {}", file.display())), "{all:?}");
    assert!(!all.iter().any(|command| command.contains("o+r")), "{all:?}");
    let mode = fixes.iter().find(|fix| fix.kind == "mode").unwrap();
    assert_eq!(mode.gains[0].who, "group 3002", "{mode:?}");
}

#[test]
fn what_opens_to_all_comes_behind_what_opens_to_one() {
    if !is_root() {
        return;
    }
    let (_temp, file) = place(0o600);
    let (_, fixes) = ask("3000:3000", &file, What::Read);
    let kinds: Vec<&str> = fixes.iter().map(|fix| fix.kind).collect();
    assert_eq!(kinds, ["acl", "mode", "capability"], "{fixes:#?}");
    assert_eq!(fixes[1].gains[0].users, None, "everybody: {fixes:#?}");
    // A directory above that nobody else may search bounds what a mode opens.
    let dir = file.parent().unwrap().join("shut");
    std::fs::create_dir(&dir).unwrap();
    chown(&dir, Some(3000), Some(3000)).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::rename(&file, dir.join("file")).unwrap();
    let (_, fixes) = ask("3000:3000", &dir.join("file"), What::Read);
    let mode = fixes.iter().find(|fix| fix.kind == "mode").unwrap();
    assert!(mode.gains.is_empty(), "{mode:?}");
}

#[test]
fn a_group_of_disks_is_not_the_least() {
    if !is_root() {
        return;
    }
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let disk = groups
        .lines()
        .find(|line| line.starts_with("disk:"))
        .and_then(|line| line.split(':').nth(2)?.parse().ok());
    let (Some(gid), true) =
        (disk, std::fs::read_to_string("/etc/passwd").unwrap_or_default().contains("nobody:"))
    else {
        println!("skipped: there is no group disk, or no user nobody");
        return;
    };
    let (_temp, file) = place(0o640);
    chown(&file, None, Some(gid)).unwrap();
    let (_, fixes) = ask("nobody", &file, What::Read);
    let all = commands(&fixes);
    let group = all.iter().position(|command| command == "usermod -aG disk nobody").unwrap();
    let everybody = all.iter().position(|command| command.starts_with("chmod o+r")).unwrap();
    assert!(everybody < group && all[0].starts_with("setfacl"), "{all:?}");
}

#[test]
fn an_entry_of_its_own_takes_nothing_away() {
    if !is_root() {
        return;
    }
    let (_temp, file) = place(0o644);
    let (_, fixes) = ask("3000:3000", &file, What::Write);
    assert_eq!(fixes[0].commands, [format!("setfacl -m u:3000:rw- {}", file.display())], "{fixes:#?}");
}

/// Every fix by mode, owner or ACL is carried out, and then the machine itself says yes.
#[test]
fn fixes_work() {
    let has =
        Command::new("sh").args(["-c", "command -v setfacl"]).output().is_ok_and(|it| it.status.success());
    if !is_root() || !has {
        println!("skipped: setfacl is not installed");
        return;
    }
    for mode in [0o000, 0o040, 0o604, 0o640, 0o666] {
        for who in ["3000:3000", "3000:3002", "3001:3001"] {
            for what in [What::Read, What::Write, What::Delete] {
                let count = ask(who, &place(mode).1, what.clone()).1.len();
                for at in 0..count {
                    let (_temp, file) = place(mode);
                    let (verdict, fixes) = ask(who, &file, what.clone());
                    assert_eq!(verdict, Verdict::Denied);
                    if !matches!(fixes[at].kind, "acl" | "mode" | "owner") {
                        continue;
                    }
                    let script = fixes[at].commands.join(" && ");
                    let status = Command::new("sh").args(["-c", &script]).status().unwrap();
                    assert!(status.success(), "{script}");
                    let (verdict, _) = ask(who, &file, what.clone());
                    assert_eq!(verdict, Verdict::Allowed, "{mode:o} {who} {what:?}: {script}");
                }
            }
        }
    }
}

#[test]
fn what_cannot_be_carried_out_is_not_offered() {
    if !is_root() {
        return;
    }
    // No mode of a file of /proc can be changed, and it has no ACL.
    let (_, fixes) = ask("3000:3000", Path::new("/proc/1/environ"), What::Read);
    let kinds: Vec<&str> = fixes.iter().map(|fix| fix.kind).collect();
    assert!(!kinds.iter().any(|kind| ["acl", "mode", "owner"].contains(kind)), "{fixes:#?}");
}
