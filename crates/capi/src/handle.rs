//! Handles: numbers for objects, that are never used again for another one.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rcuwalk::{Errno, Exec, Result, Task, Vfs};

/// A kind of object; its bits in a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Vfs = 1,
    Task = 2,
    Exec = 3,
}

/// What a handle names.
#[derive(Debug, Clone)]
pub(crate) enum Object {
    Vfs(Vfs),
    Task(Arc<Mutex<Task>>),
    Exec(Arc<Exec>),
}

impl Object {
    fn kind(&self) -> Kind {
        match self {
            Object::Vfs(_) => Kind::Vfs,
            Object::Task(_) => Kind::Task,
            Object::Exec(_) => Kind::Exec,
        }
    }
}

/// A place in the table. Its generation moves on with each object, so an old handle does not match any more.
#[derive(Debug)]
struct Slot {
    generation: u32,
    object: Option<Object>,
}

#[derive(Debug)]
struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

static TABLE: RwLock<Table> = RwLock::new(Table { slots: Vec::new(), free: Vec::new() });

/// Bits of a handle: 24 for the slot, 32 for the generation, 3 for the kind; the sign stays clear.
const INDEX_BITS: u32 = 24;
const GENERATION_BITS: u32 = 32;

fn encode(kind: Kind, index: u32, generation: u32) -> i64 {
    i64::from(kind as u8) << (INDEX_BITS + GENERATION_BITS)
        | i64::from(generation) << INDEX_BITS
        | i64::from(index)
}

/// The slot and generation that a handle has.
fn decode(handle: i64) -> (usize, u32) {
    let index = handle & ((1 << INDEX_BITS) - 1);
    (index as usize, (handle >> INDEX_BITS) as u32)
}

/// A handle for `object`.
///
/// # Errors
///
/// `EMFILE`: there are 16,777,216 already.
pub(crate) fn insert(object: Object) -> Result<i64> {
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    let kind = object.kind();
    let index = match table.free.pop() {
        Some(index) => index,
        None => {
            let index = table.slots.len() as u32;
            if index >> INDEX_BITS != 0 {
                return Err(Errno::EMFILE);
            }
            table.slots.push(Slot { generation: 1, object: None });
            index
        }
    };
    let slot = &mut table.slots[index as usize];
    slot.object = Some(object);
    Ok(encode(kind, index, slot.generation))
}

/// What `handle` names.
///
/// # Errors
///
/// `ESRCH`: nothing, or nothing any more.
pub(crate) fn get(handle: i64) -> Result<Object> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    let (index, generation) = decode(handle);
    let slot = table.slots.get(index).filter(|slot| slot.generation == generation).ok_or(Errno::ESRCH)?;
    let object = slot.object.as_ref().ok_or(Errno::ESRCH)?;
    // The kind's bits, the sign and those between them count as well.
    if encode(object.kind(), index as u32, generation) == handle {
        Ok(object.clone())
    } else {
        Err(Errno::ESRCH)
    }
}

/// Takes the object out; its handle names nothing from now on. Calls that are using it go on.
///
/// # Errors
///
/// `ESRCH`.
pub(crate) fn remove(handle: i64) -> Result<Object> {
    get(handle)?;
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    let (index, generation) = decode(handle);
    let slot = table.slots.get_mut(index).filter(|slot| slot.generation == generation).ok_or(Errno::ESRCH)?;
    let object = slot.object.take().ok_or(Errno::ESRCH)?;
    // A slot whose generations are used up stays empty.
    if let Some(next) = generation.checked_add(1) {
        slot.generation = next;
        table.free.push(index as u32);
    }
    Ok(object)
}

/// The file system that `handle` names.
///
/// # Errors
///
/// `ESRCH`; `EINVAL` if it names something else.
pub(crate) fn vfs(handle: i64) -> Result<Vfs> {
    if let Object::Vfs(vfs) = get(handle)? { Ok(vfs) } else { Err(Errno::EINVAL) }
}

/// The task that `handle` names.
///
/// # Errors
///
/// As [`vfs`].
pub(crate) fn task(handle: i64) -> Result<Arc<Mutex<Task>>> {
    if let Object::Task(task) = get(handle)? { Ok(task) } else { Err(Errno::EINVAL) }
}

/// The program that `handle` names.
///
/// # Errors
///
/// As [`vfs`].
pub(crate) fn exec(handle: i64) -> Result<Arc<Exec>> {
    if let Object::Exec(exec) = get(handle)? { Ok(exec) } else { Err(Errno::EINVAL) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_names_one_object_and_then_none() {
        let make = || Vfs::builder().capacity(64).build().expect("a file system");
        let first = insert(Object::Vfs(make())).expect("a handle");
        assert!(first > 0 && vfs(first).is_ok());
        assert_eq!(task(first).map(drop), Err(Errno::EINVAL), "another kind");
        for near in
            [0, 1, -1, first + 1, first ^ (1 << 58), first | i64::MIN, first + (1 << INDEX_BITS), i64::MAX]
        {
            assert_eq!(get(near).map(drop), Err(Errno::ESRCH), "{near:#x}");
        }
        assert!(remove(first).is_ok());
        assert_eq!(remove(first).map(drop), Err(Errno::ESRCH), "twice");
        let second = insert(Object::Vfs(make())).expect("a handle");
        assert_ne!(first, second);
        assert_eq!(get(first).map(drop), Err(Errno::ESRCH), "even if the slot is used again");
        assert!(remove(second).is_ok());
    }
}
