//! `oauth2`: the source of access tokens.

use reqwest::header::AUTHORIZATION;

use crate::config::reading::values::{http_url, word};
use crate::config::reading::{Reading, Section};
use ::sink::{Credentials, OAuth2, WebhookSettings};
use net::http::check_public;
use net::secret::Secret;

/// Many servers refuse longer texts.
const LIMIT: usize = 4 * 1024;

/// Returns `None` without an `oauth2` table.
pub(super) fn read(sink: &Section<'_>) -> Reading<OAuth2> {
    let table = sink.section("oauth2");
    let token_url = table.optional("token_url", http_url);
    let client_id = table.optional("client_id", visible);
    let client_secret = table.secret("client_secret", |text| visible(text).map(Secret::new));
    let (scope, audience) = (table.optional("scope", visible), table.optional("audience", visible));
    if !sink.is_table("oauth2") {
        return Ok(None);
    }
    let credentials = table.or("credentials", word, Credentials::default().into());
    let token_url = token_url.and_then(|url| url.ok_or_else(|| table.missing("token_url")));
    let client_id = client_id.and_then(|id| id.ok_or_else(|| table.missing("client_id")));
    let client_secret = client_secret.and_then(|secret| secret.ok_or_else(|| table.missing("client_secret")));
    if let Ok(url) = &token_url {
        table.note_plaintext("token_url", url, "the client's secret");
    }
    Ok(Some(OAuth2 {
        token_url: token_url?,
        client_id: client_id?,
        client_secret: client_secret?,
        credentials: credentials?,
        scope: scope?,
        audience: audience?,
    }))
}

/// Records settings that cannot be combined with access tokens.
pub(super) fn check(sink: &Section<'_>, settings: &WebhookSettings) {
    let Some(oauth2) = &settings.oauth2 else { return };
    if settings.headers.contains_key(AUTHORIZATION) {
        sink.wrong("oauth2", "is set together with another authorization of requests; keep one of the two");
    }
    if let Some(Err(error)) = settings.connection.public_only.then(|| check_public(&oauth2.token_url)) {
        sink.section("oauth2").wrong("token_url", format!("cannot be reached: {error}"));
    }
}

fn visible(text: &str) -> Result<Box<str>, String> {
    let legal = !text.is_empty() && text.len() <= LIMIT && !text.contains(char::is_control);
    legal.then(|| text.into()).ok_or_else(|| "must be a string without control characters, 4 KiB at most".to_owned())
}
