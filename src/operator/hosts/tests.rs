use super::*;

#[test]
fn addresses_and_names_that_are_configured_are_known_and_no_other() {
    let hosts = ["channeld".to_owned(), "app1.internal".to_owned()];
    let known = |host: &str| is_known(&HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]), &hosts);
    for host in [
        "127.0.0.1",
        "10.1.2.3:9464",
        "[::1]:9464",
        "[fd00::7]",
        "localhost:9464",
        "LOCALHOST",
        "channeld:9464",
        "App1.internal.",
    ] {
        assert!(known(host), "{host}");
    }
    for host in [
        "",
        ":9464",
        "evil.example",
        "127.0.0.1.evil.example:9464",
        "localhost.evil.example",
        "[evil]:1",
        "app1",
        "1:2:3",
    ] {
        assert!(!known(host), "{host}");
    }
    assert!(is_known(&HeaderMap::new(), &hosts));
}
