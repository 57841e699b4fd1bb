use super::*;

fn good() -> Seen {
    Seen {
        number: 150_008,
        version: "15.8".to_owned(),
        is_read_only: false,
        forgets: false,
        is_pooled: false,
        role: "channeld".to_owned(),
        database: "state".to_owned(),
        may_make_schema: true,
        has_schema: true,
        may_use: true,
        may_make_tables: true,
        may_change_tables: true,
        applied: Some(i32::try_from(MIGRATIONS.len()).unwrap()),
        state: Some((Uuid::from_u128(7), false)),
    }
}

#[test]
fn a_server_that_is_too_old_a_standby_and_a_newer_schema_are_refused() {
    for (seen, words) in [
        (Seen { number: 120_018, version: "12.18".to_owned(), ..good() }, "PostgreSQL 12.18 is too old"),
        (Seen { is_read_only: true, ..good() }, "target_session_attrs=read-write"),
        (Seen { applied: Some(99), ..good() }, "has 99 migrations"),
    ] {
        let said = seen.assess("channeld").unwrap_err();
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn what_is_made_at_a_start_is_said_before() {
    for (seen, words) in [
        (good(), "is up to date"),
        (Seen { applied: Some(1), ..good() }, "3 of 4 migrations will be applied"),
        (Seen { has_schema: false, may_use: false, may_make_tables: false, applied: None, ..good() }, "will be made"),
        // Nothing is to be made there, so that no right to make anything is needed.
        (Seen { may_make_schema: false, may_make_tables: false, ..good() }, "is up to date"),
    ] {
        let said = seen.assess("channeld").unwrap();
        assert!(said.contains(words) && !said.contains("CAREFUL"), "{said}");
    }
}
