use super::*;

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

#[test]
fn an_address_says_all_of_what_is_shown() {
    let query = "q=two+words&from=1h&to=2027-01-14&verdict=verified&type=a&type=b&rows=200";
    let read = Query::parse(query, now());
    assert_eq!(read.filter.words, Some(vec!["two".to_owned(), "words".to_owned()]));
    assert_eq!(read.filter.from, now().checked_sub(jiff::SignedDuration::from_hours(1)).ok());
    assert_eq!(read.filter.chosen[&Facet::Type], ["a", "b"]);
    let again = Query::parse(read.first_page().strip_prefix("/?").unwrap(), now());
    assert_eq!(again, read);
}

#[test]
fn a_place_is_the_same_after_it_was_sent() {
    for time in [None, Some(now())] {
        let [channel, event] = ["7c9e6679-7425-40de-944b-e07fc1f90ae7", "11111111-7425-40de-944b-e07fc1f90ae7"];
        let (channel, event) = (channel.parse().unwrap(), event.parse().unwrap());
        let place = Place { time, offset: 7, channel, event };
        let address = Query::parse("name=x", now()).below(&place);
        assert_eq!(Query::parse(address.strip_prefix("/?").unwrap(), now()).below, Some(place));
    }
}

#[test]
fn nonsense_is_passed_over_and_a_wrong_time_is_said() {
    let read = Query::parse("below=x&rows=100000&who=me&type=&q=%20&%ff=%fe", now());
    assert_eq!((read.below.clone(), read.rows, read.is_restricted()), (None, MOST_ROWS, false));
    assert_eq!(read.problem(Search::None), None);
    assert!(Query::parse("from=yesterday", now()).problem(Search::None).unwrap().contains("yesterday"));
    assert!(Query::parse("q=ab", now()).problem(Search::Trigrams).is_some());
    assert!(Query::parse("q=ab", now()).problem(Search::Words).is_none());
    let many = (0..200).map(|number| format!("type={number}")).collect::<Vec<_>>().join("&");
    assert_eq!(Query::parse(&many, now()).filter.chosen[&Facet::Type].len(), MOST_CHOSEN);
}

#[test]
fn each_thing_that_is_chosen_can_be_left_out() {
    let read = Query::parse("q=w&type=a&type=b&from=1h", now());
    let chips = read.chips();
    assert_eq!(chips.len(), 4);
    assert_eq!(chips[1].2, "/?q=w&from=1h&type=b");
}
