//! A server that accepts clients with a certificate over TLS.

use std::fs::{self, Permissions};
use std::net::Ipv4Addr;
use std::os::unix::fs::{PermissionsExt, chown};

use super::{Database, Server, user};
use crate::support::Authority;

/// The role that may log in, with a certificate for its name.
pub(crate) const ROLE: &str = "channeld";

impl Server {
    /// A server with the name `localhost` that accepts [`ROLE`] over TLS, with a certificate of this authority. It
    /// listens on a loopback address of its own, so that it can use the usual port.
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
    /// The address of the database for [`ROLE`], over TLS, with this server name. Grants [`ROLE`] all rights in the
    /// database.
    pub(crate) async fn url_by_tls(&self, name: &str, address: Ipv4Addr) -> String {
        self.change(&format!("alter database {} owner to {ROLE}", self.name)).await;
        format!("postgresql://{ROLE}@{name}/{}?hostaddr={address}&sslmode=require", self.name)
    }
}
