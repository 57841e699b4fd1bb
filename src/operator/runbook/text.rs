//! Parses the Markdown of the runbook, and wraps its paragraphs.

/// Wraps the paragraphs and the list items of Markdown at `width` columns. Code and tables do not change.
pub fn filled(markdown: &str, width: usize) -> String {
    let mut blocks: Vec<(bool, String)> = Vec::new();
    let (mut is_code, mut continues) = (false, false);
    for line in markdown.trim().lines() {
        let text = line.trim_start();
        let is_fence = text.starts_with("```");
        let is_prose = !(is_code || is_fence || text.is_empty() || text.starts_with('|'));
        match blocks.last_mut().filter(|_| continues && is_prose && marker(text).is_none()) {
            Some((_, paragraph)) => *paragraph = format!("{paragraph} {text}"),
            None => blocks.push((is_prose, line.to_owned())),
        }
        is_code ^= is_fence;
        continues = is_prose;
    }
    let lines = blocks.into_iter().map(|(is_prose, block)| {
        let text = block.trim_start();
        let first = &block[..block.len() - text.len()];
        let further = " ".repeat(first.len() + marker(text).unwrap_or(0));
        if is_prose { wrapped(text, first, &further, width) } else { block }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The length of the marker of a list item, such as `* ` or `1. `.
fn marker(line: &str) -> Option<usize> {
    let number = line.bytes().take_while(u8::is_ascii_digit).count();
    let is_numbered = number > 0 && line[number..].starts_with(". ");
    if line.starts_with("* ") { Some(2) } else { is_numbered.then_some(number + 2) }
}

pub(super) fn cells(row: &str) -> Vec<&str> {
    row.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// Removes the marks of Markdown from a text. A link is replaced by its label.
pub(super) fn inline(text: &str) -> String {
    with_code(text).replace('`', "")
}

/// Like [`inline`], but keeps the backquotes around code.
pub(super) fn with_code(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let (before, label) = before.rsplit_once('[').unwrap_or((before, ""));
        out.push_str(before);
        out.push_str(label);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    out.replace("**", "")
}

/// Whether a text is a link, without any other text.
pub(super) fn is_link(text: &str) -> bool {
    text.starts_with('[') && text.ends_with(')') && text.matches("](").count() == 1
}

/// The anchors of the runbook's sections that a text links to.
pub(super) fn anchors(text: &str) -> impl Iterator<Item = &str> {
    text.split("](#").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0))
}

/// The first sentence, without the final period or colon.
pub(super) fn first_sentence(markdown: &str) -> String {
    let first = markdown.trim_start().split("\n\n").next().unwrap_or_default();
    let first = inline(&first.lines().map(str::trim).collect::<Vec<_>>().join(" "));
    first.split_once(". ").map_or(first.as_str(), |(sentence, _)| sentence).trim_end_matches(['.', ':']).to_owned()
}

/// Wraps a text between words. `first` is the prefix of the first line, `further` the prefix of the others.
pub(super) fn wrapped(text: &str, first: &str, further: &str, width: usize) -> String {
    let (mut lines, mut line, mut is_bare) = (Vec::new(), first.to_owned(), true);
    for word in text.split_whitespace() {
        let longer = line.chars().count() + usize::from(!is_bare) + word.chars().count();
        if longer > width && !is_bare {
            lines.push(std::mem::replace(&mut line, further.to_owned()));
            is_bare = true;
        }
        if !is_bare {
            line.push(' ');
        }
        line.push_str(word);
        is_bare = false;
    }
    lines.push(line);
    lines.join("\n")
}

/// Shortens a text to `width` characters, between words.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let start: String = text.chars().take(width - 2).collect();
    let end = start.rfind(' ').unwrap_or(start.len());
    format!("{} …", start[..end].trim_end_matches([',', ';', ':', ' ']))
}
