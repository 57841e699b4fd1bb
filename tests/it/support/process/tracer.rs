//! Runs the daemon under a tracer, which numbers the daemon's changes to its files and disturbs the daemon at one of
//! them.
//!
//! A point is a system call that changes a file or directory below the setup's directory: a write, a sync, a rename, a
//! truncation, a creation, a link, a removal. Points are counted over all threads, in the order in which the calls begin.
//! The program is the real one, without changes: ptrace stops it before and after each call. `strace --inject` is
//! similar, but it counts separately for each thread, and cannot select files with random names.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Seek, Write};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::support::{Log, Setup};

/// The longest path that is read from the daemon's memory.
const LONGEST_PATH: usize = 4096;

/// How the process is disturbed at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strike {
    /// The process is killed before the call.
    Kill,
    /// The process is killed after the call. A write writes only the first half of its bytes.
    KillHalfway,
    /// This call and every later point fail: the file system is frozen.
    Freeze(Errno),
    /// Only this call fails.
    Fail(Errno),
}

/// The change that a point makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Write(PathBuf),
    Sync(PathBuf),
    /// The creation of a file that did not exist before.
    Create(PathBuf),
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Other(PathBuf),
}

impl Change {
    fn path(&self) -> &Path {
        match self {
            Self::Write(path) | Self::Sync(path) | Self::Create(path) | Self::Other(path) => path,
            Self::Rename { from, .. } => from,
        }
    }
}

/// A traced daemon.
pub(crate) struct Traced {
    shared: Arc<Shared>,
    tracer: Option<JoinHandle<Option<i32>>>,
    log: File,
}

#[derive(Default)]
struct Shared {
    pid: AtomicI32,
    points: AtomicU64,
    changes: Mutex<Vec<Change>>,
}

/// The result of a run.
pub(crate) struct Traces {
    /// `None` if a signal ended the daemon.
    pub(crate) code: Option<i32>,
    /// The number of points that the daemon reached.
    pub(crate) points: u64,
    /// The changes that the points made, in the order in which their calls began.
    pub(crate) changes: Vec<Change>,
    pub(crate) log: Log,
}

impl Traced {
    /// Starts the daemon, with a strike at this point. The first point is 1.
    pub(crate) fn start(setup: &Setup, strike: Option<(u64, Strike)>) -> Self {
        let (config, directory) = (setup.write(), setup.path(""));
        let log = tempfile::tempfile().unwrap();
        let (shared, errors) = (Arc::<Shared>::default(), log.try_clone().unwrap());
        let passed_on = Arc::clone(&shared);
        // The kernel accepts ptrace calls only from the thread that began to trace.
        let tracer = std::thread::spawn(move || {
            let pid = begin(&config, errors);
            passed_on.pid.store(pid.as_raw(), Ordering::Relaxed);
            Tracer { pid, directory, strike, shared: passed_on, fails: HashMap::new() }.run()
        });
        Self { shared, tracer: Some(tracer), log }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.tracer.as_ref().unwrap().is_finished()
    }

    pub(crate) fn points(&self) -> u64 {
        self.shared.points.load(Ordering::Relaxed)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.shared.pid.load(Ordering::Relaxed);
        if pid != 0 && !self.has_ended() {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    pub(crate) fn log(&self) -> Log {
        let mut log = vec![0; usize::try_from(self.log.metadata().unwrap().len()).unwrap()];
        let read = self.log.read_at(&mut log, 0).unwrap();
        log.truncate(read);
        Log(String::from_utf8_lossy(&log).into_owned())
    }

    /// The result of the run, after the daemon [`has_ended`](Self::has_ended).
    pub(crate) fn traces(mut self) -> Traces {
        let code = self.tracer.take().unwrap().join().unwrap();
        let changes = std::mem::take(&mut *self.shared.changes());
        Traces { code, points: self.points(), changes, log: self.log() }
    }
}

impl Shared {
    fn changes(&self) -> MutexGuard<'_, Vec<Change>> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if self.tracer.is_some() {
            self.signal(Signal::SIGKILL);
        }
    }
}

/// Starts a shell that waits to become the daemon, and begins to trace it.
#[expect(clippy::zombie_processes, reason = "the tracer waits for it")]
fn begin(config: &Path, mut errors: File) -> Pid {
    errors.rewind().unwrap();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", r#"read go; exec "$@""#, "sh", env!("CARGO_BIN_EXE_channeld"), "run", "--config"]).arg(config);
    let mut child = command.env_clear().stdin(Stdio::piped()).stdout(Stdio::null()).stderr(errors).spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_EXITKILL;
    ptrace::seize(pid, options).unwrap();
    ptrace::interrupt(pid).unwrap();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    pid
}

struct Tracer {
    pid: Pid,
    directory: PathBuf,
    strike: Option<(u64, Strike)>,
    shared: Arc<Shared>,
    /// The strikes to apply when the current call of a thread returns.
    fails: HashMap<Pid, Strike>,
}

impl Tracer {
    /// Traces every thread until it ends, and returns the exit code.
    fn run(mut self) -> Option<i32> {
        let mut code = None;
        loop {
            // Wait only for processes that this thread traces: other tests have child processes too.
            let go_on = match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)) {
                Ok(WaitStatus::PtraceSyscall(thread)) => {
                    // If the thread was killed in the meantime, its registers cannot be read.
                    let _ = self.stopped(thread);
                    ptrace::syscall(thread, None)
                }
                Ok(WaitStatus::PtraceEvent(thread, ..)) => ptrace::syscall(thread, None),
                Ok(WaitStatus::Stopped(thread, signal)) => ptrace::syscall(thread, signal),
                Ok(WaitStatus::Exited(process, status)) => {
                    code = if process == self.pid { Some(status) } else { code };
                    Ok(())
                }
                Ok(_) => Ok(()),
                Err(Errno::EINTR) => continue,
                Err(Errno::ECHILD) => return code,
                Err(error) => panic!("waiting for the traced daemon: {error}"),
            };
            assert!(matches!(go_on, Ok(()) | Err(Errno::ESRCH)), "{go_on:?}");
        }
    }

    /// Handles the beginning or the end of a call.
    fn stopped(&mut self, thread: Pid) -> nix::Result<()> {
        let mut registers = ptrace::getregs(thread)?;
        match self.fails.remove(&thread) {
            Some(Strike::Freeze(errno) | Strike::Fail(errno)) => {
                registers.rax = (-i64::from(errno as i32)).cast_unsigned();
                return ptrace::setregs(thread, registers);
            }
            Some(_) => return kill(self.pid, Signal::SIGKILL),
            None => {}
        }
        // The kernel sets this value when a call begins. At the end, only an unknown call has this value.
        let begins = registers.rax.cast_signed() == -i64::from(libc::ENOSYS);
        let Some(change) = begins.then(|| self.change(&registers)).flatten() else { return Ok(()) };
        self.shared.changes().push(change);
        let point = self.shared.points.fetch_add(1, Ordering::Relaxed) + 1;
        match self.strike {
            Some((at, Strike::Kill)) if at == point => return kill(self.pid, Signal::SIGKILL),
            Some((at, Strike::KillHalfway)) if at == point => {
                match registers.orig_rax.cast_signed() {
                    libc::SYS_write | libc::SYS_pwrite64 => registers.rdx = registers.rdx.div_ceil(2),
                    libc::SYS_writev => registers.rdx = self.halve(registers.rsi, registers.rdx),
                    _ => {}
                }
                self.fails.insert(thread, Strike::KillHalfway);
            }
            Some((at, strike @ Strike::Fail(_))) if at == point => {
                registers.orig_rax = u64::MAX;
                self.fails.insert(thread, strike);
            }
            Some((at, strike @ Strike::Freeze(_))) if at <= point => {
                registers.orig_rax = u64::MAX;
                self.fails.insert(thread, strike);
            }
            _ => return Ok(()),
        }
        ptrace::setregs(thread, registers)
    }

    /// Shortens a vectored write to about half of its pieces, and the last of these to its first half. Returns the
    /// number of pieces.
    fn halve(&self, pieces: u64, count: u64) -> u64 {
        // Every second piece is a line break. With an odd number, the last piece is not a line break.
        let (half, piece) = (count.div_ceil(2) | 1, size_of::<libc::iovec>() as u64);
        let length = pieces + (half - 1) * piece + offset_of!(libc::iovec, iov_len) as u64;
        let memory = File::options().read(true).write(true).open(format!("/proc/{}/mem", self.pid)).unwrap();
        let mut bytes = [0; size_of::<usize>()];
        memory.read_exact_at(&mut bytes, length).unwrap();
        memory.write_all_at(&usize::from_ne_bytes(bytes).div_ceil(2).to_ne_bytes(), length).unwrap();
        half
    }

    /// The change that a call makes, if the call is a point.
    fn change(&self, registers: &libc::user_regs_struct) -> Option<Change> {
        let file = || std::fs::read_link(format!("/proc/{}/fd/{}", self.pid, registers.rdi)).ok();
        let change = match registers.orig_rax.cast_signed() {
            libc::SYS_write
            | libc::SYS_pwrite64
            | libc::SYS_writev
            | libc::SYS_pwritev
            | libc::SYS_pwritev2
            | libc::SYS_ftruncate
            | libc::SYS_fallocate => Change::Write(file()?),
            libc::SYS_fsync | libc::SYS_fdatasync => Change::Sync(file()?),
            // This call syncs neither the length of the file nor the cache of the disk.
            libc::SYS_sync_file_range => Change::Other(file()?),
            libc::SYS_rename => Change::Rename { from: self.path_at(registers.rdi)?, to: self.path_at(registers.rsi)? },
            libc::SYS_renameat | libc::SYS_renameat2 => {
                Change::Rename { from: self.path_at(registers.rsi)?, to: self.path_at(registers.r10)? }
            }
            libc::SYS_unlink | libc::SYS_mkdir | libc::SYS_truncate | libc::SYS_link => {
                Change::Other(self.path_at(registers.rdi)?)
            }
            libc::SYS_symlink | libc::SYS_unlinkat | libc::SYS_mkdirat => Change::Other(self.path_at(registers.rsi)?),
            libc::SYS_openat if registers.rdx & u64::from(libc::O_CREAT.unsigned_abs()) != 0 => {
                let path = self.path_at(registers.rsi)?;
                if path.exists() { Change::Other(path) } else { Change::Create(path) }
            }
            _ => return None,
        };
        change.path().starts_with(&self.directory).then_some(change)
    }

    /// A path in the daemon's memory.
    fn path_at(&self, address: u64) -> Option<PathBuf> {
        let memory = File::open(format!("/proc/{}/mem", self.pid)).ok()?;
        let mut path = vec![0; LONGEST_PATH];
        // The path may be at the end of the mapped memory.
        let read =
            [LONGEST_PATH, 256, 64].into_iter().find_map(|most| memory.read_at(&mut path[..most], address).ok())?;
        let end = path[..read].iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&path[..end]).into_owned().into())
    }
}
