//! The `channeld` program: arguments in, exit code out.

use std::num::NonZero;
use std::process::ExitCode;
use std::thread::available_parallelism;

use tokio::runtime::Builder;

fn main() -> ExitCode {
    // Whatever the umask of the caller: nothing that is made can be written, or read by all, by others.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o027));
    let command = match channeld::cli::parse(std::env::args_os()) {
        Ok(command) => command,
        Err(exit) => return exit.into(),
    };
    // One for two processors: each keeps memory of its own, and most work is done by the threads for signatures and disks.
    let async_threads = available_parallelism().map_or(1, NonZero::get).div_ceil(2);
    let runtime = match Builder::new_multi_thread().worker_threads(async_threads).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("channeld: the async runtime could not be started: {error}");
            return channeld::cli::Exit::Failed.into();
        }
    };
    let exit = runtime.block_on(command.run());
    // Does not wait for threads: one may hang in a write to a full pipe.
    runtime.shutdown_background();
    exit.into()
}
