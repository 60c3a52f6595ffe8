//! What else lookups pay for.

use super::kernel::Facts;
use super::{Tax, Verdict};
use crate::hostcalls::{self, FOUR};
use crate::machine::Machine;

/// Beyond this many, a mask is more than a cache line.
const MANY_CPUS: u32 = 512;

pub(super) fn judge(facts: &Facts, machine: &Machine, timed: Option<&hostcalls::Report>) -> Vec<Tax> {
    vec![init_on_alloc(facts), masks(facts), mitigations(facts, machine, timed)]
}

fn init_on_alloc(facts: &Facts) -> Tax {
    let (paid, text) = match &facts.init_on_alloc {
        None => (
            Verdict::Unknown,
            "neither the boot messages nor the configuration can be read; as root, `dmesg | grep auto-init` may show it".into(),
        ),
        Some((false, why)) => (Verdict::No, format!("objects are not cleared when they are allocated ({why})")),
        Some((true, why)) => {
            let size = facts.names_cache.unwrap_or(if facts.version.is_some_and(|v| v >= (7, 0)) { 192 } else { 4096 });
            (Verdict::Yes, format!("every call with a path clears a buffer of {size} bytes before it copies the path in ({why})"))
        }
    };
    Tax { name: "init_on_alloc", paid, text }
}

fn masks(facts: &Facts) -> Tax {
    let (paid, text) = match (facts.nr_cpus, facts.possible) {
        (Some(room), possible) => {
            let offstack = match facts.offstack {
                Some(true) => "allocated apart (CPUMASK_OFFSTACK)",
                Some(false) => "inside their owners",
                None => "unknown whether allocated apart",
            };
            let possible = possible.map_or_else(|| "unknown".to_owned(), |n| n.to_string());
            let paid =
                if room > MANY_CPUS || facts.offstack == Some(true) { Verdict::Yes } else { Verdict::No };
            (
                paid,
                format!(
                    "masks have room for {room} processors, possible here are {possible}; masks are {offstack}; it touches forks and wake-ups rather than lookups"
                ),
            )
        }
        (None, _) => (Verdict::Unknown, "/sys/devices/system/cpu/kernel_max cannot be read".into()),
    };
    Tax { name: "MAXSMP masks", paid, text }
}

/// Words in a flaw's state, and what they cost in plain words.
const COSTS: [(&str, &str); 9] = [
    ("PTI", "page tables change on every entry and exit"),
    ("Clear CPU buffers", "buffers are cleared on every exit"),
    ("Mitigation: IBRS", "speculation is restricted by a slow write on every entry"),
    ("; IBRS", "speculation is restricted by a slow write on every entry"),
    ("Retpolines", "indirect calls are made the slow way"),
    ("untrained return thunk", "every return takes a detour"),
    ("Safe RET", "every return takes a detour"),
    ("SW loop", "the branch history is cleared by a loop on every entry"),
    ("IBPB before exit to userspace", "branch predictions are dropped on exits"),
];

fn mitigations(facts: &Facts, machine: &Machine, timed: Option<&hostcalls::Report>) -> Tax {
    let mut costs: Vec<String> = Vec::new();
    for (flaw, state) in &machine.mitigations {
        for (word, cost) in COSTS.iter().filter(|(word, _)| state.contains(word)) {
            costs.push(format!("{flaw} ({}): {cost}", word.trim_start_matches([';', ' '])));
        }
    }
    let share = timed.and_then(|timed| {
        let stat = timed.ns(FOUR, "stat", 1)?;
        let percent = timed.entry_ns / stat * 100.0;
        Some(format!(
            "entering and leaving takes {:.0} of the {stat:.0} ns of a stat ({percent:.0} %)",
            timed.entry_ns
        ))
    });
    let share = share.unwrap_or_else(|| "what entering and leaving takes was not measured".into());
    let known = std::path::Path::new("/sys/devices/system/cpu/vulnerabilities").is_dir();
    let (paid, what) = match (known, costs.is_empty()) {
        (false, _) => (Verdict::Unknown, "the kernel does not say which it uses".to_owned()),
        (true, false) => (Verdict::Yes, costs.join("; ")),
        (true, true) if facts.mitigations_off => (Verdict::No, "mitigations=off on the command line".into()),
        (true, true) => {
            (Verdict::No, "none of those in use is known to slow entries, exits or calls down".into())
        }
    };
    Tax { name: "mitigations", paid, text: format!("{what}; {share}") }
}

#[cfg(test)]
mod tests {
    use super::super::remedies::tests::timed;
    use super::*;

    #[test]
    fn says_what_a_path_costs_under_init_on_alloc() {
        let facts = |version, state: Option<bool>| Facts {
            version: Some(version),
            init_on_alloc: state.map(|on| (on, "test".into())),
            ..Facts::default()
        };
        let tax = init_on_alloc(&facts((6, 8), Some(true)));
        assert!(tax.paid == Verdict::Yes && tax.text.contains("4096 bytes"), "{tax:?}");
        assert!(init_on_alloc(&facts((7, 0), Some(true))).text.contains("192 bytes"));
        assert_eq!(init_on_alloc(&facts((6, 8), Some(false))).paid, Verdict::No);
        assert_eq!(init_on_alloc(&facts((6, 8), None)).paid, Verdict::Unknown);
    }

    #[test]
    fn knows_mitigations_that_cost() {
        let mut machine = Machine::read();
        machine.mitigations = [
            ("meltdown", "Mitigation: PTI"),
            ("spectre_v2", "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional"),
        ]
        .map(|(flaw, state)| (flaw.to_owned(), state.to_owned()))
        .into();
        let tax = mitigations(&Facts::default(), &machine, None);
        assert!(tax.paid != Verdict::No && tax.text.contains("meltdown (PTI)"), "{tax:?}");
        assert!(!tax.text.contains("spectre_v2"), "{tax:?}");
    }

    #[test]
    fn room_for_thousands_of_processors_is_a_tax() {
        let facts = |room| Facts {
            nr_cpus: Some(room),
            possible: Some(2),
            offstack: Some(false),
            ..Facts::default()
        };
        assert_eq!(masks(&facts(8192)).paid, Verdict::Yes);
        assert_eq!(masks(&facts(64)).paid, Verdict::No);
        assert_eq!((masks(&facts(512)).paid, masks(&facts(513)).paid), (Verdict::No, Verdict::Yes));
        let apart = Facts { offstack: Some(true), ..facts(64) };
        assert_eq!(masks(&apart).paid, Verdict::Yes, "allocated apart, however small");
        assert_eq!(masks(&Facts::default()).paid, Verdict::Unknown);
    }

    #[test]
    fn the_share_of_entering_is_told_where_it_was_measured() {
        let machine = Machine::read();
        let share = |figures: &[_]| mitigations(&Facts::default(), &machine, Some(&timed(figures))).text;
        let text = share(&[(FOUR, "stat", 400.0)]);
        assert!(text.contains("takes 80 of the 400 ns of a stat (20 %)"), "{text}");
        let text = share(&[]);
        assert!(text.contains("was not measured"), "{text}");
    }
}
