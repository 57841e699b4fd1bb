//! The daemon sends the right messages to the service manager, in the protocol of systemd, and the two units have the same
//! settings. `deploy/debian/test/run` runs the units.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::unistd::Pid;
use rustix::process::Signal;
use simulator::{Options, Simulator};

use crate::support::{Daemon, Receiver, Reply, Setup, can_trace};

/// The watchdog timeout. The daemon sends a watchdog message at half of this interval.
const WATCHDOG: Duration = Duration::from_millis(400);

/// If no watchdog message arrives for this time, the daemon has stopped sending them. Much longer than the interval.
const SILENCE: Duration = Duration::from_secs(3);

/// The service manager's side of the protocol.
struct ServiceManager {
    socket: UnixDatagram,
    messages: Vec<String>,
}

impl ServiceManager {
    /// Listens on a socket in the directory of the setup. The environment of its daemons names the socket.
    fn of(setup: &mut Setup) -> Self {
        let path = setup.path("notify");
        let address = SocketAddr::from_pathname(&path).unwrap();
        Self::at(&address, path, setup)
    }

    fn at(address: &SocketAddr, name: impl Into<OsString>, setup: &mut Setup) -> Self {
        let socket = UnixDatagram::bind_addr(address).unwrap();
        socket.set_nonblocking(true).unwrap();
        setup.set_environment("NOTIFY_SOCKET", name);
        Self { socket, messages: Vec::new() }
    }

    /// Receives new messages, and returns all messages except watchdog messages.
    fn told(&mut self) -> Vec<&str> {
        self.listen();
        self.messages.iter().map(String::as_str).filter(|message| *message != "WATCHDOG=1").collect()
    }

    /// The number of received watchdog messages.
    fn fed(&mut self) -> usize {
        self.listen();
        self.messages.iter().filter(|message| *message == "WATCHDOG=1").count()
    }

    fn listen(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok(size) = self.socket.recv(&mut buffer) {
            let message = std::str::from_utf8(&buffer[..size]).unwrap();
            self.messages.push(message.trim_end().to_owned());
        }
    }

    /// Whether a received message contains all of these lines.
    fn was_told(&mut self, lines: &[&str]) -> bool {
        self.times_told(lines) > 0
    }

    fn times_told(&mut self, lines: &[&str]) -> usize {
        let has = |message: &&str| lines.iter().all(|line| message.lines().any(|told| told == *line));
        self.told().into_iter().filter(has).count()
    }

    async fn until_told(&mut self, daemon: &mut Daemon, lines: &[&str]) {
        daemon.until(&format!("{lines:?}"), |_| self.was_told(lines)).await;
    }
}

async fn service() -> Simulator {
    Simulator::start(Options { channels: 2, events: 10, ..Options::default() }).await.unwrap()
}

#[tokio::test]
async fn systemd_is_notified_of_start_stop_and_status() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let mut setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("shutdown_grace", "2s");
    let mut manager = ServiceManager::of(&mut setup);
    let mut daemon = setup.start();
    manager.until_told(&mut daemon, &["READY=1"]).await;
    manager.until_told(&mut daemon, &["STATUS=2 channels, ready"]).await;

    receiver.always(Some(Reply::Hang));
    let before = receiver.requests();
    simulator.publish(0, 1);
    daemon.until("the webhook receives a batch", |_| receiver.requests() > before).await;
    daemon.signal(Signal::TERM);
    let stopping = "STATUS=stopping: finishing and recording the current batch";
    manager.until_told(&mut daemon, &["STOPPING=1", "EXTEND_TIMEOUT_USEC=12000000", stopping]).await;
    assert_eq!(daemon.ended().await.code, Some(0));
    let told = manager.told();
    assert!(told.iter().any(|message| message.starts_with("READY=1\nSTATUS=")), "one message: {told:?}");
    assert!(told.last().unwrap().starts_with("STOPPING=1\n"), "no other message follows: {told:?}");
    assert_eq!(manager.fed(), 0, "the manager did not request watchdog messages");
}

#[tokio::test]
async fn a_start_is_notified_although_the_service_is_unreachable() {
    let mut setup = Setup::of("http://127.0.0.1:9/v1", "key-of-a-test", &[proof::event::ChannelId(uuid())]);
    let mut manager = ServiceManager::of(&mut setup);
    let mut daemon = setup.start();
    manager.until_told(&mut daemon, &["READY=1"]).await;
    manager.until_told(&mut daemon, &["STATUS=1 channel, not ready for 1 reason: see channeld status"]).await;
    daemon.stop().await;
}

fn uuid() -> uuid::Uuid {
    uuid::Uuid::from_u128(1)
}

#[tokio::test]
async fn a_reload_is_notified_from_beginning_to_end() {
    let simulator = service().await;
    let mut setup = Setup::reading(&simulator);
    let mut manager = ServiceManager::of(&mut setup);
    let mut daemon = setup.start();
    manager.until_told(&mut daemon, &["READY=1"]).await;

    let began = monotonic();
    daemon.signal(Signal::HUP);
    manager.until_told(&mut daemon, &["RELOADING=1"]).await;
    daemon.until("the reload ends", |_| manager.times_told(&["READY=1"]) == 2).await;
    let told = manager.told();
    let reloading = told.iter().position(|message| message.starts_with("RELOADING=1\n")).unwrap();
    let when = told[reloading].lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).unwrap();
    let when = Duration::from_micros(when.parse().unwrap());
    assert!(began <= when && when <= monotonic(), "{began:?} {when:?}");
    assert!(told[reloading..].iter().any(|message| message.starts_with("READY=1\n")), "{told:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_rejected_reload_ends_and_stays_in_the_status_until_one_is_accepted() {
    let simulator = service().await;
    let mut setup = Setup::reading(&simulator);
    let mut manager = ServiceManager::of(&mut setup);
    let mut daemon = setup.start();
    manager.until_told(&mut daemon, &["STATUS=2 channels, ready"]).await;

    setup.write_but("api.page_limit", 1000);
    daemon.signal(Signal::HUP);
    let rejected = "STATUS=2 channels, ready; the last configuration was rejected: see the log";
    manager.until_told(&mut daemon, &["READY=1", rejected]).await;
    setup.write();
    daemon.signal(Signal::HUP);
    manager.until_told(&mut daemon, &["READY=1", "STATUS=2 channels, ready"]).await;
    assert_eq!(manager.times_told(&["RELOADING=1"]), 2);
    daemon.stop().await;
}

#[tokio::test]
async fn watchdog_messages_are_on_time() {
    let simulator = service().await;
    let mut setup = Setup::reading(&simulator);
    setup.set_environment("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
    let mut manager = ServiceManager::of(&mut setup);
    let mut daemon = setup.start();
    daemon.until("ten watchdog messages arrive", |_| manager.fed() >= 10).await;
    daemon.stop().await;
}

#[tokio::test]
async fn watchdog_messages_come_only_from_the_process_that_systemd_watches() {
    let simulator = service().await;
    let mut setup = Setup::reading(&simulator);
    setup.set_environment("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
    setup.set_environment("WATCHDOG_PID", "1");
    let mut manager = ServiceManager::of(&mut setup);
    let mut daemon = setup.start();
    manager.until_told(&mut daemon, &["STATUS=2 channels, ready"]).await;
    daemon.stop().await;
    assert_eq!(manager.fed(), 0);
}

#[tokio::test]
async fn no_watchdog_message_is_sent_while_the_daemon_makes_no_progress() {
    if !can_trace() {
        return;
    }
    let simulator = service().await;
    let mut setup = Setup::reading(&simulator);
    setup.set_environment("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
    let mut manager = ServiceManager::of(&mut setup);
    let mut daemon = setup.start();
    daemon.until("watchdog messages arrive", |_| manager.fed() >= 3).await;

    let frozen = Frozen::workers_of(daemon.pid());
    let (mut fed, mut since) = (manager.fed(), Instant::now());
    daemon
        .until("no watchdog message arrives any more", |_| {
            let now = manager.fed();
            if now != fed {
                (fed, since) = (now, Instant::now());
            }
            since.elapsed() > SILENCE
        })
        .await;
    drop(frozen);
    daemon.until("watchdog messages arrive again", |_| manager.fed() > fed + 3).await;
    daemon.stop().await;
}

#[tokio::test]
async fn an_abstract_socket_works_and_a_socket_without_a_listener_is_harmless() {
    let simulator = service().await;
    let mut setup = Setup::reading(&simulator);
    let name = format!("channeld-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let mut manager = ServiceManager::at(&address, format!("@{name}"), &mut setup);
    let mut daemon = setup.start();
    manager.until_told(&mut daemon, &["READY=1"]).await;
    daemon.stop().await;

    for useless in ["@no-listener-here", "/nowhere/at/all", "vsock:2:1234"] {
        setup.set_environment("NOTIFY_SOCKET", useless);
        setup.run_until_lines(20).await;
    }
}

#[test]
fn the_template_unit_has_the_settings_of_the_single_unit() {
    let directives = |name: &str| {
        let unit = std::fs::read_to_string(format!("{}/systemd/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let lines = unit.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned);
        lines.collect::<Vec<_>>()
    };
    let of_one = |line: String| {
        let line = line.replace("/etc/channeld/%i.toml", "/etc/channeld/channeld.toml");
        line.replace("%i.api-key", "api-key")
            .replace("Directory=channeld@%i", "Directory=channeld")
            .replace(" (%i)", "")
    };
    let of_several = directives("channeld@.service").into_iter().map(of_one).collect::<Vec<_>>();
    let of_single = directives("channeld.service");
    assert_eq!(of_several, of_single);
    // The usual limit of 1,024 descriptors is too low for many channels.
    let limit = of_single.iter().find_map(|line| line.strip_prefix("LimitNOFILE=")).unwrap();
    assert!(limit.parse::<u64>().unwrap() > 1_024, "{limit}");
}

/// Worker threads that are stopped until this value is dropped.
struct Frozen {
    thaw: Option<mpsc::Sender<()>>,
    tracer: Option<std::thread::JoinHandle<()>>,
}

impl Frozen {
    /// Stops all worker threads of the async runtime. The main thread, which sends the watchdog messages, keeps
    /// running.
    fn workers_of(pid: u32) -> Self {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|task| task.unwrap().path());
        let works =
            |task: &std::path::PathBuf| std::fs::read_to_string(task.join("comm")).unwrap().starts_with("tokio");
        let id = |task: std::path::PathBuf| Pid::from_raw(task.file_name().unwrap().to_str().unwrap().parse().unwrap());
        let threads: Vec<_> = tasks.filter(works).map(id).collect();
        assert!(!threads.is_empty());
        let ((thaw, thawed), (froze, frozen)) = (mpsc::channel(), mpsc::channel());
        // Only the thread that stopped another thread can continue it.
        let tracer = std::thread::spawn(move || {
            for thread in &threads {
                ptrace::seize(*thread, ptrace::Options::empty()).unwrap();
                ptrace::interrupt(*thread).unwrap();
                nix::sys::wait::waitpid(*thread, Some(nix::sys::wait::WaitPidFlag::__WALL)).unwrap();
            }
            froze.send(()).unwrap();
            let _ = thawed.recv();
            for thread in threads {
                ptrace::detach(thread, None).unwrap();
            }
        });
        frozen.recv().unwrap();
        Self { thaw: Some(thaw), tracer: Some(tracer) }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.thaw = None;
        let thawed = self.tracer.take().map(std::thread::JoinHandle::join);
        assert!(std::thread::panicking() || thawed.is_none_or(|thawed| thawed.is_ok()));
    }
}

fn monotonic() -> Duration {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
    now.into()
}
