//! Container images: the OCI image layout as a directory or an archive, and what `docker save` writes.
//!
//! An image is as hostile as any archive. Its parts are found by names of its own making, so they are opened below the layout's
//! directory and through no link, or looked up in a list of the archive's members; what a digest is given for must have it; and the
//! limits of an archive hold for all layers together.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rcuwalk::Vfs;
use rcuwalk::uapi::s_isreg;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256, Sha512};

use crate::archive::{ArchiveOptions, Layer, Limits, Tree};
use crate::decompress::{Format, SNIFF_SIZE, sniff, unpack};
use crate::member::Members;
use crate::outcome::{ImportError, Progress, Report};
use crate::source::open_file;

/// The most bytes of an index, a manifest or a configuration.
const MAX_JSON: u64 = 4 << 20;
/// The most layers of an image.
const MAX_LAYERS: usize = 1024;
/// The most members of an archive that holds an image.
const MAX_MEMBERS: usize = 1 << 16;
/// The most bytes behind the end of a layer.
const MAX_PADDING: u64 = 16 << 20;
/// How deep indexes may refer to indexes.
const MAX_INDEXES: usize = 4;

/// A container image, its manifest and configuration read.
///
/// ```no_run
/// use rcuwalk::Vfs;
/// use rcuwalk_host::{ArchiveOptions, Image, Progress};
///
/// let image = Image::open("image.tar".as_ref(), Some("linux/arm64"))?;
/// println!("{} layers, runs as {:?}", image.layer_count(), image.user());
/// image.import(&Vfs::new()?, &ArchiveOptions::default(), &Progress::new())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Image {
    parts: Parts,
    layers: Vec<Part>,
    config: Config,
}

/// Where the parts of an image are.
#[derive(Debug)]
enum Parts {
    /// A directory.
    Layout(OwnedFd),
    /// An archive: its file, whether it is compressed, and its members by name, with their place and size in the unpacked stream.
    Archive { path: PathBuf, plain: bool, members: HashMap<Vec<u8>, (u64, u64)> },
}

/// A part of an image, and how to know that it is the right one.
#[derive(Clone, Debug)]
struct Part {
    name: String,
    /// The digest of its bytes, if the image says.
    digest: Option<String>,
    size: Option<u64>,
    /// The digest of its unpacked bytes, if the image says.
    diff_id: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    platform: Option<Platform>,
}

#[derive(Clone, Debug, Deserialize)]
struct Platform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    variant: String,
}

#[derive(Debug, Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

/// An entry of the `manifest.json` of `docker save`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    layers: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Config {
    #[serde(default)]
    config: RunConfig,
    #[serde(default)]
    rootfs: RootFs,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RunConfig {
    #[serde(default)]
    user: String,
}

#[derive(Debug, Default, Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Vec<String>,
}

fn wrong(what: &str, reason: impl ToString) -> ImportError {
    ImportError::Image { what: what.to_owned(), reason: reason.to_string() }
}

/// Whether an archive looks as if it holds an image, by its first member that is not its top directory.
pub(crate) fn is_image_archive(path: &Path) -> io::Result<bool> {
    let Ok(stream) = unpack(open_file(path)?)? else { return Ok(false) };
    let mut members = Members::new(stream, MAX_JSON, MAX_JSON);
    // What is wrong with it is said when it is imported.
    let first = loop {
        let Ok(Some(member)) = members.next() else { return Ok(false) };
        // `tar -C LAYOUT .` begins with `./`.
        if !matches!(plain_name(&member.path), b"" | b".") {
            break member;
        }
    };
    let name = plain_name(&first.path);
    let top = name.split(|&b| b == b'/').next().unwrap_or_default();
    let stem = [&b".json"[..], b".tar"].iter().find_map(|end| top.strip_suffix(*end)).unwrap_or(top);
    let is_id = stem.len() == 64 && stem.iter().all(u8::is_ascii_hexdigit);
    let known = [&b"oci-layout"[..], b"index.json", b"manifest.json", b"repositories"];
    let is_blobs = top == b"blobs" && matches!(name, b"blobs" | b"blobs/sha256" | b"blobs/sha512")
        || name.starts_with(b"blobs/sha256/")
        || name.starts_with(b"blobs/sha512/");
    Ok(is_id || is_blobs || known.contains(&name))
}

/// A member's name without `./` in front and slashes behind.
fn plain_name(path: &[u8]) -> &[u8] {
    let path = path.strip_prefix(b"./").unwrap_or(path);
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
    &path[..end]
}

impl Image {
    /// Reads manifest and configuration of the image at `path`. `platform` (`os/architecture` or `os/architecture/variant`) chooses
    /// among several; without one, that for this machine is taken, or the first.
    ///
    /// # Errors
    ///
    /// [`ImportError::Open`], [`ImportError::Archive`], [`ImportError::Limit`]; [`ImportError::Image`] if a part is missing, is not
    /// what its digest says, or makes no sense, and if there is no image for the platform.
    pub fn open(path: &Path, platform: Option<&str>) -> Result<Image, ImportError> {
        let parts = Parts::open(path)?;
        if parts.has("index.json") { Image::of_layout(parts, platform) } else { Image::of_saved(parts) }
    }

    fn of_layout(parts: Parts, platform: Option<&str>) -> Result<Image, ImportError> {
        let index = Part { name: "index.json".into(), digest: None, size: None, diff_id: None };
        let mut found: Index = parts.json(&index)?;
        for _ in 0..MAX_INDEXES {
            let chosen = choose(&found.manifests, platform)?;
            let part = Part::of(chosen)?;
            if chosen.media_type.contains("index") || chosen.media_type.contains("manifest.list") {
                found = parts.json(&part)?;
                continue;
            }
            let manifest: Manifest = parts.json(&part)?;
            let layers = manifest.layers.iter().map(Part::of).collect::<Result<Vec<_>, _>>()?;
            let config = parts.json(&Part::of(&manifest.config)?)?;
            return Image { parts, layers, config }.bounded();
        }
        Err(wrong("index.json", "indexes that refer to indexes without end"))
    }

    fn of_saved(parts: Parts) -> Result<Image, ImportError> {
        let name = "manifest.json";
        let part = |name: &str| Part { name: name.into(), digest: None, size: None, diff_id: None };
        let saved: Vec<Saved> = parts.json(&part(name))?;
        let [saved] = &saved[..] else {
            return Err(wrong(name, format!("{} images; save one alone", saved.len())));
        };
        let config: Config = parts.json(&part(&saved.config))?;
        let ids = &config.rootfs.diff_ids;
        if ids.len() != saved.layers.len() {
            return Err(wrong(&saved.config, "not as many layers as the manifest has"));
        }
        let layer = |(name, id): (&String, &String)| Part { diff_id: Some(id.clone()), ..part(name) };
        let layers = saved.layers.iter().zip(ids).map(layer).collect();
        Image { parts, layers, config }.bounded()
    }

    fn bounded(self) -> Result<Image, ImportError> {
        if self.layers.len() > MAX_LAYERS {
            return Err(ImportError::Limit { what: "layers", limit: MAX_LAYERS as u64 });
        }
        Ok(self)
    }

    /// How many layers it has.
    pub fn layer_count(&self) -> usize {
        self.layers.len()
    }

    /// Who its programs run as unless told otherwise: `USER`, `UID`, `USER:GROUP` and so on. None means user 0.
    pub fn user(&self) -> Option<&str> {
        Some(&*self.config.config.user).filter(|user| !user.is_empty())
    }

    /// Imports its layers, one over the other, into `vfs`, which should be empty. As where containers run, a whiteout removes what
    /// the layers below have, and a name may lead through symbolic links, which do not leave the tree.
    ///
    /// # Errors
    ///
    /// Those of [`import_tar`](crate::import_tar); [`ImportError::Image`] if a layer is missing or is not what its digest says.
    pub fn import(
        &self,
        vfs: &Vfs,
        options: &ArchiveOptions,
        progress: &Progress,
    ) -> Result<Report, ImportError> {
        let started = Instant::now();
        let mut tree = Tree::new(vfs.loader(), options, progress)?;
        for layer in &self.layers {
            let pruned = tree.layer.take().map_or(0, |layer| layer.pruned);
            tree.layer = Some(Layer { pruned, ..Layer::default() });
            self.read_layer(layer, &mut tree)?;
        }
        let mut report = tree.finish(vfs);
        report.elapsed = started.elapsed();
        Ok(report)
    }

    fn read_layer(&self, layer: &Part, tree: &mut Tree<'_>) -> Result<(), ImportError> {
        let name = &*layer.name;
        let failed = |e: io::Error| wrong(name, e);
        let mut packed = Hashing::new(self.parts.open_part(layer)?, layer.digest.as_deref());
        let stream = unpack(&mut packed).map_err(failed)?;
        let stream = stream.map_err(|what| wrong(name, format!("it is {what}, and no layer")))?;
        let mut plain = Hashing::new(stream, layer.diff_id.as_deref());
        tree.read(&mut plain)?;
        // Behind the end of the archive is at most padding; but it counts for the digest.
        plain.finish(MAX_PADDING).map_err(|reason| wrong(name, reason))?;
        drop(plain);
        packed.finish(MAX_PADDING).map_err(|reason| wrong(name, reason))
    }
}

/// Picks the manifest for a platform.
fn choose<'a>(manifests: &'a [Descriptor], platform: Option<&str>) -> Result<&'a Descriptor, ImportError> {
    let none = |reason: String| wrong("index.json", reason);
    let is = |descriptor: &Descriptor, wanted: &str| {
        descriptor.platform.as_ref().is_some_and(|p| {
            let short = format!("{}/{}", p.os, p.architecture);
            wanted == short || wanted == format!("{short}/{}", p.variant)
        })
    };
    let here = match std::env::consts::ARCH {
        "x86_64" => "linux/amd64",
        "aarch64" => "linux/arm64",
        _ => "linux/unknown",
    };
    let found = match platform {
        // What has no platform may be for any, and an index within the index says more.
        Some(wanted) => {
            manifests.iter().find(|d| is(d, wanted)).or(manifests.iter().find(|d| d.platform.is_none()))
        }
        None => manifests.iter().find(|d| is(d, here)).or(manifests.first()),
    };
    found.ok_or_else(|| match platform {
        Some(wanted) => {
            let has = |d: &Descriptor| d.platform.as_ref().map(|p| format!("{}/{}", p.os, p.architecture));
            let all: Vec<_> = manifests.iter().filter_map(has).collect();
            none(format!("there is no image for {wanted}, only for {}", all.join(", ")))
        }
        None => none("there is no image in it".into()),
    })
}

impl Part {
    /// The blob that a descriptor describes.
    fn of(descriptor: &Descriptor) -> Result<Part, ImportError> {
        let digest = &descriptor.digest;
        let (algorithm, hex) = digest.split_once(':').unwrap_or_default();
        let length = match algorithm {
            "sha256" => 64,
            "sha512" => 128,
            _ => return Err(wrong(digest, "a digest of no kind that is known here (sha256, sha512)")),
        };
        if hex.len() != length || !hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(wrong(digest, "no digest"));
        }
        Ok(Part {
            name: format!("blobs/{algorithm}/{hex}"),
            digest: Some(digest.clone()),
            size: Some(descriptor.size),
            diff_id: None,
        })
    }
}

impl Parts {
    fn open(path: &Path) -> Result<Parts, ImportError> {
        let cannot_open = |source| ImportError::Open { path: path.to_path_buf(), source };
        if path.is_dir() {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| cannot_open(e.into()))?;
            return Ok(Parts::Layout(dir));
        }
        let mut start = Vec::with_capacity(SNIFF_SIZE);
        let mut file = open_file(path).map_err(cannot_open)?;
        file.by_ref().take(SNIFF_SIZE as u64).read_to_end(&mut start).map_err(cannot_open)?;
        file.rewind().map_err(cannot_open)?;
        let stream = unpack(file).map_err(cannot_open)?;
        let stream = stream.map_err(|found| ImportError::NotATree { path: path.to_path_buf(), found })?;
        let members = list_members(stream)?;
        Ok(Parts::Archive { path: path.to_path_buf(), plain: sniff(&start) == Format::Tar, members })
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Parts::Layout(_) => true,
            Parts::Archive { members, .. } => members.contains_key(name.as_bytes()),
        }
    }

    /// Opens a part; the reader checks its bytes.
    fn open_part(&self, part: &Part) -> Result<Box<dyn Read>, ImportError> {
        let name = &*part.name;
        let failed = |e: io::Error| wrong(name, e);
        let (input, size): (Box<dyn Read>, u64) = match self {
            Parts::Layout(dir) => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
                let fd = rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve);
                let file = File::from(fd.map_err(|e| failed(e.into()))?);
                let stat = rustix::fs::fstat(&file).map_err(|e| failed(e.into()))?;
                if !FileType::from_raw_mode(stat.st_mode).is_file() {
                    return Err(wrong(name, "not a regular file"));
                }
                (Box::new(file), stat.st_size as u64)
            }
            Parts::Archive { path, plain, members } => {
                let &(offset, size) =
                    members.get(plain_name(name.as_bytes())).ok_or_else(|| wrong(name, "it is missing"))?;
                let mut file = open_file(path).map_err(failed)?;
                if *plain {
                    file.seek(SeekFrom::Start(offset)).map_err(failed)?;
                    (Box::new(file.take(size)), size)
                } else {
                    let mut stream = unpack(file).map_err(failed)?.map_err(|what| wrong(name, what))?;
                    io::copy(&mut stream.by_ref().take(offset), &mut io::sink()).map_err(failed)?;
                    (Box::new(stream.take(size)), size)
                }
            }
        };
        match part.size {
            Some(expected) if expected != size => {
                Err(wrong(name, format!("it has {size} bytes and should have {expected}")))
            }
            _ => Ok(input),
        }
    }

    /// Reads a part that is JSON.
    fn json<T: DeserializeOwned>(&self, part: &Part) -> Result<T, ImportError> {
        let mut bytes = Vec::new();
        let mut input = Hashing::new(self.open_part(part)?, part.digest.as_deref());
        let failed = |e: io::Error| wrong(&part.name, e);
        input.by_ref().take(MAX_JSON + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > MAX_JSON {
            return Err(ImportError::Limit {
                what: "bytes of one index, manifest or configuration",
                limit: MAX_JSON,
            });
        }
        input.finish(0).map_err(|reason| wrong(&part.name, reason))?;
        serde_json::from_slice(&bytes).map_err(|e| wrong(&part.name, e))
    }
}

/// Where in an archive its members are, by name. A link stands for the member that it names.
fn list_members(stream: Box<dyn Read + '_>) -> Result<HashMap<Vec<u8>, (u64, u64)>, ImportError> {
    let mut members = Members::new(stream, Limits::default().bytes, MAX_JSON);
    let (mut found, mut links) = (HashMap::new(), Vec::new());
    while let Some(member) = members.next()? {
        if found.len() + links.len() >= MAX_MEMBERS {
            return Err(ImportError::Limit {
                what: "members of an image's archive",
                limit: MAX_MEMBERS as u64,
            });
        }
        let name = plain_name(&member.path).to_vec();
        if member.is_link {
            links.push((name, plain_name(&member.link).to_vec()));
        } else if !member.link.is_empty() {
            // `../ID/layer.tar`, beside the directory of the link.
            let target = member.link.strip_prefix(b"../").unwrap_or(&member.link);
            links.push((name, target.to_vec()));
        } else if s_isreg(member.mode) {
            found.insert(name, (members.offset(), members.data_left()));
        }
    }
    for (name, target) in links {
        if let Some(&place) = found.get(&target) {
            found.entry(name).or_insert(place);
        }
    }
    Ok(found)
}

/// Passes bytes on, and finds out whether they are the right ones.
struct Hashing<R> {
    input: R,
    expected: Option<(String, Hasher)>,
}

enum Hasher {
    Sha256(Sha256),
    Sha512(Box<Sha512>),
}

impl<R: Read> Hashing<R> {
    fn new(input: R, expected: Option<&str>) -> Hashing<R> {
        let hasher = |digest: &str| match digest.starts_with("sha512:") {
            true => Hasher::Sha512(Box::default()),
            false => Hasher::Sha256(Sha256::new()),
        };
        Hashing { input, expected: expected.map(|digest| (digest.to_owned(), hasher(digest))) }
    }

    /// Reads what is left, at most `most` bytes, and compares.
    fn finish(&mut self, most: u64) -> Result<(), String> {
        let left = io::copy(&mut self.by_ref().take(most), &mut io::sink()).map_err(|e| e.to_string())?;
        if left == most && most > 0 {
            return Err(format!("more than {most} bytes behind the end of the archive"));
        }
        let Some((expected, hasher)) = self.expected.take() else { return Ok(()) };
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let found = match hasher {
            Hasher::Sha256(hasher) => format!("sha256:{}", hex(&hasher.finalize())),
            Hasher::Sha512(hasher) => format!("sha512:{}", hex(&hasher.finalize())),
        };
        if found == expected {
            Ok(())
        } else {
            Err(format!("it has digest {found} and should have {expected}"))
        }
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buf)?;
        match &mut self.expected {
            Some((_, Hasher::Sha256(hasher))) => hasher.update(&buf[..n]),
            Some((_, Hasher::Sha512(hasher))) => hasher.update(&buf[..n]),
            None => {}
        }
        Ok(n)
    }
}
