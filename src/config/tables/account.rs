//! `[accounts.NAME]`: further organizations at the service. The default account is in `[api]` and `[verification]`. An account
//! inherits each key that it does not set. The keys of `[verification]` that an account can set are read in `verification.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use url::Url;

use super::verification::Levels;
use crate::config::reading::values::{http_url, positive_duration, text_if, whole_number};
use crate::config::reading::{KeyUse, Reading, Reported, Section, all};
use api::{self, AccountName, MAX_KEYS};
use net::secret::Secret;
use net::turns::Rate;

/// How many requests per second an operator can allow. Zero is no limit.
const REQUESTS_PER_SECOND: std::ops::RangeInclusive<u32> = 0..=1000;

/// The key that names the files of several API keys.
const FILES: &str = "api_key_files";

/// The keys that set the API keys.
const KEYS: [&str; 4] = ["api_key", "api_key_file", "api_key_command", FILES];

/// An organization at the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The connection to the service. The address has no slash at its end, except for the bare root. The keys are visible
    /// ASCII. No timeout is zero.
    pub client: api::Settings,
    /// When the key in use expires, if the operator knows it.
    pub key_expires: Option<Timestamp>,
    /// The maximum rate of requests, for all channels of the account and all instances together. `None` is no limit.
    pub rate: Option<Rate>,
}

/// All accounts, by their names.
pub type Accounts = BTreeMap<AccountName, Account>;

/// Reads the default account, and each table of `[accounts]`. The default account is left out if it has no API key and every
/// channel names another account.
pub(crate) fn read_all(root: &Section<'_>) -> Result<Accounts, Reported> {
    let api = ApiTable::read(root);
    let default = if matches!(api.values.keys, Ok(None)) && !is_default_used(root) {
        Ok(None)
    } else {
        api.default_account().map(|account| Some((AccountName::default(), account)))
    };
    let table = root.section("accounts");
    let named = names(root)?.into_iter().map(|name| {
        table.check_name(&name);
        // These keys are checked even if no channel uses the account.
        let _ = Levels::of_account(root, &table.section(&name)).verifier();
        let account = api.named_account(&table, &name)?;
        Ok((account.client.account.clone(), account))
    });
    // Every account is read, and all mistakes are recorded, before an error is returned.
    let named: Vec<Result<_, Reported>> = named.collect();
    default?.into_iter().map(Ok).chain(named).collect()
}

/// Reads one account, for a command that needs no other.
pub(crate) fn read_one(root: &Section<'_>, account: &AccountName) -> Result<Account, Reported> {
    let api = ApiTable::read(root);
    let Some(name) = account.name() else { return api.default_account() };
    let (table, names) = (root.section("accounts"), names(root)?);
    if !names.iter().any(|known| known == name) {
        let message = format!("is not defined; the defined accounts are: {}", names.join(", "));
        return Err(table.wrong(name, message));
    }
    api.named_account(&table, name)
}

/// The keys of `[api]` that the default account uses, and that the other accounts inherit.
struct ApiTable<'r> {
    table: Section<'r>,
    values: Values,
    timeouts: [Result<Duration, Reported>; 2],
}

impl<'r> ApiTable<'r> {
    fn read(root: &Section<'r>) -> Self {
        let table = root.section("api");
        let values = Values::read(&table);
        let timeouts = ["connect_timeout", "request_timeout"].map(|key| table.required(key, positive_duration));
        Self { table, values, timeouts }
    }

    fn default_account(&self) -> Result<Account, Reported> {
        self.values.clone().account(AccountName::default(), &self.table, self.timeouts)
    }

    /// Reads the account with this name in the table `accounts`.
    fn named_account(&self, accounts: &Section<'_>, name: &str) -> Result<Account, Reported> {
        let own = accounts.section(name);
        let values = self.values.clone().behind(&own, &self.table);
        values.account(AccountName::new(name), &own, self.timeouts)
    }
}

/// Whether a channel uses the default account. `[discover]` counts as a channel. If no channel is configured yet, the account
/// counts as used, because future channels may use it.
fn is_default_used(root: &Section<'_>) -> bool {
    let (channels, discover) = (root.section("channels"), root.section("discover"));
    let mut tables: Vec<_> = channels.names().unwrap_or_default().iter().map(|name| channels.section(name)).collect();
    if discover.names().is_ok_and(|keys| !keys.is_empty()) {
        tables.push(discover);
    }
    tables.is_empty() || tables.iter().any(|table| !table.is_set("account"))
}

/// The names of the tables of `[accounts]`.
fn names(root: &Section<'_>) -> Result<Vec<String>, Reported> {
    root.section("accounts").names()
}

/// Reads which account a channel uses.
pub(crate) fn of_channel(root: &Section<'_>, channel: &Section<'_>) -> Result<AccountName, Reported> {
    let names = names(root)?;
    let account = channel.optional("account", |text| {
        if names.iter().any(|name| name == text) {
            return Ok(AccountName::new(text));
        }
        Err(match &names[..] {
            [] => "names an account, but none is defined; add an [accounts.NAME] table".to_owned(),
            _ => format!("is not one of the defined accounts: {}", names.join(", ")),
        })
    });
    Ok(account?.unwrap_or_default())
}

/// The values of an account in one table. `None` if the table does not set them.
#[derive(Clone)]
struct Values {
    base_url: Reading<Url>,
    keys: Reading<Vec<Secret>>,
    key_expires: Reading<Timestamp>,
    rate: Reading<Option<Rate>>,
}

impl Values {
    fn read(table: &Section<'_>) -> Self {
        let base_url = table.optional("base_url", base_url);
        if let Ok(Some(url)) = &base_url {
            table.note_plaintext("base_url", url, "the API key");
        }
        let rate = table.optional("requests_per_second", whole_number(REQUESTS_PER_SECOND));
        let rate = rate.map(|requests| requests.map(rate_of));
        Self { base_url, keys: keys(table), key_expires: key_expires(table), rate }
    }

    /// Returns the values of the table `own`. If `own` does not set a key, its value is taken from `self`, the values of `api`.
    fn behind(self, own: &Section<'_>, api: &Section<'_>) -> Self {
        let values = Self::read(own);
        let inherits = |keys: &[&str]| {
            for key in keys {
                own.note_use(key, KeyUse::Inherits(api.key.at(key)));
            }
        };
        // An expiry date applies only to the API keys of the same table.
        let has_keys = !matches!(values.keys, Ok(None));
        let (keys, key_expires) = if has_keys {
            (values.keys, values.key_expires)
        } else {
            inherits(&KEYS);
            (self.keys, or(values.key_expires, self.key_expires, || inherits(&["api_key_expires"])))
        };
        Self {
            base_url: or(values.base_url, self.base_url, || inherits(&["base_url"])),
            keys,
            key_expires,
            rate: or(values.rate, self.rate, || inherits(&["requests_per_second"])),
        }
    }

    fn account(
        self,
        name: AccountName,
        table: &Section<'_>,
        [connect_timeout, request_timeout]: [Result<Duration, Reported>; 2],
    ) -> Result<Account, Reported> {
        all!(Account {
            client: all!(api::Settings {
                account: Ok(name),
                base_url: self.base_url.and_then(|url| url.ok_or_else(|| table.missing("base_url"))),
                api_keys: self.keys.and_then(|keys| keys.ok_or_else(|| without_key(table))),
                connect_timeout: connect_timeout,
                request_timeout: request_timeout,
            }),
            key_expires: self.key_expires,
            rate: self.rate.and_then(|rate| rate.ok_or_else(|| table.missing("requests_per_second"))),
        })
    }
}

/// The own value or, if it is not set, the shared one.
fn or<T>(own: Reading<T>, shared: Reading<T>, note: impl FnOnce()) -> Reading<T> {
    if matches!(own, Ok(None)) {
        note();
        return shared;
    }
    own
}

/// Reads the API keys of a table, in the order of their use.
fn keys(table: &Section<'_>) -> Reading<Vec<Secret>> {
    let key = |text: &str| check_key(text).map(Secret::new);
    let keys = match table.one_of(KEYS)? {
        Some(FILES) => table.secret_files(FILES, "is empty; name the file of a key", key)?,
        _ => table.secret("api_key", key)?.map(|key| vec![key]),
    };
    if keys.as_ref().is_some_and(|keys| keys.len() > MAX_KEYS) {
        return Err(table.wrong(FILES, format!("names more than {MAX_KEYS} files; remove those of old keys")));
    }
    Ok(keys)
}

fn without_key(table: &Section<'_>) -> Reported {
    let key = table.key.at("api_key");
    table.wrong("api_key", format!("is missing; set it, or {key}_file, or {}", key.variable()))
}

fn key_expires(table: &Section<'_>) -> Reading<Timestamp> {
    const KEY: &str = "api_key_expires";
    let expires = table.optional(KEY, |text| {
        table.note_use(KEY, KeyUse::ShownAs(text.to_owned()));
        day(text.trim()).ok_or_else(|| "must be the day on which the key expires, such as 2027-03-01".to_owned())
    })?;
    let key = table.key.at(KEY).to_string();
    if let Some(warning) = expires.and_then(|expires| operator::expires_soon(&key, expires, Timestamp::now())) {
        table.note(KEY, warning);
    }
    Ok(expires)
}

/// Parses a time, or a day. A day begins at midnight in UTC.
fn day(text: &str) -> Option<Timestamp> {
    let day = || Some(text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp());
    text.parse().ok().or_else(day)
}

fn rate_of(requests: u32) -> Option<Rate> {
    (requests > 0).then_some(Rate { requests, per: Duration::from_secs(1) })
}

fn base_url(text: &str) -> Result<Url, String> {
    let mut url = http_url(text)?;
    if url.query().is_some() {
        return Err("must not have a query; remove everything from the ? on".to_owned());
    }
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}

fn check_key(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("is empty; give the key that the service issued".to_owned());
    }
    let legal = text.bytes().all(|byte| byte.is_ascii_graphic());
    text_if(legal, text, "must be visible ASCII without spaces; give the key alone, without \"Apikey\"")
}
