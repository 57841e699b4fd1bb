//! A browser: Debian's Chromium, by its driver.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use thirtyfour::prelude::*;

use super::programs::programs;
use super::skip;
use super::wait::{LONGEST_WAIT, LOOK_AGAIN};

/// A browser with a profile of its own. It ends with its driver, when it is dropped.
pub(crate) struct Browser {
    pub(crate) driver: WebDriver,
    program: Child,
    _profile: TempDir,
}

impl Browser {
    /// A new one; `None` where there is none on this machine, and the test is skipped.
    pub(crate) async fn start() -> Option<Self> {
        if !programs(&["chromium", "chromedriver"]) {
            return None;
        }
        let _ = rustls::crypto::ring::default_provider().install_default();
        let profile = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut program = Command::new("chromedriver");
        program.arg(format!("--port={port}")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let program = program.spawn().unwrap();
        let mut capabilities = DesiredCapabilities::chrome();
        for argument in [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1280,900",
        ] {
            capabilities.add_arg(argument).unwrap();
        }
        capabilities.add_arg(&format!("--user-data-dir={}", profile.path().display())).unwrap();
        let deadline = Instant::now() + LONGEST_WAIT;
        let driver = loop {
            match WebDriver::new(format!("http://127.0.0.1:{port}"), capabilities.clone()).await {
                Ok(driver) => break driver,
                Err(error) => assert!(Instant::now() < deadline, "the browser does not start: {error}"),
            }
            tokio::time::sleep(LOOK_AGAIN * 20).await;
        };
        Some(Self { driver, program, _profile: profile })
    }

    pub(crate) async fn go(&self, address: &str) {
        self.driver.goto(address).await.unwrap();
    }

    /// Opens an address that works once, and waits for the list that it leads to.
    pub(crate) async fn enter(&self, address: &str) {
        self.go(address).await;
        self.until("the list is shown", "return document.title.startsWith('Events') && location.pathname == '/'").await;
    }

    /// What a script returns.
    pub(crate) async fn run(&self, script: &str) -> Value {
        self.driver.execute(script, Vec::new()).await.unwrap().json().clone()
    }

    /// Waits until a script returns true. While a page is exchanged for another, none does.
    pub(crate) async fn until(&self, what: &str, script: &str) {
        let deadline = Instant::now() + LONGEST_WAIT;
        loop {
            let seen = self.driver.execute(script, Vec::new()).await;
            if seen.as_ref().is_ok_and(|seen| *seen.json() == json!(true)) {
                return;
            }
            if Instant::now() > deadline {
                let page = self.driver.source().await.unwrap_or_default();
                panic!("{what}: not within {LONGEST_WAIT:?}: {seen:?}\n{page}");
            }
            tokio::time::sleep(LOOK_AGAIN * 10).await;
        }
    }

    /// Clicks what a selector finds first, once it is there.
    pub(crate) async fn click(&self, selector: &str) {
        let deadline = Instant::now() + LONGEST_WAIT;
        loop {
            let clicked = match self.driver.find(By::Css(selector)).await {
                Ok(found) => found.click().await,
                Err(error) => Err(error),
            };
            match clicked {
                Ok(()) => return,
                Err(error) => assert!(Instant::now() < deadline, "{selector} cannot be clicked: {error}"),
            }
            tokio::time::sleep(LOOK_AGAIN * 10).await;
        }
    }

    /// Clicks a link or a button by what it says.
    pub(crate) async fn press(&self, text: &str) {
        let path = format!("//*[self::a or self::button or self::summary][contains(normalize-space(.), \"{text}\")]");
        let deadline = Instant::now() + LONGEST_WAIT;
        loop {
            let clicked = match self.driver.find(By::XPath(path.as_str())).await {
                Ok(found) => found.click().await,
                Err(error) => Err(error),
            };
            match clicked {
                Ok(()) => return,
                Err(error) => assert!(Instant::now() < deadline, "{text} cannot be pressed: {error}"),
            }
            tokio::time::sleep(LOOK_AGAIN * 10).await;
        }
    }

    /// Types into the field that a selector finds, in place of what stands there.
    pub(crate) async fn fill(&self, selector: &str, text: &str) {
        let field = self.driver.find(By::Css(selector)).await.unwrap();
        field.clear().await.unwrap();
        field.send_keys(text).await.unwrap();
    }

    /// What a page says.
    pub(crate) async fn text(&self) -> String {
        self.run("return document.querySelector('main').innerText").await.as_str().unwrap().to_owned()
    }

    /// The offsets in a list, in its order.
    pub(crate) async fn offsets(&self) -> Vec<i64> {
        let script = "return [...document.querySelectorAll('a.open')].map(a => Number(a.href.split('/').pop()))";
        serde_json::from_value(self.run(script).await).unwrap()
    }

    /// What breaks a rule of accessibility on this page, in words; `None` where the rules are not on this machine.
    pub(crate) async fn violations(&self) -> Option<Vec<String>> {
        let rules = rules()?;
        let run = format!(
            "{}; const done = arguments[arguments.length - 1]; axe.run(document, {{ resultTypes: ['violations'] }}).then(\
             found => done(found.violations.map(it => it.id + ': ' + it.help + ': ' + it.nodes.slice(0, 3).map(node => node.html + ' ' + node.failureSummary).join(' | '))))",
            std::fs::read_to_string(rules).unwrap()
        );
        self.driver.set_script_timeout(Duration::from_secs(60)).await.unwrap();
        let found = self.driver.execute_async(run, Vec::new()).await.unwrap();
        Some(serde_json::from_value(found.json().clone()).unwrap())
    }

    /// Asks for light or dark pages, so wide.
    pub(crate) async fn look(&self, scheme: &str, width: u32) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": features })).await;
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
    }

    async fn devtools(&self, command: &str, parameters: Value) {
        let session = self.driver.handle().session_id().to_string();
        let base = self.driver.handle().server_url().to_string();
        let url = format!("{}/session/{session}/goog/cdp/execute", base.trim_end_matches('/'));
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let body = json!({"cmd": command, "params": parameters}).to_string();
        let answer = http.post(url).header("content-type", "application/json").body(body).send().await.unwrap();
        assert!(answer.status().is_success(), "{command}: {}", answer.text().await.unwrap());
    }
}

/// The rules of axe-core; nothing where they are not on this machine, and the test is skipped.
fn rules() -> Option<PathBuf> {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/axe-core/axe.min.js");
    if rules.exists() {
        return Some(rules);
    }
    skip("axe-core, which .ci/run puts into target/tools");
    None
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends its browser with the session. Here nothing can be awaited.
        let _ = self.driver.clone().leak();
        let server = self.driver.handle().server_url();
        let address = format!("127.0.0.1:{}", server.port().unwrap_or_default());
        if let Ok(mut stream) = TcpStream::connect(address) {
            let session = self.driver.handle().session_id();
            let request = format!(
                "DELETE /session/{session} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            let _ = stream.set_read_timeout(Some(LONGEST_WAIT)).and_then(|()| stream.write_all(request.as_bytes()));
            let _ = stream.read(&mut [0; 256]);
        }
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
