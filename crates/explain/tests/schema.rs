//! The JSON form is the documented one.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rcuwalk_explain::{Call, Explainer, Options, Report, Subject, What};
use serde_json::{Value, json};

fn schema() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/explain.schema.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// What of `value` does not follow `rule`: as much of JSON Schema as the document uses.
fn check(root: &Value, rule: &Value, value: &Value, at: &str, wrong: &mut Vec<String>) {
    for key in rule.as_object().unwrap().keys() {
        let known = [
            "$ref",
            "$schema",
            "$defs",
            "title",
            "description",
            "type",
            "enum",
            "items",
            "properties",
            "required",
            "additionalProperties",
        ];
        assert!(known.contains(&key.as_str()), "{at}: the test does not know {key}");
    }
    if let Some(name) = rule["$ref"].as_str() {
        let target = root.pointer(name.trim_start_matches('#')).unwrap_or_else(|| panic!("{name}"));
        check(root, target, value, at, wrong);
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let fits = |wanted: &Value| match wanted {
        Value::Array(kinds) => kinds.iter().any(|it| it == kind),
        wanted => wanted == kind,
    };
    if rule.get("type").is_some_and(|wanted| !fits(wanted)) {
        wrong.push(format!("{at}: is of type {kind}"));
    }
    if rule["enum"].as_array().is_some_and(|words| !words.contains(value)) {
        wrong.push(format!("{at}: {value} is not documented"));
    }
    if let (Some(items), Some(rule)) = (value.as_array(), rule.get("items")) {
        for (i, item) in items.iter().enumerate() {
            check(root, rule, item, &format!("{at}[{i}]"), wrong);
        }
    }
    let Some(fields) = value.as_object() else { return };
    for name in rule["required"].as_array().into_iter().flatten() {
        if !fields.contains_key(name.as_str().unwrap()) {
            wrong.push(format!("{at}: lacks {name}"));
        }
    }
    for (name, value) in fields {
        match rule["properties"].get(name) {
            Some(rule) => check(root, rule, value, &format!("{at}.{name}"), wrong),
            None if rule["additionalProperties"] == json!(false) => {
                wrong.push(format!("{at}.{name}: is not documented"));
            }
            None => {}
        }
    }
}

fn reports() -> Vec<Report> {
    let explainer = Explainer::new(None).unwrap();
    let me = Subject::caller().unwrap();
    let nobody = Subject::of_user("65534:65534,1").unwrap();
    let process = Subject::of_process(std::process::id() as i32).unwrap();
    let options = Options { verify: true, ..Options::default() };
    let temp = tempfile::tempdir().unwrap();
    let odd = temp.path().join(std::ffi::OsStr::from_bytes(b"odd\xff"));
    std::fs::write(&odd, "#!/no/such\n").unwrap();
    let call = Call::parse("openat2(PATH, {flags=O_RDONLY, resolve=RESOLVE_NO_SYMLINKS})", b"/proc/self/exe")
        .unwrap();
    let all = [
        What::Read,
        What::Write,
        What::Execute,
        What::Stat,
        What::Create,
        What::Delete,
        What::RenameTo(b"/tmp/there".to_vec()),
        What::Exec,
        What::Access(4),
        What::Connect,
        What::SetXattr(b"user.x".to_vec()),
        What::Mknod(0o020_600, 0x103),
        What::Call(call),
    ];
    let mut reports = Vec::new();
    for who in [&me, &nobody, &process] {
        for path in [
            odd.as_os_str().as_bytes(),
            b"/etc/passwd",
            b"/bin/sh",
            b"/no/such",
            b"/proc/self/exe",
            b"/dev/null",
            b"/usr",
        ] {
            reports.push(explainer.explain(who, path, &all, options).unwrap());
        }
    }
    reports
}

#[test]
fn reports_follow_the_schema() {
    let schema = schema();
    let mut wrong = Vec::new();
    let value = serde_json::to_value(reports()).unwrap();
    check(&schema, &schema, &value, "reports", &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let text = value.to_string();
    for part in ["\"hex\":", "\"verify\":", "\"fixes\":[{", "\"link\":", "\"mount\":", "\"deciding\":"] {
        assert!(text.contains(part), "the reports have no {part}");
    }
}

#[test]
fn the_schema_is_looked_at() {
    let schema = schema();
    let value = serde_json::to_value(reports()).unwrap();
    let broken = |change: &dyn Fn(&mut Value)| {
        let mut copy = value.clone();
        change(&mut copy[0]);
        let mut wrong = Vec::new();
        check(&schema, &schema, &copy, "reports", &mut wrong);
        assert_eq!(wrong.len(), 1, "{wrong:?}");
    };
    broken(&|report| report["answers"][0]["verdict"] = json!("perhaps"));
    broken(&|report| report["path"] = json!(7));
    broken(&|report| report["more"] = json!(1));
    broken(&|report| drop(report.as_object_mut().unwrap().remove("identity")));
}
