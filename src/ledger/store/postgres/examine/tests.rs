use super::*;

fn good() -> DatabaseProperties {
    DatabaseProperties {
        number: 150_008,
        version: "15.8".to_owned(),
        is_read_only: false,
        early: EarlyAck::default(),
        connections: None,
        process: 7,
        is_pooled: false,
        role: "channeld".to_owned(),
        database: "state".to_owned(),
        may_make_schema: true,
        has_schema: true,
        may_use: true,
        may_make_tables: true,
        may_read_tables: true,
        unlogged: Vec::new(),
        has_migrations: true,
        applied: MIGRATIONS.len(),
        state: Some((Uuid::from_u128(7), false)),
    }
}

#[test]
fn a_server_that_is_too_old_a_standby_and_a_newer_schema_are_refused() {
    for (seen, words) in [
        (DatabaseProperties { number: 120_018, version: "12.18".to_owned(), ..good() }, "PostgreSQL 12.18 is too old"),
        (DatabaseProperties { is_read_only: true, ..good() }, "target_session_attrs=read-write"),
        (DatabaseProperties { applied: 99, ..good() }, "has 99 migrations"),
        (DatabaseProperties { connections: Some(3), ..good() }, "allows 3 connections, and an instance needs 5"),
    ] {
        let said = seen.assess("channeld").unwrap_err();
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn a_database_that_acknowledges_before_its_disk_is_named() {
    let early = EarlyAck::default();
    for (seen, words) in [
        (DatabaseProperties { early: EarlyAck { is_never_synced: true, ..early }, ..good() }, "fsync is off"),
        (
            DatabaseProperties { early: EarlyAck { commits_asynchronously: true, ..early }, ..good() },
            "synchronous_commit",
        ),
        (DatabaseProperties { unlogged: vec!["entries".to_owned()], ..good() }, "table entries is unlogged"),
    ] {
        let said = seen.assess("channeld").unwrap();
        assert!(said.contains("WARNING: if the server crashes") && said.contains(words), "{said}");
    }
    assert!(!good().assess("channeld").unwrap().contains("WARNING"));
}

#[test]
fn the_list_of_tables_has_every_table_of_the_migrations() {
    let tables = tables();
    for mentioned in MIGRATIONS.iter().flat_map(|migration| migration.split("{schema}.").skip(1)) {
        let is_of_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
        let name = mentioned.split(|letter| !is_of_name(letter)).next().unwrap();
        assert!(tables.contains(&name), "{name}: {tables:?}");
    }
    assert!(tables.contains(&"proofs") && tables.contains(&"migrations"), "{tables:?}");
}

#[test]
fn objects_to_create_are_listed_beforehand() {
    for (seen, words) in [
        (good(), "is up to date"),
        (DatabaseProperties { applied: 1, ..good() }, "4 of 5 migrations will be applied"),
        (
            DatabaseProperties { has_schema: false, may_use: false, may_make_tables: false, applied: 0, ..good() },
            "will be created",
        ),
        // Nothing will be created there, so no privilege to create anything is needed.
        (DatabaseProperties { may_make_schema: false, may_make_tables: false, ..good() }, "is up to date"),
    ] {
        let said = seen.assess("channeld").unwrap();
        assert!(said.contains(words) && !said.contains("CAREFUL"), "{said}");
    }
}
