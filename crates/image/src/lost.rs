//! Losing power, simulated: what was written and not synced is lost in part, write by write and at random.

use crate::error::Outcome;
use crate::live::{Live, Options, fill, load_watched};
use crate::store::{Db, Opener};
use rcuwalk::changes::{Change, ROOT_KEY};
use rcuwalk::uapi::*;
use rcuwalk::{Cred, Vfs};
use redb::StorageBackend;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a disk holds: what is safe, and the writes since.
#[derive(Debug, Default)]
struct Platter {
    safe: Vec<u8>,
    /// What the system sees.
    now: Vec<u8>,
    since: Vec<Write>,
    /// Writes there is room for; none are left when the disk is full.
    room: Option<usize>,
}

#[derive(Debug, Clone)]
enum Write {
    Len(usize),
    Bytes(usize, Vec<u8>),
}

impl Write {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Write::Len(len) => to.resize(*len, 0),
            Write::Bytes(at, bytes) => {
                to.resize(to.len().max(at + bytes.len()), 0);
                to[*at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

#[derive(Debug, Clone, Default)]
struct Disk(Arc<Mutex<Platter>>);

impl Disk {
    fn write(&self, write: Write) -> io::Result<()> {
        let mut platter = self.0.lock().unwrap();
        if let Some(room) = &mut platter.room {
            *room = room.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
        }
        write.apply(&mut platter.now);
        platter.since.push(write);
        Ok(())
    }

    /// The disk after the power failed: of what was not safe each write is there, in half, or lost.
    fn after_power_loss(&self, random: &mut u64) -> Disk {
        let platter = self.0.lock().unwrap();
        let mut safe = platter.safe.clone();
        for write in &platter.since {
            *random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            match (*random >> 33) % 3 {
                0 => write.apply(&mut safe),
                1 => {
                    if let Write::Bytes(at, bytes) = write {
                        Write::Bytes(*at, bytes[..bytes.len() / 2].to_vec()).apply(&mut safe);
                    }
                }
                _ => {}
            }
        }
        // A file system does not cut a file short that was longer.
        safe.resize(safe.len().max(platter.safe.len()), 0);
        Disk(Arc::new(Mutex::new(Platter { now: safe.clone(), safe, ..Platter::default() })))
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let platter = self.0.lock().unwrap();
        let from = offset as usize;
        out.copy_from_slice(platter.now.get(from..from + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.write(Write::Len(len as usize))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut platter = self.0.lock().unwrap();
        platter.safe = platter.now.clone();
        platter.since.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(Write::Bytes(offset as usize, data.to_vec()))
    }
}

impl Opener for Disk {
    fn open(&self) -> Outcome<Db> {
        Db::open(self.clone())
    }

    fn disk(&self) -> Option<&crate::disk::Disk> {
        None
    }
}

fn start(disk: &Disk, vfs: &Vfs) -> Live {
    let mut db = Db::create(disk.clone()).unwrap();
    let changes = vfs.loader().watch(vfs, &[], 0).unwrap();
    let drained = fill(&mut db, &changes).unwrap();
    let options = Options { interval: Duration::from_secs(3600), ..Options::default() };
    Live::start("/".as_ref(), db, changes, drained, Box::new(disk.clone()), &options)
}

/// Paths, and how long what is there is.
fn sizes(vfs: &Vfs) -> BTreeMap<Vec<u8>, u64> {
    let changes = vfs.loader().watch(vfs, &[], 0).unwrap();
    let (mut sizes, mut found) = (BTreeMap::new(), BTreeMap::new());
    changes.drain(|change| match change {
        Change::Node(node) => drop(sizes.insert(node.key, node.inode.size)),
        Change::Name { dir: ROOT_KEY, name, to: Some((key, _)) } => {
            found.insert(name.to_vec(), sizes[&key]);
        }
        _ => {}
    });
    found
}

/// Files are made, grow and go; every sync is a state that must be there whole, or the one before if it did not end.
#[test]
fn a_power_loss_at_any_write_leaves_a_state_that_was_synced() {
    let mut random = 1;
    let (mut older, mut newest) = (0, 0);
    for round in 0..60 {
        let disk = Disk::default();
        let vfs = Vfs::new().unwrap();
        let live = start(&disk, &vfs);
        let task = vfs.task(Cred::root());
        let mut states = vec![BTreeMap::new()];
        let mut present = BTreeMap::new();
        for step in 0..1 + round % 7 {
            for i in 0..12_u64 {
                let name = format!("f{}", (step * 5 + i) % 17);
                let path = format!("/{name}");
                if i % 4 == 3 {
                    let _ = task.unlink(path.as_bytes());
                    present.remove(name.as_bytes());
                } else {
                    let size = 1 + (step * 7919 + i * 104_729) % 90_000;
                    let fd = task.open(path.as_bytes(), O_CREAT | O_TRUNC | O_WRONLY, 0o600).unwrap();
                    task.write(fd, &vec![i as u8 + 1; size as usize]).unwrap();
                    task.close(fd).unwrap();
                    present.insert(name.into_bytes(), size);
                }
            }
            states.push(present.clone());
            if step == round % 7 {
                // The last one breaks off at some write.
                disk.0.lock().unwrap().room = Some((round * 3) as usize);
            }
            let synced = live.sync();
            assert!(synced.is_ok() || step == round % 7, "{synced:?}");
        }
        let lost = disk.after_power_loss(&mut random);
        let again = Vfs::new().unwrap();
        let (_, changes, _) = load_watched(&lost, &again).unwrap();
        drop(changes);
        let found = sizes(&again);
        let [before, last] = states.last_chunk().unwrap();
        assert!(found == *before || found == *last, "round {round}: {found:?}");
        older += usize::from(found == *before);
        newest += usize::from(found == *last);
    }
    assert!(older > 5 && newest > 5, "{older} older, {newest} newest: both happen");
}

/// A full disk is told of, loses nothing, and does not end anything.
#[test]
fn a_full_disk_is_told_of_and_loses_nothing() {
    let disk = Disk::default();
    let vfs = Vfs::new().unwrap();
    let live = start(&disk, &vfs);
    let task = vfs.task(Cred::root());
    let fd = task.open(b"/f", O_CREAT | O_RDWR, 0o600).unwrap();
    task.write(fd, &[1; 300_000]).unwrap();
    disk.0.lock().unwrap().room = Some(2);
    assert_eq!(task.fsync(fd), Err(rcuwalk::Errno::ENOSPC));
    assert!(live.last_error().is_some());
    assert_eq!(task.write(fd, b"more"), Err(rcuwalk::Errno::ENOSPC));
    assert_eq!(task.mkdir(b"/d", 0o700), Err(rcuwalk::Errno::ENOSPC));
    assert_eq!(task.stat(b"/f").unwrap().size, 300_000, "it is all there");
    task.chmod(b"/f", 0o644).unwrap();
    assert_eq!(task.fsync(fd), Err(rcuwalk::Errno::ENOSPC), "still");
    disk.0.lock().unwrap().room = None;
    assert_eq!(task.fsync(fd), Ok(()));
    task.write(fd, b"more").unwrap();
    live.close().unwrap();
    let again = Vfs::new().unwrap();
    let (_, changes, _) = load_watched(&disk, &again).unwrap();
    drop(changes);
    assert_eq!(sizes(&again), BTreeMap::from([(b"f".to_vec(), 300_004)]));
    assert_eq!(again.task(Cred::root()).stat(b"/f").unwrap().mode & 0o777, 0o644);
}
