//! The settings of a server that make it acknowledge a commit before the commit is on its disk.

use serde::Deserialize;

/// These settings, as a query returns them. A commit that the server acknowledged can then be lost when the server crashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct EarlyAck {
    /// `fsync = off`.
    pub is_never_synced: bool,
    /// `synchronous_commit = off`.
    pub commits_asynchronously: bool,
}

impl EarlyAck {
    /// The reasons, each with its remedy. `role` names the role of the connection.
    pub fn reasons(self, role: &str) -> Vec<String> {
        let Self { is_never_synced, commits_asynchronously } = self;
        let never = is_never_synced.then(|| "fsync is off: turn it on at the server".to_owned());
        let later = commits_asynchronously.then(|| format!("synchronous_commit is off: turn it on for {role}"));
        never.into_iter().chain(later).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_named_and_the_defaults_of_a_server_are_not() {
        assert_eq!(EarlyAck::default().reasons("me"), [""; 0]);
        let both = EarlyAck { is_never_synced: true, commits_asynchronously: true };
        let expected = ["fsync is off: turn it on at the server", "synchronous_commit is off: turn it on for me"];
        assert_eq!(both.reasons("me"), expected);
    }
}
