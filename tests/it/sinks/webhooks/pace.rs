//! The rate limit of a webhook.

use std::time::{Duration, Instant};

use simulator::{Options, Simulator};

use super::webhook_only;
use crate::support::{Receiver, Reply};

#[tokio::test]
async fn the_rate_limit_of_a_sink_spans_channels_and_does_not_delay_a_stop() {
    const INTERVAL: Duration = Duration::from_millis(50);
    let simulator =
        Simulator::start(Options { events: 10, channels: 2, unsigned: 0.2, ..Options::default() }).await.unwrap();
    let receiver = Receiver::start().await;
    let setup = webhook_only(&simulator, &receiver)
        .with("channels.c1.sinks", vec!["hook"])
        .with("sinks.hook.rate_limit", "20/s");
    receiver.reply(Reply::Refuse(503, None), 1);
    let mut daemon = setup.start();
    daemon.until("everything arrives", |_| receiver.received() == 20).await;
    daemon.stop().await;
    let arrivals = receiver.arrivals();
    // The 20 arrivals have 19 intervals. A delayed request shortens the interval after it, so four of them are
    // tolerance.
    let least = INTERVAL * 15;
    let took = arrivals[19] - arrivals[0];
    assert!(took >= least, "{took:?}");

    simulator.publish(0, 5);
    let setup = setup.with("sinks.hook.rate_limit", "1/h");
    let mut daemon = setup.start();
    daemon.until("the first request is sent", |_| receiver.received() == 21).await;
    let asked = Instant::now();
    daemon.stop().await;
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    assert_eq!(receiver.received(), 21);
}
