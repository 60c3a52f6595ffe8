//! Container images: made here, and made to do harm.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use rcuwalk::uapi::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, F_OK, O_RDONLY};
use rcuwalk::{Cred, Errno, Task, Vfs};
use rcuwalk_host::{
    ArchiveOptions, Files, Image, ImportError, ImportOptions, Limits, Progress, Report, Source, open,
};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{EntryType, Header};
use tempfile::TempDir;

/// A layer: names of directories end in a slash, links are written `name -> body`, everything else is a file.
fn layer(names: &[&str]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for name in names {
        let mut header = Header::new_gnu();
        header.set_mode(0o755);
        header.set_size(0);
        let (name, link) = name.split_once(" -> ").unwrap_or((name, ""));
        header.set_entry_type(match (link, name.ends_with('/')) {
            ("", true) => EntryType::Directory,
            ("", false) => EntryType::Regular,
            _ => EntryType::Symlink,
        });
        let (name, data) = name.split_once('=').unwrap_or((name, ""));
        header.set_size(data.len() as u64);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        if !link.is_empty() {
            header.set_link_name(link).unwrap();
        }
        header.set_cksum();
        tar.append(&header, data.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap()
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
    format!("sha256:{hex}")
}

/// Files by name.
#[derive(Default)]
struct Parts(Vec<(String, Vec<u8>)>);

impl Parts {
    /// Adds a blob; gives its descriptor.
    fn blob(&mut self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = digest(bytes);
        self.0.push((format!("blobs/{}", digest.replace(':', "/")), bytes.to_vec()));
        json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() })
    }

    fn json(&mut self, media_type: &str, value: &Value) -> Value {
        self.blob(media_type, value.to_string().as_bytes())
    }

    /// A manifest of these layers, as they are.
    fn manifest(&mut self, layers: &[Vec<u8>], user: &str) -> Value {
        let config =
            self.json("application/vnd.oci.image.config.v1+json", &json!({ "config": { "User": user } }));
        let layers: Vec<Value> =
            layers.iter().map(|layer| self.blob("application/vnd.oci.image.layer.v1.tar", layer)).collect();
        self.json(
            "application/vnd.oci.image.manifest.v1+json",
            &json!({ "config": config, "layers": layers }),
        )
    }

    fn index(&mut self, manifests: &[Value]) {
        self.0.push(("oci-layout".into(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()));
        self.0.push(("index.json".into(), json!({ "manifests": manifests }).to_string().into_bytes()));
    }

    fn write(&self) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in &self.0 {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        dir
    }

    fn tar(&self) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, bytes) in &self.0 {
            let mut header = Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, name, &bytes[..]).unwrap();
        }
        tar.into_inner().unwrap()
    }
}

fn layout(layers: &[Vec<u8>]) -> Parts {
    let mut parts = Parts::default();
    let manifest = parts.manifest(layers, "app:logs");
    parts.index(&[manifest]);
    parts
}

fn import(path: &Path) -> Result<(Task, Report), ImportError> {
    let vfs = Vfs::new().unwrap();
    let report = Image::open(path, None)?.import(&vfs, &ArchiveOptions::default(), &Progress::new())?;
    Ok((vfs.task(Cred::root()), report))
}

fn written(dir: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn has(task: &Task, path: &str) -> bool {
    task.faccessat2(AT_FDCWD, path.as_bytes(), F_OK, AT_SYMLINK_NOFOLLOW).is_ok()
}

fn layers_of(layers: &[&[&str]]) -> Task {
    let layers: Vec<_> = layers.iter().map(|names| layer(names)).collect();
    let dir = layout(&layers).write();
    let (task, report) = import(dir.path()).unwrap();
    assert_eq!(report.problems, []);
    task
}

#[test]
fn whiteouts_take_away_what_lies_below_and_nothing_else() {
    let task = layers_of(&[
        &["a/", "a/old", "a/kept", "b/", "b/one", "b/sub/", "b/sub/two", "c/", "c/x", "f"],
        // The marker comes after what it must leave alone, and before.
        &[
            "a/.wh.old",
            "b/new",
            "b/sub/",
            "b/sub/three",
            "b/.wh..wh..opq",
            "b/late",
            ".wh.c",
            "c/",
            "c/y",
            ".wh.f",
            "f",
        ],
        &["a/.wh..wh.plnk", "a/.wh.missing", "gone/.wh..wh..opq"],
    ]);
    let there = ["/a/kept", "/b/new", "/b/late", "/b/sub/three", "/c/y", "/f"];
    let gone = [
        "/a/old",
        "/b/one",
        "/b/sub/two",
        "/c/x",
        "/a/.wh.old",
        "/b/.wh..wh..opq",
        "/a/.wh..wh.plnk",
        "/gone",
    ];
    assert!(there.iter().all(|path| has(&task, path)), "{there:?}");
    assert_eq!(gone.iter().filter(|path| has(&task, path)).collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn later_layers_replace_and_reach_through_links() {
    let task = layers_of(&[
        &["lib -> usr/lib", "usr/lib/", "usr/lib/a", "up -> ../../../usr", "d/", "d/x", "abs -> /usr/lib"],
        &["lib/b", "up/c", "abs/e", "d"],
    ]);
    assert!(
        ["/usr/lib/a", "/usr/lib/b", "/usr/c", "/usr/lib/e", "/lib", "/d"]
            .iter()
            .all(|path| has(&task, path))
    );
    assert!(!has(&task, "/d/x"), "a file in the place of a directory");
}

#[test]
fn links_that_lead_nowhere_and_names_with_dots_are_problems() {
    let layers = [
        layer(&["loop -> loop", "a -> b", "b -> a"]),
        layer(&["loop/x", "a/y", "../out", "ok", "x/.wh...", ".wh."]),
    ];
    let dir = layout(&layers).write();
    let (task, report) = import(dir.path()).unwrap();
    assert!(has(&task, "/ok"));
    let listed: Vec<_> = report.problems.iter().map(|p| (p.path.display().to_string(), p.errno)).collect();
    let expected = [
        ("loop/x", Errno::ENOTDIR),
        ("a/y", Errno::ENOTDIR),
        ("../out", Errno::EXDEV),
        (".wh.", Errno::EINVAL),
    ];
    assert_eq!(listed, expected.map(|(path, errno)| (path.to_owned(), errno)));
}

#[test]
fn every_form_of_an_image_gives_the_same_tree() {
    let (first, second) = (layer(&["etc/", "etc/passwd=app:x:7:8::/:", "old"]), layer(&[".wh.old", "new"]));
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&first).unwrap();
    let packed = [gzip.finish().unwrap(), compress_to_vec(&second[..], CompressionLevel::Fastest)];
    let oci = layout(&packed);
    let mut docker = Parts::default();
    let ids = [digest(&first), digest(&second)];
    let config = json!({ "config": { "User": "app:logs" }, "rootfs": { "type": "layers", "diff_ids": ids } });
    let name = "0".repeat(64);
    docker.0.push((format!("{name}.json"), config.to_string().into_bytes()));
    docker.0.push((format!("{name}/layer.tar"), first.clone()));
    docker.0.push(("b/layer.tar".into(), second.clone()));
    let saved = json!([{ "Config": format!("{name}.json"), "RepoTags": null, "Layers": [format!("{name}/layer.tar"), "b/layer.tar"] }]);
    docker.0.push(("manifest.json".into(), saved.to_string().into_bytes()));

    let dir = oci.write();
    let archives = tempfile::tempdir().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&docker.tar()).unwrap();
    let paths = [
        dir.path().to_path_buf(),
        written(&archives, "oci.tar", &oci.tar()),
        written(&archives, "docker.tar", &docker.tar()),
        written(&archives, "docker.tar.gz", &gzip.finish().unwrap()),
    ];
    for path in paths {
        let source = open(&path).unwrap();
        assert_eq!(source, Source::Image(path.clone()));
        let vfs = Vfs::new().unwrap();
        let options = ImportOptions { databases: true, ..ImportOptions::default() };
        let report = source.import(&vfs, &options, &Progress::new()).unwrap();
        assert_eq!(report.problems, []);
        let task = vfs.task(Cred::root());
        assert!(has(&task, "/new") && !has(&task, "/old") && has(&task, "/etc/passwd"), "{path:?}");
        assert_eq!(Files::of_vfs(&vfs).read(b"/etc/passwd").as_deref(), Some(&b"app:x:7:8::/:"[..]));
        assert_eq!(task.open(b"/new", O_RDONLY, 0).map(drop), Ok(()));
        let image = Image::open(&path, None).unwrap();
        assert_eq!((image.user(), image.layer_count()), (Some("app:logs"), 2));
    }
    // A tree that is no image is a tree.
    let tree = written(&archives, "tree.tar", &first);
    assert_eq!(open(&tree).unwrap(), Source::Archive(tree));
}

#[test]
fn the_platform_chooses() {
    let mut parts = Parts::default();
    let mut manifests = Vec::new();
    for (arch, name) in [("s390x", "big"), ("amd64", "amd"), ("arm64", "arm")] {
        let mut manifest = parts.manifest(&[layer(&[name])], "");
        manifest["platform"] = json!({ "os": "linux", "architecture": arch });
        manifests.push(manifest);
    }
    // As newer tools write it: an index in the index.
    let inner = parts.json("application/vnd.oci.image.index.v1+json", &json!({ "manifests": manifests }));
    parts.index(&[inner]);
    let dir = parts.write();
    for (platform, name) in [("linux/arm64", "/arm"), ("linux/s390x", "/big")] {
        let vfs = Vfs::new().unwrap();
        let image = Image::open(dir.path(), Some(platform)).unwrap();
        assert_eq!(image.user(), None);
        image.import(&vfs, &ArchiveOptions::default(), &Progress::new()).unwrap();
        assert!(has(&vfs.task(Cred::root()), name));
    }
    assert!(import(dir.path()).is_ok());
    let error = Image::open(dir.path(), Some("linux/riscv64")).unwrap_err().to_string();
    assert!(error.contains("no image for linux/riscv64, only for linux/s390x, linux/amd64"), "{error}");
}

#[test]
fn what_is_not_what_its_digest_says_is_refused() {
    let parts = layout(&[layer(&["a"]), layer(&["b"])]);
    assert!(import(parts.write().path()).is_ok());
    for n in 0..parts.0.len() - 2 {
        let mut changed = Parts(parts.0.clone());
        let bytes = &mut changed.0[n].1;
        // In the padding of a layer, in the middle of a text.
        let at = if bytes.len() > 1000 { bytes.len() - 1 } else { bytes.len() / 2 };
        bytes[at] ^= 1;
        let error = import(changed.write().path()).unwrap_err();
        assert!(
            matches!(error, ImportError::Image { .. }) && error.to_string().contains("digest"),
            "{error}"
        );
        changed.0[n].1.push(b'\n');
        let error = import(changed.write().path()).unwrap_err().to_string();
        assert!(error.contains("bytes and should have"), "{error}");
        let mut missing = Parts(parts.0.clone());
        missing.0.remove(n);
        let error = import(missing.write().path()).unwrap_err().to_string();
        assert!(error.contains("blobs/sha256/"), "{error}");
    }
}

/// Each would read a file of the machine, or never end.
#[test]
fn hostile_layouts_lead_nowhere() {
    let refused = |parts: &Parts| import(parts.write().path()).unwrap_err().to_string();
    let with_digest = |digest: &str| {
        let mut parts = Parts::default();
        parts.index(&[json!({ "mediaType": "x", "digest": digest, "size": 5 })]);
        refused(&parts)
    };
    for digest in ["sha256:../../../etc/passwd", "../../etc/passwd:x", "md5:00", "", "sha256:", "sha256:ABC"]
    {
        assert!(with_digest(digest).contains("digest"), "{digest}");
    }
    assert!(with_digest(&digest(b"gone")).contains("blobs/sha256/"));
    // An index cannot refer to itself by its digest; one that claims to only goes down as far as the limit.
    let mut parts = Parts::default();
    let mut inner = json!({ "manifests": [] });
    for _ in 0..10 {
        let described = parts.json("application/vnd.oci.image.index.v1+json", &inner);
        inner = json!({ "manifests": [described] });
    }
    parts.index(&[inner["manifests"][0].clone()]);
    assert!(refused(&parts).contains("without end"));
    parts = Parts::default();
    parts.index(&[]);
    assert!(refused(&parts).contains("no image in it"));

    // A blob that is a link out of the layout, or a pipe that nobody writes to.
    let secret = layer(&["secret"]);
    let outside = tempfile::tempdir().unwrap();
    let target = written(&outside, "layer", &secret);
    let dir = layout(std::slice::from_ref(&secret)).write();
    let blob = dir.path().join(format!("blobs/{}", digest(&secret).replace(':', "/")));
    fs::remove_file(&blob).unwrap();
    std::os::unix::fs::symlink(target, &blob).unwrap();
    assert!(matches!(import(dir.path()), Err(ImportError::Image { .. })));
    fs::remove_file(&blob).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &blob, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    assert!(matches!(import(dir.path()), Err(ImportError::Image { .. })));

    let big = vec![b' '; 5 << 20];
    fs::write(dir.path().join("index.json"), big).unwrap();
    assert!(matches!(import(dir.path()), Err(ImportError::Limit { .. })));
}

#[test]
fn limits_hold_for_all_layers_together() {
    let layers: Vec<_> = (0..4).map(|n| layer(&[&*format!("{n}a"), &*format!("{n}b")])).collect();
    let dir = layout(&layers).write();
    let image = Image::open(dir.path(), None).unwrap();
    let with = |limits: Limits| {
        let options = ArchiveOptions { limits, ..ArchiveOptions::default() };
        image.import(&Vfs::new().unwrap(), &options, &Progress::new())
    };
    assert!(with(Limits { entries: 8, ..Limits::default() }).is_ok());
    let limit = |result: Result<Report, ImportError>| match result {
        Err(ImportError::Limit { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(limit(with(Limits { entries: 7, ..Limits::default() })), "entries");
    let bytes = 4 * layers[0].len() as u64;
    assert_eq!(limit(with(Limits { bytes: bytes / 2, ..Limits::default() })), "bytes of unpacked data");
    // Whiteouts that look at the same large directory again and again.
    let mut names: Vec<String> = (0..200).map(|n| format!("d/{n}")).collect();
    names.extend((0..200).map(|_| "d/.wh..wh..opq".to_owned()));
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let dir = layout(&[layer(&names)]).write();
    let options =
        ArchiveOptions { limits: Limits { entries: 1000, ..Limits::default() }, ..ArchiveOptions::default() };
    let image = Image::open(dir.path(), None).unwrap();
    let result = image.import(&Vfs::new().unwrap(), &options, &Progress::new());
    assert_eq!(limit(result), "entries that whiteouts look at");
}
