use super::*;

const DATABASE: &str = "[state]\nbackend = \"postgres\"\nurl = \"postgresql://channeld@db.internal/channeld\"\n";

#[test]
fn with_a_shared_state_a_local_sink_is_a_mistake_unless_confirmed() {
    let text = format!("{GOOD}{DATABASE}");
    let error = load(&text, &[]).expect_err("standard output is of one machine");
    assert_eq!(keys_of(&error), ["sinks.out.type"]);
    let meant = text.replace("type = \"stdout\"", "type = \"stdout\"\nper_instance = true");
    let database = load(&meant, &[]).expect("it is meant").state.database.expect("a database");
    assert_eq!((&*database.schema, database.lease.as_secs()), ("channeld", 6));
    assert!(!database.instance.is_empty(), "the host's name");
}

#[test]
fn a_shared_state_needs_a_url_a_plain_schema_and_a_valid_lease() {
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
