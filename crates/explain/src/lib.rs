//! Why this identity may, or may not, do that with a path of the running machine.
//!
//! [`Explainer::explain`] looks at the host along a path, puts exactly what it saw into an [engine](rcuwalk::Vfs), lets
//! the engine make the call as the identity, and reports what the engine's walk and checks told: each component, who the
//! identity is to it, the first rule that said no, and the smallest changes after which the engine says yes. Nothing of
//! the host is changed.
//!
//! ```
//! use rcuwalk_explain::{Explainer, Subject, Options, Verdict, What};
//!
//! let explainer = Explainer::new(None)?;
//! let nobody = Subject::of_user("65534:65534")?;
//! let report = explainer.explain(&nobody, b"/", &[What::Write], Options::default())?;
//! let answer = &report.answers[0];
//! assert_eq!(answer.verdict, Verdict::Denied);
//! assert_eq!(answer.errno, Some("EACCES"));
//! # Ok::<(), rcuwalk_explain::Error>(())
//! ```
#![deny(unsafe_code)]

mod beside;
mod call;
mod elf;
mod error;
mod fix;
mod gain;
mod identity;
mod judge;
mod ld_cache;
mod ld_so;
mod load;
mod parse;
mod probe;
mod proc;
pub mod report;
mod scene;
mod sys;
mod trial;
mod unseen;
mod verify;

pub use call::{Call, SetTimes, What, mask_letters};
pub use error::Error;
pub use identity::{IdMaps, Subject};
pub use probe::Place;
pub use report::{Answer, Report, Verdict};
pub use trial::{Explainer, Options};
