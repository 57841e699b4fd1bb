//! A browser: Debian's Chromium, controlled by its driver.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fantoccini::error::CmdError;
use fantoccini::wd::TimeoutConfiguration;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{LONGEST_WAIT, LOOK_AGAIN, free_address, programs, skip};

/// How the browser is started.
const ARGUMENTS: [&str; 8] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
];

/// A browser with a profile of its own. The browser and its driver end when it is dropped.
pub(crate) struct Browser {
    driver: Client,
    address: SocketAddr,
    session: String,
    program: Child,
    _profile: TempDir,
}

impl Browser {
    /// A new browser. Returns `None` if this machine has no browser: the test is skipped.
    pub(crate) async fn start() -> Option<Self> {
        if !programs(&["chromium", "chromedriver"]) {
            return None;
        }
        let profile = tempfile::tempdir().unwrap();
        let address = free_address();
        let mut program = Command::new("chromedriver");
        program.arg(format!("--port={}", address.port()));
        let program = program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let own = format!("--user-data-dir={}", profile.path().display());
        let arguments: Vec<_> = ARGUMENTS.into_iter().chain([&*own]).collect();
        let capabilities = json!({"goog:chromeOptions": {"args": arguments}}).as_object().unwrap().clone();
        let deadline = Instant::now() + LONGEST_WAIT;
        let driver = loop {
            let mut builder = ClientBuilder::new(HttpConnector::new());
            match builder.capabilities(capabilities.clone()).connect(&format!("http://{address}")).await {
                Ok(driver) => break driver,
                Err(error) => assert!(Instant::now() < deadline, "the browser does not start: {error}"),
            }
            tokio::time::sleep(LOOK_AGAIN * 20).await;
        };
        let session = driver.session_id().await.unwrap().expect("the driver has a session");
        Some(Self { driver, address, session, program, _profile: profile })
    }

    pub(crate) async fn go(&self, address: &str) {
        self.driver.goto(address).await.unwrap();
    }

    /// Opens an address that works once, and waits for the list that it leads to.
    pub(crate) async fn enter(&self, address: &str) {
        self.go(address).await;
        self.until("the list is shown", "return document.title.startsWith('Events') && location.pathname == '/'").await;
    }

    /// Runs a script and returns its result.
    pub(crate) async fn run(&self, script: &str) -> Value {
        self.driver.execute(script, Vec::new()).await.unwrap()
    }

    /// Waits until a script returns true. While the browser loads another page, no script returns true.
    pub(crate) async fn until(&self, what: &str, script: &str) {
        let deadline = Instant::now() + LONGEST_WAIT;
        loop {
            let seen = self.driver.execute(script, Vec::new()).await;
            if seen.as_ref().is_ok_and(|seen| *seen == json!(true)) {
                return;
            }
            if Instant::now() > deadline {
                let page = self.driver.source().await.unwrap_or_default();
                panic!("{what}: not within {LONGEST_WAIT:?}: {seen:?}\n{page}");
            }
            tokio::time::sleep(LOOK_AGAIN * 10).await;
        }
    }

    /// Waits until a selector finds an element, and clicks the first such element.
    pub(crate) async fn click(&self, selector: &str) {
        self.until_clicked(Locator::Css(selector)).await;
    }

    /// Clicks the link or the button that contains this text.
    pub(crate) async fn press(&self, text: &str) {
        let path = format!("//*[self::a or self::button or self::summary][contains(normalize-space(.), \"{text}\")]");
        self.until_clicked(Locator::XPath(&path)).await;
    }

    async fn until_clicked(&self, place: Locator<'_>) {
        let deadline = Instant::now() + LONGEST_WAIT;
        while let Err(error) = self.try_click(place).await {
            assert!(Instant::now() < deadline, "{place:?} cannot be clicked: {error}");
            tokio::time::sleep(LOOK_AGAIN * 10).await;
        }
    }

    async fn try_click(&self, place: Locator<'_>) -> Result<(), CmdError> {
        self.driver.find(place).await?.click().await
    }

    /// Replaces the text of the field that a selector finds.
    pub(crate) async fn fill(&self, selector: &str, text: &str) {
        let field = self.driver.find(Locator::Css(selector)).await.unwrap();
        field.clear().await.unwrap();
        field.send_keys(text).await.unwrap();
    }

    /// Sends keys to the element with the focus.
    pub(crate) async fn type_keys(&self, keys: &str) {
        self.driver.active_element().await.unwrap().send_keys(keys).await.unwrap();
    }

    /// The visible text of the page.
    pub(crate) async fn text(&self) -> String {
        self.run("return document.querySelector('main').innerText").await.as_str().unwrap().to_owned()
    }

    /// The offsets in a list, in the order of the list.
    pub(crate) async fn offsets(&self) -> Vec<i64> {
        let script = "return [...document.querySelectorAll('a.open')].map(a => Number(a.href.split('/').pop()))";
        serde_json::from_value(self.run(script).await).unwrap()
    }

    /// Describes each violation of an accessibility rule on this page. Returns `None` if the rules are not installed.
    pub(crate) async fn violations(&self) -> Option<Vec<String>> {
        let rules = rules()?;
        let run = format!(
            "{}; const done = arguments[arguments.length - 1]; axe.run(document, {{ resultTypes: ['violations'] }}).then(\
             found => done(found.violations.map(it => it.id + ': ' + it.help + ': ' + it.nodes.slice(0, 3).map(node => node.html + ' ' + node.failureSummary).join(' | '))))",
            std::fs::read_to_string(rules).unwrap()
        );
        let patience = TimeoutConfiguration::new(Some(Duration::from_secs(60)), None, None);
        self.driver.update_timeouts(patience).await.unwrap();
        let found = self.driver.execute_async(&run, Vec::new()).await.unwrap();
        Some(serde_json::from_value(found).unwrap())
    }

    /// Sets the preference for light or dark pages, and the width of the window.
    pub(crate) async fn look(&self, scheme: &str, width: u32) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": features })).await;
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
    }

    async fn devtools(&self, command: &str, parameters: Value) {
        let url = format!("http://{}/session/{}/goog/cdp/execute", self.address, self.session);
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let body = json!({"cmd": command, "params": parameters}).to_string();
        let answer = http.post(url).header("content-type", "application/json").body(body).send().await.unwrap();
        assert!(answer.status().is_success(), "{command}: {}", answer.text().await.unwrap());
    }
}

/// The rules of axe-core. Returns `None` if they are not on this machine: the test is skipped.
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
        // The driver ends its browser with the session. `drop` cannot wait for an answer.
        if let Ok(mut stream) = TcpStream::connect(self.address) {
            let request = format!(
                "DELETE /session/{} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                self.session
            );
            let _ = stream.set_read_timeout(Some(LONGEST_WAIT)).and_then(|()| stream.write_all(request.as_bytes()));
            let _ = stream.read(&mut [0; 256]);
        }
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
