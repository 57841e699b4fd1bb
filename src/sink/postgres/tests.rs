use bytes::Bytes;
use serde_json::{Value, json};

use super::cells::jsonb_refuses;
use super::ends::{ends_query, ends_vector};
use super::insert::{AT_ONCE_BYTES, pieces};
use super::table::{DatabaseProperties, SchemaChanges};
use crate::settings::{PostgresSettings, Search};
use crate::table::{COLUMNS, Cell, POSITION, Row};

#[test]
fn json_is_left_out_only_if_jsonb_refuses_it() {
    for json in [
        r#"{"a":"\u0001\\u0000 \ud83d\ude00 \"","b":[1,-2.5e3,0,1e131071,1e-16383,true,null]}"#,
        r#"{"n":123456789012345678901234567890123456789012345678901234567890.5}"#,
        r#""1e999999999""#,
    ] {
        assert!(!jsonb_refuses(json.as_bytes()), "{json}");
    }
    for json in [
        r#"{"a":"x\u0000"}"#,
        r#"{"\u0000":1}"#,
        r#"["\ud800"]"#,
        r#"["\ud800\u0041"]"#,
        r#"["\ude00"]"#,
        "[1e400000]",
        "[1e-400000]",
        "[1e99999999999999999999]",
    ] {
        assert!(jsonb_refuses(json.as_bytes()), "{json}");
    }
}

fn row_of(bytes: usize) -> Row {
    let mut cells = vec![Cell::Null; COLUMNS.len()];
    cells[0] = Cell::Json(Bytes::from(vec![b'x'; bytes]));
    Row { cells, operation: None }
}

#[test]
fn large_rows_are_split_into_statements() {
    let rows = [1, AT_ONCE_BYTES / 2, AT_ONCE_BYTES, 5, 5].map(row_of);
    assert_eq!(pieces(&rows), [3..5, 2..3, 0..2]);
    assert_eq!(pieces(&rows[2..]), [1..3, 0..1]);
}

fn settings(search: Search) -> PostgresSettings {
    PostgresSettings {
        server: "postgresql://channeld@db.internal/warehouse".parse().unwrap(),
        schema: "public".to_owned(),
        table: "events".to_owned(),
        create: true,
        operations: false,
        search,
        notify: None,
        feed: false,
    }
}

/// An empty database, with other values of these properties.
fn database(differences: Value) -> DatabaseProperties {
    let Value::Object(mut properties) = json!({
        "version": "15.8", "is_read_only": false, "encoding": "UTF8", "is_never_synced": false,
        "commits_asynchronously": false, "role": "channeld", "has_lz4": true, "has_schema": true, "may_use": true,
        "may_create": true, "may_alter": true, "not_tables": [], "unlogged": [], "columns": [], "has_key": false, "old_keys": [],
        "has_position_index": false, "has_ends": false, "is_partitioned": false, "progress_columns": [],
        "has_consumers": false, "operation_columns": [], "may_write": true, "trigrams": null,
    }) else {
        unreachable!("it is an object")
    };
    let Value::Object(differences) = differences else { panic!("differences are an object") };
    properties.extend(differences);
    serde_json::from_value(properties.into()).unwrap()
}

#[test]
fn an_extension_outside_the_search_path_is_named_with_its_schema() {
    let settings = settings(Search::Trigrams);
    let made = |differences| database(differences).missing(&settings, "sinks.w").unwrap().made;
    let found = made(json!({"trigrams": "\"Ext\""}));
    assert!(found.contains("(search \"Ext\".gin_trgm_ops)") && !found.contains("create extension"), "{found}");
    let new = made(json!({}));
    assert!(new.contains("(search gin_trgm_ops)") && new.contains("create extension if not exists pg_trgm"), "{new}");
}

#[test]
fn what_is_not_a_table_or_not_permitted_is_refused_before_anything_is_changed() {
    for (differences, words) in [
        (json!({"not_tables": ["public.events is a view"], "columns": ["a"]}), "public.events is a view, not a table"),
        (json!({"may_use": false}), "grant usage on schema \"public\" to channeld"),
    ] {
        let said = database(differences).missing(&settings(Search::None), "sinks.w").err().unwrap();
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn the_table_of_operations_is_created_and_granted_only_if_the_settings_name_it() {
    let with = PostgresSettings { operations: true, ..settings(Search::None) };
    let existing: Vec<_> = COLUMNS.iter().map(|column| column.name).chain([POSITION]).collect();
    let table = json!({
        "columns": existing, "has_key": true, "has_position_index": true, "progress_columns": [POSITION],
    });
    let made = |settings: &PostgresSettings| database(table.clone()).missing(settings, "sinks.w").unwrap().made;
    assert_eq!(made(&settings(Search::None)), "");
    let created = made(&with);
    assert!(created.starts_with("create table if not exists \"public\".\"events_operations\" ("), "{created}");

    let mut refused = table;
    refused["may_create"] = false.into();
    let said = database(refused.clone()).missing(&with, "sinks.w").unwrap_err();
    let granted =
        "grant select, insert, update on \"public\".\"events_progress\", \"public\".\"events_operations\" to channeld";
    assert!(said.contains("may not create tables") && said.contains(&created) && said.contains(granted), "{said}");
    refused["operation_columns"] = json!(["operation_id"]);
    let said = database(refused).missing(&with, "sinks.w").unwrap_err();
    assert!(said.contains("table \"public\".\"events_operations\" has no column channel_id"), "{said}");
    let said = database(json!({})).said(&with, "");
    assert!(said.contains("table public.events (with public.events_operations) is there"), "{said}");
}

#[test]
fn a_server_that_acknowledges_before_its_disk_is_named() {
    assert_eq!(database(json!({})).early_acks(), [""; 0]);
    for (differences, words) in [
        (json!({"is_never_synced": true}), "fsync is off"),
        (json!({"commits_asynchronously": true}), "synchronous_commit is off"),
        (json!({"unlogged": ["public.events"]}), "table public.events is unlogged"),
    ] {
        let seen = database(differences);
        let (early_acks, said) = (seen.early_acks(), seen.said(&settings(Search::None), ""));
        assert!(early_acks.len() == 1 && early_acks[0].contains(words) && said.contains(&early_acks[0]), "{said}");
    }
}

#[test]
fn an_older_table_gets_the_column_of_positions_and_its_index_in_transactions_of_their_own() {
    let older: Vec<_> = COLUMNS.iter().map(|column| column.name).collect();
    let mut table = json!({"columns": older, "has_key": true, "progress_columns": ["channel_id", "epoch"]});
    let missing = |table: &Value| database(table.clone()).missing(&settings(Search::None), "sinks.w").unwrap();
    let SchemaChanges { made, indexed, dropped } = missing(&table);
    assert_eq!(
        made,
        "alter table \"public\".\"events\" add column if not exists position bigint; \
         alter table \"public\".\"events_progress\" add column if not exists position bigint not null default 0;"
    );
    let index =
        "create unique index if not exists \"events_position\" on \"public\".\"events\" (channel_id, position);";
    assert!(indexed.ends_with(index) && dropped.is_empty(), "{indexed} {dropped}");
    table["is_partitioned"] = true.into();
    assert!(!missing(&table).indexed.contains("unique"));
    table["may_alter"] = false.into();
    let refused = database(table).missing(&settings(Search::None), "sinks.w").unwrap_err();
    assert!(refused.contains("belongs to another role") && refused.contains(&made), "{refused}");
    assert!(refused.contains("grant select, insert, update (position) on"), "{refused}");
    let created = missing(&json!({})).made;
    assert!(created.contains("position bigint") && created.contains(index), "{created}");
}

#[test]
fn the_index_over_ends_is_created_only_for_words() {
    let sql = |table: &Value, search| database(table.clone()).missing(&settings(search), "sinks.w").unwrap();
    let index =
        format!("create index if not exists \"events_ends\" on \"public\".\"events\" using gin (({}));", ends_vector());
    assert!(sql(&json!({}), Search::Words).made.contains(&index));
    let existing: Vec<_> = COLUMNS.iter().map(|column| column.name).chain([POSITION, "search"]).collect();
    let mut table = json!({
        "columns": existing, "has_key": true, "has_position_index": true, "progress_columns": [POSITION],
    });
    let added = sql(&table, Search::Words);
    assert_eq!(
        (&*added.made, &*added.indexed),
        ("", &*format!(" drop index if exists \"public\".\"events_ends\"; {index}"))
    );
    for search in [Search::None, Search::Trigrams] {
        assert_eq!(sql(&table, search).indexed, "", "{search:?}");
    }
    table["has_ends"] = true.into();
    assert_eq!(sql(&table, Search::Words).all(), "");
    assert_eq!(ends_query("C0FFEE"), "reeff0c:*");
}

#[test]
fn the_table_of_consumers_is_created_and_granted_only_for_a_feed() {
    let with = PostgresSettings { feed: true, ..settings(Search::None) };
    let sql = |settings: &PostgresSettings| database(json!({})).missing(settings, "sinks.w").unwrap().made;
    let table = "\"public\".\"events_consumers\"";
    assert!(sql(&with).contains(&format!("create table if not exists {table} (consumer text")));
    assert!(!sql(&settings(Search::None)).contains(table));
    let again = database(json!({"has_consumers": true, "progress_columns": [POSITION]}));
    let again = again.missing(&with, "sinks.w").unwrap().made;
    assert!(
        again.contains(&format!("delete from {table};")),
        "the cursors refer to rows that no longer exist: {again}"
    );
    let refused = database(json!({"may_create": false})).missing(&with, "sinks.w").unwrap_err();
    assert!(
        refused.contains(&format!("grant select, insert, update on \"public\".\"events_progress\", {table} to")),
        "{refused}"
    );
}
