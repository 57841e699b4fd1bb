//! `channeld init` writes a working configuration and nothing else. It overwrites a file only with `--force`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::json;
use simulator::{Announcement, Options, Simulator};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::support::{Daemon, LONGEST_WAIT, eventually, free_address, programs};

/// The exit code, and the text on standard output and standard error.
async fn init(directory: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_channeld"));
    command.arg("init").args(arguments).current_dir(directory).env_clear().stdin(Stdio::null());
    let output = command.output().await.unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

/// A service, and a directory that contains its announcement.
async fn service() -> (Simulator, TempDir) {
    let simulator = Simulator::start(Options { events: 5, ..Options::default() }).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let announced = serde_json::to_string(simulator.announcement()).unwrap();
    std::fs::write(directory.path().join("simulated.json"), announced).unwrap();
    (simulator, directory)
}

#[tokio::test]
async fn the_trial_configuration_works_and_is_not_overwritten() {
    let (simulator, directory) = service().await;
    let at = directory.path();
    let (code, said) = init(at, &["--demo", "simulated.json"]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("offset 5; of the newest 5: 5 verified"), "{said}");
    assert!(!said.contains(&simulator.announcement().api_key), "{said}");
    let mode = std::fs::metadata(at.join("api-key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let check = ["check", "--connect", "--config", "channeld.toml"];
    let mut checking = Command::new(env!("CARGO_BIN_EXE_channeld"));
    checking.args(check).current_dir(at).env_clear();
    // Another daemon on this machine can use the default address.
    let checked = checking.env("CHANNELD_ADMIN__LISTEN", "").output().await.unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));

    std::fs::write(at.join("channeld.toml"), "mine").unwrap();
    let (code, said) = init(at, &["--demo", "simulated.json"]).await;
    assert!(code == Some(64) && said.contains("--force"), "{said}");
    assert_eq!(std::fs::read_to_string(at.join("channeld.toml")).unwrap(), "mine");
    assert_eq!(init(at, &["--demo", "simulated.json", "--force"]).await.0, Some(0));
    assert_ne!(std::fs::read_to_string(at.join("channeld.toml")).unwrap(), "mine");
}

#[tokio::test]
async fn another_port_is_chosen_if_the_default_port_is_in_use() {
    let (_simulator, directory) = service().await;
    let (at, file) = (directory.path(), directory.path().join("channeld.toml"));
    // If this fails, another process of this machine uses the port.
    let _used = std::net::TcpListener::bind("127.0.0.1:9464");
    let (code, said) = init(at, &["--demo", "simulated.json"]).await;
    assert!(code == Some(0) && said.contains("127.0.0.1:9464 is in use on this machine"), "{said}");
    let written: toml_edit::DocumentMut = std::fs::read_to_string(&file).unwrap().parse().unwrap();
    let chosen = written["admin"]["listen"].as_str().unwrap();
    assert!(chosen != "127.0.0.1:9464" && said.contains(&format!("get the address {chosen}")), "{said}");

    // The daemon of the file can be the user of the port.
    std::fs::write(&file, "").unwrap();
    let (code, said) = init(at, &["--demo", "simulated.json", "--force"]).await;
    assert!(code == Some(0) && !said.contains("is in use"), "{said}");
    assert!(!std::fs::read_to_string(&file).unwrap().contains("[admin]"));
}

#[tokio::test]
async fn a_channel_that_does_not_exist_is_reported_and_nothing_is_written() {
    let (simulator, directory) = service().await;
    let mut announced = json!(simulator.announcement());
    announced["channels"] = json!(["00000000-0000-0000-0000-000000000001"]);
    std::fs::write(directory.path().join("simulated.json"), announced.to_string()).unwrap();
    let (code, said) = init(directory.path(), &["--demo", "simulated.json"]).await;
    assert!(code == Some(69) && said.contains("does not exist"), "{said}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "the announcement alone");
}

#[tokio::test]
async fn without_a_terminal_each_missing_flag_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let (code, said) = init(directory.path(), &[]).await;
    assert_eq!(code, Some(64), "{said}");
    assert!(["--org-id", "--channel", "--api-key-stdin"].iter().all(|flag| said.contains(flag)), "{said}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// `channeld init` on a pseudo-terminal, which `script` of util-linux provides.
struct Terminal {
    program: tokio::process::Child,
    /// The output until now. A character can arrive in two parts.
    shown: Vec<u8>,
}

impl Terminal {
    fn start(directory: &Path, arguments: &str) -> Self {
        let mut script = Command::new("script");
        let init = format!("{} init {arguments}", env!("CARGO_BIN_EXE_channeld"));
        script.args(["--quiet", "--return", "--command", &init, "/dev/null"]).current_dir(directory).env_clear();
        script.env("PATH", "/usr/bin:/bin").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        Self { program: script.spawn().unwrap(), shown: Vec::new() }
    }

    /// Waits for the question, and answers it. An answer before the question could be shown, or lost.
    async fn answer(&mut self, question: &str, answer: &str) {
        let from = self.shown.len();
        while !in_one_line(&self.shown[from..]).contains(question) {
            let mut bytes = [0; 4096];
            let read = self.program.stdout.as_mut().unwrap().read(&mut bytes);
            let read = tokio::time::timeout(LONGEST_WAIT, read).await.expect(question).unwrap();
            assert!(read > 0, "{question} was not asked: {}", in_one_line(&self.shown));
            self.shown.extend(&bytes[..read]);
        }
        self.program.stdin.as_mut().unwrap().write_all(format!("{answer}\n").as_bytes()).await.unwrap();
    }

    /// Waits until the program exits. Returns its exit code and all output.
    async fn ended(mut self) -> (Option<i32>, String) {
        let ending = async {
            self.program.stdout.as_mut().unwrap().read_to_end(&mut self.shown).await.unwrap();
            self.program.wait().await.unwrap().code()
        };
        let code = tokio::time::timeout(LONGEST_WAIT, ending).await.expect("it ends");
        (code, in_one_line(&self.shown))
    }
}

/// The output without colors and line breaks, because the wrapping depends on the width of the terminal.
fn in_one_line(shown: &[u8]) -> String {
    let plain = anstream::adapter::strip_str(&String::from_utf8_lossy(shown)).to_string();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The flags for the signers of the service, which does not sign with the published keys.
fn signer_flags(known: &Announcement) -> String {
    let signers: Vec<_> = known.valid_signers.iter().map(ToString::to_string).collect();
    format!("--valid-signers {} --min-required-signatures {}", signers.join(","), known.min_required_signatures)
}

#[tokio::test]
async fn at_a_terminal_it_checks_each_answer_at_once_and_goes_back() {
    if !programs(&["script"]) {
        return;
    }
    let (simulator, directory) = service().await;
    let known = simulator.announcement();
    let mut terminal = Terminal::start(directory.path(), &signer_flags(known));
    terminal.answer("The service's address [https://", "http://127.0.0.1:1/v1").await;
    terminal.answer("The service's address [https://", &known.base_url).await;
    terminal.answer("The API key (not shown):", "another-key").await;
    terminal.answer("The API key (not shown):", &known.api_key).await;
    terminal.answer("The organization's id (org_…):", "back").await;
    terminal.answer("The API key (not shown):", &known.api_key).await;
    terminal.answer("The organization's id (org_…):", "org_2abcDEFghiJKLmno").await;
    terminal.answer("The organization's id (org_…):", &known.org_id).await;
    terminal.answer("as NAME=ID [1]:", "settlements=00000000-0000-0000-0000-000000000001").await;
    terminal.answer("as NAME=ID [1]:", &format!("mistyped={}", known.channels[0])).await;
    terminal.answer("Another channel, or nothing:", "back").await;
    terminal.answer("as NAME=ID [1]:", &format!("settlements={}", known.channels[0])).await;
    terminal.answer("Another channel, or nothing:", "").await;
    let kafka = if cfg!(feature = "kafka") { ", kafka" } else { "" };
    let question = format!("Where events go: file, stdout, webhook, sqlite, postgres, nats{kafka} [file]:");
    terminal.answer(&question, "kafak").await;
    terminal.answer(&format!("kafak is none of these {question}"), "sqlite").await;
    terminal.answer("from a feed: yes, no [no]:", "perhaps").await;
    terminal.answer("from a feed: yes, no [no]:", "back").await;
    terminal.answer(&question, "sqlite").await;
    terminal.answer("from a feed: yes, no [no]:", "").await;
    let (code, shown) = terminal.ended().await;
    assert_eq!(code, Some(0), "{shown}");
    let commands = "channeld run --config channeld.toml 2>channeld.log & channeld status --watch --config channeld.toml \
                    channeld console --config channeld.toml";
    assert!(shown.contains("channeld.toml is written") && shown.contains(commands), "{shown}");
    for said in [
        "Connection refused",
        "ok the service answers",
        "HTTP 401",
        "placeholder",
        "the channel does not exist",
        "the newest event is at offset 5; of the newest 5: 5 verified",
        "mistyped is removed",
        "kafak is none of these",
        "answer yes, no, or an address",
    ] {
        assert!(shown.contains(said), "{said}: {shown}");
    }
    assert!(shown.contains("sqlite3 -readonly"), "{shown}");
    assert!(!shown.contains("curl") && !directory.path().join("feed-token").exists(), "{shown}");
    assert!(!shown.contains(&known.api_key), "{shown}");
    assert_eq!(std::fs::read_to_string(directory.path().join("api-key")).unwrap(), format!("{}\n", known.api_key));
    let written = std::fs::read_to_string(directory.path().join("channeld.toml")).unwrap();
    assert!(written.contains("[channels.settlements]") && !written.contains("mistyped"), "{written}");

    // Ctrl-D and Ctrl-C.
    for (stop, code) in [("\u{4}", 64), ("\u{3}", 130)] {
        let mut terminal = Terminal::start(directory.path(), "other.toml --api-key-file other-key");
        terminal.answer("The service's address", &known.base_url).await;
        terminal.answer("The API key", &known.api_key).await;
        terminal.answer("The organization's id", stop).await;
        let (ended, shown) = terminal.ended().await;
        assert_eq!(ended, Some(code), "{shown}");
        assert!(!directory.path().join("other-key").exists(), "{shown}");
    }
}

#[tokio::test]
async fn a_channel_is_chosen_by_its_number_and_its_first_event_is_verified() {
    if !programs(&["script"]) {
        return;
    }
    let simulator = Simulator::start(Options { channels: 3, events: 5, ..Options::default() }).await.unwrap();
    let (directory, known) = (tempfile::tempdir().unwrap(), simulator.announcement());
    let mut terminal = Terminal::start(directory.path(), &signer_flags(known));
    terminal.answer("The service's address [https://", &known.base_url).await;
    terminal.answer("The API key (not shown):", &known.api_key).await;
    terminal.answer("The organization's id (org_…):", &known.org_id).await;
    terminal.answer("as NAME=ID [1]:", "2").await;
    terminal.answer("Another channel, or nothing:", "").await;
    terminal.answer("[file]:", "file").await;
    let (code, shown) = terminal.ended().await;
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("the newest event is at offset 5; of the newest 5: 5 verified"), "{shown}");

    let mut run = Command::new(env!("CARGO_BIN_EXE_channeld"));
    run.args(["run", "--until-caught-up", "-c", "channeld.toml"])
        .current_dir(directory.path())
        .env_clear()
        .kill_on_drop(true);
    let ran = run.env("CHANNELD_ADMIN__LISTEN", "").output().await.unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let lines = std::fs::read_to_string(directory.path().join("events.jsonl")).unwrap();
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["channel_id"], &first["verification"]["status"]),
        (&json!(known.channels[1]), &json!("verified"))
    );
}

#[tokio::test]
async fn an_interrupted_check_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    // A service that never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", silent.local_addr().unwrap());
    let channel = "settlements=00000000-0000-0000-0000-000000000001";
    let mut command = Command::new(env!("CARGO_BIN_EXE_channeld"));
    command.args(["init", "--base-url", &url, "--org-id", "org_1", "--channel", channel, "--api-key-stdin"]);
    command.args(["--feed", "--sink", "sqlite"]).current_dir(directory.path()).env_clear();
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut init = command.spawn().unwrap();
    init.stdin.take().unwrap().write_all(b"a-key").await.unwrap();
    eventually("it writes the secrets", || directory.path().join("feed-token").exists().then_some(())).await;
    let process = Pid::from_raw(i32::try_from(init.id().unwrap()).unwrap());
    nix::sys::signal::kill(process, Signal::SIGINT).unwrap();
    let ended = init.wait_with_output().await.unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.code() == Some(1) && said.contains("interrupted; nothing was written"), "{said}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn an_existing_key_file_is_named_and_never_replaced_by_another_key() {
    let (simulator, directory) = service().await;
    let file = directory.path().join("api-key");
    std::fs::write(&file, "the key of yesterday\n").unwrap();
    let (code, said) = init(directory.path(), &["--demo", "simulated.json"]).await;
    assert!(code == Some(64) && said.contains("api-key contains another API key: remove it"), "{said}");
    std::fs::write(&file, &simulator.announcement().api_key).unwrap();
    let (code, said) = init(directory.path(), &["--demo", "simulated.json"]).await;
    assert!(code == Some(0) && said.contains(&format!("Using the API key in {}", file.display())), "{said}");
}

#[tokio::test]
async fn the_configuration_for_a_table_works_and_shows_how_to_query_it() {
    let (_simulator, directory) = service().await;
    let (code, said) = init(directory.path(), &["--demo", "simulated.json", "--sink", "sqlite"]).await;
    assert!(code == Some(0) && said.contains("select time, type, name, status from events"), "{said}");
    let written = std::fs::read_to_string(directory.path().join("channeld.toml")).unwrap();
    assert!(written.contains("type = \"sqlite\"") && !written.contains("min_confidence"), "{written}");
    assert!(written.contains("\nsearch = \"words\"\n"), "the console can search: {written}");
}

#[tokio::test]
async fn a_feed_has_a_secret_token_and_applications_can_read_it() {
    let (_simulator, directory) = service().await;
    let at = directory.path();
    let address = free_address();
    let feed = format!("--feed={address}");
    let (code, said) = init(at, &["--demo", "simulated.json", &feed]).await;
    assert_eq!(code, Some(0), "{said}");
    let file = at.join("feed-token");
    let token = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let url = format!("http://{address}/v1/channels/simulated-0/events?limit=3&wait=30s");
    let command = format!("echo \"Authorization: Bearer $(cat {})\" | curl -H @- '{url}'", file.display());
    assert!(said.contains(&command) && !said.contains(&token), "{said}");
    let written = std::fs::read_to_string(at.join("channeld.toml")).unwrap();
    assert!(written.contains("type = \"sqlite\"") && written.contains("channels = [\"simulated-0\"]"), "{written}");

    let config = at.join("channeld.toml");
    // Another test can use the default address.
    let environment = [("CHANNELD_ADMIN__LISTEN", "".into())].into();
    let mut daemon = Daemon::run_in(&["run"], &config, std::slice::from_ref(&token), &environment);
    daemon.until("it listens", |_| std::net::TcpStream::connect(address).is_ok()).await;
    let url = format!("http://{address}");
    let mut tail = Command::new(env!("CARGO_BIN_EXE_channeld"));
    tail.args(["tail", "--feed", &url, "--token-file", "feed-token", "--after", "0", "--events", "5"]);
    let read = tail.arg("--config").arg(&config).current_dir(at).env_clear().output().await.unwrap();
    let shown = String::from_utf8(read.stdout).unwrap();
    assert!(shown.lines().count() == 5 && shown.lines().all(|line| line.starts_with("verified ")), "{shown}");
    daemon.stop().await;

    // An existing token is kept.
    assert_eq!(init(at, &["--demo", "simulated.json", &feed, "--force"]).await.0, Some(0));
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), token);
}

#[tokio::test]
async fn a_feed_that_cannot_work_is_refused_and_leaves_nothing_behind() {
    let (_simulator, directory) = service().await;
    let used = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let used = used.local_addr().unwrap().to_string();
    let at_used = format!("--feed={used}");
    let as_file = format!("write --feed={used}");
    for (flags, code, message) in [
        (vec![&*at_used], 69, "feed.listen: cannot listen on"),
        (vec![&*used, "--feed"], 64, &*as_file),
        (vec!["--sink", "file", "--feed"], 64, "a feed reads a table, and file has none: use --sink sqlite"),
        (vec!["--feed=nowhere"], 78, "feed.listen"),
    ] {
        let (ended, said) = init(directory.path(), &[&["--demo", "simulated.json"], &*flags].concat()).await;
        assert!(ended == Some(code) && said.contains(message), "{said}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "the announcement alone");
    }
}

#[tokio::test]
async fn kafka_is_configured_if_built_in_and_refused_otherwise() {
    let (_simulator, directory) = service().await;
    let flags = ["--demo", "simulated.json", "--sink", "kafka", "--to", "kafka-1:9092, kafka-2:9092", "--unchecked"];
    let (code, said) = init(directory.path(), &flags).await;
    if cfg!(feature = "kafka") {
        assert!(code == Some(0) && said.contains("--topic channeld --from-beginning"), "{said}");
        let written = std::fs::read_to_string(directory.path().join("channeld.toml")).unwrap();
        assert!(written.contains("brokers = [\"kafka-1:9092\", \"kafka-2:9092\"]\n"), "{written}");
    } else {
        let words = ["the sink is \"kafka\", and this channeld was built without it", "--features kafka"];
        assert!(code == Some(78) && words.iter().all(|word| said.contains(word)), "{said}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "the announcement alone");
    }
}

#[tokio::test]
async fn a_webhook_gets_only_final_events_unless_the_operator_removes_the_line() {
    let (_simulator, directory) = service().await;
    let flags = ["--demo", "simulated.json", "--sink", "webhook", "--to", "https://hook.example/events", "--unchecked"];
    let (code, said) = init(directory.path(), &flags).await;
    assert_eq!(code, Some(0), "{said}");
    let written = std::fs::read_to_string(directory.path().join("channeld.toml")).unwrap();
    assert!(written.ends_with("filter.min_confidence = \"finalized\"\n"), "{written}");
    let check = ["check", "--config", "channeld.toml"];
    let mut checked = Command::new(env!("CARGO_BIN_EXE_channeld"));
    let checked = checked.args(check).current_dir(directory.path()).env_clear().output().await.unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
