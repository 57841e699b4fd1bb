use tokio::net::TcpListener;

use super::*;

#[test]
fn a_daemon_that_listens_everywhere_is_asked_at_loopback() {
    for (listen, asked) in [
        ("0.0.0.0:9464", "http://127.0.0.1:9464/livez"),
        ("[::]:9464", "http://[::1]:9464/livez"),
        ("10.1.2.3:80", "http://10.1.2.3/livez"),
    ] {
        assert_eq!(url(Some(listen.parse().unwrap()), "/livez").unwrap().as_str(), asked);
    }
    for listen in [None, Some("127.0.0.1:0".parse().unwrap())] {
        assert_eq!(url(listen, "/livez").unwrap_err().0, Exit::Failed);
    }
}

#[tokio::test]
async fn a_daemon_that_does_not_answer_is_not_waited_for_without_end() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = url(Some(silent.local_addr().unwrap()), "/livez").unwrap();
    let failure = ask(&url, Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(failure.0, Exit::Failed);
    assert!(failure.to_string().contains("timed out"), "{failure}");
}
