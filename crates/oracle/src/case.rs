//! Rows: reading `cases/*.toml`.
//!
//! A file is one topic. Everything about a row that can be wrong without running it is found here: unknown keys and
//! names, descriptors nobody bound, expectations that do not fit the call. A file with a mistake yields no rows at all
//! that could pass by accident: [`load`] fails as a whole and lists every mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use crate::expect::Expect;
use crate::identity::Identity;
use crate::need::Need;
use crate::op::Op;
use crate::outcome::Kind;
use crate::read::{Node, Problem, Read, Table, line_column};
use crate::tree::{self, Entry, Object};

/// The task that `as` describes and that makes a call unless the call says otherwise.
pub const MAIN: &str = "main";
/// The task that makes the calls of `setup`: root with every capability. Any row may use it.
pub const ROOT: &str = "root";

/// A call of a row.
#[derive(Clone, Debug)]
pub struct Step {
    /// Line in the file.
    pub line: usize,
    /// Name of the task that makes it.
    pub task: String,
    /// The call.
    pub op: Op,
    /// Name for the result: a descriptor of the task, or attributes to compare with later.
    pub bind: Option<String>,
    /// What it must answer.
    pub expect: Expect,
    /// How often it is made; each time it must answer as expected.
    pub repeat: u32,
}

/// A row.
#[derive(Clone, Debug)]
pub struct Case {
    /// The file it stands in, without `.toml`.
    pub topic: String,
    /// What that file says it is about.
    pub about: String,
    /// Its name, unique in the topic.
    pub name: String,
    /// Identifiers in the specification of the behaviour.
    pub ids: Vec<String>,
    /// File it stands in.
    pub file: PathBuf,
    /// Line of its `[[case]]`.
    pub line: usize,
    /// The world before anybody acts.
    pub tree: Vec<Entry>,
    /// Calls of root before the others.
    pub setup: Vec<Step>,
    /// Tasks by name, `main` and `root` among them.
    pub tasks: BTreeMap<String, Identity>,
    /// The calls.
    pub calls: Vec<Step>,
    /// The rule that the row states.
    pub why: String,
    /// What it needs of the system.
    pub needs: BTreeSet<Need>,
}

impl Case {
    /// `topic/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.topic, self.name)
    }
}

/// A mistake in a file of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// The file.
    pub file: PathBuf,
    /// Line from 1; 0 if the file could not be read.
    pub line: usize,
    /// Column from 1.
    pub column: usize,
    /// Name of the row, if it is known.
    pub case: Option<String>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        if let Some(case) = &self.case {
            write!(f, ": case `{case}`")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Loads a file, or every `*.toml` of a directory in the order of their names.
///
/// # Errors
///
/// Every mistake in every file; no rows then.
pub fn load(path: &Path) -> Result<Vec<Case>, Vec<LoadError>> {
    let failed = |file: &Path, message: String| {
        vec![LoadError { file: file.to_owned(), line: 0, column: 0, case: None, message }]
    };
    let mut files = Vec::new();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).map_err(|e| failed(path, e.to_string()))? {
            let file = entry.map_err(|e| failed(path, e.to_string()))?.path();
            if file.extension().is_some_and(|e| e == "toml") {
                files.push(file);
            }
        }
        files.sort();
        if files.is_empty() {
            return Err(failed(path, "no *.toml in this directory".to_owned()));
        }
    } else {
        files.push(path.to_owned());
    }
    let mut cases = Vec::new();
    let mut errors = Vec::new();
    for file in files {
        match std::fs::read_to_string(&file) {
            Ok(text) => match parse(&file, &text) {
                Ok(mut more) => cases.append(&mut more),
                Err(mut more) => errors.append(&mut more),
            },
            Err(e) => errors.append(&mut failed(&file, e.to_string())),
        }
    }
    if errors.is_empty() { Ok(cases) } else { Err(errors) }
}

/// Parses the text of a file.
///
/// # Errors
///
/// Every mistake in the file.
pub fn parse(file: &Path, text: &str) -> Result<Vec<Case>, Vec<LoadError>> {
    let error = |at: usize, case: Option<String>, message: String| {
        let (line, column) = line_column(text, at);
        LoadError { file: file.to_owned(), line, column, case, message }
    };
    let document = DeTable::parse(text)
        .map_err(|e| vec![error(e.span().map_or(0, |s| s.start), None, e.message().to_owned())])?;
    let mut top = Table::new(0, document.get_ref(), "a file of rows");
    let (about, nodes) = (|| {
        let about = top.take("about").map_or(Ok(""), |about| about.str())?.to_owned();
        let cases = top.need("case")?.array()?;
        top.finish()?;
        Ok((about, cases))
    })()
    .map_err(|p: Problem| vec![error(p.at, None, p.message)])?;
    let topic = file.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
    let mut cases: Vec<Case> = Vec::new();
    let mut errors = Vec::new();
    for node in nodes {
        let mut name = None;
        match (Reader { text, name: &mut name }).case(node) {
            Ok(mut case) => {
                if cases.iter().any(|c| c.name == case.name) {
                    let message = "another case of this file has this name".to_owned();
                    errors.push(error(node.at(), name, message));
                }
                case.topic.clone_from(&topic);
                case.about.clone_from(&about);
                case.file = file.to_owned();
                cases.push(case);
            }
            Err(problem) => errors.push(error(problem.at, name, problem.message)),
        }
    }
    if errors.is_empty() { Ok(cases) } else { Err(errors) }
}

/// Reads one row.
struct Reader<'t> {
    text: &'t str,
    name: &'t mut Option<String>,
}

impl Reader<'_> {
    fn line(&self, at: usize) -> usize {
        line_column(self.text, at).0
    }

    fn case(&mut self, node: Node<'_>) -> Read<Case> {
        let mut table = node.table("a case")?;
        let name_node = table.need("name")?;
        let name = name_node.str()?.to_owned();
        *self.name = Some(name.clone());
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.is_empty() || !name.chars().all(plain) {
            return Err(name_node.problem("a name is made of a-z, 0-9 and _"));
        }
        let ids = match table.take("id") {
            None => Vec::new(),
            Some(n) if n.is_array() => n.strings()?.into_iter().map(str::to_owned).collect(),
            Some(n) => vec![n.str()?.to_owned()],
        };
        let tree = table.take("tree").map_or(Ok(Vec::new()), tree::read)?;
        let mut tasks = BTreeMap::from([(ROOT.to_owned(), Identity::root())]);
        let main = table.take("as").map_or(Ok(Identity::root()), Identity::read)?;
        tasks.insert(MAIN.to_owned(), main);
        if let Some(n) = table.take("tasks") {
            for (task, who) in n.table("`tasks`")?.rest() {
                if tasks.insert(task.to_owned(), Identity::read(who)?).is_some() {
                    return Err(who.problem(format!("there is a task `{task}` already")));
                }
            }
        }
        let mut scope = Scope::new(&tasks);
        let setup = match table.take("setup") {
            Some(n) => self.steps(n, true, &mut scope)?,
            None => Vec::new(),
        };
        let calls = self.calls(&mut table, &mut scope)?;
        let why = table.need("why")?;
        if why.str()?.trim().is_empty() {
            return Err(why.problem("`why` states the rule"));
        }
        let mut needs = BTreeSet::new();
        if let Some(n) = table.take("needs") {
            for item in n.array()? {
                needs.insert(Need::parse(item.str()?).map_err(|m| item.problem(m))?);
            }
        }
        table.finish()?;
        let why = why.str()?.to_owned();
        let line = self.line(node.at());
        let mut case = Case {
            topic: String::new(),
            about: String::new(),
            name,
            ids,
            file: PathBuf::new(),
            line,
            tree,
            setup,
            tasks,
            calls,
            why,
            needs,
        };
        case.derive_needs();
        Ok(case)
    }

    /// `calls`, or a single `call` with `expect` (and `bind`) beside it.
    fn calls(&self, table: &mut Table<'_>, scope: &mut Scope) -> Read<Vec<Step>> {
        let single = table.take("call");
        let several = table.take("calls");
        let expect = table.take("expect");
        match (single, several) {
            (Some(_), Some(n)) => Err(n.problem("either `call` or `calls`")),
            (None, None) => {
                Err(Problem::new(table.at(), "a case needs `calls` (or one `call` with `expect`)"))
            }
            (None, Some(n)) => {
                if let Some(expect) = expect {
                    return Err(expect.problem("with `calls`, each call has its own `expect`"));
                }
                let steps = self.steps(n, false, scope)?;
                if steps.is_empty() {
                    return Err(n.problem("no call: the row would pass whatever happens"));
                }
                Ok(steps)
            }
            (Some(n), None) => {
                let expect = expect.ok_or_else(|| n.problem("`call` needs `expect` beside it"))?;
                let mut call = n.table("a call")?;
                let task = task_of(&mut call, false, scope)?;
                let op = Op::read(&mut call)?;
                call.finish()?;
                let expect = Expect::read(expect, op.kind())?;
                let step = Step { line: self.line(n.at()), task, op, bind: None, expect, repeat: 1 };
                scope.check(&step, n)?;
                Ok(vec![step])
            }
        }
    }

    fn steps(&self, node: Node<'_>, setup: bool, scope: &mut Scope) -> Read<Vec<Step>> {
        let mut steps = Vec::new();
        for n in node.array()? {
            let mut call = n.table("a call")?;
            let task = task_of(&mut call, setup, scope)?;
            let op = Op::read(&mut call)?;
            let bind = match call.take("bind") {
                Some(b) => Some(b.str()?.to_owned()),
                None => None,
            };
            let repeat = call.take("repeat").map_or(Ok(1), |r| r.int_in(1, 100_000))? as u32;
            let expect = match (call.take("expect"), setup) {
                (Some(e), false) => Expect::read(e, op.kind())?,
                (None, true) => Expect::Success(Vec::new()),
                (Some(e), true) => {
                    return Err(e.problem("calls of `setup` must succeed; they have no `expect`"));
                }
                (None, false) => return Err(n.problem(format!("call `{}` needs `expect`", op.name()))),
            };
            call.finish()?;
            let step = Step { line: self.line(n.at()), task, op, bind, expect, repeat };
            scope.check(&step, n)?;
            steps.push(step);
        }
        Ok(steps)
    }
}

fn task_of(call: &mut Table<'_>, setup: bool, scope: &Scope) -> Read<String> {
    match call.take("task") {
        None => Ok(if setup { ROOT } else { MAIN }.to_owned()),
        Some(n) => {
            let task = n.str()?;
            if scope.bound.contains_key(task) {
                Ok(task.to_owned())
            } else {
                let known: Vec<&str> = scope.bound.keys().map(String::as_str).collect();
                Err(n.problem(format!("no task `{task}`{}", crate::read::alternatives(task, &known))))
            }
        }
    }
}

/// What is known at a point of the row: tasks, the descriptors each has bound, the answers kept.
struct Scope {
    bound: BTreeMap<String, BTreeSet<String>>,
    saved: BTreeSet<String>,
}

impl Scope {
    fn new(tasks: &BTreeMap<String, Identity>) -> Scope {
        let bound = tasks.keys().map(|t| (t.clone(), BTreeSet::new())).collect();
        Scope { bound, saved: BTreeSet::new() }
    }

    /// Checks the names that `step` uses and adds those it makes.
    fn check(&mut self, step: &Step, node: Node<'_>) -> Read<()> {
        let descriptors = &self.bound[&step.task];
        let mut op = step.op.clone();
        op.resolve(&|name| descriptors.contains(name).then_some(0)).map_err(|name| {
            let known: Vec<&str> = descriptors.iter().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            node.problem(format!("task `{}` has bound no descriptor `{name}`; bound: {known}", step.task))
        })?;
        for name in step.expect.references() {
            if !self.saved.contains(name) {
                return Err(node.problem(format!("no earlier call has bound `{name}`")));
            }
        }
        if let Some(name) = &step.bind {
            if matches!(step.expect, Expect::Error(_)) {
                return Err(node.problem("`bind` of a call that must fail"));
            }
            match step.op.kind() {
                Kind::Fd => {
                    self.bound.entry(step.task.clone()).or_default().insert(name.clone());
                }
                Kind::Stat | Kind::Statx => {
                    self.saved.insert(name.clone());
                }
                _ => return Err(node.problem("`bind` is for calls that answer a descriptor or attributes")),
            }
        }
        if let Op::OpenProc { of, .. } = &step.op
            && !of.0.is_empty()
            && !self.bound.contains_key(&of.0)
        {
            return Err(node.problem(format!("no task `{}`", of.0)));
        }
        if let Op::Fork { child, .. } | Op::Thread { child } = &step.op {
            let inherited = self.bound[&step.task].clone();
            if self.bound.insert(child.0.clone(), inherited).is_some() {
                return Err(node.problem(format!("there is a task `{}` already", child.0)));
            }
        }
        Ok(())
    }
}

impl Case {
    /// Adds the needs that follow from the tree and the calls.
    fn derive_needs(&mut self) {
        for entry in &self.tree {
            for (name, _) in &entry.xattrs {
                self.needs.insert(Need::Xattr);
                if name.starts_with(b"system.posix_acl_") {
                    self.needs.insert(Need::Acl);
                }
            }
            if entry.iflags != 0 {
                self.needs.insert(Need::InodeFlags);
            }
            if matches!(entry.kind, Object::Char(_) | Object::Block(_)) {
                self.needs.insert(Need::Device);
            }
        }
        for step in self.setup.iter().chain(&self.calls) {
            self.needs.extend(step.op.needs());
        }
    }

    /// The row as a `[[case]]` block, for rows that a program has made.
    pub fn print(&self) -> String {
        let mut out = format!("[[case]]\nname = \"{}\"\ntree = [\n", self.name);
        for entry in &self.tree {
            out.push_str(&format!("  {},\n", crate::read::quote(&entry.print())));
        }
        out.push_str("]\n");
        if self.tasks[MAIN] != Identity::root() {
            out.push_str(&format!("as = {}\n", self.tasks[MAIN].print()));
        }
        let others: Vec<String> = self
            .tasks
            .iter()
            .filter(|(name, _)| *name != MAIN && *name != ROOT)
            .map(|(name, who)| format!("{name} = {}", who.print()))
            .collect();
        if !others.is_empty() {
            out.push_str(&format!("tasks = {{ {} }}\n", others.join(", ")));
        }
        out.push_str("calls = [\n");
        for step in &self.calls {
            let task = if step.task == MAIN { String::new() } else { format!("task = \"{}\", ", step.task) };
            let bind = step.bind.as_ref().map_or_else(String::new, |b| format!(", bind = \"{b}\""));
            let expect = step.expect.print(step.op.kind());
            out.push_str(&format!("  {{ {task}{}{bind}, expect = {expect} }},\n", step.op.print()));
        }
        out.push_str(&format!("]\nwhy = {}\n", crate::read::quote(&self.why)));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> Vec<String> {
        let errors = parse(Path::new("topic.toml"), text).expect_err("malformed");
        errors.iter().map(LoadError::to_string).collect()
    }

    fn row(body: &str) -> String {
        format!("[[case]]\nname = \"x\"\nwhy = \"w\"\n{body}\n")
    }

    #[test]
    fn a_row_is_understood() {
        let text = r#"
[[case]]
name   = "stat_of_file_with_trailing_slash_is_enotdir"
id     = "p10"
tree   = ["d/ 0755 root", "d/f 0000 root"]
as     = { uid = 1000 }
call   = { op = "stat", path = "d/f/" }
expect = { errno = "ENOTDIR" }
why    = "a trailing slash demands a directory"
"#;
        let cases = parse(Path::new("path.toml"), text).expect("well-formed");
        assert_eq!(cases[0].full_name(), "path/stat_of_file_with_trailing_slash_is_enotdir");
        assert_eq!((cases[0].line, cases[0].tree.len(), cases[0].calls.len()), (2, 2, 1));
        assert_eq!(cases[0].tasks[MAIN].uids[0], 1000);
    }

    #[test]
    fn every_mistake_of_a_file_is_reported_with_its_place() {
        let text = "[[case]]\nname = \"a\"\nwhy = \"w\"\ncalls = []\n\n[[case]]\nname = \"b\"\nwhy = \"w\"\ncals = []\n";
        let errors = errors(text);
        assert_eq!(errors.len(), 2);
        assert!(errors[0].starts_with("topic.toml:4:9: case `a`: no call"), "{}", errors[0]);
        assert!(errors[1].contains("case `b`: a case needs `calls`"), "{}", errors[1]);
    }

    #[test]
    fn a_row_that_could_pass_by_accident_is_refused() {
        let one = |body: &str| errors(&row(body)).join("\n");
        assert!(one("calls = [{ op = \"stat\", path = \"f\" }]").contains("needs `expect`"));
        assert!(one("call = { op = \"stat\", path = \"f\" }").contains("needs `expect` beside it"));
        assert!(
            one("calls = [{ op = \"close\", fd = \"f\", expect = \"ok\" }]")
                .contains("bound no descriptor `f`")
        );
        assert!(
            one("calls = [{ op = \"stat\", path = \"f\", expect = \"ok\", exepct = \"ok\" }]")
                .contains("has no key `exepct`")
        );
        assert!(
            one("calls = [{ task = \"usr\", op = \"umask\", mask = \"0\", expect = \"ok\" }]")
                .contains("no task `usr`")
        );
        assert!(
            one("setup = [{ op = \"mkdir\", path = \"d\", expect = \"EEXIST\" }]\ncalls = []")
                .contains("must succeed")
        );
        assert!(
            one("calls = [{ op = \"stat\", path = \"f\", expect = { since = \"q\", same = [\"ino\"] } }]")
                .contains("no earlier call has bound `q`")
        );
    }

    #[test]
    fn a_file_without_rows_is_refused() {
        assert!(errors("about = \"x\"\n")[0].contains("needs `case`"));
        assert!(errors("[[cases]]\nname = \"x\"\n")[0].contains("needs `case`"));
        assert!(errors("[[case]\n")[0].starts_with("topic.toml:1:"));
    }

    #[test]
    fn two_rows_of_one_name_are_refused() {
        let text = row("call = { op = \"umask\", mask = \"0\" }\nexpect = \"ok\"").repeat(2);
        assert!(errors(&text)[0].contains("another case of this file has this name"));
    }

    #[test]
    fn needs_follow_from_calls_and_tree() {
        let text =
            row("tree = [\"f 0644 root flags=i\"]\ncall = { op = \"stat\", path = { pointer = \"bad\" } }\n\
             expect = \"EFAULT\"");
        let cases = parse(Path::new("t.toml"), &text).expect("well-formed");
        assert_eq!(cases[0].needs, BTreeSet::from([Need::InodeFlags, Need::Memory]));
    }
}
