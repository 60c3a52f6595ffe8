//! How far a measurement is.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::error::Error;

/// Where a run tells what it is doing. All methods have an empty default.
pub trait Observer: Sync {
    /// A stage begins; it has `total` steps, if that is known.
    fn stage(&self, name: &str, total: Option<u64>) {
        let _ = (name, total);
    }
    /// Steps that were done in the meantime.
    fn advance(&self, steps: u64) {
        let _ = steps;
    }
    /// The number of steps done in this stage.
    fn reached(&self, steps: u64) {
        let _ = steps;
    }
}

/// Shows nothing.
impl Observer for () {}

/// A progress bar on standard error, if that is a terminal.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// What a measurement gives, with its progress shown meanwhile.
    ///
    /// # Errors
    ///
    /// Those of the measurement.
    pub fn during<R>(measure: impl FnOnce(&Bar) -> Result<R, Error>) -> Result<R, Error> {
        let bar = Bar(ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()));
        let result = measure(&bar);
        bar.0.finish_and_clear();
        result
    }
}

impl Observer for Bar {
    fn stage(&self, name: &str, total: Option<u64>) {
        let template = match total {
            Some(_) => "{msg:18} {wide_bar} {human_pos}/{human_len} {elapsed}",
            None => "{msg:18} {elapsed}",
        };
        // The templates are constants: they parse, or the plain bar of the library is shown.
        self.0.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        self.0.set_position(0);
        self.0.set_length(total.unwrap_or(0));
        self.0.set_message(name.to_owned());
        self.0.reset_elapsed();
        self.0.tick();
    }

    fn advance(&self, steps: u64) {
        self.0.inc(steps);
    }

    fn reached(&self, steps: u64) {
        self.0.set_position(steps);
    }
}
