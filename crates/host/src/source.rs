//! What a path of the running machine offers for import.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rcuwalk::Vfs;
use rcuwalk_image::Contents;
use rustix::fs::OFlags;

use crate::archive::{ArchiveOptions, import_tar};
use crate::decompress::{Format, SNIFF_SIZE, sniff};
use crate::image::{Image, is_image_archive};
use crate::import::{ImportOptions, import_dir};
use crate::outcome::{ImportError, Progress, Report};

/// Something to import a tree from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A directory.
    Dir(PathBuf),
    /// A tar archive, plain or compressed with gzip or zstd.
    Archive(PathBuf),
    /// A container image: a directory in the OCI image layout, or an archive of one, or what `docker save` writes.
    Image(PathBuf),
    /// A tree image, as [`rcuwalk_image`] writes it.
    TreeImage(PathBuf),
}

impl Source {
    /// Imports the tree. Of the options, an archive heeds `contents`, `databases` and `xattrs`; its limits are the default ones. Of
    /// an image for several platforms, that for this machine is taken. A tree image is loaded whole, or without any contents.
    ///
    /// # Errors
    ///
    /// Those of [`import_dir`], [`import_tar`] and [`Image`]; [`ImportError::TreeImage`].
    pub fn import(
        &self,
        vfs: &Vfs,
        options: &ImportOptions,
        progress: &Progress,
    ) -> Result<Report, ImportError> {
        match self {
            Source::Dir(path) => import_dir(vfs, path, options, progress),
            Source::Archive(path) => {
                let file =
                    open_file(path).map_err(|source| ImportError::Open { path: path.clone(), source })?;
                import_tar(vfs, file, &archive_options(options), progress)
            }
            Source::Image(path) => Image::open(path, None)?.import(vfs, &archive_options(options), progress),
            Source::TreeImage(path) => load_image(vfs, path, options, progress),
        }
    }
}

/// Loads a tree image.
fn load_image(
    vfs: &Vfs,
    path: &Path,
    options: &ImportOptions,
    progress: &Progress,
) -> Result<Report, ImportError> {
    let started = Instant::now();
    let keep = if options.contents || options.databases { Contents::Keep } else { Contents::Leave };
    let (_, inventory) = rcuwalk_image::load(path, vfs, keep)?;
    let mut report = Report::default();
    (report.dirs, report.files, report.symlinks) = (inventory.dirs, inventory.files, inventory.symlinks);
    (report.specials, report.hard_links) = (inventory.specials, inventory.hard_links);
    (report.xattrs, report.size_bytes) = (inventory.xattrs, inventory.size_bytes);
    report.content_bytes = if keep == Contents::Keep { inventory.content_bytes } else { 0 };
    report.elapsed = started.elapsed();
    progress.publish(&report);
    Ok(report)
}

/// What an archive heeds.
fn archive_options(options: &ImportOptions) -> ArchiveOptions {
    ArchiveOptions {
        contents: options.contents,
        databases: options.databases,
        xattrs: options.xattrs,
        ..ArchiveOptions::default()
    }
}

/// Finds out what `path` is; symbolic links are followed, an archive is known by its first bytes.
///
/// # Errors
///
/// [`ImportError::Open`] if it is missing or may not be read, [`ImportError::NotATree`] if it is neither a directory
/// nor an archive. A directory in the OCI image layout is taken for the image.
pub fn open(path: &Path) -> Result<Source, ImportError> {
    let cannot_open = |source| ImportError::Open { path: path.to_path_buf(), source };
    let not_a_tree = |found| ImportError::NotATree { path: path.to_path_buf(), found };
    let file_type = path.metadata().map_err(cannot_open)?.file_type();
    if file_type.is_dir() {
        let layout = ["oci-layout", "index.json"].iter().all(|name| path.join(name).is_file());
        return Ok(if layout { Source::Image(path.to_path_buf()) } else { Source::Dir(path.to_path_buf()) });
    }
    if !file_type.is_file() {
        return Err(not_a_tree(match () {
            _ if file_type.is_fifo() => "a FIFO",
            _ if file_type.is_socket() => "a socket",
            _ => "a device",
        }));
    }
    let mut start = Vec::with_capacity(SNIFF_SIZE);
    open_file(path)
        .and_then(|file| file.take(SNIFF_SIZE as u64).read_to_end(&mut start))
        .map_err(cannot_open)?;
    if start.starts_with(rcuwalk_image::MAGIC) {
        return Ok(Source::TreeImage(path.to_path_buf()));
    }
    match sniff(&start) {
        Format::Other(found) => Err(not_a_tree(found)),
        Format::Tar | Format::Gzip | Format::Zstd => Ok(if is_image_archive(path).map_err(cannot_open)? {
            Source::Image(path.to_path_buf())
        } else {
            Source::Archive(path.to_path_buf())
        }),
    }
}

/// Opens without waiting, even if the file has become a fifo meanwhile.
pub(crate) fn open_file(path: &Path) -> std::io::Result<File> {
    File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)
}
