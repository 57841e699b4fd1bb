//! Ports for servers whose port must be known before they start, or that start again on the same port.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as SocketName, UnixListener};
use std::sync::{Mutex, PoisonError};

/// The system gives none of these ports to a program that asks for any port, or to a connection.
const FIRST: u16 = 10_000;
const LAST: u16 = 32_000;

/// The ports of this process. A port is reserved by a socket whose name contains the port. The name is unique on the
/// machine, and free again when the process ends.
static RESERVED: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// Returns an address of this machine on which nothing listens. No other test gets its port before this process ends.
pub(crate) fn free_address() -> SocketAddr {
    let first = rand::random_range(FIRST..=LAST);
    for port in (first..=LAST).chain(FIRST..first) {
        let name = SocketName::from_abstract_name(format!("channeld-test-port-{port}")).unwrap();
        let Ok(reservation) = UnixListener::bind_addr(&name) else { continue };
        RESERVED.lock().unwrap_or_else(PoisonError::into_inner).push(reservation);
        // Another program may use the port. The reservation then prevents another attempt.
        if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
            return (Ipv4Addr::LOCALHOST, port).into();
        }
    }
    panic!("no port from {FIRST} to {LAST} is free");
}
