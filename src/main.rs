//! The `channeld` program: arguments in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    let command = match channeld::cli::parse(std::env::args_os()) {
        Ok(command) => command,
        Err(exit) => return exit.into(),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
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
