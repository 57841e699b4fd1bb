use super::*;
use crate::file::name::ClosedName;
use crate::tests::channel;

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn a_channel_is_looked_for_only_where_it_may_be() {
    let directory = tempfile::tempdir().unwrap();
    let name = ClosedName::parse("{time}").unwrap();
    let files = ClosedFiles { active: directory.path().join("events.jsonl"), name };
    let (one, two) = (channel(1).id, channel(2).id);
    assert!(Index::load(&files).unwrap().may_hold(time(1), one), "nothing is known");

    let mut index = Index::default();
    for (second, channels) in [(1, vec![Some(two)]), (2, vec![Some(one), Some(two)]), (3, vec![]), (4, vec![Some(one)])]
    {
        index.add(time(second), &channels.into_iter().collect());
    }
    index.store(&files.index_path()).unwrap();
    let index = Index::load(&files).unwrap();
    let held = |channel| (1..=5).filter(|second| index.may_hold(time(*second), channel)).collect::<Vec<_>>();
    assert_eq!((held(one), held(two), held(channel(3).id)), (vec![2, 3, 4, 5], vec![1, 2, 5], vec![5]));

    fs::write(files.index_path(), "torn").unwrap();
    assert_eq!(Index::load(&files).unwrap(), Index::default());
}
