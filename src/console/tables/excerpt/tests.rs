use proptest::prelude::*;

use super::*;

/// The excerpt of a row with these columns, as one text with the word in brackets.
fn shown(words: &[&str], search: Search, columns: &[(&str, &str)]) -> Option<String> {
    let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
    let text = |name| columns.iter().find(|(column, _)| *column == name).map_or("", |(_, text)| text).to_owned();
    let found = excerpt(&words, search, &SEARCHED_COLUMNS.map(text))?;
    let Excerpt { field, before, word, after } = found;
    Some(format!("{field}: {before}[{word}]{after}"))
}

fn of_content(word: &str, content: &str) -> Option<String> {
    shown(&[word], Search::Words, &[("decoded", content)])
}

#[test]
fn a_matching_word_is_shown_with_its_field() {
    for (word, content, expected) in [
        ("AMOUNT", r#"{"description":"an Amount of 12"}"#, "description: an [Amount] of 12"),
        ("amou*", r#"{"description":"an Amount of 12"}"#, "description: an [Amou]nt of 12"),
        ("0xab", r#"{"a":1,"b":{"c":[{"d":"x"},"0xAB",{"e":2}],"f":3}}"#, "c: [0xAB]"),
        ("3", r#"{"a":[{"b":1}],"f":3}"#, "f: [3]"),
        ("12", r#"{"hash":"0x12","id":"1234","amount":12}"#, "amount: [12]"),
        ("12", r#"{"hash":"0x12","id":"1234"}"#, "id: [12]34"),
        ("12AB", r#"{"id":"z12ab","hash":"0x12abcd"}"#, "hash: 0x[12ab]cd"),
        ("ABCD", r#"{"id":"zabcd","hash":"0x12abcd","other":"00abcd"}"#, "hash: 0x12[abcd]"),
        ("c0ffee", r#"{"to":"0x00112233445566778899aabbccddeeff00c0ffee"}"#, "to: …ccddeeff00[c0ffee]"),
        ("abcd", r#"{"id":"xyzabcd"}"#, ""),
        ("amount", r#"{"a":{"amount":"7"}}"#, ": [amount]: 7"),
        ("params", r#"{"params":{"a":1}}"#, ": [params]"),
        ("straße", r#"{"a":"in der STRASSE, Straße 5"}"#, "a: in der STRASSE, [Straße] 5"),
        ("b", r#"{"a":"a \"b\" \\","c":"b"}"#, r#"a: a \"[b]\" \\"#),
        ("cut", r#"{"a":"it is cut o"#, "a: it is [cut] o"),
    ] {
        assert_eq!(of_content(word, content).unwrap_or_default(), expected, "{word} in {content}");
    }
}

#[test]
fn no_excerpt_is_shown_if_the_row_shows_the_match() {
    let transfer = [("name", "Transfer"), ("decoded", r#"{"name":"Transfer","to":"0x5"}"#)];
    assert_eq!(shown(&["transfer"], Search::Words, &transfer), None);
    assert_eq!(shown(&["transfer", "0x5"], Search::Words, &transfer).unwrap(), "to: [0x5]", "the next word is shown");
    for (word, content) in [("nowhere", "{}"), ("a", ""), ("*", r#"{"a":"*"}"#), ("source", r#"{"a":"b"}"#)] {
        assert_eq!(of_content(word, content), None, "{word}");
    }
    // A list shows only the ends of an address, so the excerpt shows the whole address.
    let address = "0x00112233445566778899aabbccddeeff00112233";
    let source = shown(&["0x0011223344"], Search::Words, &[("source", address)]);
    assert_eq!(source.unwrap(), "source: [0x0011223344]5566778899aabbccddeeff00112233");
}

#[test]
fn parts_of_words_match_only_if_an_index_finds_them() {
    let content = [("decoded", r#"{"hash":"0xabcdef"}"#)];
    assert_eq!(shown(&["bcd"], Search::Words, &content), None);
    for search in [Search::Trigrams, Search::None] {
        assert_eq!(shown(&["bcd"], search, &content).unwrap(), "hash: 0xa[bcd]ef", "{search:?}");
    }
}

#[test]
fn an_excerpt_is_short_and_cut_between_characters() {
    let long = format!(r#"{{"{}":"{}word{}"}}"#, "é".repeat(99), "ü ".repeat(999), " 漢".repeat(999));
    let Some(found) = of_content("word", &long) else { panic!("the word is not found") };
    let expected = format!("{}…: …{}[word]{} …", "é".repeat(NAME), "ü ".repeat(BEFORE / 2), " 漢".repeat(18));
    assert_eq!(found, expected);
    let hash = format!("0x{}", "a".repeat(64));
    let found = of_content(&hash, &format!(r#"{{"tx":"from {hash} on"}}"#)).unwrap();
    assert_eq!(found, format!("tx: …[{hash}]…"), "a hash is shown completely");
}

proptest! {
    #[test]
    fn an_excerpt_contains_the_word_and_is_short(content in ".{0,200}", word in ".{1,8}", quoted: bool) {
        let content = if quoted { serde_json::json!({ "a": [content] }).to_string() } else { content };
        if let Some(found) = excerpt(std::slice::from_ref(&word), Search::None, &SEARCHED_COLUMNS.map(|_| content.clone())) {
            let word = word.strip_suffix('*').unwrap_or(&word);
            prop_assert_eq!(begins(&found.word, word), Some(found.word.len()));
            let length = [&found.field, &found.before, &found.word, &found.after].map(|text| text.chars().count());
            prop_assert!(length.iter().sum::<usize>() <= LONGEST + NAME + 3, "{:?}", found);
        }
    }
}
