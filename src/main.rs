//! The `channeld` program: arguments in, exit code out.

use std::num::NonZero;
use std::process::ExitCode;
use std::thread::available_parallelism;

use tokio::runtime::Builder;

fn main() -> ExitCode {
    let command = match channeld::cli::parse(std::env::args_os()) {
        Ok(command) => command,
        Err(exit) => return exit.into(),
    };
    let runtime = match Builder::new_multi_thread().worker_threads(async_threads()).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("channeld: the async runtime could not be started: {error}");
            return channeld::cli::Exit::Failed.into();
        }
    };
    let exit = runtime.block_on(command.run());
    // A thread may still hang in a write that nobody reads; the process does not wait for it.
    runtime.shutdown_background();
    exit.into()
}

/// One for two processors: each keeps memory of its own, and what is left to them is a small part of the work. Signatures and
/// disks have threads beside them.
fn async_threads() -> usize {
    available_parallelism().map_or(1, NonZero::get).div_ceil(2)
}
