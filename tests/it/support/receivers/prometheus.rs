//! A real Prometheus that scrapes one daemon. It interprets the metrics exactly as an operator's Prometheus does.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::process::{Child, Command};

use crate::support::{Admin, LONGEST_WAIT, Setup, free_address};

/// The interval of scrapes, and of evaluations of the rules.
const SCRAPES: Duration = Duration::from_millis(200);

/// A Prometheus process. It ends when it is dropped.
pub(crate) struct Prometheus {
    _process: Child,
    url: String,
    http: reqwest::Client,
}

impl Prometheus {
    pub(crate) fn scraping(setup: &Setup, admin: &Admin) -> Self {
        Self::start(setup, admin, None)
    }

    /// A Prometheus that evaluates these rules.
    pub(crate) fn alerting(setup: &Setup, admin: &Admin, rules: &Path) -> Self {
        Self::start(setup, admin, Some(rules))
    }

    fn start(setup: &Setup, admin: &Admin, rules: Option<&Path>) -> Self {
        let address = free_address();
        let config = setup.path("prometheus.yml");
        let (target, rules) = (admin.address, Vec::from_iter(rules));
        let text = format!(
            "global: {{scrape_interval: {SCRAPES:?}, scrape_timeout: {SCRAPES:?}, evaluation_interval: {SCRAPES:?}}}\n\
             rule_files: {rules:?}\n\
             scrape_configs: [{{job_name: channeld, static_configs: [{{targets: ['{target}']}}]}}]\n"
        );
        std::fs::write(&config, text).unwrap();
        let mut prometheus = Command::new("prometheus");
        prometheus
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", setup.path("prometheus").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = prometheus.kill_on_drop(true).spawn().unwrap();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { _process: process, url: format!("http://{address}/api/v1"), http }
    }

    /// Repeats a query until it has this value.
    pub(crate) async fn until(&self, query: &str, expected: &str) {
        self.until_some(query, |told| (told == [expected]).then_some(())).await;
    }

    /// Repeats a query until `some` accepts its values.
    pub(crate) async fn until_some<T>(&self, query: &str, some: impl Fn(&[String]) -> Option<T>) -> T {
        self.until_data("/query", &[("query", query)], |told| some(&values(told))).await
    }

    /// Repeats a request to this path of the API until `some` accepts the answer. Panics if the request is refused.
    pub(crate) async fn until_data<T>(
        &self,
        path: &str,
        parameters: &[(&str, &str)],
        some: impl Fn(&Value) -> Option<T>,
    ) -> T {
        let asked = Instant::now();
        loop {
            let told = self.ask(path, parameters).await;
            if let Some(found) = told.as_ref().and_then(&some) {
                return found;
            }
            assert!(asked.elapsed() < LONGEST_WAIT, "{path} {parameters:?}: {told:?}");
            tokio::time::sleep(SCRAPES).await;
        }
    }

    /// The data of the answer; `None` until Prometheus accepts requests.
    async fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Option<Value> {
        let request = self.http.get(format!("{}{path}", self.url)).query(parameters);
        let answer = request.send().await.ok()?;
        let status = answer.status();
        let text = answer.text().await.ok()?;
        assert!(!status.is_client_error(), "{parameters:?}: {text}");
        serde_json::from_str::<Value>(&text).ok().map(|mut answer| answer["data"].take())
    }
}

/// The values of an instant vector, or the value of a scalar.
fn values(told: &Value) -> Vec<String> {
    let value = |sample: &Value| Some(sample["value"][1].as_str()?.to_owned());
    told["result"].as_array().map(|samples| samples.iter().filter_map(value).collect()).unwrap_or_default()
}
