//! A standby database that lacks the last commits and claims is promoted. No event is lost.

use std::sync::Arc;
use std::time::Duration;

use simulator::Options;

use super::arrivals::Arrivals;
use super::instances::Instances;
use crate::support::{Database, Line, Relay, Server, skip};

const CHANNELS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_standby_without_recent_commits_loses_nothing() {
    let Some(primary) = Server::start() else { return skip("PostgreSQL") };
    let replication = Relay::before(primary.socket()).await;
    let database = Database::on(Arc::new(primary)).await;
    let options = Options { channels: CHANNELS, events: 10, ..Options::default() };
    let mut instances = Instances::new(database, 3, options).await;
    let (primary, relay) = (instances.database.server.clone(), replication.address());
    let copying = tokio::task::spawn_blocking(move || primary.standby(relay));
    let standby = Arc::new(copying.await.unwrap());
    let publishing = instances.publish_every(Duration::from_secs(1));
    (0..2).for_each(|instance| instances.start(instance));
    let shared = "select count(distinct owner) from channeld.channels";
    instances.until_number("both instances own channels", shared, 2).await;
    let moves = |arrivals: &Arrivals| (0..CHANNELS).all(|channel| arrivals.count(channel) > 10);
    instances.until("every channel delivers", moves).await;
    let primary = instances.database.server.clone();
    primary.is_followed_by(&standby).await;

    // From now on the standby receives nothing: not the death of an instance, the claims of the other instance, or its
    // commits.
    replication.becomes(Line::Silent);
    instances.kill(0).await;
    instances.until_live(1).await;
    let of_a_live_one = "select count(*) from channeld.channels c join channeld.instances i on i.id = c.owner \
                         where i.heartbeat + i.lease > clock_timestamp()";
    instances
        .until_number("the other instance owns all channels", of_a_live_one, i64::try_from(CHANNELS).unwrap())
        .await;
    instances.go_on_for(Duration::from_secs(2)).await;
    let highest = "select max(through) from audit.cursors";
    let epochs = "select max(epoch) from audit.channels";
    let (recorded, epoch) = (instances.database.number(highest).await, instances.database.number(epochs).await);

    drop(replication);
    primary.kill();
    instances.database = instances.database.also_on(&standby);
    for instance in instances.iter() {
        instance.relay.leads_to(standby.socket());
        instance.relay.cut();
    }
    standby.promote().await;
    let (known, known_epoch) = (instances.database.number(highest).await, instances.database.number(epochs).await);
    assert!(known < recorded && known_epoch < epoch, "commits and claims are lost");
    instances.start(2);
    instances.until_live(2).await;
    drop(publishing);
    instances.until_all_arrived().await;
    instances.stop_all().await;
    instances.arrivals.assert_all_arrived(&instances.simulator);
    instances.database.assert_sound().await;
    let older =
        format!("select count(*) from audit.channels where is_commit and epoch > {known_epoch} and epoch <= {epoch}");
    assert_eq!(instances.database.number(&older).await, 0, "no commit has the epoch of a lost claim");
}
