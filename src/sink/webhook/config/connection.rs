//! How a webhook's endpoint is reached: whom TLS trusts, who we are, through which proxy, and where not.

use std::path::Path;

use url::Url;

use super::headers::read_basic;
use crate::config::file::read_up_to;
use crate::config::keys::{Key, Keys, Reading, Reported};
use crate::config::secret::from_file;
use crate::config::values::http_url;
use crate::http::{Authorities, Connection, Identity, NamedProxy, PemError, Proxy, Reach, certificates, private_key};

/// A system's whole list of authorities is about a fifth of this.
const CERTIFICATES_LIMIT: usize = 1024 * 1024;

/// `url` is the endpoint, where it could be read.
pub(super) fn read(keys: &mut Keys, sink: &Key, url: Option<&Url>) -> Result<Connection, Reported> {
    let authorities = keys.file(&sink.at("ca_file"), |path| pem(path, Authorities::from_pem));
    let identity = read_identity(keys, sink);
    let proxy = read_proxy(keys, sink);
    let reach = read_reach(keys, sink);
    let (proxy, reach) = (proxy?, reach?);
    if let (Reach::PublicOnly, Proxy::Named(_)) = (reach, &proxy) {
        let message = "cannot be set where allow_private is false: it is the proxy that would connect, and to what is \
                       not seen from here; let the proxy refuse private addresses";
        return Err(keys.wrong(&sink.at("proxy"), message));
    }
    if let Some(Err(error)) = url.map(|url| reach.check(url)) {
        return Err(keys.wrong(&sink.at("url"), format!("cannot be reached: {error}")));
    }
    Ok(Connection { authorities: authorities?, identity: identity?, proxy, reach })
}

fn read_identity(keys: &mut Keys, sink: &Key) -> Reading<Identity> {
    let (chain_key, key_key) = (sink.at("client_certificate_file"), sink.at("client_key_file"));
    let chain = keys.file(&chain_key, |path| pem(path, certificates));
    let key = keys.file(&key_key, |path| private(path).and_then(|text| explain(private_key(&text))));
    match (chain?, key?) {
        (None, None) => Ok(None),
        (Some(chain), Some(key)) => {
            let identity = explain(Identity::new(chain, key));
            identity.map(Some).map_err(|message| {
                keys.wrong(&key_key, format!("{message}; it must be the key of the first certificate in {chain_key}"))
            })
        }
        (Some(_), None) => Err(keys.wrong(&chain_key, format!("is set without {key_key}; set both"))),
        (None, Some(_)) => Err(keys.wrong(&key_key, format!("is set without {chain_key}; set both"))),
    }
}

fn pem<T>(path: &str, parse: impl FnOnce(&str) -> Result<T, PemError>) -> Result<T, String> {
    let text = read_up_to(Path::new(path), CERTIFICATES_LIMIT);
    let text = text.map_err(|error| format!("the file {path:?} {error}; create it, or correct the path"))?;
    explain(parse(&text))
}

/// A private key is as secret as any other.
fn private(path: &str) -> Result<String, String> {
    from_file(path)
}

fn explain<T>(parsed: Result<T, PemError>) -> Result<T, String> {
    parsed.map_err(|error| format!("the file {error}"))
}

fn read_proxy(keys: &mut Keys, sink: &Key) -> Result<Proxy, Reported> {
    let proxy = keys.optional(&sink.at("proxy"), |text| match text.trim() {
        "" => Ok(None),
        text => proxy_url(text).map(Some),
    });
    let authorization = read_basic(keys, sink, "proxy_username", "proxy_password");
    match (proxy?, authorization?) {
        (Some(Some(url)), authorization) => Ok(Proxy::Named(NamedProxy { url, authorization })),
        (_, Some(_)) => Err(keys.wrong(&sink.at("proxy_username"), "is set without proxy; set both")),
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

fn read_reach(keys: &mut Keys, sink: &Key) -> Result<Reach, Reported> {
    let allow_private = keys.boolean(&sink.at("allow_private"))?;
    Ok(if allow_private.unwrap_or(true) { Reach::Anything } else { Reach::PublicOnly })
}
