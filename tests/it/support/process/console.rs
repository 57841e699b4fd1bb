//! `channeld console` as a process, and visitors of its pages, with and without a browser.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use reqwest::header::{COOKIE, HOST, ORIGIN, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Method, RequestBuilder, StatusCode};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::support::{LONGEST_WAIT, LOOK_AGAIN, Setup};

/// A running console. It is killed when it is dropped.
pub(crate) struct Console {
    _child: Child,
    /// The address that the console has printed.
    pub(crate) address: String,
}

/// A client with a cookie, which follows no redirect.
pub(crate) struct Visitor {
    http: reqwest::Client,
    pub(crate) base: String,
    pub(crate) cookie: String,
}

/// A page or any other answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: String,
}

impl Setup {
    /// Starts a console with the configuration file that was written last.
    pub(crate) async fn console(&self, arguments: &[&str]) -> Console {
        Console::start(&[&["console"], arguments].concat(), Some(&self.path("channeld.toml"))).await
    }
}

impl Console {
    /// Starts the console and waits for its address, which is in one of its first lines.
    pub(crate) async fn start(arguments: &[&str], config: Option<&Path>) -> Self {
        Self::start_with(arguments, config, &[]).await
    }

    /// Like [`start`](Self::start), with these environment variables. It inherits no others.
    pub(crate) async fn start_with(arguments: &[&str], config: Option<&Path>, variables: &[(&str, &Path)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_channeld"));
        command.args(arguments).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.envs(variables.iter().copied());
        if let Some(config) = config {
            command.arg("--config").arg(config);
        }
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let reading = async {
            loop {
                let line = lines.next_line().await.unwrap().expect("the console prints an address");
                if let Some(at) = line.find("http://").filter(|_| line.contains("/enter?token=")) {
                    return line[at..].trim().to_owned();
                }
            }
        };
        let address = tokio::time::timeout(LONGEST_WAIT, reading).await.expect("the console prints an address in time");
        // The console continues to write there, so its output must be read.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { _child: child, address }
    }

    /// The address on which the console listens.
    pub(crate) fn base(&self) -> &str {
        self.address.split_once("/enter").unwrap().0
    }

    /// Opens the address, which works once.
    pub(crate) async fn enter(&self) -> Visitor {
        let mut visitor = Visitor::without_cookie(self.base());
        let answer = visitor.get(self.address.strip_prefix(self.base()).unwrap()).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        let cookie = answer.headers[SET_COOKIE].to_str().unwrap();
        cookie.split_once(';').unwrap().0.clone_into(&mut visitor.cookie);
        visitor
    }
}

impl Visitor {
    pub(crate) fn without_cookie(base: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
        Self { http, base: base.to_owned(), cookie: String::new() }
    }

    /// A request that the test can change before it is sent.
    pub(crate) fn ask(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        if self.cookie.is_empty() { request } else { request.header(COOKIE, &self.cookie) }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        Answer::of(self.ask(Method::GET, path)).await
    }

    /// The console's address under another host name.
    pub(crate) async fn get_by(&self, host: &str, path: &str) -> Answer {
        Answer::of(self.ask(Method::GET, path).header(HOST, host)).await
    }

    /// Sends a form as a page of the console does, with the token of that page.
    pub(crate) async fn submit(&self, page: &str, to: &str, members: &[(&str, &str)]) -> Answer {
        let page = self.get(page).await;
        let token = page.form_token();
        let form = url::form_urlencoded::Serializer::new(format!("form={token}")).extend_pairs(members).finish();
        Answer::of(self.post(to, &form).header(ORIGIN, &self.base)).await
    }

    /// Sends a form without an `Origin` header.
    pub(crate) fn post(&self, to: &str, form: &str) -> RequestBuilder {
        let request = self.ask(Method::POST, to).header("content-type", "application/x-www-form-urlencoded");
        request.body(form.to_owned())
    }

    /// Requests a page until `holds` accepts it.
    pub(crate) async fn until(&self, path: &str, what: &str, holds: impl Fn(&Answer) -> bool) -> Answer {
        let deadline = Instant::now() + LONGEST_WAIT;
        loop {
            let answer = self.get(path).await;
            if holds(&answer) {
                return answer;
            }
            assert!(Instant::now() < deadline, "{what}: not within {LONGEST_WAIT:?}: {answer:?}");
            tokio::time::sleep(LOOK_AGAIN * 10).await;
        }
    }
}

impl Answer {
    pub(crate) async fn of(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        Self { status, headers, body: response.text().await.unwrap() }
    }

    fn form_token(&self) -> &str {
        let (_, rest) = self.body.split_once(r#"name="form" value=""#).unwrap_or_else(|| panic!("no form: {self:?}"));
        rest.split_once('"').unwrap().0
    }

    /// The offsets of the events in a list, in the order of the list.
    pub(crate) fn offsets(&self) -> Vec<i64> {
        let links = self.body.split(r#"class="open" href="/event/"#).skip(1);
        links.map(|rest| rest.split_once('"').unwrap().0.rsplit_once('/').unwrap().1.parse().unwrap()).collect()
    }

    /// The address of the first link that follows this text.
    pub(crate) fn link(&self, before: &str) -> Option<String> {
        let (_, rest) = self.body.split_once(before)?;
        Some(rest.split_once('"')?.0.replace("&amp;", "&"))
    }

    /// The address of the next page of a list. If the time for a page was over too early, this page searches further back.
    pub(crate) fn next_page(&self) -> Option<String> {
        self.link("rel=\"next\" href=\"").or_else(|| {
            let (before, _) = self.body.split_once("\">Search further back<")?;
            Some(before.rsplit_once("href=\"")?.1.replace("&amp;", "&"))
        })
    }

    /// The value of the first attribute of this name.
    pub(crate) fn attribute(&self, name: &str) -> String {
        self.link(&format!(r#"{name}=""#)).unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }
}
