//! What a program or a shared library asks of the loader: its dynamic section.

use std::fs::File;

use object::elf::{
    DF_1_NODEFLIB, DF_1_PIE, DT_FILTER, DT_FLAGS_1, DT_NEEDED, DT_NULL, DT_RPATH, DT_RUNPATH, DT_SONAME,
    DT_STRSZ, DT_STRTAB, DynamicTag, EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PT_DYNAMIC, PT_LOAD,
    ProgramHeader64,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{LittleEndian, ReadCache, ReadRef, StringTable};

/// The most bytes of a dynamic section that are read; libraries have a few hundred.
const MOST_DYNAMIC: u64 = 1 << 20;

/// What an ELF file asks of the loader.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Dynamic {
    /// The libraries that it cannot do without, in the order in which they are loaded.
    pub(crate) needed: Vec<Vec<u8>>,
    pub(crate) soname: Option<Vec<u8>>,
    pub(crate) rpath: Option<Vec<u8>>,
    pub(crate) runpath: Option<Vec<u8>>,
    /// It does without the default directories: `DF_1_NODEFLIB`.
    pub(crate) no_default: bool,
    /// It is a program, which is not loaded as a library.
    pub(crate) program: bool,
}

/// What a file is to the loader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Elf {
    Loadable(Dynamic),
    /// For another machine: a search goes on behind it.
    Other,
    /// It ends before what is to be mapped of it does: what touches that is ended by `SIGBUS`.
    CutShort,
    /// No ELF file, or one that makes no sense: a search ends with it.
    Malformed(&'static str),
}

/// Reads what a file asks of the loader.
pub(crate) fn read(file: File) -> Elf {
    let cache = ReadCache::new(file);
    match parse(&cache) {
        Ok(elf) => elf,
        Err(what) => Elf::Malformed(what),
    }
}

fn parse<'a, R: ReadRef<'a>>(data: R) -> Result<Elf, &'static str> {
    let ident = data.read_bytes_at(0, 6).map_err(|()| "it is too short")?;
    if !ident.starts_with(b"\x7fELF") {
        return Err("it is no ELF file");
    }
    // 64 bits, the least significant byte first.
    if ident[4..] != [2, 1] {
        return Ok(Elf::Other);
    }
    let header = FileHeader64::<LittleEndian>::parse(data).map_err(|_| "its ELF header makes no sense")?;
    let endian = LittleEndian;
    if header.e_machine(endian) != EM_X86_64 {
        return Ok(Elf::Other);
    }
    if ![ET_DYN, ET_EXEC].contains(&header.e_type(endian)) {
        return Err("it is neither a program nor a shared library");
    }
    let segments = header.program_headers(endian, data).map_err(|_| "its program headers make no sense")?;
    let size = data.len().map_err(|()| "it is too short")?;
    let is_cut_short = |segment: &ProgramHeader64<LittleEndian>| {
        let (offset, len) = segment.file_range(endian);
        segment.p_type(endian) == PT_LOAD && offset.checked_add(len).is_none_or(|end| end > size)
    };
    if segments.iter().any(is_cut_short) {
        return Ok(Elf::CutShort);
    }
    let Some(segment) = segments.iter().find(|segment| segment.p_type(endian) == PT_DYNAMIC) else {
        return Ok(Elf::Loadable(Dynamic::default()));
    };
    let wrong = "its dynamic section makes no sense";
    if segment.p_filesz(endian) > MOST_DYNAMIC {
        return Err(wrong);
    }
    let entries = segment.dynamic(endian, data).map_err(|_| wrong)?.unwrap_or_default();
    let entries = entries.iter().map(|entry| (entry.d_tag(endian), entry.d_val(endian)));
    let entries: Vec<(DynamicTag, u64)> = entries.take_while(|&(tag, _)| tag != DT_NULL).collect();
    // Of entries that there can be one of, the last one counts.
    let value = |tag| entries.iter().rev().find(|entry| entry.0 == tag).map(|entry| entry.1);
    let strings = value(DT_STRTAB).and_then(|address| {
        // The table is named by where it will be in memory.
        let segment = segments.iter().find_map(|segment| {
            let (offset, size) = segment.file_range(endian);
            let into = address.checked_sub(segment.p_vaddr(endian)).filter(|&into| into < size)?;
            let is_load = segment.p_type(endian) == PT_LOAD;
            is_load.then(|| offset.checked_add(into)).flatten()
        })?;
        Some(StringTable::new(data, segment, segment.checked_add(value(DT_STRSZ)?)?))
    });
    let string = |offset: u64| -> Result<Vec<u8>, &'static str> {
        let offset = u32::try_from(offset).map_err(|_| wrong)?;
        let text = strings.as_ref().and_then(|strings| strings.get(offset).ok());
        text.map(<[u8]>::to_vec).ok_or(wrong)
    };
    let one = |tag| value(tag).map(string).transpose();
    let needed = entries.iter().filter(|entry| [DT_NEEDED, DT_FILTER].contains(&entry.0));
    let flags = value(DT_FLAGS_1).unwrap_or_default();
    Ok(Elf::Loadable(Dynamic {
        needed: needed.map(|entry| string(entry.1)).collect::<Result<_, _>>()?,
        soname: one(DT_SONAME)?,
        rpath: one(DT_RPATH)?,
        runpath: one(DT_RUNPATH)?,
        no_default: flags & DF_1_NODEFLIB.0 != 0,
        program: flags & DF_1_PIE.0 != 0 || header.e_type(endian) == ET_EXEC,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn of_bytes(bytes: &[u8]) -> Elf {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        read(file)
    }

    #[test]
    fn this_program_needs_what_readelf_says() {
        let output = std::process::Command::new("readelf").args(["-d", "/proc/self/exe"]).output();
        let Ok(output) = output else { return println!("skipped: there is no readelf") };
        // readelf's own: both are read alike.
        let path = std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .map(|dir| dir.join("readelf"))
            .find(|path| path.exists());
        let Elf::Loadable(dynamic) = read(File::open(path.unwrap()).unwrap()) else { panic!() };
        let text = String::from_utf8(output.stdout).unwrap();
        let shown = text.lines().filter(|line| line.contains("(NEEDED)"));
        let shown: Vec<&str> =
            shown.map(|line| line.rsplit_once('[').unwrap().1.trim_end_matches(']')).collect();
        assert!(!shown.is_empty(), "{text}");
        assert_eq!(dynamic.needed, shown.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>());
        assert!(dynamic.program || text.contains("NOW") && !text.contains("PIE"));
    }

    #[test]
    fn what_is_no_library_of_this_machine_is_told() {
        assert_eq!(of_bytes(b""), Elf::Malformed("it is too short"));
        assert_eq!(of_bytes(b"#!/bin/sh\n"), Elf::Malformed("it is no ELF file"));
        assert_eq!(of_bytes(b"\x7fELF\x01\x01 and so on"), Elf::Other);
        assert_eq!(of_bytes(b"\x7fELF\x02\x01 and so on"), Elf::Malformed("its ELF header makes no sense"));
    }

    /// A file that wants to do harm gets an answer, whatever it says.
    #[test]
    fn damaged_files_are_read_to_an_end() {
        let mut bytes = std::fs::read("/proc/self/exe").unwrap();
        bytes.truncate(1 << 20);
        let mut rng = fastrand::Rng::with_seed(7);
        let interesting = bytes.len().min(4096);
        for _ in 0..2_000 {
            let mut damaged = bytes[..rng.usize(..=interesting)].to_vec();
            for _ in 0..rng.usize(..8) {
                if let Some(at) = (!damaged.is_empty()).then(|| rng.usize(..damaged.len().min(1024))) {
                    damaged[at] = *rng.choice(&[0, 1, 2, 0x7f, 0x80, 0xff]).unwrap();
                }
            }
            // A section that is said to be larger than the memory.
            of_bytes(&damaged);
        }
    }
}
