//! What the running kernel does about the costs that the ablations are about, and what else its lookups pay for.
//!
//! Nothing here changes anything. A verdict names its evidence: what was measured, else what the configuration says, else what
//! the version lets expect (a distribution may have put a change into an older kernel, or left it out). What cannot be known is
//! [`Verdict::Unknown`].

mod kernel;
mod remedies;
mod taxes;

use std::fmt::Write as _;

use serde::Serialize;

use crate::hostcalls;
use crate::machine::Machine;
use crate::progress::Observer;

pub use kernel::Config;

/// What is known of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Yes.
    Yes,
    /// No.
    No,
    /// It could not be found out.
    Unknown,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Yes => "yes",
            Verdict::No => "no",
            Verdict::Unknown => "unknown",
        }
    }
}

/// Whether the kernel has a remedy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Remedy {
    /// `S1` to `S10`, as in the ablations.
    pub id: &'static str,
    /// What the kernel does if it has it.
    pub title: &'static str,
    /// Whether it has it.
    pub has: Verdict,
    /// By what that is known.
    pub evidence: String,
    /// What was measured to find out, if anything was.
    pub measured: Option<Measured>,
}

/// A ratio that tells.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// Of what to what.
    pub what: &'static str,
    /// The ratio.
    pub ratio: f64,
}

/// Something that lookups may be paying for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tax {
    /// Its name.
    pub name: &'static str,
    /// Whether it is paid here.
    pub paid: Verdict,
    /// In plain words: what it is, how much, how that is known.
    pub text: String,
}

/// Everything that was found out.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// Where the kernel's configuration was read from; none if it cannot be.
    pub config: Option<String>,
    /// The remedies.
    pub remedies: Vec<Remedy>,
    /// The taxes.
    pub taxes: Vec<Tax>,
    /// What could not be found out, and why.
    pub notes: Vec<String>,
}

/// Finds out. Takes a second or two, most of it for measuring.
pub fn run(observer: &dyn Observer) -> Report {
    let machine = Machine::read();
    let config = Config::read(&machine.kernel);
    let mut notes = Vec::new();
    if config.is_none() {
        notes.push(
            "the kernel's configuration cannot be read: /proc/config.gz and /boot/config-* are missing"
                .into(),
        );
    }
    let timed = hostcalls::run(&hostcalls::Options { quick: true, threads: 0 }, observer);
    let timed = match timed {
        Ok(timed) => Some(timed),
        Err(error) => {
            notes.push(format!("nothing was measured: {error}"));
            None
        }
    };
    let facts = kernel::Facts::read(&machine, config.as_ref());
    Report {
        remedies: remedies::judge(&facts, timed.as_ref()),
        taxes: taxes::judge(&facts, &machine, timed.as_ref()),
        config: config.map(|config| config.source),
        machine,
        notes,
    }
}

/// The report as text.
pub fn render(report: &Report) -> String {
    let machine = &report.machine;
    let mut out = String::new();
    let _ = writeln!(out, "Linux {} on {}, {} processors", machine.kernel, machine.cpu, machine.cores);
    match &report.config {
        Some(source) => {
            let _ = writeln!(out, "configuration: {source}");
        }
        None => out.push_str("configuration: unknown\n"),
    }
    out.push_str("\ndoes this kernel have\n");
    for remedy in &report.remedies {
        let measured =
            remedy.measured.as_ref().map_or_else(String::new, |m| format!("; {}: {:.2}", m.what, m.ratio));
        let _ = writeln!(
            out,
            "  {:<8}{:<4} {} ({}{measured})",
            remedy.has.word(),
            remedy.id,
            remedy.title,
            remedy.evidence
        );
    }
    out.push_str("\ndo its lookups pay for\n");
    for tax in &report.taxes {
        let _ = writeln!(out, "  {:<8}{}: {}", tax.paid.word(), tax.name, tax.text);
    }
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_something_about_every_remedy_of_this_kernel() {
        let report = run(&());
        let ids: Vec<&str> = report.remedies.iter().map(|remedy| remedy.id).collect();
        assert_eq!(ids, ["S1", "S2", "S3", "S4", "S5", "S7", "S8", "S9", "S10"]);
        assert!(report.taxes.iter().any(|tax| tax.name == "init_on_alloc"));
        let text = render(&report);
        for part in ["Linux ", "S9", "mitigations", "configuration: "] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
