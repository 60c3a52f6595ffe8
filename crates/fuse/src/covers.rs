//! What the mount namespaces of the machine tell: whether something is mounted within the tree (what the kernel forgets there, it
//! unmounts), and whether any other process sees it.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::thread::Builder;
use std::time::Duration;

/// Looks at every mount namespace that a process is in.
#[derive(Debug, Default)]
pub(crate) struct Covers {
    /// The device number of the mounted tree, as `/proc/PID/mountinfo` has it.
    device: OnceLock<String>,
    /// Something was mounted there once: it is not looked for again.
    found: Mutex<bool>,
}

impl Covers {
    /// The tree is mounted now, as this device.
    pub(crate) fn set_device(&self, device: u64) {
        let _ = self.device.set(format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device)));
    }

    /// Whether something may be mounted within the tree. A process that may not be looked at is taken to see nothing there.
    pub(crate) fn may_exist(&self) -> bool {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if *found {
            return true;
        }
        let Some(device) = self.device.get().cloned() else { return true };
        let anywhere = move || {
            views(true).is_ok_and(|mut all| all.any(|view| covered(&device, &view.unwrap_or_default())))
        };
        let seen = within(PATIENCE, anywhere);
        *found = seen == Some(true);
        seen.unwrap_or(true)
    }

    /// Whether no other process sees the tree, and no file system shows this one's mount namespace.
    pub(crate) fn is_deserted(&self) -> bool {
        let Some(device) = self.device.get() else { return false };
        let Ok(own) = fs::read_link("/proc/self/ns/mnt") else { return false };
        let shown = format!(" {} ", own.display());
        let sees = |mounts: &str| mounts.contains(&shown) || fields(mounts).any(|[_, _, of]| of == device);
        // One that may not be looked at may see it.
        views(false).is_ok_and(|mut all| !all.any(|view| view.is_none_or(|mounts| sees(&mounts))))
    }
}

/// For how long an answer may wait for a look at all processes.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs `look`; none if it takes longer than that. A process that closes files of the tree in execve(2) waits for the server, and
/// keeps everybody waiting who reads what `/proc` tells of its namespaces: if it is the server that does, both wait for ever.
/// Kernel: `exec_update_lock`.
fn within<R: Send + 'static>(patience: Duration, look: impl FnOnce() -> R + Send + 'static) -> Option<R> {
    let (tell, told) = mpsc::channel();
    // The other end is gone if it was too late.
    let looks = move || drop(tell.send(look()));
    Builder::new().name("rcuwalk-look".into()).spawn(looks).ok()?;
    told.recv_timeout(patience).ok()
}

/// What processes of this machine have as `mountinfo`, this one, too, if it is `own`: once for each mount namespace, as far as these can
/// be told apart. None for a process that may not be looked at.
///
/// # Errors
///
/// Those of listing `/proc`.
fn views(own: bool) -> io::Result<impl Iterator<Item = Option<String>>> {
    let this = std::process::id().to_string();
    let mut known = HashSet::new();
    Ok(fs::read_dir("/proc")?.filter_map(move |process| {
        let process = process.ok()?;
        let name = process.file_name();
        let is_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        if !is_process || !own && name == this.as_str() {
            return None;
        }
        let namespace = fs::read_link(process.path().join("ns/mnt"));
        if namespace.is_ok_and(|namespace| !known.insert(namespace)) {
            return None;
        }
        match fs::read(process.path().join("mountinfo")) {
            // Names that are no UTF-8 stand in fields that are not looked at.
            Ok(mounts) => Some(Some(String::from_utf8_lossy(&mounts).into_owned())),
            // It has ended.
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) => None,
            Err(_) => Some(None),
        }
    }))
}

/// Of each mount in a `mountinfo` its number, that of the mount it lies on, and its device.
fn fields(mounts: &str) -> impl Iterator<Item = [&str; 3]> {
    mounts.lines().filter_map(|line| line.splitn(4, ' ').take(3).collect::<Vec<_>>().try_into().ok())
}

/// Whether one of the mounts in a `mountinfo` lies on a mount of the device.
fn covered(device: &str, mounts: &str) -> bool {
    let ours: HashSet<&str> = fields(mounts).filter(|[_, _, of]| *of == device).map(|[id, ..]| id).collect();
    fields(mounts).any(|[_, parent, _]| ours.contains(parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_on_the_tree_is_found() {
        let tree = "30 1 0:40 / /mnt rw - fuse.rcuwalk none rw\n";
        assert!(!covered("0:40", tree));
        assert!(!covered("0:40", &format!("{tree}31 1 0:41 / /other rw - tmpfs x rw\n")));
        assert!(covered("0:40", &format!("{tree}31 30 0:41 / /mnt/x rw - tmpfs x rw\n")));
        assert!(covered("0:40", &format!("31 30 0:40 /y /mnt/x rw - fuse.rcuwalk none rw\n{tree}")));
        assert!(!covered("0:4", &format!("{tree}31 30 0:41 / /mnt/x rw - tmpfs x rw\n")));
    }

    #[test]
    fn a_look_that_takes_too_long_is_not_waited_for() {
        let (end, ended) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(20), move || ended.recv().is_err()), None);
        drop(end);
        assert_eq!(within(Duration::from_secs(20), || 1), Some(1));
    }

    #[test]
    fn this_machine_is_looked_at() {
        let covers = Covers::default();
        assert!(covers.may_exist() && !covers.is_deserted(), "before it is mounted nothing is known");
        let proc = Covers::default();
        let table = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
        let [_, _, device] = fields(&table)
            .find(|[_, parent, _]| fields(&table).any(|[id, ..]| id == *parent))
            .and_then(|[_, parent, _]| fields(&table).find(|[id, ..]| *id == parent))
            .expect("something lies on something");
        proc.device.set(device.to_owned()).expect("not set yet");
        assert!(proc.may_exist() && !proc.is_deserted());
        let nowhere = Covers::default();
        nowhere.set_device(rustix::fs::makedev(4095, 1_048_575));
        assert!(!nowhere.may_exist());
    }
}
