use super::*;

#[test]
fn columns_are_as_wide_as_what_stands_in_them_and_colours_take_no_room() {
    let mut table = Table::new(vec![Cell::text("NAME"), Cell::quantity(Some("N"))]);
    table.push(vec![Cell::new(BAD, "a-long-name"), Cell::quantity(Some(12_345)), Cell::text("why")]);
    table.push(vec![Cell::text("b"), Cell::quantity(None::<u8>), Cell::text("")]);
    table.push(vec![Cell::text("c"), Cell::text("what is said of it")]);
    let plain = anstream::adapter::strip_str(&table.to_string()).to_string();
    assert_eq!(
        plain,
        "NAME             N\na-long-name  12345  why\nb                -\nc            what is said of it\n"
    );
    assert!(table.to_string().contains("\u{1b}[31ma-long-name\u{1b}[0m"));
}
