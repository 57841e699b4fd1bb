use super::*;

#[test]
fn columns_are_as_wide_as_what_stands_in_them_and_colours_take_no_room() {
    let table = Table(vec![
        (vec![Cell::text("NAME"), Cell::quantity(Some("N"))], String::new()),
        (vec![Cell::new(BAD, "a-long-name"), Cell::quantity(Some(12_345))], "why".to_owned()),
        (vec![Cell::text("b"), Cell::quantity(None::<u8>)], String::new()),
        (vec![Cell::text("c")], "what is said of it".to_owned()),
    ]);
    let plain = anstream::adapter::strip_str(&table.to_string()).to_string();
    assert_eq!(
        plain,
        "NAME             N\na-long-name  12345  why\nb                -\nc            what is said of it\n"
    );
    assert!(table.to_string().contains("\u{1b}[31ma-long-name\u{1b}[0m"));
}
