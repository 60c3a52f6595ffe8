//! Values by small number.

use crate::base::errno::{Errno, Result};

/// Values by small number. Number 0 means none.
#[derive(Debug)]
pub(crate) struct Table<T> {
    values: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { values: Vec::new(), free: Vec::new() }
    }
}

impl<T> Table<T> {
    /// Keeps `value` and gives its number.
    pub(crate) fn insert(&mut self, value: T) -> Result<u32> {
        if let Some(at) = self.free.pop() {
            self.values[at as usize - 1] = Some(value);
            return Ok(at);
        }
        self.values.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.values.push(Some(value));
        u32::try_from(self.values.len()).map_err(|_| Errno::ENOSPC)
    }

    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        self.values.get((at as usize).wrapping_sub(1))?.as_ref()
    }

    /// Every value.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.values.iter().flatten()
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.values.get_mut((at as usize).wrapping_sub(1))?.as_mut()
    }

    pub(crate) fn remove(&mut self, at: u32) -> Option<T> {
        let value = self.values.get_mut((at as usize).wrapping_sub(1))?.take()?;
        self.free.push(at);
        if self.values.len() >= MANY && self.free.len() == self.values.len() {
            *self = Table::default();
        }
        Some(value)
    }
}

/// An empty table that had fewer values keeps its memory.
const MANY: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_with_the_last_value() {
        let mut table = Table::default();
        let fill = |table: &mut Table<u32>| {
            (1..=10_000).for_each(|n| assert_eq!(table.insert(n), Ok(n)));
        };
        fill(&mut table);
        for at in (1..=10_000).step_by(2).chain((2..10_000).step_by(2)) {
            assert_eq!(table.remove(at), Some(at));
        }
        assert!(table.values.capacity() > 0 && table.get(10_000) == Some(&10_000));
        assert_eq!(table.remove(10_000), Some(10_000));
        assert_eq!(table.values.capacity() + table.free.capacity(), 0);
        fill(&mut table);
    }
}
