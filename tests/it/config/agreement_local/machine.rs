//! Environments of the daemon itself: its state, its listeners and its secrets.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, symlink};

use super::{Environment, fails, fails_with, mkfifo, works};
use crate::support::Setup;

/// The state, the listeners and the secrets of a daemon.
pub(super) fn machine<'a>() -> Vec<Environment<'a>> {
    let state = |setup: &Setup| {
        fs::DirBuilder::new().mode(0o700).create(setup.path("state")).unwrap();
        setup.path("state")
    };
    let key = |setup: Setup, content: &str| {
        let path = setup.path("key");
        fs::write(&path, content).unwrap();
        let mut setup = setup.with("api.api_key_file", path.display().to_string());
        setup.remove("api.api_key");
        setup
    };
    vec![
        works("an empty state directory", move |setup| {
            state(&setup);
            setup
        }),
        works("an admin listener", |setup| setup.with("admin.listen", "127.0.0.1:0")),
        fails("a state directory that others can read", "has mode 0750", |setup| {
            fs::DirBuilder::new().mode(0o750).create(setup.path("state")).unwrap();
            setup
        }),
        fails("a file instead of the state directory", "is not a directory", |setup| {
            fs::write(setup.path("state"), "").unwrap();
            setup
        }),
        fails("a symbolic link instead of the lock", "symbolic link", move |setup| {
            symlink(setup.path("elsewhere"), state(&setup).join("lock")).unwrap();
            setup
        }),
        fails("an unreadable record of the states", "state.json cannot be read", move |setup| {
            fs::write(state(&setup).join("state.json"), "[").unwrap();
            setup
        }),
        fails_with("a state that another process has locked", "is in use by another channeld", move |setup| {
            let lock = File::create(state(&setup).join("lock")).unwrap();
            lock.try_lock().unwrap();
            (setup, lock)
        }),
        fails("a path that is too long for the control socket", "choose a shorter state.path", |setup| {
            let path = setup.path(&"x".repeat(100)).display().to_string();
            setup.with("state.path", path)
        }),
        fails_with("an admin address in use", "cannot listen on", |setup| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            (setup.with("admin.listen", address), listener)
        }),
        // This network is reserved for documentation, so no machine has the address.
        fails("an admin address of another machine", "cannot listen on 192.0.2.1", |setup| {
            setup.with("admin.listen", "192.0.2.1:9464")
        }),
        fails("a key with a byte order mark", "byte order mark", move |setup| key(setup, "\u{feff}key\n")),
        fails("an empty key", "is empty", move |setup| key(setup, "\n")),
        fails("a key that is a directory", "is not a regular file", |setup| {
            fs::create_dir(setup.path("key")).unwrap();
            let path = setup.path("key").display().to_string();
            let mut setup = setup.with("api.api_key_file", path);
            setup.remove("api.api_key");
            setup
        }),
        fails("a key that is a named pipe", "is not a regular file", |setup| {
            mkfifo(&setup.path("key"));
            let path = setup.path("key").display().to_string();
            let mut setup = setup.with("api.api_key_file", path);
            setup.remove("api.api_key");
            setup
        }),
    ]
}
