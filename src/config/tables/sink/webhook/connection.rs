//! The connection to a webhook's endpoint: the authorities that TLS trusts, the client's certificate, the proxy, and the
//! allowed addresses.

use url::Url;

use super::headers::read_basic;
use crate::config::reading::values::http_url;
use crate::config::reading::{Reported, Section};
use crate::config::tables::tls::{read_authorities, read_identity};
use net::http::{self, Connection, Proxy};

/// Reads the connection. `url` is the endpoint, if it is valid.
pub(super) fn read(sink: &Section<'_>, url: Option<&Url>) -> Result<Connection, Reported> {
    let authorities = read_authorities(sink, "ca_file");
    let identity = read_identity(sink);
    let proxy = read_proxy(sink);
    let allow_private = sink.boolean("allow_private", true);
    let (proxy, public_only) = (proxy?, !allow_private?);
    if let Proxy::Named { url, authorization: Some(_) } = &proxy {
        sink.note_plaintext("proxy", url, "the proxy's password");
    }
    if public_only && matches!(proxy, Proxy::Named { .. }) {
        let message = "cannot be set if allow_private is false: the proxy chooses the address, so it cannot be checked here; let the proxy refuse private addresses";
        sink.wrong("proxy", message);
    }
    if let Some(Err(error)) = url.filter(|_| public_only).map(http::check_public) {
        let key = if sink.is_set("url") { "url" } else { "url_file" };
        sink.wrong(key, format!("cannot be reached: {error}"));
    }
    Ok(Connection { authorities: authorities?, identity: identity?, proxy, public_only })
}

fn read_proxy(sink: &Section<'_>) -> Result<Proxy, Reported> {
    let proxy = sink.optional("proxy", |text| match text.trim() {
        "" => Ok(None),
        text => proxy_url(text).map(Some),
    });
    let authorization = read_basic(sink, "proxy_username", "proxy_password");
    match (proxy?, authorization?) {
        (Some(Some(url)), authorization) => Ok(Proxy::Named { url, authorization }),
        (_, Some(_)) => Err(sink.wrong("proxy_username", "is set without proxy; set both")),
        (Some(None), None) => Ok(Proxy::Direct),
        (None, None) => Ok(Proxy::Environment),
    }
}

fn proxy_url(text: &str) -> Result<Url, String> {
    let url = http_url(text)?;
    if url.path() != "/" || url.query().is_some() {
        return Err("must be the address of a proxy without a path, such as \"http://proxy.internal:3128\"".to_owned());
    }
    Ok(url)
}
