//! Finds out which user of this machine sent a request.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The tables of the connections of this machine. The second one also contains IPv4 connections of IPv6 sockets.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];

/// A connection that has ended. The system no longer knows its user.
const ENDED: &str = "06";

/// The user whose program has this end of a connection to a port. `None` if the system does not tell, for example because
/// the other end is in another network namespace.
pub(super) async fn user(client: SocketAddr, port: u16) -> Option<u32> {
    for table in TABLES {
        // Such a table does not exist on every system.
        let table = tokio::fs::read_to_string(table).await.unwrap_or_default();
        if let Some(user) = table.lines().find_map(|row| user_in(row, client, port)) {
            return Some(user);
        }
    }
    None
}

/// The user in a row, if the row is about this connection.
fn user_in(row: &str, client: SocketAddr, port: u16) -> Option<u32> {
    let mut cells = row.split_ascii_whitespace().skip(1);
    let (local, remote, state) = (cells.next()?, cells.next()?, cells.next()?);
    let is_asked = || {
        let (local, remote) = (address(local)?, address(remote)?);
        Some(local == canonical(client) && remote.port() == port && state != ENDED)
    };
    // The cells between are the queues, the timer and the number of repetitions.
    is_asked()?.then(|| cells.nth(3)?.parse().ok())?
}

fn canonical(address: SocketAddr) -> SocketAddr {
    (address.ip().to_canonical(), address.port()).into()
}

/// Reads an address as the table contains it: words of 32 bits in the machine's byte order, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(8 * at..8 * at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = if ip.len() == 8 {
        IpAddr::from(Ipv4Addr::from(word(0)?))
    } else {
        let bytes = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
        IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?))
    };
    Some(canonical((ip, u16::from_str_radix(port, 16).ok()?).into()))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn the_user_of_a_connection_is_the_one_of_its_client() {
        let me = std::fs::metadata("/proc/self").unwrap().uid();
        for address in ["127.0.0.1:0", "[::1]:0", "127.83.7.9:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let port = listener.local_addr().unwrap().port();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let peer = client.local_addr().unwrap();
            assert_eq!(user(peer, port).await, Some(me), "{address}");
            assert_eq!(user(peer, port.wrapping_add(1)).await, None, "a connection to another port");
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn rows_of_both_tables_are_read() {
        let client = "127.0.0.1:50000".parse().unwrap();
        let (client_end, server_end) = ("0100007F:C350", "0100007F:2120");
        let mapped = "0000000000000000FFFF00000100007F:C350";
        let rest = "00000000:00000000 00:00000000 00000000  1000        0 31337 1";
        assert_eq!(user_in(&format!("  0: {client_end} {server_end} 01 {rest}"), client, 8480), Some(1000));
        assert_eq!(user_in(&format!("  0: {mapped} {server_end} 01 {rest}"), client, 8480), Some(1000));
        assert_eq!(user_in(&format!("  0: {client_end} {server_end} 06 {rest}"), client, 8480), None, "it has ended");
        assert_eq!(user_in(&format!("  0: {server_end} {client_end} 01 {rest}"), client, 8480), None, "the other end");
        assert_eq!(user_in("  sl  local_address rem_address   st tx_queue rx_queue tr", client, 8480), None);
    }
}
