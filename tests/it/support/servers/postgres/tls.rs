//! A server that is reached by TLS, by clients with a certificate.

use std::fs::{self, Permissions};
use std::net::Ipv4Addr;
use std::os::unix::fs::{PermissionsExt, chown};

use super::{Database, Server, user};
use crate::support::Authority;

/// The role that is let in, by a certificate of its name.
pub(crate) const ROLE: &str = "channeld";

impl Server {
    /// A server called `localhost` that lets [`ROLE`] in by TLS, with a certificate of this authority. It listens at an address of
    /// the loopback network that is its own, so that it has the usual port as every other.
    pub(crate) async fn start_tls(authority: &Authority) -> Option<(Self, Ipv4Addr)> {
        let server = Self::with_data()?;
        let path = |name: &str| server.data().join(name);
        authority.write(&path("ca.pem"));
        authority.issue_server(&path("server.pem"), &path("server-key.pem"));
        fs::set_permissions(path("server-key.pem"), Permissions::from_mode(0o600)).unwrap();
        if let Some(user) = user() {
            chown(path("server-key.pem"), Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        }
        let [second, third, fourth] = rand::random::<[u8; 3]>();
        let address = Ipv4Addr::new(127, second, third, fourth.clamp(2, 254));
        server.set(&format!(
            "listen_addresses = '{address}'\nssl = on\nssl_cert_file = 'server.pem'\nssl_key_file = 'server-key.pem'\n\
             ssl_ca_file = 'ca.pem'\n"
        ));
        let rules = format!("local all all trust\nhostssl all {ROLE} 127.0.0.0/8 trust clientcert=verify-full\n");
        fs::write(path("pg_hba.conf"), rules).unwrap();
        server.run();
        server.client("postgres").await.batch_execute(&format!("create role {ROLE} login")).await.unwrap();
        Some((server, address))
    }
}

impl Database {
    /// Its address for [`ROLE`], who may do everything in it from now on: by TLS, at the server of this name.
    pub(crate) async fn url_by_tls(&self, name: &str, address: Ipv4Addr) -> String {
        self.change(&format!("alter database {} owner to {ROLE}", self.name)).await;
        format!("postgresql://{ROLE}@{name}/{}?hostaddr={address}&sslmode=require", self.name)
    }
}
