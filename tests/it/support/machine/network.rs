//! A network whose packets can be lost: two namespaces with a pair of interfaces between them.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::TcpListener;

use super::programs::run;
use super::skip::skip;

/// An address that no interface has.
const NOBODY: &str = "02:00:00:00:00:99";

/// The other namespace, and the pair of interfaces. Both are removed when it is dropped.
pub(crate) struct Network {
    name: String,
    /// The numbers of the two sides: this namespace and the other.
    sides: [Side; 2],
}

struct Side {
    interface: String,
    address: Ipv4Addr,
    link: String,
}

impl Network {
    /// Returns `None` if no namespace can be created: the test is skipped.
    pub(crate) fn new() -> Option<Self> {
        let [a, b, c] = rand::random::<[u8; 3]>();
        let name = format!("channeld-{a:02x}{b:02x}{c:02x}");
        if !Command::new("ip").args(["netns", "add", &name]).output().is_ok_and(|made| made.status.success()) {
            skip("to make a network namespace, as root");
            return None;
        }
        let side = |end: u8| Side {
            interface: format!("cd{a:02x}{b:02x}{c:02x}{end}"),
            address: Ipv4Addr::new(198, 18 + (a & 1), b, (c & 0xfc) | end),
            link: format!("02:{a:02x}:{b:02x}:{c:02x}:00:0{end}"),
        };
        let network = Self { name, sides: [side(1), side(2)] };
        let [here, there] = &network.sides;
        ip(&[
            "link",
            "add",
            &here.interface,
            "address",
            &here.link,
            "type",
            "veth",
            "peer",
            "name",
            &there.interface,
            "address",
            &there.link,
            "netns",
            &network.name,
        ]);
        for (side, is_there) in [(here, false), (there, true)] {
            let address = format!("{}/30", side.address);
            network.ip_at(is_there, &["address", "add", &address, "dev", &side.interface]);
            network.ip_at(is_there, &["link", "set", &side.interface, "up"]);
        }
        network.is_good();
        Some(network)
    }

    /// A listener in the other namespace.
    pub(crate) fn listener(&self) -> TcpListener {
        let (name, address) = (format!("/run/netns/{}", self.name), self.sides[1].address);
        let listening = std::thread::spawn(move || {
            let namespace = std::fs::File::open(name).unwrap();
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            std::net::TcpListener::bind(SocketAddr::from((address, 0))).unwrap()
        });
        let listener = listening.join().unwrap();
        listener.set_nonblocking(true).unwrap();
        TcpListener::from_std(listener).unwrap()
    }

    /// From now on every packet arrives.
    pub(crate) fn is_good(&self) {
        let [here, there] = &self.sides;
        self.sends_to(&there.link, &here.link);
    }

    /// From now on every packet is lost, in both directions. Neither side receives an error.
    pub(crate) fn drops_packets(&self) {
        self.sends_to(NOBODY, NOBODY);
    }

    fn sends_to(&self, there: &str, here: &str) {
        for (is_there, link) in [(false, there), (true, here)] {
            let (own, other) = (&self.sides[usize::from(is_there)], &self.sides[usize::from(!is_there)]);
            let address = other.address.to_string();
            self.ip_at(
                is_there,
                &["neighbor", "replace", &address, "lladdr", link, "nud", "permanent", "dev", &own.interface],
            );
        }
    }

    fn ip_at(&self, is_there: bool, arguments: &[&str]) {
        let there = ["-n", &self.name];
        ip(&[if is_there { &there[..] } else { &[] }, arguments].concat());
    }
}

fn ip(arguments: &[&str]) {
    run(Command::new("ip").args(arguments));
}

impl Drop for Network {
    fn drop(&mut self) {
        // This also deletes the interfaces.
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}
