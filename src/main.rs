//! The `channeld` program: arguments in, exit code out.

use std::env;
use std::num::NonZero;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::thread::{self, available_parallelism};
use std::time::Duration;

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit};
use signal_hook::consts::SIGXFSZ;
use tokio::runtime::Builder;

/// Environment variables for glibc's memory allocator. Without these settings, glibc does not return most of the memory of
/// large responses to the system: after sixteen channels had read pages with events of 6 MB, it kept 153 MiB instead of
/// 18 MiB. With these settings, a backlog of 100,000 events also uses 4 MiB less.
const ALLOCATOR: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", "2"), ("MALLOC_MMAP_THRESHOLD_", "262144")];

/// How often free memory is returned to the system.
const GIVE_BACK: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    // No other user can write the files that channeld creates, and only the group can read them. A stricter umask of the
    // caller stays in force.
    let given = rustix::process::umask(Mode::from_raw_mode(0o027));
    rustix::process::umask(given | Mode::from_raw_mode(0o027));
    let command = match channeld::cli::parse(env::args_os()) {
        Ok(command) => command,
        Err(exit) => return exit.into(),
    };
    if command.is_daemon() {
        set_up_allocator();
        give_back_memory();
        raise_descriptor_limit();
        survive_file_size_limit();
    }
    // One async thread per two processors is enough, because other threads check signatures and access disks. More async
    // threads would only use more memory.
    let async_threads = available_parallelism().map_or(1, NonZero::get).div_ceil(2);
    let runtime = match Builder::new_multi_thread().worker_threads(async_threads).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("channeld: the async runtime could not be started: {error}");
            return channeld::cli::Exit::Failed.into();
        }
    };
    let exit = runtime.block_on(command.run());
    // Does not wait for blocking threads, because one of them can hang in a write to a full pipe.
    runtime.shutdown_background();
    exit.into()
}

/// Starts the program again in this process, with the missing allocator settings in its environment. If this fails, the
/// program continues without these settings.
fn set_up_allocator() {
    let missing: Vec<_> = ALLOCATOR.into_iter().filter(|(name, _)| env::var_os(name).is_none()).collect();
    if let (false, Ok(program)) = (missing.is_empty(), env::current_exe()) {
        // `exec` returns only if it fails.
        let _ = Command::new(program).args(env::args_os().skip(1)).envs(missing).exec();
    }
}

/// Raises the limit of open files and connections to the maximum that the system permits. The usual limit of 1,024 is for
/// programs that use `select`, and a few hundred channels with webhooks can exceed it.
fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    // If this fails, the lower limit stays in force, and each part waits until a descriptor is free.
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Lets a write beyond `ulimit -f` fail, as on a full disk. By default, the signal ends the process.
fn survive_file_size_limit() {
    // If this fails, the signal keeps its default action.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// Returns free memory to the system at regular intervals, because otherwise glibc returns only the free memory at the
/// end of its heaps: after a thousand channels had read 100 events each, 247 MiB were resident although only 151 MiB
/// were in use.
fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    let _ = thread::Builder::new().name("give-back".to_owned()).spawn(|| {
        loop {
            thread::sleep(GIVE_BACK);
            #[expect(unsafe_code, reason = "only this C function returns the memory")]
            // SAFETY: `malloc_trim` takes a number, and any thread can call it at any time.
            unsafe {
                libc::malloc_trim(0);
            }
        }
    });
}
