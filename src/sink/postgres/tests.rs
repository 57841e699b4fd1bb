use bytes::Bytes;

use super::cells::jsonb_refuses;
use super::insert::{AT_ONCE_BYTES, pieces};
use crate::table::{COLUMNS, Cell, Row};

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
    Row(cells)
}

#[test]
fn large_rows_are_split_into_statements() {
    let rows = [1, AT_ONCE_BYTES / 2, AT_ONCE_BYTES, 5, 5].map(row_of);
    assert_eq!(pieces(&rows), [3..5, 2..3, 0..2]);
    assert_eq!(pieces(&rows[2..]), [1..3, 0..1]);
}
