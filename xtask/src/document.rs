//! Tables in documents that a command writes.

use crate::process::root;

/// Puts `table` between the marks `name` in `document`, or, with `check`, only says whether it is there already and, if
/// not, what would put it there.
pub(crate) fn splice(
    document: &str,
    remedy: &str,
    name: &str,
    table: &str,
    check: bool,
) -> Result<(), String> {
    let path = root().join(document);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{document}: {error}"))?;
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->\n"));
    let parts = text.split_once(&begin).and_then(|(head, rest)| Some((head, rest.split_once(&end)?)));
    let Some((head, (old, tail))) = parts else {
        return Err(format!("{document}: no place for the table `{name}`"));
    };
    if old == table {
        return Ok(());
    }
    if check {
        return Err(format!("{document}: the table `{name}` is out of date; {remedy}"));
    }
    let new = [head, &begin, table, &end, tail].concat();
    std::fs::write(&path, new).map_err(|error| format!("{document}: {error}"))?;
    println!("{document}: wrote the table `{name}`");
    Ok(())
}
