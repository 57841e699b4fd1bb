//! Whom to ask first.

use super::*;

fn asked(order: &Order, found: &[usize]) -> Vec<usize> {
    let snapshot = order.snapshot();
    (0..).map_while(|turn| snapshot.likely(found, turn)).collect()
}

#[test]
fn every_member_is_asked_once_also_where_nothing_was_learned() {
    assert_eq!(asked(&Order::new(4), &[]), [0, 1, 2, 3]);
    assert_eq!(asked(&Order::new(4), &[2]), [0, 1, 2, 3]);
}

#[test]
fn the_member_that_came_most_often_after_the_last_one_is_asked_first() {
    let order = Order::new(4);
    order.learn([&[2, 0, 3][..], &[2, 3], &[2, 3], &[1]]);
    assert_eq!(asked(&order, &[])[..2], [2, 1]);
    assert_eq!(asked(&order, &[1, 2])[..2], [3, 0]);
    assert_eq!(asked(&order, &[0])[0], 3);
}

#[test]
fn another_order_is_learned_however_long_there_was_the_first() {
    let order = Order::new(3);
    (0..100_000).for_each(|_| order.learn([&[0, 1][..]]));
    (0..ENOUGH).for_each(|_| order.learn([&[0, 2][..]]));
    assert_eq!(asked(&order, &[0]), [2, 1, 0]);
}

#[test]
fn the_expected_number_of_questions_tells_an_order_from_none() {
    let (none, order, cycle) = (Order::new(31), Order::new(31), [0, 1, 2, 3, 4]);
    assert_eq!(none.snapshot().expected(), 0);
    (0..31)
        .for_each(|first| none.learn((0..31).map(|next| [first, next]).collect::<Vec<_>>().iter().map(|two| &two[..])));
    order.learn([&cycle[..]; 100]);
    assert_eq!((none.snapshot().expected(), order.snapshot().expected()), (16, 1));
}
