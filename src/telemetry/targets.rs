//! Log targets in the form that an operator uses, such as `channeld::api`, independent of the crate that contains the
//! module.

use std::borrow::Cow;

/// The crates of channeld besides the program. A target begins with the name of its crate.
pub const CRATES: [&str; 10] =
    ["api", "channel", "cluster", "console", "ledger", "net", "operator", "record", "sink", "telemetry"];

/// Converts a target to its displayed form.
pub(super) fn shown(target: &str) -> Cow<'_, str> {
    let is_own = target.split("::").next().is_some_and(|first| CRATES.contains(&first));
    if is_own { format!("channeld::{}", target.strip_prefix("net::").unwrap_or(target)).into() } else { target.into() }
}

/// The directives that an operator wrote, with the directives for `channeld` repeated for its crates.
pub(super) fn directives(written: &str) -> String {
    let parts = || written.split(',').map(str::trim);
    let mut all = Vec::new();
    // A directive applies to all targets with its prefix, and `channeld` starts with the name of the crate `channel`.
    let own = parts().any(|part| part == "channeld" || part.starts_with("channeld="));
    if !own && parts().any(|part| part.starts_with("channeld::channel")) {
        let level = parts().rfind(|part| !part.contains('='));
        all.push(format!("channeld={}", level.unwrap_or("off")).into());
    }
    for directive in parts() {
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
        let of_channel = "channeld=warn,warn,channeld::channel=debug,channel=debug,net::channel=debug";
        assert_eq!(directives("warn,channeld::channel=debug"), of_channel);
    }

    #[test]
    fn a_target_is_shown_by_its_module() {
        let shown = ["sink::file", "net::http", "channeld::daemon", "sled::log", "sinks"].map(|target| shown(target));
        assert_eq!(shown, ["channeld::sink::file", "channeld::http", "channeld::daemon", "sled::log", "sinks"]);
    }
}
