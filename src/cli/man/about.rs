//! channeld(1): the command line from its definition, and what is the same for all commands.

use std::io;

use clap::Command;
use clap_mangen::roff::{Roff, bold, roman};

/// A section of terms, each with what there is to say of it.
type Terms = (&'static str, &'static [(&'static str, &'static str)]);

const SECTIONS: [Terms; 4] = [
    (
        "EXIT STATUS",
        &[
            ("0", "Done; of a daemon, stopped as it was asked to."),
            ("1", "Something went wrong, or the answer is no: an event that is not verified, for example."),
            ("64", "The command line cannot be right."),
            ("69", "The service, or every configured channel, is unavailable. Trying again may help."),
            ("78", "The configuration cannot be right. Every mistake in it was named on standard error."),
        ],
    ),
    (
        "SIGNALS",
        &[
            (
                "SIGTERM, SIGINT",
                "The daemon reads no more, and ends once the batches in hand are delivered and recorded, within \
                 shutdown_grace. A second one ends it at once. Either way nothing is lost.",
            ),
            (
                "SIGHUP",
                "The configuration and the secrets are read again. All of it comes into force, or, where anything in it \
                 is wrong, nothing changes and the log says why.",
            ),
        ],
    ),
    (
        "ENVIRONMENT",
        &[
            (
                "CHANNELD_*",
                "Each key of the configuration, over the file: CHANNELD_, then the key in capitals with __ between its \
                 levels. CHANNELD_API__API_KEY is api.api_key. See channeld.toml(5).",
            ),
            ("HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY", "The forward proxy, where the configuration names none."),
            (
                "NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID",
                "The service manager that the daemon tells when it is ready, reads its configuration again, or stops, \
                 how it is, and that it lives. See sd_notify(3).",
            ),
        ],
    ),
    (
        "FILES",
        &[
            ("/etc/channeld/channeld.toml", "The configuration that channeld.service runs. See channeld.toml(5)."),
            (
                "/etc/channeld/NAME.toml",
                "The configuration that channeld@NAME.service runs, with a state of its own in /var/lib/channeld@NAME.",
            ),
            ("/etc/channeld/api-key", "The API key, which the units hand on as a credential. Of root, mode 0600."),
            (
                "/var/lib/channeld",
                "The state: cursors, late proofs, quarantine, dead letters, and cursors.json, which a person can read. \
                 One process at a time has it.",
            ),
            ("/var/log/channeld", "A place that the units let file sinks write to."),
        ],
    ),
];

pub(super) fn page(command: &Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let page = super::page(command);
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    page.render_subcommands_section(&mut text)?;
    let mut roff = Roff::new();
    for (heading, terms) in SECTIONS {
        roff.control("SH", [heading]);
        for (term, said) in terms {
            roff.control("TP", []).text([bold(*term)]).text([roman(*said)]);
        }
    }
    roff.to_writer(&mut text)?;
    references(&["channeld.toml(5)", "systemctl(1)", "journalctl(1)"]).to_writer(&mut text)?;
    Ok(text)
}

/// The section that names other pages.
pub(super) fn references(pages: &[&str]) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]).text([roman(pages.join(", "))]);
    roff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Exit;

    #[test]
    fn every_exit_status_is_said() {
        let (heading, terms) = SECTIONS[0];
        let said: Vec<_> = terms.iter().map(|(code, _)| *code).collect();
        let all = [Exit::Done, Exit::Failed, Exit::Usage, Exit::Unavailable, Exit::Config];
        assert_eq!(
            (heading, said),
            ("EXIT STATUS", all.map(|exit| (exit as u8).to_string()).iter().map(String::as_str).collect())
        );
    }
}
