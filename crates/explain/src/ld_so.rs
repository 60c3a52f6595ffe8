//! Where the loaders of glibc and musl look for a library.
//!
//! glibc: elf/dl-load.c `_dl_map_object()`, elf/dl-cache.c, ld.so(8). musl: ldso/dynlink.c `load_library()`.

use crate::elf::Dynamic;
use crate::ld_cache;

/// The loaders whose rules are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Glibc,
    Musl,
}

/// The rules of a loader, as its own file and the host have them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct System {
    pub(crate) family: Family,
    /// The directories that are searched last.
    pub(crate) dirs: Vec<Vec<u8>>,
    /// It looks into `glibc-hwcaps`.
    hwcaps: bool,
    /// `/etc/ld.so.cache`.
    pub(crate) cache: Option<Vec<u8>>,
}

/// A program or library that is loaded.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) path: Vec<u8>,
    /// The names by which others find that it is loaded.
    pub(crate) names: Vec<Vec<u8>>,
    pub(crate) dynamic: Dynamic,
    /// What had it loaded.
    pub(crate) by: Option<usize>,
    /// Which file of the host it is.
    pub(crate) host: (u64, u64),
}

impl Object {
    /// What `$ORIGIN` stands for: the directory that it is in.
    fn origin(&self) -> &[u8] {
        dir_of(&self.path)
    }
}

/// The directory that a path leads into.
pub(crate) fn dir_of(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(0) => b"/",
        Some(slash) => &path[..slash],
        None => b".",
    }
}

/// A place at which a library may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Candidate {
    Path(Vec<u8>),
    /// If this is there, the place is not known.
    UnlessThere(Vec<u8>),
    /// The place is not known, and why.
    Unknown(String),
}

/// A library, and what looks for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a [u8],
    /// Everything that is loaded: the program first.
    pub(crate) objects: &'a [Object],
    /// What of `objects` needs it.
    pub(crate) by: usize,
    /// `LD_LIBRARY_PATH`.
    pub(crate) library_path: &'a [u8],
    /// The program must not trust its environment: `AT_SECURE`.
    pub(crate) secure: bool,
}

impl Wanted<'_> {
    /// What needs it, what had that loaded, and so on up to the program.
    fn chain(&self) -> impl Iterator<Item = &Object> {
        std::iter::successors(self.objects.get(self.by), |object| self.objects.get(object.by?))
    }
}

/// Libraries that are part of musl's loader, whatever comes behind the dot.
const PARTS_OF_MUSL: [&[u8]; 7] =
    [b"libc.", b"libpthread.", b"librt.", b"libm.", b"libdl.", b"libutil.", b"libxnet."];
/// Where glibc's loader looked for libraries that suit the processor before its version 2.37, and in combinations of them.
const OLD_HWCAPS: [&[u8]; 5] = [b"tls", b"haswell", b"xeon_phi", b"avx512_1", b"x86_64"];

impl System {
    /// The rules of the loader that is in `bytes`; `None` if they are not known.
    pub(crate) fn of(bytes: &[u8]) -> Option<System> {
        let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
        let system = |family, dirs, hwcaps| System { family, dirs, hwcaps, cache: None };
        if has(b"musl libc (x86_64)") {
            let dirs = [b"/lib".as_slice(), b"/usr/local/lib", b"/usr/lib"].map(<[u8]>::to_vec);
            return Some(system(Family::Musl, dirs.to_vec(), false));
        }
        if !has(b"/etc/ld.so.cache\0") || !has(b"glibc-ld.so.cache1.1") {
            return None;
        }
        Some(system(Family::Glibc, default_dirs(bytes)?, has(b"glibc-hwcaps")))
    }

    /// Whether a library of this name is loaded already, or needs not be. glibc goes by `DT_SONAME`, too.
    pub(crate) fn has(&self, objects: &[Object], name: &[u8]) -> bool {
        let is = |object: &Object| {
            object.names.iter().any(|it| it == name)
                || self.family == Family::Glibc && object.dynamic.soname.as_deref() == Some(name)
        };
        objects.iter().any(is)
            || self.family == Family::Musl && PARTS_OF_MUSL.iter().any(|part| name.starts_with(part))
    }

    /// Where the loader looks for a library, in its order.
    pub(crate) fn candidates(&self, wanted: Wanted<'_>) -> Vec<Candidate> {
        let mut all = Vec::new();
        let Some(needs) = wanted.objects.get(wanted.by) else { return all };
        if wanted.name.contains(&b'/') {
            all.push(
                self.expanded(wanted.name, needs, wanted).map_or_else(Candidate::Unknown, Candidate::Path),
            );
            return all;
        }
        match self.family {
            Family::Glibc => self.of_glibc(needs, wanted, &mut all),
            Family::Musl => self.of_musl(wanted, &mut all),
        }
        all
    }

    fn of_glibc(&self, needs: &Object, wanted: Wanted<'_>, all: &mut Vec<Candidate>) {
        if needs.dynamic.runpath.is_none() {
            for object in wanted.chain().filter(|object| object.dynamic.runpath.is_none()) {
                self.list(object.dynamic.rpath.as_deref(), b":", object, wanted, all);
            }
        }
        if !wanted.secure {
            self.list(Some(wanted.library_path), b":;", &wanted.objects[0], wanted, all);
        }
        self.list(needs.dynamic.runpath.as_deref(), b":", needs, wanted, all);
        self.cached(needs, wanted, all);
        if !needs.dynamic.no_default {
            self.dirs.iter().for_each(|dir| self.directory(dir, wanted, all));
        }
    }

    /// The directories of a list, in which an empty element is the current directory.
    fn list(
        &self,
        list: Option<&[u8]>,
        separators: &[u8],
        object: &Object,
        wanted: Wanted<'_>,
        all: &mut Vec<Candidate>,
    ) {
        let Some(list) = list.filter(|list| !list.is_empty()) else { return };
        for element in list.split(|byte| separators.contains(byte)) {
            let element = if element.is_empty() { b".".as_slice() } else { element };
            match self.expanded(element, object, wanted) {
                Ok(dir) => self.directory(&dir, wanted, all),
                Err(text) => all.push(Candidate::Unknown(text)),
            }
        }
    }

    fn directory(&self, dir: &[u8], wanted: Wanted<'_>, all: &mut Vec<Candidate>) {
        if self.hwcaps {
            for level in (2..=processor_level()).rev() {
                let sub = format!("glibc-hwcaps/x86-64-v{level}");
                all.push(Candidate::Path(joined(&joined(dir, sub.as_bytes()), wanted.name)));
            }
        }
        if self.family == Family::Glibc {
            all.extend(OLD_HWCAPS.iter().map(|sub| Candidate::UnlessThere(joined(dir, sub))));
        }
        all.push(Candidate::Path(joined(dir, wanted.name)));
    }

    /// What the cache has: one place.
    fn cached(&self, needs: &Object, wanted: Wanted<'_>, all: &mut Vec<Candidate>) {
        let Some(cache) = &self.cache else { return };
        let Some(found) = ld_cache::lookup(cache, wanted.name) else {
            return all.push(Candidate::Unknown("/etc/ld.so.cache makes no sense".to_owned()));
        };
        let mut best: Option<(u32, &[u8])> = None;
        for cached in found {
            let level = match level_of(cached.path) {
                Some(level) => level,
                None if cached.special => {
                    let path = String::from_utf8_lossy(cached.path);
                    let text = format!("/etc/ld.so.cache has {path}, for some processors alone");
                    return all.push(Candidate::Unknown(text));
                }
                None => 0,
            };
            if level <= processor_level() && best.is_none_or(|(best, _)| level > best) {
                best = Some((level, cached.path));
            }
        }
        let is_default = |path: &[u8]| self.dirs.iter().any(|dir| path.starts_with(&joined(dir, b"")));
        let path = best.map(|(_, path)| path).filter(|path| !(needs.dynamic.no_default && is_default(path)));
        all.extend(path.map(|path| Candidate::Path(path.to_vec())));
    }

    fn of_musl(&self, wanted: Wanted<'_>, all: &mut Vec<Candidate>) {
        let dirs = |list: &[u8], all: &mut Vec<Candidate>| {
            let dirs = list.split(|byte| b":\n".contains(byte)).filter(|dir| !dir.is_empty());
            all.extend(dirs.map(|dir| Candidate::Path(joined(dir, wanted.name))));
        };
        if !wanted.secure {
            dirs(wanted.library_path, all);
        }
        for object in wanted.chain() {
            let list = object.dynamic.runpath.as_ref().or(object.dynamic.rpath.as_ref());
            match list.map(|list| self.expanded(list, object, wanted)) {
                Some(Ok(list)) => dirs(&list, all),
                Some(Err(text)) => all.push(Candidate::Unknown(text)),
                None => {}
            }
        }
        self.dirs.iter().for_each(|dir| dirs(dir, all));
    }

    /// A text with `$ORIGIN`, `$LIB` and `$PLATFORM` replaced, which may stand in braces.
    ///
    /// # Errors
    ///
    /// Text: what stands for one of them is not known.
    fn expanded(&self, text: &[u8], object: &Object, wanted: Wanted<'_>) -> Result<Vec<u8>, String> {
        let mut parts = text.split(|&byte| byte == b'$');
        let mut all = parts.next().unwrap_or_default().to_vec();
        for part in parts {
            let stands = |name: &str| {
                let braced = part.strip_prefix(format!("{{{name}}}").as_bytes());
                braced.or_else(|| part.strip_prefix(name.as_bytes()))
            };
            if let Some(rest) = stands("ORIGIN") {
                if wanted.secure {
                    return Err("a program with privileges takes $ORIGIN in some places alone".to_owned());
                }
                all.extend_from_slice(object.origin());
                all.extend_from_slice(rest);
            } else if self.family == Family::Musl {
                return Err("musl's loader knows no other than $ORIGIN".to_owned());
            } else if let Some(rest) = stands("LIB") {
                // Debian's way, or the classic one.
                let multiarch = self.dirs.iter().find(|dir| dir.starts_with(b"/lib/") && dir.len() > 5);
                let lib64 = self.dirs.iter().any(|dir| dir.starts_with(b"/lib64"));
                let lib = multiarch
                    .map_or(if lib64 { b"lib64".as_slice() } else { b"lib" }, |dir| &dir[1..dir.len() - 1]);
                all.extend_from_slice(lib);
                all.extend_from_slice(rest);
            } else if stands("PLATFORM").is_some() {
                return Err("what $PLATFORM stands for hangs on the processor".to_owned());
            } else {
                all.push(b'$');
                all.extend_from_slice(part);
            }
        }
        Ok(all)
    }
}

fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let dir = if dir == b"/" { b"".as_slice() } else { dir.strip_suffix(b"/").unwrap_or(dir) };
    [dir, b"/", name].concat()
}

/// The directories that glibc's loader is built with. They stand in it one behind the other, each with a slash at its end.
fn default_dirs(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let is_dir = |text: &[u8]| {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(byte);
        text.len() > 2 && text.starts_with(b"/") && text.ends_with(b"/") && text.iter().all(plain)
    };
    let strings: Vec<&[u8]> = bytes.split(|&byte| byte == 0).collect();
    let runs = strings
        .split(|text| !is_dir(text))
        .filter(|run| run.iter().any(|dir| dir.windows(3).any(|it| it == b"lib")));
    let longest = runs.max_by_key(|run| run.len())?;
    Some(longest.iter().map(|dir| dir.to_vec()).collect())
}

/// The level for which a library is built, if its path says so.
fn level_of(path: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(path);
    let (_, rest) = text.split_once("/glibc-hwcaps/x86-64-v")?;
    rest.split('/').next()?.parse().ok()
}

/// The level of the psABI that this processor has, 1 to 4. The programs that are judged are those for x86-64.
#[cfg(not(target_arch = "x86_64"))]
fn processor_level() -> u32 {
    1
}

/// The level of the psABI that this processor has, 1 to 4.
#[cfg(target_arch = "x86_64")]
fn processor_level() -> u32 {
    use std::arch::is_x86_feature_detected as has;
    let second = has!("cmpxchg16b") && has!("popcnt") && has!("sse4.1") && has!("sse4.2") && has!("ssse3");
    let third = has!("avx2")
        && has!("bmi1")
        && has!("bmi2")
        && has!("f16c")
        && has!("fma")
        && has!("lzcnt")
        && has!("movbe");
    let fourth =
        has!("avx512f") && has!("avx512bw") && has!("avx512cd") && has!("avx512dq") && has!("avx512vl");
    1 + u32::from(second) + u32::from(second && third) + u32::from(second && third && fourth)
}
