use super::*;

#[tokio::test]
async fn a_check_finds_what_would_refuse_events_and_changes_nothing() {
    let place = Fixture::new();
    let sink = place.sink();
    deliver(&sink, &channel(1), &records(&channel(1), [1])).await.unwrap();
    for (refusal, remedy, words) in [
        (
            "create trigger refuses before insert on \"order\" begin select raise(abort, 'no'); end",
            "drop trigger refuses",
            "a constraint or a trigger that was added to the table is the cause",
        ),
        (
            "create trigger suppresses before insert on \"order\" begin select raise(ignore); end",
            "drop trigger suppresses",
            "a trigger of the table suppresses rows without an error",
        ),
        ("alter table order_progress rename to other", "alter table other rename to order_progress", ""),
        (
            "alter table \"order\" rename to other; create view \"order\" as select * from other",
            "drop view \"order\"; alter table other rename to \"order\"",
            "views may not be indexed",
        ),
    ] {
        place.reader().execute_batch(refusal).unwrap();
        let probed = sink.probe().await;
        let said = probed.as_ref().map_or_else(ToString::to_string, Clone::clone);
        assert!(probed.is_err() != words.is_empty() && said.contains(words), "{refusal}: {said}");
        place.reader().execute_batch(remedy).unwrap();
        assert!(sink.probe().await.unwrap().contains("with table order"));
        assert_eq!((place.offsets(), place.numbers("select count(*) from order_progress")), (vec![1], vec![1]));
    }
    place.assert_sound();
}

#[tokio::test]
async fn a_check_of_a_missing_database_creates_no_file() {
    let mut place = Fixture::new();
    place.settings.search = Search::Trigrams;
    assert!(place.sink().probe().await.unwrap().starts_with("it does not exist yet and will be created"));
    assert_eq!(std::fs::read_dir(place.directory.path()).unwrap().count(), 0);
    // Such a name is also a mistake of the configuration.
    place.settings.table = "sqlite_events".to_owned();
    let refused = place.sink().probe().await.unwrap_err();
    assert!(refused.to_string().contains("reserved"), "{refused}");
}
