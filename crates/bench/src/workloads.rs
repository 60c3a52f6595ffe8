//! What is timed.

use std::ffi::CString;

use rcuwalk_measure::Error;
use rcuwalk_measure::engines::{Contender, Op};
use rcuwalk_measure::scratch::{Chain, DEPTHS};

use crate::tree::Tree;

/// The file that most kernel-side measurements of this path walk have used; taken where the tree has it.
const FAVOURITE: &[u8] = b"/usr/include/linux/fs.h";

/// Components of the path of the `hit` rows, where the tree has one.
const HIT_DEPTH: usize = 4;

/// Copies of the path in a latency-chained list: turning around at its end is a prediction that would break the chain
/// if it came at every step.
const CHAINED_COPIES: usize = 64;

/// One workload: an operation on lists of paths.
#[derive(Debug, Clone)]
pub struct Case {
    /// Its name in the reports.
    pub name: String,
    /// The operation.
    pub op: Op,
    /// One list for each thread, or one for all.
    pub lists: Vec<Vec<CString>>,
    /// The numbers of threads to time it with.
    pub threads: Vec<usize>,
    /// True if the paths are relative to the chain instead of absolute paths in the tree.
    pub in_chain: bool,
    /// The path, or what the paths are.
    pub paths: String,
}

/// The cases for a tree, on up to `threads` threads.
///
/// Call it as the identity that will be timed: it asks `contenders` which files can be opened.
///
/// # Errors
///
/// When the tree has no file that all contenders can open.
pub fn cases(
    tree: &Tree,
    seed: u64,
    threads: usize,
    contenders: &[&dyn Contender],
) -> Result<Vec<Case>, Error> {
    let files = hit_files(tree, threads, contenders);
    let Some(hit) = files.first() else {
        return Err(Error::new(
            "choosing the path to time",
            tree.dir.to_string_lossy(),
            "no file that an ordinary user may read and that all engines agree on",
            "name a directory with a readable file in it",
        ));
    };
    let depth = format!("depth{}", components(hit.to_bytes()));
    let mut cases = Vec::new();
    let mut single = |name: String, op, path: CString| {
        let paths = path.to_string_lossy().into_owned();
        let list = vec![path; if op == Op::StatChained { CHAINED_COPIES } else { 1 }];
        cases.push(Case { name, op, lists: vec![list], threads: vec![1], in_chain: false, paths });
    };
    single(format!("stat/hit/{depth}"), Op::Stat, hit.clone());
    single(format!("stat/hit/{depth}/chained"), Op::StatChained, hit.clone());
    single(format!("statx/hit/{depth}"), Op::Statx, hit.clone());
    single(format!("access/hit/{depth}"), Op::Access, hit.clone());
    single("stat/negative".into(), Op::Stat, missing(hit));
    single("open/negative".into(), Op::OpenFails, missing(hit));
    single("open+close".into(), Op::OpenClose, hit.clone());
    cases.extend(random(tree, seed, threads));
    cases.extend(DEPTHS.map(|depth| {
        let path = Chain::file(depth);
        let list = vec![CString::new(path.clone()).unwrap_or_default()];
        let name = format!("stat/depth{depth}");
        Case { name, op: Op::Stat, lists: vec![list], threads: vec![1], in_chain: true, paths: path }
    }));
    cases.extend(parallel(&files, threads));
    Ok(cases)
}

/// One and, where there are more, all.
fn one_and(threads: usize) -> Vec<usize> {
    if threads > 1 { vec![1, threads] } else { vec![1] }
}

/// All paths of the tree in a random order. The strings lie in memory in that same order: what misses the caches is
/// the lookup, not the list.
fn random(tree: &Tree, seed: u64, threads: usize) -> [Case; 2] {
    let mut all: Vec<&CString> = tree.entries.iter().map(|e| &e.path).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut all);
    let list: Vec<CString> = all.into_iter().cloned().collect();
    let paths = format!("all paths below {}, shuffled", tree.dir.to_string_lossy());
    let case = |name: &str, op, threads, list| Case {
        name: name.into(),
        op,
        lists: vec![list],
        threads,
        in_chain: false,
        paths: paths.clone(),
    };
    [
        case("stat/random", Op::Stat, one_and(threads), list.clone()),
        case("access/random", Op::Access, vec![1], list),
    ]
}

/// Threads on one file, and each on its own.
fn parallel(files: &[CString], threads: usize) -> Vec<Case> {
    let one = vec![vec![files[0].clone()]];
    let own: Vec<Vec<CString>> = (0..threads.max(1)).map(|i| vec![files[i % files.len()].clone()]).collect();
    let mut cases = Vec::new();
    for (name, op) in [("stat", Op::Stat), ("access", Op::Access), ("open+close", Op::OpenClose)] {
        for (kind, lists, paths) in [
            ("same-file", &one, files[0].to_string_lossy().into_owned()),
            (
                "distinct-files",
                &own,
                format!("{} and others, one for each thread", files[0].to_string_lossy()),
            ),
        ] {
            cases.push(Case {
                name: format!("{name}/{kind}"),
                op,
                lists: lists.clone(),
                threads: one_and(threads),
                in_chain: false,
                paths,
            });
        }
    }
    cases
}

/// Files that every contender can stat and open, at most one in a directory where that goes, the best one first.
fn hit_files(tree: &Tree, threads: usize, contenders: &[&dyn Contender]) -> Vec<CString> {
    let mut files: Vec<&CString> =
        tree.entries.iter().filter(|e| e.attr.is_file()).map(|e| &e.path).collect();
    files.sort_unstable_by_key(|path| {
        let path = path.to_bytes();
        (path != FAVOURITE, components(path).abs_diff(HIT_DEPTH), path)
    });
    let usable = |path: &CString| {
        [Op::Stat, Op::OpenClose].iter().all(|&op| {
            let mut answers = contenders.iter().filter_map(|c| c.answer(op, path));
            let first = answers.next();
            first.is_some_and(|first| first >> 63 == 0) && answers.all(|other| Some(other) == first)
        })
    };
    let mut chosen: Vec<CString> = Vec::new();
    let mut spare = Vec::new();
    for path in files {
        if chosen.len() >= threads.max(1) {
            break;
        }
        let fresh = chosen.iter().all(|other| parent(other.to_bytes()) != parent(path.to_bytes()));
        if fresh && usable(path) {
            chosen.push(path.clone());
        } else if !fresh && spare.len() < threads {
            spare.push(path);
        }
    }
    let lack = threads.max(1).saturating_sub(chosen.len());
    chosen.extend(spare.into_iter().filter(|path| usable(path)).take(lack).cloned());
    chosen
}

fn parent(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|&b| b == b'/').unwrap_or(0)]
}

fn components(path: &[u8]) -> usize {
    path.split(|&b| b == b'/').filter(|name| !name.is_empty()).count()
}

/// A name that does not exist beside `path`.
fn missing(path: &CString) -> CString {
    CString::new([parent(path.to_bytes()), b"/rcuwalk-no-such-name"].concat()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcuwalk_measure::engines::host::Host;
    use std::fs;

    #[test]
    fn chooses_files_of_distinct_directories_and_shuffles_by_seed() {
        let temp = tempfile::tempdir().unwrap();
        for name in ["a/1", "a/2", "b/1"] {
            let path = temp.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        let tree = Tree::read(temp.path()).unwrap();
        let all = cases(&tree, 1, 3, &[&Host]).unwrap();
        let by_name = |name: &str| all.iter().find(|c| c.name == name).unwrap();
        let own = &by_name("stat/distinct-files").lists;
        assert_eq!(own.len(), 3);
        assert_ne!(parent(own[0][0].to_bytes()), parent(own[1][0].to_bytes()));
        assert_eq!(by_name("stat/random").lists[0].len(), tree.entries.len());
        assert_eq!(by_name("stat/random").threads, [1, 3]);
        assert!(by_name("stat/negative").lists[0][0].to_bytes().ends_with(b"/a/rcuwalk-no-such-name"));
        let again = cases(&tree, 1, 3, &[&Host]).unwrap();
        let random = |all: &[Case]| all.iter().find(|c| c.name == "stat/random").unwrap().lists.clone();
        assert_eq!(random(&all), random(&again));
        let names: std::collections::BTreeSet<_> = all.iter().map(|c| &c.name).collect();
        assert_eq!(names.len(), all.len(), "names are unique");
    }

    #[test]
    fn an_empty_tree_has_nothing_to_time() {
        let temp = tempfile::tempdir().unwrap();
        let tree = Tree::read(temp.path()).unwrap();
        let error = cases(&tree, 1, 1, &[&Host]).unwrap_err().to_string();
        assert!(error.contains("no file"), "{error}");
    }
}
