//! Rust source without what only people read.

/// `text` with comments and the contents of strings and character literals blanked out; lines stay where they are.
pub(super) fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = at + skipped(text, at);
        if end > at {
            out.extend(text[at..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            at = end;
        } else {
            let c = text[at..].chars().next().unwrap_or(' ');
            out.push(c);
            at += c.len_utf8();
        }
    }
    out
}

/// The length of the comment or literal that begins at `at`; 0 if none does.
fn skipped(text: &str, at: usize) -> usize {
    let (bytes, rest) = (text.as_bytes(), &text.as_bytes()[at..]);
    let in_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment(rest),
        [b'"', ..] => string(rest),
        [b'r', b'"' | b'#', ..] if !in_word => raw_string(rest),
        [b'b', b'"', ..] if !in_word => 1 + string(&rest[1..]),
        [b'b', b'r', b'"' | b'#', ..] if !in_word => 1 + raw_string(&rest[1..]),
        [b'\'', b'\\', ..] => 2 + rest[2..].iter().skip(1).position(|&b| b == b'\'').map_or(0, |end| end + 2),
        // A lifetime has no closing quote after one character.
        [b'\'', ..] => {
            let len = text[at + 1..].chars().next().map_or(0, char::len_utf8);
            if rest.get(1 + len) == Some(&b'\'') { len + 2 } else { 0 }
        }
        _ => 0,
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != b'"' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

fn raw_string(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|&&b| b == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0; // a raw identifier
    }
    let close = [b"\"", vec![b'#'; hashes].as_slice()].concat();
    let body = &rest[2 + hashes..];
    body.windows(close.len())
        .position(|w| w == close)
        .map_or(rest.len(), |end| 2 + hashes + end + close.len())
}

/// The words of a line: runs of letters, digits and underscores.
pub(super) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left() {
        let text = r##"let a = "unsafe \" x"; // unsafe
/* unsafe /* nested */ unsafe */ let b = r#"unsafe " "#; let c: &'a str = b"unsafe";
let d = '"'; let e = '\''; unsafe {}
"##;
        let code = code_of(text);
        assert_eq!(words(&code).filter(|w| *w == "unsafe").count(), 1);
        assert_eq!(code.lines().count(), text.lines().count());
        assert!(code.lines().nth(2).is_some_and(|line| line.contains("unsafe {}")));
    }
}
