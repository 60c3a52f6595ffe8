//! `rcuwalk audit`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::common::{rcuwalk, sample, stderr, stdout};

/// A user that owns nothing of the sample.
const STRANGER: &str = "54321:54321";

fn audit(top: &Path, args: &[&str]) -> Output {
    let mut command = rcuwalk(["audit", "--chroot"]);
    command.arg(top).args(args).output().unwrap()
}

/// The lines of a JSON audit.
fn lines(output: &Output) -> Vec<Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_table_says_who_may_do_what() {
    let temp = sample();
    let output = audit(temp.path(), &["--as", STRANGER, "--as", "0", "--can", "read,search"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    let row = |path: &str| {
        let line = text.lines().find(|line| line.ends_with(&format!(" {path}")));
        line.map(|line| line.split_whitespace().take(3).map(str::to_owned).collect::<Vec<_>>().join(" "))
    };
    assert!(text.starts_with("54321:54321  0   PERMISSIONS"), "{text}");
    assert_eq!(row("/").as_deref(), Some("rs rs drwxr-xr-x"));
    assert_eq!(row("/etc/open").as_deref(), Some("r- r- -rw-r--r--"));
    assert_eq!(row("/etc/secret").as_deref(), Some("-- r- -rw-------"));
    assert_eq!(row("/shut").as_deref(), Some("-- rs drwx------"));
    assert_eq!(row("/etc/link"), None, "a link grants nothing by itself");
    assert!(text.contains("54321:54321 (54321:54321): read 4, search 2"), "{text}");
    assert!(text.ends_with("8 entries looked at\n"), "{text}");
    let quiet = stdout(&audit(temp.path(), &["--as", STRANGER, "--quiet"]));
    assert_eq!(quiet.lines().count(), 2, "{quiet}");
    assert!(quiet.contains("7 entries looked at; 1 directories are closed to all of them"), "{quiet}");
}

#[test]
fn directories_above_count_unless_it_is_the_root() {
    let temp = sample();
    let inside = temp.path().join("shut");
    let live = rcuwalk(["audit", "--quiet", "--as", STRANGER]).arg(&inside).output().unwrap();
    assert!(stdout(&live).contains("read 0"), "{}", stdout(&live));
    fs::set_permissions(&inside, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let live = rcuwalk(["audit", "--quiet", "--as", STRANGER]).arg(&inside).output().unwrap();
    assert!(stdout(&live).contains("read 0"), "{}", stdout(&live));
    let root = audit(&inside, &["--quiet", "--as", STRANGER]);
    assert!(stdout(&root).contains("read 2"), "{}", stdout(&root));
}

#[test]
fn json_lines_have_the_documented_form() {
    let temp = sample();
    fs::write(temp.path().join(std::ffi::OsStr::from_bytes(b"odd\xff")), b"").unwrap();
    let lines = lines(&audit(temp.path(), &["--as", STRANGER, "--world", "--can", "read,exec", "--json"]));
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    let (head, end) = (&lines[0], lines.last().unwrap());
    assert_eq!(keys(head), "can identities rcuwalk_audit source");
    assert_eq!((&head["rcuwalk_audit"], &head["can"]), (&1.into(), &serde_json::json!(["read", "exec"])));
    assert_eq!(keys(&head["identities"][0]), "caps gid groups label uid");
    assert_eq!(head["identities"][1]["label"], "world");
    assert_eq!(keys(end), "summary");
    assert_eq!(keys(&end["summary"]), "closed complete counts entries rows");
    assert_eq!(end["summary"]["complete"], true);
    let rows = &lines[1..lines.len() - 1];
    assert_eq!(end["summary"]["rows"], rows.len());
    for row in rows {
        let expected = "acl can caps gid mode path type uid";
        let odd = "acl can caps gid mode path path_hex type uid";
        assert!([expected, odd].contains(&&*keys(row)), "{row}");
        assert!(
            row["uid"].is_u64() && row["gid"].is_u64() && row["acl"].is_boolean() && row["caps"].is_boolean()
        );
        assert!(["file", "dir"].contains(&row["type"].as_str().unwrap()));
        assert_eq!(row["mode"].as_str().unwrap().len(), 4);
        for (who, rights) in row["can"].as_object().unwrap() {
            assert!([STRANGER, "world"].contains(&&**who));
            let known = |right: &Value| ["read", "exec"].contains(&right.as_str().unwrap());
            assert!(!rights.as_array().unwrap().is_empty() && rights.as_array().unwrap().iter().all(known));
        }
    }
    let odd = rows.iter().find(|row| row["path_hex"].is_string()).expect("a name that is no UTF-8");
    assert_eq!((&odd["path_hex"], &odd["path"]), (&"2f6f6464ff".into(), &"/odd\u{fffd}".into()));
    let run = rows.iter().find(|row| row["path"] == "/run").unwrap();
    assert_eq!(run["can"]["world"], serde_json::json!(["read", "exec"]));
}

#[test]
fn csv_has_a_line_for_each_entry_and_identity() {
    let temp = sample();
    let text = stdout(&audit(temp.path(), &["--as", STRANGER, "--as", "0", "--can", "read,setid", "--csv"]));
    let mut lines = text.lines();
    let head = "path,identity,type,mode,uid,gid,acl,caps,read,write,exec,search,delete,setid";
    assert_eq!(lines.next(), Some(head));
    let secret: Vec<_> = text.lines().filter(|line| line.starts_with("/etc/secret,")).collect();
    assert_eq!(secret.len(), 1);
    assert!(secret[0].starts_with("/etc/secret,0,file,0600,"), "{secret:?}");
    assert!(secret[0].ends_with(",0,0,1,,,,,0"), "{secret:?}");
}

#[test]
fn parquet_is_written_or_refused_before_anything_is_read() {
    let temp = sample();
    let file = temp.path().join("audit.parquet");
    let output = audit(temp.path(), &["--as", STRANGER, "--quiet", "--parquet", file.to_str().unwrap()]);
    if cfg!(feature = "parquet") {
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let bytes = std::fs::read(&file).unwrap();
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"), "{} bytes", bytes.len());
    } else {
        assert_eq!(output.status.code(), Some(2));
        assert!(
            stderr(&output).contains("built without Parquet; build it with `--features parquet`"),
            "{}",
            stderr(&output)
        );
        assert!(!file.exists() && output.stdout.is_empty());
    }
}

#[test]
fn rules_decide_the_exit_code() {
    let temp = sample();
    let code = |rules: &[&str]| {
        let args =
            ["--as", STRANGER, "--as", "0", "--quiet"].iter().chain(rules).copied().collect::<Vec<_>>();
        let output = audit(temp.path(), &args);
        (output.status.code().unwrap(), stderr(&output))
    };
    assert_eq!(code(&["--fail-on", "write@54321:54321:/**"]), (0, String::new()));
    let (failed, said) =
        code(&["--fail-on", "read@54321:54321:/etc/*", "--fail-on", "write@54321:54321:/**"]);
    assert_eq!(failed, 1);
    assert_eq!(said, "rcuwalk: audit: 54321:54321 may read /etc/open, against read@54321:54321:/etc/*\n");
    assert_eq!(code(&["--fail-on", "read:/etc/secret"]).0, 1, "root may");
    assert_eq!(code(&["--fail-on", "exec:/*/run"]).0, 0, "a star stays within a name");
    assert_eq!(code(&["--fail-on", "exec:/{run,walk}"]).0, 1);
    for wrong in ["write:etc", "fly:/**", "write@:/etc", "write:/[", "/etc"] {
        let (failed, said) = code(&["--fail-on", wrong]);
        assert!(failed == 2 && said.contains("--fail-on"), "{wrong}: {said}");
    }
    let args = ["--as", STRANGER, "--sarif", "--fail-on", "read:/etc/*"];
    let output = audit(temp.path(), &args);
    assert_eq!(output.status.code(), Some(1));
    let sarif: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let result = &sarif["runs"][0]["results"][0];
    assert_eq!((&sarif["version"], &result["ruleId"]), (&"2.1.0".into(), &"read:/etc/*".into()));
    assert_eq!(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], "etc/open");
}

#[test]
fn differences_are_those_of_rights() {
    let temp = sample();
    let file = temp.path().join("../before.json");
    let file = tempfile::NamedTempFile::new_in(file.parent().unwrap()).unwrap();
    let saved = audit(temp.path(), &["--as", STRANGER, "--json", "-o", file.path().to_str().unwrap()]);
    assert_eq!((saved.status.code(), stdout(&saved)), (Some(0), String::new()));
    let diff = || {
        let mut command = rcuwalk(["audit", "--chroot", "--as", STRANGER, "--diff"]);
        command.arg(file.path()).arg(temp.path()).output().unwrap()
    };
    let same = diff();
    assert_eq!((same.status.code(), stdout(&same)), (Some(0), String::new()), "{}", stderr(&same));
    fs::set_permissions(temp.path().join("etc/secret"), fs::Permissions::from_mode(0o606)).unwrap();
    fs::set_permissions(temp.path().join("run"), fs::Permissions::from_mode(0o700)).unwrap();
    let changed = diff();
    assert_eq!(changed.status.code(), Some(1));
    let expected = "+read,+write  54321:54321  /etc/secret\n-read,-exec  54321:54321  /run\n";
    assert_eq!(stdout(&changed), expected);
    let wrong = rcuwalk(["audit", "--diff", "/dev/null", "/dev/null"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2), "neither an audit nor a tree");
    fs::write(file.path(), "{\"rcuwalk_audit\":1,\"source\":\"/\",\"identities\":[],\"can\":[\"read\"]}\n")
        .unwrap();
    let cut = diff();
    assert!(cut.status.code() == Some(2) && stderr(&cut).contains("not complete"), "{}", stderr(&cut));
}

#[test]
fn services_are_read_from_the_tree() {
    let temp = sample();
    let units = temp.path().join("usr/lib/systemd/system");
    let drop_ins = temp.path().join("etc/systemd/system/web.service.d");
    fs::create_dir_all(&units).unwrap();
    fs::create_dir_all(&drop_ins).unwrap();
    fs::write(temp.path().join("etc/passwd"), "web:x:123:124::/:\n").unwrap();
    fs::write(temp.path().join("etc/group"), "web:x:124:\nlogs:x:7:web\nmail:x:8:\n").unwrap();
    let unit = "[Unit]\nDescription=x\nUser=no\n[Service]\nUser=web\nCapabilityBoundingSet=CAP_CHOWN CAP_SETUID\n\
        AmbientCapabilities=CAP_SETUID CAP_KILL\nPrivateTmp=yes\n";
    fs::write(units.join("web.service"), unit).unwrap();
    fs::write(drop_ins.join("10.conf"), "[Service]\nSupplementaryGroups=mail\nProtectSystem=strict\n")
        .unwrap();
    fs::write(units.join("job@.service"), "[Service]\nUser=%i\nGroup=logs\n").unwrap();
    let output = audit(
        temp.path(),
        &["--service", "web", "--service", "job@web.service", "--names", "tree", "--json", "--can", "write"],
    );
    assert!(stderr(&output).contains("web is narrowed by PrivateTmp, ProtectSystem"), "{}", stderr(&output));
    let identities = lines(&output)[0]["identities"].clone();
    let expected = serde_json::json!([
        { "label": "web.service", "uid": 123, "gid": 124, "groups": [7, 8, 124], "caps": "setuid" },
        { "label": "job@web.service", "uid": 123, "gid": 7, "groups": [7], "caps": "none" },
    ]);
    assert_eq!(identities, expected);
    let missing = audit(temp.path(), &["--service", "gone"]);
    assert!(
        missing.status.code() == Some(2) && stderr(&missing).contains("no unit file"),
        "{}",
        stderr(&missing)
    );
}

#[test]
fn wrong_usage_says_what_is_right() {
    let temp = sample();
    for (args, hint) in [
        (&["--as", "no-such-user-here"][..], "no user 'no-such-user-here'"),
        (&["--as", "1+flying"], "no capability"),
        (&["--as", "7", "--as", "7"], "named twice"),
        (&["--can", "fly"], "choose of read,write"),
        (&["--json", "--csv"], "cannot be used with"),
    ] {
        let output = audit(temp.path(), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(hint), "{args:?}: {}", stderr(&output));
    }
    let many: Vec<String> = (0..65).map(|n| format!("--as={n}:{n}")).collect();
    let output = audit(temp.path(), &many.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(stderr(&output).contains("at most 64"), "{}", stderr(&output));
}

#[test]
fn an_interrupted_audit_says_how_far_it_went() {
    // Written to a pipe that is not read, the command stands still in the middle.
    let mut command = rcuwalk(["audit", "-x", "--as", "0", "--json", "/usr"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.starts_with("{\"rcuwalk_audit\":1"), "{line}");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let rest: Vec<String> = out.lines().map(Result::unwrap).collect();
    let output = child.wait_with_output().unwrap();
    let end: Value = serde_json::from_str(rest.last().unwrap()).unwrap();
    if end["summary"]["complete"] == true {
        println!("skipped: a small /usr was done before the signal came");
        return;
    }
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("interrupted after"), "{}", stderr(&output));
    assert_eq!(end["summary"]["rows"], rest.len() - 1, "what was done is there");
}

#[test]
fn find_says_the_same() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can run find as another user");
        return;
    }
    let have = |name: &str| std::process::Command::new(name).arg("--version").output().is_ok();
    if !have("setpriv") || !have("find") {
        println!("skipped: find or setpriv is not installed");
        return;
    }
    for (dir, options) in [("/etc", &["--as", "daemon:adm,shadow"][..]), ("/usr/share", &["-x"])] {
        let mut command = rcuwalk(["audit", "--compare-find", "--world", "--any-uid", "--as", "0:0"]);
        let output = command.args(options).arg(dir).output().unwrap();
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
        let root = text.lines().find(|line| line.starts_with("| 0:0 |")).expect("a line for root");
        let compared: u64 = root.split('|').nth(2).unwrap().trim().parse().unwrap();
        assert!(compared > 100, "{text}");
    }
    let output = rcuwalk(["audit", "--compare-find", "--as", "1+chown", "/etc"]).output().unwrap();
    assert!(stderr(&output).contains("other capabilities"), "{}", stderr(&output));
}

#[test]
fn an_image_is_audited_as_what_runs_in_it_sees_it() {
    let temp = tempfile::tempdir().unwrap();
    let layer = |files: &[(&str, u32, u32, &str)]| {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, mode, uid, text) in files {
            let mut header = tar::Header::new_gnu();
            header.set_mode(*mode);
            header.set_uid(u64::from(*uid));
            header.set_gid(0);
            header.set_size(text.len() as u64);
            tar.append_data(&mut header, name, text.as_bytes()).unwrap();
        }
        tar.into_inner().unwrap()
    };
    let layers = [
        layer(&[
            ("etc/passwd", 0o644, 0, "app:x:77:78::/:/bin/sh\n"),
            ("etc/group", 0o644, 0, "app:x:78:\n"),
            ("app/own", 0o600, 77, ""),
            ("app/gone", 0o666, 0, ""),
            ("app/shared", 0o660, 0, ""),
        ]),
        layer(&[("app/.wh.gone", 0o644, 0, "")]),
    ];
    let mut tar = tar::Builder::new(Vec::new());
    let mut add = |name: &str, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, name, bytes).unwrap();
    };
    let ids: Vec<String> = layers.iter().map(|layer| digest(layer)).collect();
    add("manifest.json", br#"[{"Config":"config.json","Layers":["a/layer.tar","b/layer.tar"]}]"#);
    let config = serde_json::json!({ "config": { "User": "app" }, "rootfs": { "diff_ids": ids } });
    add("config.json", config.to_string().as_bytes());
    add("a/layer.tar", &layers[0]);
    add("b/layer.tar", &layers[1]);
    let path = temp.path().join("image.tar");
    fs::write(&path, tar.into_inner().unwrap()).unwrap();

    let mut command =
        rcuwalk(["audit", "--image-user", "--any-uid", "--as", "app:0", "--can", "write", "--json"]);
    let output = command.arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = lines(&output);
    let who = &lines[0]["identities"];
    assert_eq!(
        (&who[1]["label"], &who[1]["uid"], &who[1]["gid"]),
        (&"image-user".into(), &77.into(), &78.into())
    );
    let can: Vec<(&str, String)> = lines[1..lines.len() - 1]
        .iter()
        .map(|row| {
            (
                row["path"].as_str().unwrap(),
                row["can"].as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" "),
            )
        })
        .collect();
    assert_eq!(
        can,
        [("/app/own", "app:0 image-user".to_owned()), ("/app/shared", "any-uid app:0".to_owned())]
    );
}

/// An archive of these files, with names as they are written.
fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, bytes) in members {
        let mut header = tar::Header::new_ustar();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_mode(if name.ends_with('/') { 0o755 } else { 0o666 });
        header.set_entry_type(if name.ends_with('/') {
            tar::EntryType::Directory
        } else {
            tar::EntryType::Regular
        });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(bytes);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

#[test]
fn an_image_in_an_archive_is_found_or_missed_aloud() {
    let layer = archive(&[("open", b"")]);
    let blob = |bytes: &[u8]| format!("blobs/{}", digest(bytes).replace(':', "/"));
    let config = serde_json::json!({ "rootfs": { "diff_ids": [digest(&layer)] } }).to_string();
    let about = |kind: &str, bytes: &[u8]| {
        let media = format!("application/vnd.oci.image.{kind}");
        serde_json::json!({ "mediaType": media, "digest": digest(bytes), "size": bytes.len() })
    };
    let manifest = serde_json::json!({
        "config": about("config.v1+json", config.as_bytes()), "layers": [about("layer.v1.tar", &layer)],
    });
    let manifest = manifest.to_string();
    let index =
        serde_json::json!({ "manifests": [about("manifest.v1+json", manifest.as_bytes())] }).to_string();
    let files = [
        ("blobs/".to_owned(), &b""[..]),
        ("blobs/sha256/".to_owned(), b""),
        (blob(&layer), &layer),
        (blob(config.as_bytes()), config.as_bytes()),
        (blob(manifest.as_bytes()), manifest.as_bytes()),
        ("index.json".to_owned(), index.as_bytes()),
        ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#),
    ];
    let temp = tempfile::tempdir().expect("a directory");
    let audited = |top: &str| {
        let names: Vec<String> = files.iter().map(|(name, _)| format!("{top}{name}")).collect();
        let mut members = vec![(top, &b""[..])];
        members.extend(names.iter().zip(&files).map(|(name, (_, bytes))| (name.as_str(), *bytes)));
        let path = temp.path().join("image.tar");
        fs::write(&path, archive(&members)).expect("an archive");
        let rule = ["audit", "--as", STRANGER, "--json", "--fail-on", "write:/open"];
        rcuwalk(rule).arg(&path).output().expect("the command starts")
    };
    let dotted = audited("./");
    assert_eq!(dotted.status.code(), Some(1), "the layer is looked at: {}", stderr(&dotted));
    let nested = audited("image/");
    assert_eq!(nested.status.code(), Some(2), "no layer is looked at: {}", stderr(&nested));
    let said = stderr(&nested);
    assert!(said.contains("/image looks like a container image") && said.contains("not complete"), "{said}");
    assert_eq!(lines(&nested).last().expect("a summary")["summary"]["complete"], false);
}

#[test]
fn an_audit_with_a_hole_passes_no_rule() {
    let temp = tempfile::tempdir().expect("a directory");
    let path = temp.path().join("tree.tar");
    // What `tar --acls` writes of a named user: whom the name means, nothing in the tree says.
    let record = "SCHILY.acl.access=user::rw-,user:alice:rw-,group::r--,mask::rw-,other::r--\n";
    let record = format!("{} {record}", record.len() + 3);
    let mut bytes = archive(&[("pax", record.as_bytes()), ("file", b"")]);
    bytes[156] = b'x';
    let mut header = tar::Header::from_byte_slice(&bytes[..512]).clone();
    header.set_cksum();
    bytes[..512].copy_from_slice(header.as_bytes());
    fs::write(&path, bytes).expect("an archive");
    let output =
        rcuwalk(["audit", "--world", "--json", "--fail-on", "delete:/file"]).arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}{}", stdout(&output), stderr(&output));
    assert!(
        stderr(&output).contains("ACL as text") && stderr(&output).contains("not complete"),
        "{}",
        stderr(&output)
    );
    assert_eq!(lines(&output).last().expect("a summary")["summary"]["complete"], false);
    let broken =
        rcuwalk(["audit", "--world", "--quiet", "--fail-on", "read:/file"]).arg(&path).output().unwrap();
    assert_eq!(broken.status.code(), Some(1), "a rule that is broken is broken: {}", stderr(&broken));
}

fn digest(bytes: &[u8]) -> String {
    use sha2::Digest;
    let hex: String = sha2::Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
    format!("sha256:{hex}")
}

#[test]
fn a_name_makes_no_further_row() {
    let temp = tempfile::tempdir().expect("a directory");
    std::fs::write(temp.path().join("a\nrw----  -rw-rw-rw-  0:0  shadow"), "").expect("a file");
    let output = rcuwalk(["audit", &temp.path().display().to_string(), "--world", "--chroot"])
        .output()
        .expect("the command starts");
    let text = stdout(&output);
    assert!(text.contains("/a\\nrw----"), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("rw----")), "{text}");
}
