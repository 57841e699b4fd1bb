//! Access to the console: addresses that work once, cookies, origins, form tokens, and the read-only mode.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use reqwest::header::{ORIGIN, SET_COOKIE};
use reqwest::{Method, StatusCode};

use super::with_table;
use crate::support::{Answer, Console, Visitor, eventually};

#[tokio::test]
async fn a_one_time_address_admits_one_browser_once() {
    let (_simulator, setup) = with_table(1).await;
    setup.write();
    let console = setup.console(&[]).await;
    let path = console.address.strip_prefix(console.base()).unwrap().to_owned();
    let stranger = Visitor::without_cookie(console.base());
    for page in [
        "/",
        "/daemon",
        "/held",
        "/consumers",
        "/event/x/1",
        "/export",
        "/new",
        "/nowhere",
        "/destinations",
        "/do/pause?channel=c0",
    ] {
        let answer = stranger.get(page).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{page}: {answer:?}");
        assert!(!answer.body.contains("c0"), "{page}: {answer:?}");
    }
    assert_eq!(stranger.get("/enter?token=guessed").await.status, StatusCode::FORBIDDEN);

    let visitor = console.enter().await;
    assert_eq!(visitor.get("/").await.status, StatusCode::OK);
    let stolen = stranger.get(&path).await;
    assert_eq!((stolen.status, stolen.headers.get(SET_COOKIE)), (StatusCode::FORBIDDEN, None));
    assert!(stolen.body.contains("already used"), "{stolen:?}");
    assert_eq!(visitor.get("/").await.status, StatusCode::OK, "the first browser stays signed in");

    // A second browser enters with an address that the first browser requests.
    let invited = visitor.submit("/invite", "/invite", &[]).await;
    let address = invited.attribute("value");
    let mut second = Visitor::without_cookie(console.base());
    let entered = second.get(address.strip_prefix(console.base()).unwrap()).await;
    second.cookie = entered.headers[SET_COOKIE].to_str().unwrap().split_once(';').unwrap().0.to_owned();
    assert_eq!(second.get("/").await.status, StatusCode::OK);
    assert_ne!(second.cookie, visitor.cookie);
}

#[tokio::test]
async fn each_console_has_an_address_of_its_own_so_that_no_other_server_receives_its_cookie() {
    let (_simulator, setup) = with_table(1).await;
    setup.write();
    let (first, second) = (setup.console(&[]).await, setup.console(&[]).await);
    let host = |console: &Console| {
        let host = console.base().strip_prefix("http://").unwrap().rsplit_once(':').unwrap().0.to_owned();
        host.parse::<std::net::Ipv4Addr>().unwrap()
    };
    let hosts = [host(&first), host(&second)];
    assert!(hosts.iter().all(|host| host.is_loopback() && host.octets()[1] != 0), "{hosts:?}");
    assert_ne!(hosts[0], hosts[1]);
    assert_eq!(first.enter().await.get("/").await.status, StatusCode::OK);
    let chosen = setup.console(&["--listen", "127.0.0.1:0"]).await;
    assert_eq!(host(&chosen), std::net::Ipv4Addr::LOCALHOST);
}

#[tokio::test]
async fn every_answer_has_security_headers_and_an_http_only_cookie() {
    let (_simulator, setup) = with_table(1).await;
    setup.write();
    let console = setup.console(&[]).await;
    let stranger = Visitor::without_cookie(console.base());
    let path = console.address.strip_prefix(console.base()).unwrap();
    let entered = stranger.get(path).await;
    let cookie = entered.headers[SET_COOKIE].to_str().unwrap().to_owned();
    for attribute in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    for page in ["/", "/enter", "/console.css", "/console.js", "/icon.svg", "/nowhere"] {
        let answer = stranger.get(page).await;
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{page}: {policy}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{page}");
        assert_eq!(answer.headers["cache-control"], "no-store", "{page}");
    }
    assert!(!entered.body.contains("<script>") && !entered.body.contains(" style="), "{entered:?}");
}

#[tokio::test]
async fn foreign_hosts_origins_and_forms_are_refused() {
    let (_simulator, setup) = with_table(1).await;
    setup.write();
    let console = setup.console(&[]).await;
    let visitor = console.enter().await;
    for host in ["evil.example", "127.0.0.1.evil.example", "192.168.0.7:80"] {
        assert_eq!(visitor.get_by(host, "/").await.status, StatusCode::MISDIRECTED_REQUEST, "{host}");
        assert_eq!(visitor.get_by(host, "/console.css").await.status, StatusCode::MISDIRECTED_REQUEST, "{host}");
    }
    let by = |origin: &'static str| Answer::of(visitor.ask(Method::GET, "/").header(ORIGIN, origin));
    for origin in ["http://evil.example", "null", "http://127.0.0.1:1"] {
        assert_eq!(by(origin).await.status, StatusCode::FORBIDDEN, "{origin}");
    }
    // The cookie alone does not authorize a change.
    let own = visitor.base.clone();
    let page = visitor.get("/do/pause?channel=c0").await;
    let token = page.attribute(r#"name="form" value"#);
    let form = format!("form={token}&channel=c0");
    for (origin, form) in [
        (None, form.as_str()),
        (Some("http://evil.example"), &form),
        (Some("null"), &form),
        (Some(&own), "channel=c0"),
        (Some(&own), "form=x&channel=c0"),
    ] {
        let mut request = visitor.post("/do/pause", form);
        if let Some(origin) = origin {
            request = request.header(ORIGIN, origin);
        }
        let answer = Answer::of(request).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{origin:?} {form}: {answer:?}");
    }
    // A form token is valid only in the browser that requested the form.
    let other = {
        let invited = visitor.submit("/invite", "/invite", &[]).await.attribute("value");
        let mut other = Visitor::without_cookie(console.base());
        let entered = other.get(invited.strip_prefix(console.base()).unwrap()).await;
        other.cookie = entered.headers[SET_COOKIE].to_str().unwrap().split_once(';').unwrap().0.to_owned();
        other
    };
    let answer = Answer::of(other.post("/do/pause", &form).header(ORIGIN, &own)).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_read_only_console_changes_nothing_and_offers_no_change() {
    let (_simulator, setup) = with_table(3).await;
    let daemon = super::daemon_with_rows(&setup, 3).await;
    let console = setup.console(&["--read-only"]).await;
    let visitor = console.enter().await;
    for page in ["/", "/daemon", "/held", "/consumers", "/invite"] {
        let answer = visitor.get(page).await;
        assert_eq!(answer.status, StatusCode::OK, "{page}");
        assert!(!answer.body.contains("method=\"post\"") && !answer.body.contains("/do/"), "{page}: {answer:?}");
    }
    for change in ["/do/pause?channel=c0", "/do/set-cursor?consumer=ledger&channel=c0"] {
        assert_eq!(visitor.get(change).await.status, StatusCode::FORBIDDEN, "{change}");
    }
    for to in ["/do/pause", "/do/set-cursor", "/poll", "/invite"] {
        let request = visitor.post(to, "channel=c0").header(ORIGIN, &visitor.base);
        assert_eq!(Answer::of(request).await.status, StatusCode::FORBIDDEN, "{to}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn the_console_listens_on_loopback_and_only_reads_tables() {
    let (_simulator, setup) = with_table(1).await;
    setup.write();
    let told = setup.tell(&["console", "--listen", "0.0.0.0:0"]).await;
    assert_eq!(told.code, Some(64));
    assert!(told.errors.contains("loopback"), "{told:?}");
    let told = setup.tell(&["console", "--from", "nowhere"]).await;
    assert!(told.code == Some(64) && told.errors.contains("local"), "{told:?}");
    let told = setup.tell(&["console", "--from", "file"]).await;
    assert!(told.code == Some(64) && told.errors.contains("sqlite or postgres"), "{told:?}");
}

#[tokio::test]
async fn the_address_opens_in_the_browser_if_requested() {
    let (_simulator, setup) = with_table(1).await;
    let config = setup.write();
    let (programs, opened) = (setup.path("programs"), setup.path("opened"));
    std::fs::create_dir(&programs).unwrap();
    let browser = programs.join(if cfg!(target_os = "macos") { "open" } else { "xdg-open" });
    // Rename the file when it is complete, because the test waits until it exists.
    let script =
        format!("#!/bin/sh\n(echo \"$1\"; /bin/cat \"$1\") > {0}.part && /bin/mv {0}.part {0}\n", opened.display());
    std::fs::write(&browser, script).unwrap();
    std::fs::set_permissions(&browser, Permissions::from_mode(0o755)).unwrap();
    let console = Console::start_with(&["console", "--open"], Some(&config), &[("PATH", &programs)]).await;
    let asked = eventually("the browser is started", || std::fs::read_to_string(&opened).ok()).await;
    // Other users can read the argument, so it is the path of a private page that leads to the address.
    let (argument, page) = asked.split_once('\n').unwrap();
    assert!(Path::new(argument).is_absolute() && page.contains(&format!("url={}\"", console.address)), "{asked}");
    assert_eq!(console.enter().await.get("/").await.status, StatusCode::OK);

    // Without a browser, the console still starts and prints its address.
    let empty = setup.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let console = Console::start_with(&["console", "--open"], Some(&config), &[("PATH", &empty)]).await;
    assert_eq!(console.enter().await.get("/").await.status, StatusCode::OK);
}
