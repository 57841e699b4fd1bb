//! A sink in trouble costs the others nothing, and itself only time.

use channeld::simulator::{Options, Simulator};

use crate::support::{Receiver, Reply, Setup, deliverable, offsets};

#[tokio::test]
async fn nothing_is_lost_for_a_sink_that_was_dead_nor_for_the_one_beside_it() {
    for refusal in
        [Reply::Refuse(503, None), Reply::Refuse(400, None), Reply::Refuse(429, Some(0)), Reply::Refuse(302, None)]
    {
        let simulator = Simulator::start(Options { events: 60, unsigned: 0.2, ..Options::default() }).await.unwrap();
        let receiver = Receiver::start().await;
        let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", 10);
        receiver.always(Some(refusal));
        let mut daemon = setup.start();
        daemon.until("it was asked often", |_| receiver.requests() > 10).await;
        assert!(setup.lines() >= 10, "the other has the first batch at least");
        receiver.always(None);
        let expected = deliverable(&simulator, 0);
        daemon.until("everything arrives", |_| receiver.received() == 60 && setup.lines() == 60).await;
        let log = daemon.stop().await;

        assert_eq!(setup.offsets("c0"), expected);
        assert_eq!(offsets(&receiver.delivered()), expected, "{refusal:?}");
        assert_eq!(log.lines("sink refused: its events wait and are offered again").len(), 1, "said once");
        assert_eq!(log.lines("sink accepts again").len(), 1);
    }
}

#[tokio::test]
async fn what_a_webhook_took_of_a_batch_is_not_posted_again() {
    let simulator = Simulator::start(Options { events: 30, ..Options::default() }).await.unwrap();
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    for _ in 0..5 {
        receiver.reply(Reply::Slow(std::time::Duration::ZERO), 4);
        receiver.reply(Reply::Refuse(500, None), 2);
    }
    let mut daemon = setup.start();
    daemon.until("everything arrives", |_| receiver.received() == 30).await;
    daemon.stop().await;
    assert_eq!((offsets(&receiver.delivered()), receiver.requests()), (deliverable(&simulator, 0), 40));
}

#[tokio::test]
async fn a_file_whose_directory_comes_later_gets_everything() {
    let simulator = Simulator::start(Options { events: 12, ..Options::default() }).await.unwrap();
    let receiver = Receiver::start().await;
    let mut setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    let path = setup.path("later").join("events.jsonl");
    setup.set("sinks.file.path", path.display().to_string());
    let mut daemon = setup.start();
    daemon.until("the other has everything", |_| receiver.received() == 12).await;
    daemon.until_logged("sink refused: its events wait and are offered again").await;

    std::fs::create_dir(setup.path("later")).unwrap();

    let lines = || std::fs::read_to_string(&path).map_or(0, |text| text.lines().count());
    daemon.until("the file has everything", |_| lines() == 12).await;
    daemon.stop().await;
    assert_eq!(offsets(&crate::support::Delivered::read(&path)), deliverable(&simulator, 0));
}
