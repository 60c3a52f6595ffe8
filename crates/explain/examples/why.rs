//! Says why a user may, or may not, do something with a path of this machine, and what would change that:
//! `cargo run -p rcuwalk-explain --example why -- nobody /etc/shadow`.

use rcuwalk_explain::{Explainer, Options, Subject, Verdict, What};
use std::error::Error;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether `user` may read `path`, told on standard output.
fn why(user: &str, path: &Path) -> Result<Verdict, Box<dyn Error>> {
    let explainer = Explainer::new(None)?;
    let subject = Subject::of_user(user)?;
    let report =
        explainer.explain(&subject, path.as_os_str().as_bytes(), &[What::Read], Options::default())?;
    let answer = &report.answers[0];
    println!(
        "{user}, reading {}: {:?}{}",
        path.display(),
        answer.verdict,
        answer.errno.map_or(String::new(), |e| format!(" ({e})"))
    );
    if let Some(rule) = &answer.deciding {
        println!("  decided by: {}", rule.text);
    }
    for fix in &answer.fixes {
        println!("  would help: {}", fix.commands.join(" && "));
    }
    Ok(answer.verdict)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let user = arguments.next().unwrap_or_else(|| "65534:65534".to_owned());
    let path = arguments.next().unwrap_or_else(|| "/etc/shadow".to_owned());
    why(&user, Path::new(&path)).map(drop)
}

#[test]
fn runs() {
    // `/` may be read by every user, on every machine that a test runs on, and written by few.
    assert_eq!(why("65534:65534", Path::new("/")).unwrap(), Verdict::Allowed);
}
