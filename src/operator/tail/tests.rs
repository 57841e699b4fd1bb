use super::*;
use record::testing::{notice, proved};

fn takes(filter: &Filter, record: &Record) -> bool {
    rules(filter).takes(record.facts()) && filter.created.takes(record.time)
}

#[test]
fn filters_of_a_search_choose_by_what_was_signed() {
    let transfer = proved(r#""watcher_id":"W","timestamp":1715688015"#, r#"{"name":"Transfer","service":"dvp"}"#);
    let failed = notice("operation.status", r#"{"status":"failed","timestamp":1715688020}"#);
    let by = |change: fn(&mut Filter)| {
        let mut filter = Filter::default();
        change(&mut filter);
        (takes(&filter, &transfer), takes(&filter, &failed))
    };
    assert_eq!(by(|_| {}), (true, true));
    assert_eq!(by(|filter| filter.types = vec!["operation.status".into()]), (false, true));
    assert_eq!(by(|filter| filter.event_name = Some("Transfer".to_owned())), (true, false));
    assert_eq!(by(|filter| filter.services = vec!["other".to_owned(), "dvp".to_owned()]), (true, false));
    assert_eq!(by(|filter| filter.statuses = vec!["failed".to_owned()]), (false, true));
    assert_eq!(by(|filter| filter.created.gt = Some(1_715_688_015)), (false, true));
    assert_eq!(by(|filter| filter.created.lte = Some(1_715_688_015)), (true, false));
}
