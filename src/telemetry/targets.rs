//! The modules of channeld, as an operator names them: `channeld::api`, whichever crate the module is in.

use std::borrow::Cow;

/// The crates of channeld besides the program, as targets begin.
pub const CRATES: [&str; 9] = ["api", "channel", "cluster", "ledger", "net", "operator", "record", "sink", "telemetry"];

/// A target as it is shown.
pub(super) fn shown(target: &str) -> Cow<'_, str> {
    let is_own = target.split("::").next().is_some_and(|first| CRATES.contains(&first));
    if is_own { format!("channeld::{}", target.strip_prefix("net::").unwrap_or(target)).into() } else { target.into() }
}

/// The directives that an operator wrote, with those for `channeld` repeated for its crates.
pub(super) fn directives(written: &str) -> String {
    let mut all = Vec::new();
    for directive in written.split(',').map(str::trim) {
        all.push(Cow::from(directive));
        let Some(rest) = directive.strip_prefix("channeld") else { continue };
        if let Some(module) = rest.strip_prefix("::") {
            all.extend([module.into(), format!("net::{module}").into()]);
        } else if rest.is_empty() || rest.starts_with(['=', '[']) {
            all.extend(CRATES.map(|name| format!("{name}{rest}").into()));
        }
    }
    all.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directive_for_channeld_is_for_all_its_crates() {
        assert_eq!(directives("info, channeld::api=debug"), "info,channeld::api=debug,api=debug,net::api=debug");
        assert!(directives("warn,channeld=trace").ends_with(",sink=trace,telemetry=trace"));
        assert_eq!(directives("channelder=debug,hyper=off"), "channelder=debug,hyper=off");
    }

    #[test]
    fn a_target_is_shown_by_its_module() {
        let shown = ["sink::file", "net::http", "channeld::daemon", "sled::log", "sinks"].map(|target| shown(target));
        assert_eq!(shown, ["channeld::sink::file", "channeld::http", "channeld::daemon", "sled::log", "sinks"]);
    }
}
