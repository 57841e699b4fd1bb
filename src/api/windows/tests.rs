use super::*;

/// Events by their offsets and the seconds in which they were created.
type Events = [(i64, i64)];

/// The page of a window, limited like the service does it.
fn page(events: &Events, window: TimeWindow, limit: usize) -> Page {
    let within = |(_, created): &&(i64, i64)| (window.after + 1..=window.through).contains(created);
    let mut offsets: Vec<_> = events.iter().filter(within).map(|(offset, _)| *offset).collect();
    offsets.sort_unstable_by_key(|offset| -offset);
    let has_more = offsets.len() > limit;
    offsets.truncate(limit);
    let event = |offset| RawEvent { offset: Offset::new(offset).unwrap(), id: None, json: "{}".into() };
    Page { events: offsets.into_iter().map(event).collect(), has_more }
}

fn walked(events: &Events, direction: Direction, limit: u16) -> Result<Vec<i64>, InDoubt> {
    let (from, to) = match direction {
        Direction::Up => (BEFORE_TIME, END_OF_TIME),
        Direction::Down => (END_OF_TIME, BEFORE_TIME),
    };
    let (mut windows, mut found) = (Windows::new(direction, from, to, limit, 64), Vec::new());
    while let Some(window) = windows.next() {
        windows.read(window, page(events, window, limit.into()), |_| true)?;
        found.extend(windows.take(limit).iter().map(|event| event.offset.get()));
    }
    found.extend(windows.take(u16::MAX).iter().map(|event| event.offset.get()));
    Ok(found)
}

#[test]
fn every_event_is_listed_once_in_order_in_both_directions() {
    let dense: Vec<_> = (1..=500).map(|offset| (offset, 1_000_000 + offset / 5)).collect();
    let disordered: Vec<_> = (1..=500).map(|offset| (offset, 1_000_000 + offset + offset * 7 % 50)).collect();
    let gaps: Vec<_> = (1..=50).map(|offset| (offset, offset * 31_536_000)).collect();
    for events in [dense, disordered, gaps] {
        let mut expected: Vec<_> = events.iter().map(|(offset, _)| *offset).collect();
        assert_eq!(walked(&events, Direction::Up, 20).as_ref(), Ok(&expected));
        expected.reverse();
        assert_eq!(walked(&events, Direction::Down, 20), Ok(expected));
    }
}

#[test]
fn a_second_that_fills_a_page_is_in_doubt() {
    let crowded: Vec<_> = (1..=20).map(|offset| (offset, 5000)).collect();
    for direction in [Direction::Up, Direction::Down] {
        assert_eq!(walked(&crowded, direction, 20), Err(InDoubt::Crowded));
        assert!(walked(&crowded[1..], direction, 20).is_ok());
    }
}

#[test]
fn an_event_created_far_out_of_order_is_in_doubt() {
    let mut events: Vec<_> = (1..=500).map(|offset| (offset, 1_000_000 + 10 * offset)).collect();
    events[250].1 += 1000;
    for direction in [Direction::Up, Direction::Down] {
        assert_eq!(walked(&events, direction, 20), Err(InDoubt::Disordered));
    }
}

#[test]
fn a_truncated_page_is_requested_again_in_shorter_windows() {
    let events: Vec<_> = (1..=300).map(|offset| (offset, 1_000_000 + offset * 7)).collect();
    for direction in [Direction::Up, Direction::Down] {
        let (from, to) = if direction == Direction::Up { (1_000_000, 1_010_000) } else { (1_010_000, 1_000_000) };
        let (mut windows, mut found) = (Windows::new(direction, from, to, 20, 64), 0);
        while let Some(window) = windows.next() {
            windows.read(window, page(&events, window, 5), |_| true).unwrap();
            found += windows.take(u16::MAX).len();
        }
        assert_eq!(found + windows.take(u16::MAX).len(), events.len(), "{direction:?}");
    }
}

#[test]
fn an_unrelated_has_more_does_not_stop_the_walk() {
    let mut windows = Windows::new(Direction::Up, 0, 1000, 20, 64);
    let mut asked = 0;
    while let Some(window) = windows.next() {
        windows.read(window, Page { events: Vec::new(), has_more: true }, |_| true).unwrap();
        asked += 1;
    }
    assert!(asked < 30, "{asked}");
}

#[test]
fn on_a_slow_line_every_event_is_listed_once_with_shorter_pages_that_grow_again() {
    let events: Vec<_> = (1..=3000).map(|offset| (offset, 1_000_000 + offset / 2)).collect();
    // A page with more events than this does not arrive in time.
    let slow = 40;
    for direction in [Direction::Up, Direction::Down] {
        let (from, to) = if direction == Direction::Up { (999_000, 1_003_000) } else { (1_003_000, 999_000) };
        let (mut windows, mut found, mut late, mut lowest) = (Windows::new(direction, from, to, 200, 64), 0, 0, 200);
        while let Some(window) = windows.next() {
            let page = page(&events, window, windows.limit().into());
            if page.events.len() > slow {
                late += 1;
                windows.timed_out();
                windows.forget_unsettled();
                lowest = windows.limit();
            } else {
                windows.read(window, page, |_| true).unwrap();
            }
            found += windows.take(u16::MAX).len();
        }
        assert_eq!(found + windows.take(u16::MAX).len(), events.len(), "{direction:?}");
        assert!(
            (3..60).contains(&late) && windows.limit() > lowest,
            "{direction:?}: {late} pages were late; the limit was {lowest}, and is {}",
            windows.limit()
        );
    }
}

#[test]
fn a_second_with_more_events_than_a_shortened_page_is_read_with_a_long_page() {
    let crowded: Vec<_> = (1..=100).map(|offset| (offset, 5000)).collect();
    let mut windows = Windows::new(Direction::Up, 0, 10_000, 200, 64);
    windows.timed_out();
    windows.timed_out();
    assert_eq!(windows.limit(), 50);
    let mut found = 0;
    while let Some(window) = windows.next() {
        windows.read(window, page(&crowded, window, windows.limit().into()), |_| true).unwrap();
        found += windows.take(u16::MAX).len();
    }
    assert_eq!(found + windows.take(u16::MAX).len(), crowded.len());
}

#[test]
fn a_long_page_for_one_second_does_not_lengthen_the_other_pages() {
    // The number of events in each second. A page with more than 150 does not arrive in time.
    let seconds = [(1_000, 120), (1_001, 60), (1_002, 80), (1_003, 80), (1_004, 80), (1_100, 1)];
    let created = seconds.iter().flat_map(|(second, number)| std::iter::repeat_n(*second, *number));
    let events: Vec<_> = (1..).zip(created).collect();
    let (mut windows, mut found, mut late) = (Windows::new(Direction::Up, 0, 2_000, 200, 64), 0, 0);
    while let Some(window) = windows.next() {
        let page = page(&events, window, windows.limit().into());
        if page.events.len() > 150 {
            late += 1;
            assert!(late < 20, "the same page is late again and again");
            windows.timed_out();
            windows.forget_unsettled();
        } else {
            windows.read(window, page, |_| true).unwrap();
        }
        found += windows.take(u16::MAX).len();
    }
    assert!(late > 0);
    assert_eq!(found + windows.take(u16::MAX).len(), events.len());
}
