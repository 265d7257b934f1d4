//! The string literals of a template: the words that it may look for in a message.

/// The literals within `{{ }}` and `{% %}`, without blank ones, each once, longest first.
pub(super) fn words(source: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = source;
    while let Some(start) = rest.find('{') {
        rest = &rest[start..];
        if let Some(after) = rest.strip_prefix("{#") {
            rest = after.find("#}").map_or("", |end| &after[end + 2..]);
        } else if rest.starts_with("{{") || rest.starts_with("{%") {
            let close = if rest.starts_with("{{") { "}}" } else { "%}" };
            rest = code(&rest[2..], close, &mut words);
        } else {
            rest = &rest[1..];
        }
    }
    words.retain(|word: &String| !word.trim().is_empty());
    words.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    words.dedup();
    words
}

/// Takes the literals up to `close`; returns what follows it.
fn code<'s>(source: &'s str, close: &str, words: &mut Vec<String>) -> &'s str {
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix(close) {
            return after;
        }
        rest = &rest[c.len_utf8()..];
        if c == '\'' || c == '"' {
            let (word, after) = literal(rest, c);
            words.push(word);
            rest = after;
        }
    }
    rest
}

/// The literal that starts here, and what follows its closing quote.
fn literal(source: &str, quote: char) -> (String, &str) {
    let mut word = String::new();
    let mut chars = source.char_indices();
    while let Some((place, c)) = chars.next() {
        match c {
            c if c == quote => return (word, &source[place + c.len_utf8()..]),
            '\\' => match chars.next() {
                Some((_, 'n')) => word.push('\n'),
                Some((_, 't')) => word.push('\t'),
                Some((_, 'r')) => word.push('\r'),
                Some((_, other)) => word.push(other),
                None => break,
            },
            c => word.push(c),
        }
    }
    (word, "")
}
