//! One server, as a process.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use tempfile::TempDir;

use crate::support::{LONGEST_WAIT, LOOK_AGAIN, free_address, run};

/// A server with its data.
pub(super) struct Server {
    directory: TempDir,
    pub(super) address: SocketAddr,
    /// The shell that stops the server when its input ends.
    keeper: Mutex<Option<Child>>,
}

/// The path of the program. `None` if it is not on this machine.
pub(super) fn program() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/bin/nats-server");
    let found = own.exists().then_some(own);
    let system = || Command::new("nats-server").arg("--version").output().is_ok().then(|| "nats-server".into());
    found.or_else(system)
}

impl Server {
    /// A server that is not started yet, with additional configuration lines.
    pub(super) fn new(directory: TempDir, lines: &str) -> Self {
        let address = free_address();
        let store = directory.path().join("jetstream").display().to_string();
        let text = format!("listen: \"{address}\"\njetstream {{ store_dir: {store:?} }}\n{lines}\n");
        fs::write(directory.path().join("nats.conf"), text).unwrap();
        Self { directory, address, keeper: Mutex::default() }
    }

    /// Starts the server with the existing data, and waits until it listens.
    pub(super) fn run(&self) {
        let mut keeper = Command::new("sh");
        // The shell stops the server when the shell's input ends. The input ends with this process, even if the
        // process is killed.
        let script = "\"$0\" -c \"$1\" & read -r end; kill -KILL $!; wait";
        keeper.arg("-c").arg(script).arg(program().unwrap()).arg(self.directory.path().join("nats.conf"));
        let log = fs::File::options().create(true).append(true).open(self.directory.path().join("log")).unwrap();
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        *self.keeper.lock().unwrap() = Some(keeper.spawn().unwrap());
        let deadline = Instant::now() + LONGEST_WAIT;
        while TcpStream::connect(self.address).is_err() {
            assert!(Instant::now() < deadline, "the server does not start: {}", self.log());
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Kills the server.
    pub(super) fn kill(&self) {
        let Some(mut keeper) = self.keeper.lock().unwrap().take() else { return };
        drop(keeper.stdin.take());
        keeper.wait().unwrap();
    }

    /// Copies the data to a directory that does not exist yet.
    pub(super) fn save(&self, to: &Path) {
        run(Command::new("cp").arg("-a").arg(self.directory.path().join("jetstream")).arg(to));
    }

    /// Replaces the data with a copy of this directory.
    pub(super) fn restore(&self, from: &Path) {
        let data = self.directory.path().join("jetstream");
        fs::remove_dir_all(&data).unwrap();
        run(Command::new("cp").arg("-a").arg(from).arg(data));
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
