//! S8: the user namespace in the credential itself.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use rcuwalk::Cred;
use rcuwalk::userns::UserNamespace;

use super::{Budget, Outcome, Row, Workload, side};
use rcuwalk_measure::Error;
use rcuwalk_measure::engines::Value;
use rcuwalk_measure::series::MANY_PATHS;

/// The row.
pub(super) const ROW: Row = Row {
    id: "S8",
    title: "no pointer chain to the user namespace",
    published: "1.28 to 2 % of all cycles of a make with nothing to do: a third of the cycles of the permission check were \
                the load behind the load (linux-fsdevel, \"cred: add a user namespace pointer\")",
    run,
};

/// Credentials asked in one call.
const REPEATS: usize = 256;

/// What a credential used to have instead: a pointer to its user, which points to the namespace.
struct User {
    user_ns: Arc<UserNamespace>,
}

struct ViaUser {
    /// What lies around it, as in a credential.
    _cred: Cred,
    user: Arc<User>,
}

/// Credentials, and which is asked after which.
struct Crowd<T> {
    members: Vec<Arc<T>>,
    next: Vec<u32>,
}

impl<T> Crowd<T> {
    fn new(size: u32, make: impl Fn(u32) -> T) -> Crowd<T> {
        let mut order: Vec<u32> = (0..size).collect();
        fastrand::Rng::with_seed(8).shuffle(&mut order);
        let mut next = vec![0; size as usize];
        for (i, &at) in order.iter().enumerate() {
            next[at as usize] = order[(i + 1) % order.len()];
        }
        // Made in another order than they are asked in, so that neighbours in memory are none in time.
        Crowd { members: (0..size).map(|i| Arc::new(make(i))).collect(), next }
    }

    /// Asks `REPEATS` of them, each after the answer of the one before, from where the number in `from` says.
    #[inline(always)]
    fn ask(&self, from: &CStr, question: impl Fn(&T) -> Value) -> Value {
        let from = from.to_bytes().iter().fold(0, |n: usize, digit| n * 10 + usize::from(digit - b'0'));
        let mut at = from % self.members.len();
        let mut sum = 0;
        for _ in 0..REPEATS {
            let value = question(&self.members[at]);
            sum = std::hint::black_box(sum + value);
            // Always zero, which only the answer tells.
            at = self.next[at] as usize + (value >> 63) as usize;
        }
        sum
    }
}

/// What a permission check asks first: which namespace it is.
#[inline(always)]
fn which(ns: &Arc<UserNamespace>) -> Value {
    Arc::as_ptr(ns) as Value
}

fn run(budget: &Budget<'_>) -> Result<Outcome, Error> {
    let mut points = Vec::new();
    // Cold, a batch has to be long: many starts make it so.
    let crowds = [
        ("16 credentials, in the innermost cache", 16, 64, Some(1.1)),
        ("2,048 credentials, in the second", 1 << 11, 64, Some(1.1)),
        ("65,536 credentials, cold", 1 << 16, 2 * MANY_PATHS, None),
    ];
    for (name, size, starts, claim) in crowds {
        let ns = UserNamespace::init();
        let cred = |i: u32| Cred::user(1000 + i, 1000, &[]);
        let before = Crowd::new(size, |i| ViaUser {
            _cred: cred(i),
            user: Arc::new(User { user_ns: Arc::clone(&ns) }),
        });
        let after = Crowd::new(size, cred);
        let chain = side("via-user", |from| before.ask(from, |via| which(&via.user.user_ns)));
        let direct = side("in the credential", |from| after.ask(from, |cred| which(cred.user_ns())));
        let starts: Vec<CString> =
            (0..starts).map(|i| CString::new((i * 1021).to_string()).unwrap_or_default()).collect();
        let workload = Workload::new(name, starts).per(REPEATS as u32).claims(claim);
        points.extend(budget.compare(workload, &[&chain], &direct)?);
    }
    let note = "Credentials are asked which namespace they have, each when the one before has answered, so that a load behind a \
                load is what is timed. A check that only branches on the answer hides much of it behind the predicted branch: \
                for whole calls there is no gain to be seen here. Cold, both sides wait for the shared \
                cache; how long is up to what other programs leave there, and nothing is claimed. The old way exists here \
                alone: in the engine a credential has its namespace.";
    Ok(Outcome { points, note: note.into() })
}
