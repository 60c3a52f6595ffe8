//! What everything else is made of: errors, the kernel's numbers and structures, the old ways kept for measuring.

/// Declares methods that set one field each, for structures that may get more of them.
macro_rules! setters {
    ($($with:ident $field:ident: $ty:ty;)*) => {
        $(#[doc = concat!("Sets [`", stringify!($field), "`](Self#structfield.", stringify!($field), ").")]
        #[must_use]
        pub fn $with(mut self, $field: $ty) -> Self {
            self.$field = $field;
            self
        })*
    };
}

/// Declares setters of fields that hold the flags of a type.
macro_rules! flag_setters {
    ($($with:ident $field:ident: $flags:ty;)*) => {
        $(#[doc = concat!("Sets [`", stringify!($field), "`](Self#structfield.", stringify!($field), ").")]
        #[must_use]
        pub fn $with(mut self, $field: impl Into<$flags>) -> Self {
            self.$field = $field.into().bits();
            self
        })*
    };
}

pub mod errno;
pub mod flags;
pub(crate) mod table;
pub mod uapi;
pub(crate) mod variants;
