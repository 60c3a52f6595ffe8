//! Error numbers.
//!
//! [`Errno`] is the answer of a call that failed: one Linux error number, x86-64 (and every other architecture that
//! uses the generic table). It is four bytes and is never zero, so `Result<(), Errno>` is four bytes as well.

use std::fmt;
use std::num::NonZeroU32;

/// A Linux error number.
///
/// `Display` prints name and message, `Debug` the name alone.
///
/// ```
/// use rcuwalk::errno::Errno;
///
/// assert_eq!(Errno::ENOENT.raw(), 2);
/// assert_eq!(Errno::ENOENT.name(), "ENOENT");
/// assert_eq!(Errno::ENOENT.to_string(), "ENOENT: No such file or directory");
/// assert_eq!(Errno::from_raw(13), Some(Errno::EACCES));
/// assert_eq!(Errno::from_name("EACCES"), Some(Errno::EACCES));
/// assert_eq!(std::io::Error::from(Errno::EACCES).kind(), std::io::ErrorKind::PermissionDenied);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(NonZeroU32);

/// What every call returns.
pub type Result<T> = std::result::Result<T, Errno>;

const _: () = assert!(size_of::<Result<()>>() == 4, "the niche of Errno holds Ok(())");

/// Builds an [`Errno`] from a number of the table.
const fn number(raw: u32) -> Errno {
    match NonZeroU32::new(raw) {
        Some(n) => Errno(n),
        None => panic!("error numbers are not zero"),
    }
}

macro_rules! errno_table {
    ($($name:ident = $raw:literal, $message:literal;)*) => {
        impl Errno {
            $(#[doc = concat!("`", stringify!($name), "`, ", stringify!($raw), ": ", $message, ".")]
            pub const $name: Errno = number($raw);)*

            /// Every error number of the table, ascending.
            pub const ALL: &'static [Errno] = &[$(Errno::$name),*];

            /// Name and message; `None` for a number that Linux does not define.
            const fn describe(raw: u32) -> Option<(&'static str, &'static str)> {
                match raw {
                    $($raw => Some((stringify!($name), $message)),)*
                    _ => None,
                }
            }
        }
    };
}

errno_table! {
    EPERM = 1, "Operation not permitted";
    ENOENT = 2, "No such file or directory";
    ESRCH = 3, "No such process";
    EINTR = 4, "Interrupted system call";
    EIO = 5, "Input/output error";
    ENXIO = 6, "No such device or address";
    E2BIG = 7, "Argument list too long";
    ENOEXEC = 8, "Exec format error";
    EBADF = 9, "Bad file descriptor";
    ECHILD = 10, "No child processes";
    EAGAIN = 11, "Resource temporarily unavailable";
    ENOMEM = 12, "Cannot allocate memory";
    EACCES = 13, "Permission denied";
    EFAULT = 14, "Bad address";
    ENOTBLK = 15, "Block device required";
    EBUSY = 16, "Device or resource busy";
    EEXIST = 17, "File exists";
    EXDEV = 18, "Invalid cross-device link";
    ENODEV = 19, "No such device";
    ENOTDIR = 20, "Not a directory";
    EISDIR = 21, "Is a directory";
    EINVAL = 22, "Invalid argument";
    ENFILE = 23, "Too many open files in system";
    EMFILE = 24, "Too many open files";
    ENOTTY = 25, "Inappropriate ioctl for device";
    ETXTBSY = 26, "Text file busy";
    EFBIG = 27, "File too large";
    ENOSPC = 28, "No space left on device";
    ESPIPE = 29, "Illegal seek";
    EROFS = 30, "Read-only file system";
    EMLINK = 31, "Too many links";
    EPIPE = 32, "Broken pipe";
    EDOM = 33, "Numerical argument out of domain";
    ERANGE = 34, "Numerical result out of range";
    EDEADLK = 35, "Resource deadlock avoided";
    ENAMETOOLONG = 36, "File name too long";
    ENOLCK = 37, "No locks available";
    ENOSYS = 38, "Function not implemented";
    ENOTEMPTY = 39, "Directory not empty";
    ELOOP = 40, "Too many levels of symbolic links";
    ENOMSG = 42, "No message of desired type";
    EIDRM = 43, "Identifier removed";
    ECHRNG = 44, "Channel number out of range";
    EL2NSYNC = 45, "Level 2 not synchronized";
    EL3HLT = 46, "Level 3 halted";
    EL3RST = 47, "Level 3 reset";
    ELNRNG = 48, "Link number out of range";
    EUNATCH = 49, "Protocol driver not attached";
    ENOCSI = 50, "No CSI structure available";
    EL2HLT = 51, "Level 2 halted";
    EBADE = 52, "Invalid exchange";
    EBADR = 53, "Invalid request descriptor";
    EXFULL = 54, "Exchange full";
    ENOANO = 55, "No anode";
    EBADRQC = 56, "Invalid request code";
    EBADSLT = 57, "Invalid slot";
    EBFONT = 59, "Bad font file format";
    ENOSTR = 60, "Device not a stream";
    ENODATA = 61, "No data available";
    ETIME = 62, "Timer expired";
    ENOSR = 63, "Out of streams resources";
    ENONET = 64, "Machine is not on the network";
    ENOPKG = 65, "Package not installed";
    EREMOTE = 66, "Object is remote";
    ENOLINK = 67, "Link has been severed";
    EADV = 68, "Advertise error";
    ESRMNT = 69, "Srmount error";
    ECOMM = 70, "Communication error on send";
    EPROTO = 71, "Protocol error";
    EMULTIHOP = 72, "Multihop attempted";
    EDOTDOT = 73, "RFS specific error";
    EBADMSG = 74, "Bad message";
    EOVERFLOW = 75, "Value too large for defined data type";
    ENOTUNIQ = 76, "Name not unique on network";
    EBADFD = 77, "File descriptor in bad state";
    EREMCHG = 78, "Remote address changed";
    ELIBACC = 79, "Can not access a needed shared library";
    ELIBBAD = 80, "Accessing a corrupted shared library";
    ELIBSCN = 81, ".lib section in a.out corrupted";
    ELIBMAX = 82, "Attempting to link in too many shared libraries";
    ELIBEXEC = 83, "Cannot exec a shared library directly";
    EILSEQ = 84, "Invalid or incomplete multibyte or wide character";
    ERESTART = 85, "Interrupted system call should be restarted";
    ESTRPIPE = 86, "Streams pipe error";
    EUSERS = 87, "Too many users";
    ENOTSOCK = 88, "Socket operation on non-socket";
    EDESTADDRREQ = 89, "Destination address required";
    EMSGSIZE = 90, "Message too long";
    EPROTOTYPE = 91, "Protocol wrong type for socket";
    ENOPROTOOPT = 92, "Protocol not available";
    EPROTONOSUPPORT = 93, "Protocol not supported";
    ESOCKTNOSUPPORT = 94, "Socket type not supported";
    EOPNOTSUPP = 95, "Operation not supported";
    EPFNOSUPPORT = 96, "Protocol family not supported";
    EAFNOSUPPORT = 97, "Address family not supported by protocol";
    EADDRINUSE = 98, "Address already in use";
    EADDRNOTAVAIL = 99, "Cannot assign requested address";
    ENETDOWN = 100, "Network is down";
    ENETUNREACH = 101, "Network is unreachable";
    ENETRESET = 102, "Network dropped connection on reset";
    ECONNABORTED = 103, "Software caused connection abort";
    ECONNRESET = 104, "Connection reset by peer";
    ENOBUFS = 105, "No buffer space available";
    EISCONN = 106, "Transport endpoint is already connected";
    ENOTCONN = 107, "Transport endpoint is not connected";
    ESHUTDOWN = 108, "Cannot send after transport endpoint shutdown";
    ETOOMANYREFS = 109, "Too many references: cannot splice";
    ETIMEDOUT = 110, "Connection timed out";
    ECONNREFUSED = 111, "Connection refused";
    EHOSTDOWN = 112, "Host is down";
    EHOSTUNREACH = 113, "No route to host";
    EALREADY = 114, "Operation already in progress";
    EINPROGRESS = 115, "Operation now in progress";
    ESTALE = 116, "Stale file handle";
    EUCLEAN = 117, "Structure needs cleaning";
    ENOTNAM = 118, "Not a XENIX named type file";
    ENAVAIL = 119, "No XENIX semaphores available";
    EISNAM = 120, "Is a named type file";
    EREMOTEIO = 121, "Remote I/O error";
    EDQUOT = 122, "Disk quota exceeded";
    ENOMEDIUM = 123, "No medium found";
    EMEDIUMTYPE = 124, "Wrong medium type";
    ECANCELED = 125, "Operation canceled";
    ENOKEY = 126, "Required key not available";
    EKEYEXPIRED = 127, "Key has expired";
    EKEYREVOKED = 128, "Key has been revoked";
    EKEYREJECTED = 129, "Key was rejected by service";
    EOWNERDEAD = 130, "Owner died";
    ENOTRECOVERABLE = 131, "State not recoverable";
    ERFKILL = 132, "Operation not possible due to RF-kill";
    EHWPOISON = 133, "Memory page has hardware error";
}

impl Errno {
    /// `EWOULDBLOCK`, the other name of [`Errno::EAGAIN`].
    pub const EWOULDBLOCK: Errno = Errno::EAGAIN;
    /// `EDEADLOCK`, the other name of [`Errno::EDEADLK`].
    pub const EDEADLOCK: Errno = Errno::EDEADLK;
    /// `ENOTSUP`, the other name of [`Errno::EOPNOTSUPP`].
    pub const ENOTSUP: Errno = Errno::EOPNOTSUPP;

    /// The number as user space sees it in `errno`: positive.
    pub const fn raw(self) -> i32 {
        self.0.get() as i32
    }

    /// The error with this (positive) number; `None` for zero and for numbers that Linux does not define.
    pub const fn from_raw(raw: i32) -> Option<Errno> {
        if raw < 1 || Errno::describe(raw as u32).is_none() {
            return None;
        }
        Some(number(raw as u32))
    }

    /// The error with this symbolic name, for example `"ENOENT"`.
    pub fn from_name(name: &str) -> Option<Errno> {
        match name {
            "EWOULDBLOCK" => Some(Errno::EWOULDBLOCK),
            "EDEADLOCK" => Some(Errno::EDEADLOCK),
            "ENOTSUP" => Some(Errno::ENOTSUP),
            _ => Errno::ALL.iter().copied().find(|errno| errno.name() == name),
        }
    }

    /// The symbolic name, for example `"ENOENT"`.
    pub const fn name(self) -> &'static str {
        match Errno::describe(self.0.get()) {
            Some((name, _)) => name,
            None => "E?",
        }
    }

    /// What the error means, in the words of `strerror(3)`.
    pub const fn message(self) -> &'static str {
        match Errno::describe(self.0.get()) {
            Some((_, message)) => message,
            None => "Unknown error",
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.message())
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for Errno {}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> Self {
        std::io::Error::from_raw_os_error(errno.raw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_the_generic_one() {
        assert_eq!(Errno::ALL.len(), 131, "1..=133 without 41 and 58, which are aliases of 11 and 35");
        assert!(Errno::ALL.windows(2).all(|pair| pair[0] < pair[1]));
        for raw in -10..5000 {
            let known = (1..=133).contains(&raw) && raw != 41 && raw != 58;
            assert_eq!(Errno::from_raw(raw).map(Errno::raw), known.then_some(raw));
        }
        assert_eq!(Errno::from_raw(0x1_0001), None, "no wrap-around at 16 bits");
    }

    #[test]
    fn numbers_that_scripts_rely_on() {
        let expected = [
            (Errno::EPERM, 1),
            (Errno::ENOENT, 2),
            (Errno::EBADF, 9),
            (Errno::EAGAIN, 11),
            (Errno::EACCES, 13),
            (Errno::EFAULT, 14),
            (Errno::EEXIST, 17),
            (Errno::EXDEV, 18),
            (Errno::ENOTDIR, 20),
            (Errno::EISDIR, 21),
            (Errno::EINVAL, 22),
            (Errno::EROFS, 30),
            (Errno::EMLINK, 31),
            (Errno::ERANGE, 34),
            (Errno::ENAMETOOLONG, 36),
            (Errno::ENOTEMPTY, 39),
            (Errno::ELOOP, 40),
            (Errno::ENODATA, 61),
            (Errno::EOVERFLOW, 75),
            (Errno::EOPNOTSUPP, 95),
            (Errno::ESTALE, 116),
            (Errno::EHWPOISON, 133),
        ];
        for (errno, raw) in expected {
            assert_eq!(errno.raw(), raw);
        }
    }

    #[test]
    fn names_round_trip() {
        for &errno in Errno::ALL {
            assert_eq!(Errno::from_name(errno.name()), Some(errno));
            assert!(!errno.message().is_empty());
        }
        assert_eq!(Errno::from_name("EWOULDBLOCK"), Some(Errno::EAGAIN));
        assert_eq!(Errno::from_name("ENOTHING"), None);
        assert_eq!(format!("{:?}", Errno::ENOENT), "ENOENT");
        assert_eq!(std::io::Error::from(Errno::EXDEV).raw_os_error(), Some(18));
    }
}
