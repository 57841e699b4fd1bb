//! A Kafka broker with its default settings, except for directories, replication factors and 1 GiB of memory.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tempfile::TempDir;

use super::daemon::LOOK_AGAIN;
use super::machine::scratch;
use super::process::{Cost, Process};

/// The longest wait for the start of the broker, and for each record of a topic.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running broker with its own data. It is stopped on drop.
pub(crate) struct Kafka {
    process: Process,
    address: SocketAddr,
    /// The data, which must not be deleted before the broker has ended.
    _directory: TempDir,
}

impl Kafka {
    /// Returns `None` if `.ci/run` has not installed Kafka in target/tools, or if Java is missing.
    pub(crate) fn start() -> Option<Self> {
        let jars = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/kafka");
        if !jars.exists() {
            return None;
        }
        let java = |class: &str| {
            let mut java = Command::new("java");
            java.arg("-Xmx1g").arg("-cp").arg(jars.join("*")).arg(class);
            java
        };
        let directory = scratch();
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [address, controller] = listeners.map(|listener| listener.local_addr().unwrap());
        let [file, data, log] = ["server.properties", "data", "log"].map(|name| directory.path().join(name));
        let properties = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@{controller}\n\
             listeners=PLAINTEXT://{address},CONTROLLER://{controller}\nadvertised.listeners=PLAINTEXT://{address}\n\
             controller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\nlog.dirs={}\n\
             offsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n\
             transaction.state.log.min.isr=1\n",
            data.display()
        );
        fs::write(&file, properties).unwrap();
        let mut format = java("kafka.tools.StorageTool");
        let formatted = format.args(["format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c"]).arg(&file).output().ok()?;
        assert!(formatted.status.success(), "{}", String::from_utf8_lossy(&formatted.stderr));
        let process = Process::start(java("kafka.Kafka").arg(file), Stdio::null(), &log);
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "the broker does not start: {}", fs::read_to_string(log).unwrap());
            std::thread::sleep(LOOK_AGAIN);
        }
        Some(Self { process, address, _directory: directory })
    }

    /// The configuration of a sink that produces to this topic.
    pub(crate) fn sink(&self, topic: &str) -> String {
        format!(
            "{{type = \"kafka\", brokers = [\"{}\"], topic = \"{topic}\", transactional_id = \"{topic}\"}}",
            self.address
        )
    }

    /// The number of committed events in a topic.
    pub(crate) fn count(&self, topic: &str) -> usize {
        let reader: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", self.address.to_string())
            .set("group.id", "bench")
            .set("isolation.level", "read_committed")
            .set("enable.partition.eof", "true")
            .create()
            .unwrap();
        let metadata = reader.fetch_metadata(Some(topic), PATIENCE).unwrap();
        let (mut assigned, mut left) = (TopicPartitionList::new(), 0);
        for partition in metadata.topics()[0].partitions() {
            assigned.add_partition_offset(topic, partition.id(), Offset::Beginning).unwrap();
            left += 1;
        }
        reader.assign(&assigned).unwrap();
        let mut count = 0;
        while left > 0 {
            match reader.poll(PATIENCE).expect("it is read to its end") {
                Ok(_) => count += 1,
                Err(rdkafka::error::KafkaError::PartitionEOF(_)) => left -= 1,
                Err(error) => panic!("{error}"),
            }
        }
        count
    }

    pub(crate) fn cost(&self) -> Cost {
        self.process.cost()
    }
}
