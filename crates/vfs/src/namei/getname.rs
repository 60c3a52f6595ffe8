//! What is wrong with a name, as copying it in from user memory finds out.
//!
//! Kernel: fs/namei.c `getname_flags()`.

use crate::base::errno::Errno;
use crate::base::uapi::PATH_MAX;

/// Stands for a name that could not be read: a call that uses it answers `EFAULT`. It is told from names that are too long by
/// its address.
pub(crate) static NAME_FAULT: [u8; PATH_MAX] = [0; PATH_MAX];

/// Stands in the same way for a name that there was no memory for: `ENOMEM`.
pub(crate) static NAME_NO_MEMORY: [u8; PATH_MAX] = [1; PATH_MAX];

/// What copying in the name would have refused. Kernel: fs/namei.c `getname_flags()`.
#[inline(always)]
pub(crate) fn check_name(path: &[u8], empty_ok: bool) -> Result<(), Errno> {
    if path.len() >= PATH_MAX {
        return Err(overlong(path));
    }
    if path.is_empty() && !empty_ok {
        return Err(Errno::ENOENT);
    }
    Ok(())
}

#[cold]
fn overlong(path: &[u8]) -> Errno {
    let is = |other: &[u8]| std::ptr::eq(path.as_ptr(), other.as_ptr());
    if is(&NAME_FAULT) {
        Errno::EFAULT
    } else if is(&NAME_NO_MEMORY) {
        Errno::ENOMEM
    } else {
        Errno::ENAMETOOLONG
    }
}

/// Where the next component begins.
#[inline(always)]
pub(super) fn skip_slashes(path: &[u8], from: usize) -> usize {
    let mut at = from;
    while path.get(at) == Some(&b'/') {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_could_not_be_copied_in_says_why() {
        let long = [1; PATH_MAX];
        let errors = [&NAME_FAULT, &NAME_NO_MEMORY, &long].map(|name| check_name(name, false));
        assert_eq!(errors, [Errno::EFAULT, Errno::ENOMEM, Errno::ENAMETOOLONG].map(Err));
        assert_eq!(check_name(&long[1..], false), Ok(()));
        assert_eq!([false, true].map(|empty_ok| check_name(b"", empty_ok)), [Err(Errno::ENOENT), Ok(())]);
    }
}
