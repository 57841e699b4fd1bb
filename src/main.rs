//! The `channeld` program: arguments in, exit code out.

use std::env;
use std::num::NonZero;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::thread::{self, available_parallelism};
use std::time::Duration;

use tokio::runtime::Builder;

/// What glibc takes from the environment alone. Without it, glibc keeps most of what large pages took: sixteen channels with
/// pages of 6 MB events left 153 MiB in place of 18. A backlog of 100,000 events takes 4 MiB less with it.
const ALLOCATOR: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", "2"), ("MALLOC_MMAP_THRESHOLD_", "262144")];

/// How often free memory is given back.
const GIVE_BACK: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    // Whatever the umask of the caller: nothing that is made can be written, or read by all, by others.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o027));
    let command = match channeld::cli::parse(env::args_os()) {
        Ok(command) => command,
        Err(exit) => return exit.into(),
    };
    if command.is_daemon() {
        set_up_allocator();
        give_back_memory();
    }
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

/// Starts the program again in this process, with what the allocator's settings lack. Where that fails, it goes on without.
fn set_up_allocator() {
    let missing: Vec<_> = ALLOCATOR.into_iter().filter(|(name, _)| env::var_os(name).is_none()).collect();
    if let (false, Ok(program)) = (missing.is_empty(), env::current_exe()) {
        // Returns only where it fails.
        let _ = Command::new(program).args(env::args_os().skip(1)).envs(missing).exec();
    }
}

/// Gives memory that lies free back to the system, again and again. Of itself glibc gives back what lies free at the end of its
/// heaps alone: a thousand channels that had read 100 events each left 247 MiB resident, 151 of them in use.
fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    let _ = thread::Builder::new().name("give-back".to_owned()).spawn(|| {
        loop {
            thread::sleep(GIVE_BACK);
            #[expect(unsafe_code, reason = "the C library has no other way")]
            // SAFETY: it takes a number, and may be called by any thread at any time.
            unsafe {
                libc::malloc_trim(0);
            }
        }
    });
}
