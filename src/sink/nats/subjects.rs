//! Filters of subjects: tokens separated by dots, with the wildcards `*` for one token and `>` for all remaining tokens.

/// Whether `filter` matches every subject that `subject` matches. `subject` may have wildcards.
pub(super) fn covers(filter: &str, subject: &str) -> bool {
    let (mut filters, mut subjects) = (filter.split('.'), subject.split('.'));
    loop {
        match (filters.next(), subjects.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(token)) if token != ">" => {}
            (Some(filter), Some(token)) if filter == token && token != ">" => {}
            _ => return false,
        }
    }
}

/// Whether a subject can match both filters.
pub(super) fn meets(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.split('.'), other.split('.'));
    loop {
        match (one.next(), other.next()) {
            (None, None) | (Some(">"), Some(_)) | (Some(_), Some(">")) => return true,
            (Some(one), Some(other)) if one == other || one == "*" || other == "*" => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_meet_if_a_subject_matches_both() {
        for (one, other) in [(">", "a.b"), ("a.*", "a.>"), ("a.*.c", "a.b.*"), ("*.b", "a.>"), ("a", "a")] {
            assert!(meets(one, other) && meets(other, one), "{one} {other}");
        }
        for (one, other) in [("a", "a.>"), ("a.*", "a.b.c"), ("a.b", "a.c"), ("b.>", "a.>")] {
            assert!(!meets(one, other) && !meets(other, one), "{one} {other}");
        }
    }

    #[test]
    fn a_filter_covers_only_its_own_subjects() {
        for (filter, subject) in
            [(">", "a.b"), ("a.>", "a.b.c"), ("a.*", "a.b"), ("a.b", "a.b"), ("a.>", "a.>"), ("a.*.>", "a.*.b")]
        {
            assert!(covers(filter, subject), "{filter} {subject}");
        }
        for (filter, subject) in [
            ("a.>", "a"),
            ("a.*", "a.b.c"),
            ("a.b", "a.c"),
            ("a.*", "a.>"),
            ("a.b", "a.*"),
            ("a.b.c", "a.b"),
            ("a", "a.b"),
        ] {
            assert!(!covers(filter, subject), "{filter} {subject}");
        }
    }
}
