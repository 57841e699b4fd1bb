//! The list of the networks that the service supports.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::page::parse;
use super::{ApiError, Client};

/// The largest number of networks that are used.
const MAX_NETWORKS: usize = 1_000;

#[derive(Deserialize)]
struct Wire {
    networks: Vec<ListedNetwork>,
}

/// A network as the service lists it. A network without these two fields has no name.
#[derive(Deserialize)]
struct ListedNetwork {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    chain_selector: Value,
}

impl ListedNetwork {
    /// The chain selector, which the service may write as a text or as a number.
    fn chain_selector(&self) -> Option<u64> {
        self.chain_selector.as_u64().or_else(|| self.chain_selector.as_str()?.parse().ok())
    }
}

impl Client {
    /// Returns the names of the networks, by their chain selectors.
    ///
    /// # Errors
    /// [`ApiError`]. A key without the scope for networks, and a service without a list, are [`ApiError::Refused`].
    pub async fn network_names(&self) -> Result<BTreeMap<u64, String>, ApiError> {
        let body = self.send(self.get(&["networks"]), ApiError::Refused, self.memory.exceed(0)).await?;
        let Wire { networks } = parse(&String::from_utf8_lossy(&body))?;
        let named = |network: ListedNetwork| Some((network.chain_selector()?, network.name?));
        Ok(networks.into_iter().filter_map(named).take(MAX_NETWORKS).collect())
    }
}

#[cfg(test)]
mod tests {
    use axum::response::Response;

    use super::*;
    use crate::testing::{KEY, Scripted};

    async fn names(status: u16, body: &'static str) -> (Result<BTreeMap<u64, String>, ApiError>, String) {
        let server = Scripted::start(move |_| Response::builder().status(status).body(body.into()).unwrap()).await;
        let (client, server) = server.client_and_server();
        let names = client.network_names().await;
        let asked = server.asked();
        let (path, headers) = &asked[0];
        assert_eq!(headers["authorization"], format!("Apikey {KEY}"));
        (names, path.clone())
    }

    #[tokio::test]
    async fn networks_have_names_by_their_chain_selectors() {
        let body = r#"{"networks":[
            {"name":"Ethereum Mainnet","chain_selector":"5009297550715157269","chain_id":"1","chain_family":"evm","new":1},
            {"name":"Base","chain_selector":15971525489660198786},{"name":"Unnumbered"},{"chain_selector":"7"},
            {"name":"Negative","chain_selector":"-1"}],"has_more":false}"#;
        let (names, path) = names(200, body).await;
        let expected = [(5_009_297_550_715_157_269, "Ethereum Mainnet"), (15_971_525_489_660_198_786, "Base")];
        assert_eq!(names.unwrap(), expected.map(|(selector, name)| (selector, name.to_owned())).into());
        assert_eq!(path, "/v1/networks");
    }

    #[tokio::test]
    async fn a_list_that_cannot_be_read_is_an_error() {
        for (status, body, kind) in [
            (200, "{}", "malformed"),
            (403, r#"{"type":"PERMISSION_DENIED"}"#, "refused"),
            (404, r#"{"type":"NOT_FOUND"}"#, "refused"),
            (500, "", "transient"),
        ] {
            assert_eq!(names(status, body).await.0.unwrap_err().kind(), kind, "{status} {body}");
        }
    }
}
