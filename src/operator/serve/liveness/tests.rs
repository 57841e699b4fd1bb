use std::sync::Barrier;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// Long enough that a busy machine makes progress within this time, and short enough that a test can wait for it.
const SHORT: Duration = Duration::from_millis(500);

const PATIENCE: Duration = Duration::from_secs(60);
const WORKERS: usize = 2;

impl Liveness {
    /// Creates a `Liveness` with limits of half a second.
    pub(crate) fn hasty(processors: Arc<Processors>, writes: Arc<Writes>) -> Self {
        let limits = Limits {
            beat: Duration::from_millis(10),
            runtime: SHORT,
            blocking: SHORT,
            write: SHORT,
            processors: SHORT,
        };
        Self { limits, ..Self::new(processors, writes) }
    }
}

fn watched() -> Liveness {
    Liveness::hasty(Arc::default(), Arc::default())
}

fn runtime(blocking_threads: usize) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(WORKERS).max_blocking_threads(blocking_threads).enable_all().build().unwrap()
}

/// Repeats the check until the answer is as expected.
fn until(liveness: &Liveness, what: &str, holds: impl Fn(&Result<(), String>) -> bool) {
    let asked = Instant::now();
    while !holds(&liveness.check()) {
        assert!(asked.elapsed() < PATIENCE, "{what}: {:?}", liveness.check());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns whether an answer says that this part makes no progress.
fn says(part: &str) -> impl Fn(&Result<(), String>) -> bool {
    move |checked| checked.as_ref().is_err_and(|stuck| stuck.starts_with(part))
}

/// Returns a channel whose receiver blocks its thread until the sender is dropped.
fn plug() -> (Sender<()>, Receiver<()>) {
    channel()
}

fn wait_for_end(plug: &Receiver<()>) {
    // No message is ever sent: `recv` returns when the sender is dropped.
    let _ = plug.recv();
}

#[test]
fn a_stuck_runtime_and_its_recovery_are_noticed() {
    let (runtime, liveness) = (runtime(1), watched());
    runtime.spawn(liveness.clone().beat());
    until(&liveness, "the runtime runs", Result::is_ok);
    let (mut plugs, stuck) = (Vec::new(), Arc::new(Barrier::new(WORKERS + 1)));
    for _ in 0..WORKERS {
        let (open, plug) = plug();
        plugs.push(open);
        let stuck = stuck.clone();
        runtime.spawn(async move {
            stuck.wait();
            wait_for_end(&plug);
        });
    }
    stuck.wait();
    until(&liveness, "the runtime is stuck", says("the async runtime has made no progress for "));
    drop(plugs);
    until(&liveness, "the runtime runs again", Result::is_ok);
}

#[test]
fn stuck_blocking_threads_are_noticed() {
    let (runtime, liveness) = (runtime(1), watched());
    runtime.spawn(liveness.clone().beat());
    let (open, plug) = plug();
    runtime.spawn_blocking(move || wait_for_end(&plug));
    until(&liveness, "the blocking threads are stuck", says("no blocking task has finished for "));
    drop(open);
    until(&liveness, "the blocking threads work again", Result::is_ok);
}

#[test]
fn stuck_verification_threads_make_the_process_not_live() {
    let (runtime, liveness) = (runtime(1), watched());
    runtime.spawn(liveness.clone().beat());
    let work = |plug| {
        let processors = liveness.processors.clone();
        runtime.spawn(async move { processors.run(move || wait_for_end(&plug)).await });
    };
    let (mut plugs, number) = (Vec::new(), liveness.processors.number());
    for _ in 0..number {
        until(&liveness, "a verification thread is free", Result::is_ok);
        let (open, plug) = plug();
        plugs.push(open);
        work(plug);
    }
    until(&liveness, "no verification thread is free", says("no signature has been checked for "));
    plugs.truncate(number - 1);
    until(&liveness, "a verification thread works again", Result::is_ok);
}

#[test]
fn a_write_that_hangs_is_noticed_and_named() {
    let (runtime, liveness) = (runtime(1), watched());
    runtime.spawn(liveness.clone().beat());
    let (open, plug) = plug();
    let (writes, handle) = (liveness.writes.clone(), runtime.handle().clone());
    let writing = std::thread::spawn(move || handle.block_on(writes.during(async { wait_for_end(&plug) })));
    until(&liveness, "the write hangs", says("a write of the state has been in progress for "));
    drop(open);
    writing.join().unwrap();
    until(&liveness, "the write has ended", Result::is_ok);
}

#[test]
fn without_heartbeats_a_process_is_not_live() {
    until(&watched(), "no heartbeat runs", says("the async runtime has made no progress for "));
}
