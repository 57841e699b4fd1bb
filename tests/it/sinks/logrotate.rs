//! logrotate moves or truncates the file of a file sink. The sink continues, and all files together contain each event
//! exactly once.

use crate::support::{Setup, deliverable, place, programs, run};
use simulator::{Options, Simulator};
use std::path::Path;
use std::process::Command;

const PAGE: usize = 10;
const IN_FORCE: &str = "configuration reloaded";

async fn service(events: u64) -> Simulator {
    Simulator::start(Options { events, unsigned: 0.2, ..Options::default() }).await.unwrap()
}

/// Runs logrotate on the file, as a daily job does.
fn logrotate(setup: &Setup, directives: &str, postrotate: &str) {
    let path = setup.path("events.jsonl");
    // If logrotate runs as root, it needs a `su` directive. Other users cannot use one.
    let su = if rustix::process::geteuid().is_root() { "su root root\n" } else { "" };
    let text =
        format!("{} {{\n{su}rotate 5\nsize 1\n{directives}\npostrotate\n{postrotate}\nendscript\n}}\n", path.display());
    let conf = setup.path("logrotate.conf");
    std::fs::write(&conf, text).unwrap();
    let mut command = Command::new("logrotate");
    run(command.arg("--state").arg(setup.path("logrotate.state")).arg(conf));
}

fn text_of(path: &Path) -> Vec<i64> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| place(line).1).collect()
}

#[tokio::test]
async fn after_logrotate_the_sink_continues_in_a_new_file_without_loss_or_repeat() {
    if !programs(&["logrotate", "gzip"]) {
        return;
    }
    for directives in ["create 0644", "nocreate\nmissingok", "create 0644\ncompress\ndelaycompress"] {
        let simulator = service(20).await;
        let setup = Setup::reading(&simulator).with("api.page_limit", PAGE);
        let (path, moved) = (setup.path("events.jsonl"), setup.path("events.jsonl.1"));
        let mut daemon = setup.start();
        daemon.until("the first events arrive", |_| setup.lines() == 20).await;

        let open = |path: &Path| {
            let files = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
            let real = std::fs::canonicalize(path).ok();
            let mut files = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
            files.any(|file| Some(file) == real)
        };
        assert!(open(&path));
        logrotate(&setup, directives, &format!("kill -HUP {}", daemon.pid()));
        crate::support::eventually("the new file is open, and the old one is closed", || {
            (open(&path) && !open(&moved)).then_some(())
        })
        .await;
        assert_eq!(setup.lines(), 0, "no event was written to the new file");
        daemon.until_logged(IN_FORCE).await;

        simulator.publish(0, 20);
        daemon.until("the new events go to the new file", |_| setup.lines() == 20).await;
        // Without a signal, the daemon notices the rotation at the next event.
        logrotate(&setup, directives, "true");
        simulator.publish(0, 5);
        daemon.until("the new events go to the third file", |_| setup.lines() == 5).await;
        daemon.stop().await;
        let second = if directives.contains("delaycompress") {
            run(Command::new("zcat").arg(setup.path("events.jsonl.2.gz")))
        } else {
            std::fs::read(setup.path("events.jsonl.2")).unwrap()
        };
        let first: Vec<_> = String::from_utf8(second).unwrap().lines().map(|line| place(line).1).collect();
        let all = [first, text_of(&moved), text_of(&path)].concat();
        assert_eq!(all, deliverable(&simulator, 0), "{directives}");
    }
}

/// logrotate loses lines that are written between its copy and the truncation. This test writes nothing meanwhile.
#[tokio::test]
async fn a_file_rotated_with_copytruncate_continues_from_its_beginning() {
    if !programs(&["logrotate", "gzip"]) {
        return;
    }
    let simulator = service(20).await;
    let setup = Setup::reading(&simulator).with("api.page_limit", PAGE);
    let mut daemon = setup.start();
    daemon.until("the first events arrive", |_| setup.lines() == 20).await;
    daemon.until_logged("batch recorded").await;
    logrotate(&setup, "copytruncate", "true");
    assert_eq!(setup.lines(), 0);
    simulator.publish(0, 10);
    daemon.until("the new events arrive", |_| setup.lines() == 10).await;
    daemon.stop().await;
    let all = [text_of(&setup.path("events.jsonl.1")), text_of(&setup.path("events.jsonl"))].concat();
    assert_eq!(all, deliverable(&simulator, 0));
}
