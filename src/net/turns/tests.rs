use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use super::*;
use crate::retry::{Retry, RetryPolicy};

const SECOND: Duration = Duration::from_secs(1);

fn limited(requests: u32) -> Arc<Turns> {
    let turns = Arc::<Turns>::default();
    turns.limit(Some(Rate { requests, per: SECOND }));
    turns
}

fn callers<const N: usize>(turns: &Arc<Turns>) -> [Arc<Caller>; N] {
    [(); N].map(|()| Caller::of(turns))
}

/// The most turns within a tenth of a second.
fn peak(times: &mut [Duration]) -> usize {
    times.sort_unstable();
    let within = |from: &Duration| times.iter().filter(|time| (*from..*from + SECOND / 10).contains(*time)).count();
    times.iter().map(within).max().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn turns_are_evenly_spaced_without_bursts() {
    let [caller] = callers(&limited(10));
    for _ in 0..2 {
        let began = Instant::now();
        for turn in 0..5 {
            caller.turn().await;
            assert_eq!(began.elapsed(), SECOND / 10 * turn);
        }
        sleep(60 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_share_the_rate_and_a_dropped_wait_uses_no_turn() {
    let [caller] = callers(&limited(1));
    let began = Instant::now();
    caller.turn().await;
    timeout(SECOND / 2, caller.turn()).await.unwrap_err();
    tokio::join!(caller.turn(), caller.turn(), caller.turn());
    assert_eq!(began.elapsed(), 3 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_high_rate_is_kept_and_used() {
    let turns = limited(300);
    let callers: [_; 50] = callers(&turns);
    let began = Instant::now();
    let ask = |caller: Arc<Caller>| async move {
        let mut times = Vec::new();
        for _ in 0..60 {
            caller.turn().await;
            times.push(began.elapsed());
        }
        times
    };
    let mut times = join_all(callers.map(ask)).await.concat();
    assert!(peak(&mut times) <= 33, "{}", peak(&mut times));
    assert!(times.last().unwrap() < &(11 * SECOND), "{:?}", times.last());
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_many_requests_does_not_delay_another_caller() {
    let turns = limited(10);
    let [busy, calm] = callers(&turns);
    let began = Instant::now();
    let many = join_all((0..30).map(|_| busy.turn()));
    let few = async {
        sleep(SECOND / 2).await;
        let asked = began.elapsed();
        for turn in 1..=3 {
            calm.turn().await;
            assert!(began.elapsed().saturating_sub(asked) <= SECOND / 10 * 2 * turn, "{turn}: {:?}", began.elapsed());
        }
    };
    tokio::join!(many, few);
}

#[tokio::test(start_paused = true)]
async fn processes_share_the_rate_and_a_new_share_applies_at_once() {
    let turns = limited(1);
    turns.share_among(60);
    let [caller] = callers(&turns);
    let began = Instant::now();
    caller.turn().await;
    let next = async {
        caller.turn().await;
        caller.turn().await;
    };
    let share = async {
        sleep(SECOND).await;
        assert!(caller.waits());
        turns.share_among(2);
    };
    tokio::join!(next, share);
    assert_eq!(began.elapsed(), 3 * SECOND);
    assert!(!caller.waits() && caller.waited_until().is_some());
}

#[tokio::test(start_paused = true)]
async fn without_a_rate_no_request_waits() {
    let [caller] = callers(&Arc::default());
    for _ in 0..1000 {
        let turn = caller.turn().now_or_never().unwrap();
        caller.accepted(turn);
    }
    assert_eq!(caller.waited_until(), None);
}

/// Every caller sends one request at `at`, and repeats it as the channels do while the server refuses it. The server refuses
/// all requests of the first second. Returns the times of the later requests.
async fn returns(at: impl Fn(usize) -> Duration) -> Vec<Duration> {
    let callers: [_; 300] = callers(&Arc::default());
    let began = Instant::now();
    let ask = |(number, caller): (usize, Arc<Caller>)| {
        let first = at(number);
        async move {
            let mut retry = Retry::new(RetryPolicy { wait: 2 * SECOND, max_wait: 60 * SECOND });
            sleep(first).await;
            loop {
                let turn = caller.turn().await;
                let time = began.elapsed();
                if time >= SECOND {
                    caller.accepted(turn);
                    return time;
                }
                let asked = Some(2 * SECOND);
                caller.refused(turn, asked);
                sleep(retry.next_wait(asked)).await;
            }
        }
    };
    join_all(callers.into_iter().enumerate().map(ask)).await
}

#[tokio::test(start_paused = true)]
async fn callers_that_were_all_refused_return_spread() {
    let mut times = returns(|_| Duration::ZERO).await;
    assert!(peak(&mut times) <= 35, "{}", peak(&mut times));
    assert!(times[0] >= 2 * SECOND && times[299] < 6 * SECOND, "{:?} to {:?}", times[0], times[299]);
}

#[tokio::test(start_paused = true)]
async fn callers_that_were_not_refused_wait_for_the_pause_of_another_and_return_spread() {
    // Only the first caller asks before the pause.
    let mut times = returns(|number| if number == 0 { Duration::ZERO } else { SECOND / 2 }).await;
    assert!(peak(&mut times) <= 20, "{}", peak(&mut times));
    assert!(times[0] >= 2 * SECOND && times[299] < 6 * SECOND, "{:?} to {:?}", times[0], times[299]);
}

/// The times in seconds at which the only caller has its turns while the server refuses all requests.
async fn refused(asked: impl Fn(u64) -> Option<u64>) -> [u64; 5] {
    let [caller] = callers(&Arc::default());
    let (began, mut times) = (Instant::now(), [0; 5]);
    for time in &mut times {
        let turn = caller.turn().await;
        *time = began.elapsed().as_secs();
        caller.refused(turn, asked(*time).map(Duration::from_secs));
    }
    times
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_while_the_server_refuses() {
    assert_eq!(refused(|_| None).await, [0, 2, 6, 14, 30]);
    // The server asks for a pause until the hundredth second, and this is trusted more with each refusal.
    assert_eq!(refused(|now| Some(100_u64.saturating_sub(now))).await, [0, 10, 30, 70, 100]);
}

#[tokio::test(start_paused = true)]
async fn after_a_server_that_refused_everything_for_a_while_turns_are_soon_dense_again() {
    let callers: [_; 4] = callers(&Arc::default());
    let began = Instant::now();
    let ask = |caller: Arc<Caller>| async move {
        let mut accepted = 0;
        while accepted < 20 {
            let turn = caller.turn().await;
            if began.elapsed() < 10 * SECOND {
                caller.refused(turn, Some(SECOND));
            } else {
                caller.accepted(turn);
                accepted += 1;
            }
        }
    };
    join_all(callers.into_iter().map(ask)).await;
    assert!(began.elapsed() < 15 * SECOND, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_concerns_one_caller_stops_the_others_only_once() {
    let turns = Arc::<Turns>::default();
    let [refused, other] = callers(&turns);
    let (began, hour) = (Instant::now(), Some(3600 * SECOND));
    refused.refused(refused.turn().await, hour);
    assert!(other.turn().now_or_never().is_none());
    assert_eq!(turns.pause(), Some(10 * SECOND));
    other.accepted(other.turn().await);
    assert_eq!(began.elapsed(), 10 * SECOND);
    for _ in 0..100 {
        refused.refused(refused.turn().now_or_never().unwrap(), hour);
        other.accepted(other.turn().now_or_never().unwrap());
    }
    // Without an accepted request in between, further refusals concern all callers again.
    refused.refused(Turn::now(), hour);
    assert_eq!(turns.pause(), None);
    refused.refused(Turn::now(), hour);
    assert_eq!(turns.pause(), Some(10 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_an_earlier_request_does_not_end_a_pause() {
    let turns = Arc::<Turns>::default();
    let [caller] = callers(&turns);
    let earlier = caller.turn().await;
    sleep(SECOND).await;
    caller.refused(earlier, Some(5 * SECOND));
    caller.accepted(earlier);
    assert_eq!(turns.pause(), Some(5 * SECOND));
    turns.forget_refusals();
    assert!(turns.pause().is_none() && caller.turn().now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_passes_the_turn_on() {
    let turns = limited(1);
    let [first, second] = callers(&turns);
    first.turn().await;
    let mut next = Box::pin(first.turn());
    assert!(next.as_mut().now_or_never().is_none());
    let mut last = Box::pin(second.turn());
    assert!(last.as_mut().now_or_never().is_none());
    drop(next);
    timeout(2 * SECOND, last).await.unwrap();
}

/// The time until the only regular caller has had ten turns after a pause of a second.
async fn ten_turns_after_a_pause(turns: &Arc<Turns>) -> Duration {
    let [caller] = callers(turns);
    caller.refused(caller.turn().await, Some(SECOND));
    let began = Instant::now();
    for _ in 0..10 {
        let turn = caller.turn().await;
        caller.accepted(turn);
    }
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn an_occasional_caller_does_not_spread_the_turns_of_the_only_regular_one() {
    let (alone, shared) = (Arc::<Turns>::default(), Arc::<Turns>::default());
    assert_eq!(ten_turns_after_a_pause(&alone).await, SECOND);
    let occasional = Caller::occasional(&shared);
    assert_eq!(ten_turns_after_a_pause(&shared).await, SECOND);
    assert!(occasional.turn().now_or_never().is_some());
    drop(occasional);
    let _regular = Caller::of(&shared);
    assert!(ten_turns_after_a_pause(&shared).await > SECOND, "two regular callers are spread");
}
