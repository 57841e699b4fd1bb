//! Splits a configuration with several hosts. tokio-postgres tries them one after the other, but a time limit for the whole
//! attempt would end at the first host that accepts connections and never answers.

use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// The default port of PostgreSQL.
const PORT: u16 = 5432;

/// Returns a configuration for each host, in their order.
pub(super) fn one_by_one(config: &Config) -> Vec<Config> {
    let hosts = config.get_hosts();
    if hosts.len() < 2 {
        return vec![config.clone()];
    }
    let of_host = |(index, host): (usize, &Host)| {
        let mut one = without_hosts(config);
        match host {
            Host::Tcp(name) => one.host(name),
            Host::Unix(directory) => one.host_path(directory),
        };
        if let Some(address) = config.get_hostaddrs().get(index) {
            one.hostaddr(*address);
        }
        // One port can apply to all hosts.
        let ports = config.get_ports();
        one.port(ports.get(index).or_else(|| ports.first()).copied().unwrap_or(PORT));
        one
    };
    hosts.iter().enumerate().map(of_host).collect()
}

/// A copy of everything but the hosts, which a configuration cannot remove.
fn without_hosts(config: &Config) -> Config {
    let mut copy = Config::new();
    config.get_user().map(|user| copy.user(user));
    config.get_password().map(|password| copy.password(password));
    config.get_dbname().map(|name| copy.dbname(name));
    config.get_options().map(|options| copy.options(options));
    config.get_application_name().map(|name| copy.application_name(name));
    config.get_connect_timeout().map(|timeout| copy.connect_timeout(*timeout));
    config.get_tcp_user_timeout().map(|timeout| copy.tcp_user_timeout(*timeout));
    config.get_keepalives_interval().map(|interval| copy.keepalives_interval(interval));
    config.get_keepalives_retries().map(|retries| copy.keepalives_retries(retries));
    copy.ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts());
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_gets_its_own_port_and_all_other_settings() {
        let settings = "user=me password=secret dbname=d options='-c search_path=x' application_name=channeld \
                        sslmode=require connect_timeout=3 tcp_user_timeout=4 keepalives=1 keepalives_idle=5 \
                        keepalives_interval=6 keepalives_retries=7 target_session_attrs=read-write channel_binding=disable";
        let of = |hosts: &str| -> Config { format!("{hosts} {settings}").parse().unwrap() };
        assert_eq!(
            one_by_one(&of("host=a,b,/run/c port=1,2,3")),
            [of("host=a port=1"), of("host=b port=2"), of("host=/run/c port=3")]
        );
        assert_eq!(one_by_one(&of("host=a,b port=9")), [of("host=a port=9"), of("host=b port=9")]);
        assert_eq!(one_by_one(&of("host=a")), [of("host=a")]);
    }
}
