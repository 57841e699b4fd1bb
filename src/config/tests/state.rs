use super::*;

const DATABASE: &str = "[state]\nbackend = \"postgres\"\nurl = \"postgresql://channeld@db.internal/channeld\"\n";

#[test]
fn with_a_database_a_sink_of_one_machine_is_a_mistake_unless_it_is_meant() {
    let text = format!("{GOOD}{DATABASE}");
    let error = load(&text, &[]).expect_err("standard output is of one machine");
    assert_eq!(keys_of(&error), ["sinks.out.type"]);
    let meant = text.replace("type = \"stdout\"", "type = \"stdout\"\nper_instance = true");
    let database = load(&meant, &[]).expect("it is meant").state.database.expect("a database");
    assert_eq!((&*database.schema, database.lease.as_secs()), ("channeld", 6));
    assert!(!database.instance.is_empty(), "the host's name");
}

#[test]
fn a_database_needs_an_address_a_plain_schema_and_a_lease_that_can_be_kept() {
    for (change, key) in [
        (("url = \"postgresql://channeld@db.internal/channeld\"\n", ""), "state.url"),
        (("postgresql://channeld@db.internal/channeld", "mysql://db"), "state.url"),
        (("[state]", "[cluster]\nlease = \"1s\"\n[state]"), "cluster.lease"),
        (("[state]", "[state]\nschema = \"Chan\\\"neld\""), "state.schema"),
    ] {
        let text = format!("{GOOD}{DATABASE}").replace("type = \"stdout\"", "type = \"stdout\"\nper_instance = true");
        let error = load(&text.replace(change.0, change.1), &[]).expect_err(key);
        assert_eq!(keys_of(&error), [key]);
    }
}
