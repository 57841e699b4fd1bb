//! Who is asked, and when nobody.

use super::*;

const ADDITIONS: usize = 33;

fn after(last: Option<Maker>) -> After {
    After { last, ..After::default() }
}

fn likely(order: &Order, last: Option<Maker>, found: &[usize]) -> Vec<usize> {
    order.likely(after(last), found).collect()
}

fn came(order: &Order, last: Option<Maker>, next: Maker, times: usize) {
    (0..times).for_each(|_| order.learn(after(last), next, Asked::Found(1)));
}

#[test]
fn nobody_is_asked_where_nothing_was_learned() {
    let order = Order::new(4, ADDITIONS);
    assert!(order.pays());
    assert!(likely(&order, None, &[]).is_empty());
    assert_eq!(order.certain(after(None)), None);
}

#[test]
fn the_likeliest_is_asked_first_and_who_was_found_is_not_asked() {
    let order = Order::new(4, ADDITIONS);
    came(&order, None, Maker::Member(2), 5);
    came(&order, None, Maker::Member(0), 9);
    came(&order, None, Maker::Member(3), 7);
    assert_eq!(likely(&order, None, &[]), [0, 3, 2]);
    assert_eq!(likely(&order, None, &[3]), [0, 2]);
    assert!(likely(&order, Some(Maker::Member(0)), &[]).is_empty());
}

#[test]
fn what_only_recovery_can_tell_ends_the_asking() {
    let order = Order::new(4, ADDITIONS);
    came(&order, None, Maker::Member(0), 9);
    came(&order, None, Maker::Member(1), 3);
    came(&order, None, Maker::Other, 6);
    assert_eq!(likely(&order, None, &[]), [0]);
}

#[test]
fn no_more_are_asked_than_a_recovery_is_worth() {
    let order = Order::new(40, ADDITIONS);
    (0..40).for_each(|member| came(&order, None, Maker::Member(member), 3));
    let most = usize::try_from((RECOVERY - READY) / order.asking).unwrap();
    assert_eq!(likely(&order, None, &[]).len(), most);
}

#[test]
fn who_nearly_always_comes_is_certain_until_others_come() {
    let order = Order::new(4, ADDITIONS);
    came(&order, None, Maker::Member(1), 1000);
    assert_eq!(order.certain(after(None)), Some(1));
    came(&order, None, Maker::Member(2), 100);
    assert_eq!(order.certain(after(None)), None);
    came(&order, None, Maker::Member(2), 1000);
    assert_eq!(order.certain(after(None)), Some(2));
}

#[test]
fn asking_that_misleads_ends_and_comes_back_only_once_it_would_have_paid() {
    let order = Order::new(4, ADDITIONS);
    let (mut in_vain, mut proven) = (0, 0);
    while order.pays() {
        order.learn(after(None), Maker::Other, Asked::InVain(3));
        in_vain += 1;
    }
    while !order.pays() {
        order.learn(after(None), Maker::Member(0), Asked::Found(1));
        proven += 1;
    }
    // Less is lost than so many recoveries, and it takes far more that would have been saved.
    assert!(in_vain * order.cost(3) <= KEPT + order.cost(3), "{in_vain}");
    assert!(proven >= 64, "{proven}");
}

#[test]
fn the_proof_before_tells_who_comes_now_as_far_as_proofs_are_told_apart() {
    for (members, tells) in [(4, true), (20, true), (300, false)] {
        let order = Order::new(members, ADDITIONS);
        let after = |last: usize| After { last: None, earlier: order.earlier(&[last, (last + 1) % members]) };
        for turn in 0..4000 {
            order.learn(after(turn % members), Maker::Member((turn + 1) % members), Asked::Found(1));
        }
        let certain = (0..members).filter(|last| order.certain(after(*last)) == Some((last + 1) % members));
        assert_eq!(certain.count(), if tells { members } else { 0 }, "{members}");
    }
}

#[test]
fn who_is_certain_is_asked_before_those_that_come_more_often() {
    let order = Order::new(4, ADDITIONS);
    came(&order, None, Maker::Member(0), 100);
    let after = After { last: None, earlier: order.earlier(&[2, 3]) };
    for times in 0..OFTEN {
        assert_eq!(order.certain(after), None, "{times}");
        order.learn(after, Maker::Member(1), Asked::Found(1));
    }
    assert_eq!(order.likely(after, &[]).collect::<Vec<_>>(), [1, 0]);
    assert_eq!(order.likely(after, &[1]).collect::<Vec<_>>(), [0]);
}
