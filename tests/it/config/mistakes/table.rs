//! A table of mistakes, each with words that its message must contain: the problem, its place, and the remedy.
//!
//! In a value, `~` is the directory of the test. It contains the text file `open` and the empty file `empty`.

use std::collections::BTreeMap;
use std::process::Command;

use proof::event::ChannelId;
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

const CHANNEL: &str = "00000000-0000-0000-0000-00000000000a";

/// A wrong key: its value, and words of the message. The value `null` removes the key.
const KEYS: &[(&str, &str, &[&str])] = &[
    // Unknown keys
    ("api2.x", "1", &["api2", "did you mean api?"]),
    ("api.idle_wiat", r#""5s""#, &["api.idle_wiat", "did you mean api.idle_wait?"]),
    ("channels.a.limits.late", "1", &["channels.a.limits", "config/default.toml"]),
    (
        "sinks.out.url",
        r#""https://x/""#,
        &["sinks.out.url", r#"not a key of a sink of type "file""#, "config/default.toml"],
    ),
    ("sinks.out.filter.tpye", r#"["x"]"#, &["did you mean sinks.out.filter.type?"]),
    ("channels.a.expect.addres", r#"["0x1"]"#, &["did you mean channels.a.expect.address?"]),
    // [feed]
    ("feed.listen", r#""9465""#, &["must be an IP address and a port, such as \"127.0.0.1:9465\"", "\"unix:\""]),
    ("feed.sink", r#""outt""#, &["no sink has this name; add a [sinks.outt] table"]),
    ("feed.sink", r#""out""#, &["must be the name of a sink of type \"sqlite\" or \"postgres\""]),
    ("feed.lisen", r#""127.0.0.1:9465""#, &["feed.lisen", "did you mean feed.listen?"]),
    ("feed.consumers.a.channels", "[]", &["feed.consumers.a.channels", "is empty; name a channel"]),
    ("sinks.out.keep_for_consumers", r#"["a"]"#, &[r#"not a key of a sink of type "file""#]),
    // [api]
    ("api.base_url", r#""host/v1""#, &["must be a URL, such as \"https://"]),
    ("api.base_url", r#""ftp://host/v1""#, &["must begin with https:// or http://"]),
    ("api.base_url", r#""http://me:pw@host/v1""#, &["remove everything up to the @"]),
    ("api.base_url", r#""http://host/v1?x=1""#, &["remove everything from the ? on"]),
    ("api.api_key", "5", &["must be a string in quotes"]),
    ("api.api_key", r#""Apikey abc""#, &["give the key alone, without \"Apikey\""]),
    ("api.api_key", "null", &["api.api_key: is missing; set it, or api.api_key_file, or CHANNELD_API__API_KEY"]),
    ("api.api_key_file", r#""~/open""#, &["is set together with api.api_key", "keep one"]),
    ("api.api_key_files", r#"["~/open"]"#, &["is set together with api.api_key", "keep one"]),
    ("api.api_key_expires", r#""soon""#, &["must be the day on which the key expires, such as 2027-03-01"]),
    ("api.idle_wait", "5", &["a duration with its unit, such as \"500ms\""]),
    ("api.idle_wait", r#""5 parsec""#, &["a duration with its unit"]),
    ("api.idle_wait", r#""-5s""#, &["a duration with its unit"]),
    ("api.retry_wait", r#""2m""#, &["api.retry_wait", "api.retry_wait_max"]),
    ("api.page_limit", "500", &["a whole number from 1 to 200"]),
    // [verification]
    ("verification.org_id", "null", &["is missing; set it, or verification.workflow_owner"]),
    ("verification.org_id", r#""org_…""#, &["placeholder", "set your organization's id"]),
    ("verification.org_id", r#""org_2abcDEFghiJKLmno""#, &["placeholder", "set your organization's id"]),
    ("verification.org_id", r#""org 1""#, &["as the service shows it", "without spaces"]),
    ("verification.workflow_owner", r#""0x12""#, &["is set together with", "keep one"]),
    ("verification.valid_signers", "[]", &["is empty; list the network's signers"]),
    (
        "verification.valid_signers",
        r#"["0x12"]"#,
        &["item 1 of the list is not an address: 0x and 40 hexadecimal digits"],
    ),
    (
        "verification.valid_signers",
        r#"["0x0000000000000000000000000000000000000001", "0x0000000000000000000000000000000000000001"]"#,
        &["twice (again as item 2 of the list); list each signer once"],
    ),
    ("verification.min_required_signatures", "0", &["greater than 0, and at most the number of signers"]),
    ("verification.min_required_signatures", "11", &["but only 10 signers are listed; lower this number"]),
    ("verification.ordering", r#""strikt""#, &[r#"must be "available" or "strict""#]),
    ("verification.unsigned", r#""keep""#, &["verification.unsigned", "must be"]),
    // [channels]
    ("channels.a.id", "null", &["channels.a.id: is missing; set it"]),
    ("channels.a.id", r#""settlements""#, &["the channel's UUID as the service shows it"]),
    (
        "channels.a.sinks",
        "null",
        &["channels.a.sinks: is missing; set it in the file or as CHANNELD_CHANNELS__A__SINKS"],
    ),
    ("channels.a.sinks", "[]", &["is empty; name a sink"]),
    ("channels.a.sinks", r#"["outt"]"#, &["\"outt\", which is not one of those defined: out"]),
    ("channels.a.sinks", r#"["out", "out"]"#, &["twice; name each sink once"]),
    ("channels.a.start", r#""yesterday""#, &[r#""earliest", "latest", an offset"#, r#""@1793491200""#]),
    ("channels.a.start", "-1", &["a whole number, 0 or larger"]),
    ("channels.a__b.id", r#""x""#, &["channels.a__b", "letters, digits, - and _"]),
    ("channels", "null", &["no channel is configured; add a [channels.NAME] table with its id and sinks"]),
    ("channels.a.expect.address", r#"["0x1"]"#, &["item 1 of the list is not 40 hexadecimal digits"]),
    ("channels.a.expect.address", "[]", &["is empty, so that every event would be rejected", "remove it"]),
    ("channels.a.expect.workflow_id", r#"["0x1"]"#, &["item 1 of the list is not 64 hexadecimal digits"]),
    // All sinks
    ("sinks.out.type", r#""fiel""#, &["sinks.out.type", r#"must be "stdout" or "file""#]),
    ("sinks.out.type", "null", &["sinks.out.type: is missing; set it in the file or as CHANNELD_SINKS__OUT__TYPE"]),
    ("sinks.out.format", r#""xml""#, &["sinks.out.format", r#""json" or "cloudevents" or "raw""#]),
    ("sinks.out.format", r#""raw""#, &["add filter = { verification = [\"verified\"] }"]),
    ("sinks.out.format", r#""text""#, &["cannot be \"text\" for a file", "use \"json\", \"cloudevents\" or \"raw\""]),
    ("sinks.out.filter", r#""failure""#, &["sinks.out.filter", "must be \"failures\""]),
    ("sinks.out.filter.type", "[]", &["is empty, and no event would pass; name a value"]),
    (
        "sinks.out.filter.type",
        r#"["Operation Status"]"#,
        &["item 1 of the list", "must be a type, such as \"operation.status\""],
    ),
    (
        "sinks.out.filter.status",
        r#"["confirmed", "Failed!"]"#,
        &["item 2 of the list", "a status, such as \"confirmed\""],
    ),
    (
        "sinks.out.filter.chain_selector",
        r#"["sepolia"]"#,
        &["item 1 of the list", "a chain selector, in decimal digits"],
    ),
    ("sinks.out.filter.address", r#"["0x1"]"#, &["item 1 of the list", "0x and 40 hexadecimal digits"]),
    ("sinks.out.filter.watcher_id", r#"["mine"]"#, &["item 1 of the list", "an id, as the service shows it"]),
    ("sinks.out.filter.verification", r#"["yes"]"#, &["item 1 of the list", "\"verified\" or \"unsigned\""]),
    // File sinks
    ("sinks.out.path", "null", &["sinks.out.path: is missing; set it"]),
    ("sinks.out.mode", r#""999""#, &["octal permissions such as \"0640\""]),
    ("sinks.out.rotate_size", r#""100""#, &["a size with its unit", "\"100MiB\""]),
    ("sinks.out.rotate_every", r#""7h""#, &["a whole fraction of a day, such as \"15m\""]),
    ("sinks.out.rotated_name", r#""events.jsonl""#, &["must have {time}"]),
    ("sinks.out.keep_files", "3", &["never closed: set sinks.out.rotate_size or sinks.out.rotate_every too"]),
    // Other tables
    ("admin.listen", r#""9464""#, &["an IP address and a port, such as \"127.0.0.1:9464\"", "\"\" turns it off"]),
    ("admin.listen", r#""localhost:9464""#, &["an IP address and a port"]),
    ("state.backend", r#""mysql""#, &[r#"must be "sled" or "postgres""#]),
    ("state.backend", r#""postgres""#, &["state.url: is missing; set it in the file or as CHANNELD_STATE__URL"]),
    ("limits.memory", r#""1MiB""#, &["must be a size from \"32"]),
    ("limits.memory", r#""256 apples""#, &["a size with its unit"]),
    ("log.level", r#""loud""#, &["must be one of off, error, warn, info, debug, trace"]),
    ("log.format", r#""xml""#, &[r#"must be "text" or "json""#]),
    ("shutdown_grace", "30", &["shutdown_grace", "a duration with its unit"]),
];

/// A wrong sink: the keys below `sinks.out`, which replace the file sink, and words of the message.
const SINKS: &[(&str, &[&str])] = &[
    (r#"{"type": "webhook"}"#, &["sinks.out.url: is missing; set it in the file or as CHANNELD_SINKS__OUT__URL"]),
    (r#"{"type": "webhook", "url": "ledger"}"#, &["must be a URL, such as \"https://"]),
    (r#"{"type": "webhook", "url": "https://x/", "url_file": "~/open"}"#, &["is set together with sinks.out.url_file"]),
    (
        r#"{"type": "webhook", "url": "https://x/", "secret": "abc"}"#,
        &["whsec_", "echo whsec_$(openssl rand -base64 32)"],
    ),
    (
        r#"{"type": "webhook", "url": "https://x/", "secret": "whsec_YWJj"}"#,
        &["must contain 24 to 64 bytes; make one with"],
    ),
    (
        r#"{"type": "webhook", "url": "https://x/", "secret_file": "~/none"}"#,
        &["~/none", "correct the path or the file"],
    ),
    (
        r#"{"type": "webhook", "url": "https://x/", "secret_file": "~/empty"}"#,
        &["~/empty", "is empty; put the secret into it"],
    ),
    (r#"{"type": "webhook", "url": "https://x/", "secret_file": "~"}"#, &["is not a regular file"]),
    (r#"{"type": "webhook", "url": "https://x/", "batch_events": 0}"#, &["a whole number from 1 to 1000"]),
    (
        r#"{"type": "webhook", "url": "https://x/", "batch_events": 9, "concurrency": 4}"#,
        &["sinks.out.concurrency", "batch_events"],
    ),
    (r#"{"type": "webhook", "url": "https://x/", "headers": {"Host": "x"}}"#, &["sinks.out.headers.Host", "remove it"]),
    (
        r#"{"type": "webhook", "url": "https://x/", "bearer_token": "x", "username": "y", "password": "z"}"#,
        &["keep one of the two"],
    ),
    (
        r#"{"type": "webhook", "url": "https://x/", "ca_file": "~/open"}"#,
        &["no certificate in PEM (-----BEGIN CERTIFICATE-----)"],
    ),
    (r#"{"type": "webhook", "url": "https://x/", "client_certificate_file": "~/open"}"#, &["sinks.out.client_", "PEM"]),
    (r#"{"type": "webhook", "url": "https://x/", "rate_limit": "10"}"#, &["such as \"10/s\", \"100/m\" or \"500/h\""]),
    (r#"{"type": "webhook", "url": "https://x/", "compress": "br"}"#, &[r#"must be "none" or "gzip" or "zstd""#]),
    (
        r#"{"type": "webhook", "url": "https://x/", "oauth2": {"client_id": "x"}}"#,
        &["oauth2.token_url: is missing", "oauth2.client_secret: is missing"],
    ),
    (
        r#"{"type": "webhook", "url": "https://x/", "retry_wait": "2h"}"#,
        &["must not be longer than sinks.out.retry_wait_max"],
    ),
    (
        r#"{"type": "webhook", "url": "https://x/", "format": "template"}"#,
        &["name one of \"slack\"", "or set template_file"],
    ),
    (
        r#"{"type": "webhook", "url": "https://x/", "format": "template", "template": "slak"}"#,
        &["sinks.out.template", "\"slack\" or \"teams\""],
    ),
    (
        r#"{"type": "webhook", "url": "https://x/", "template": "slack"}"#,
        &["has an effect only with format = \"template\"; set that, or remove this"],
    ),
    (
        r#"{"type": "webhook", "url": "https://x/", "format": "template", "template": "pagerduty"}"#,
        &["values.routing_key", "template_value_files"],
    ),
    (r#"{"type": "postgres"}"#, &["sinks.out.url: is missing"]),
    (r#"{"type": "postgres", "url": "db"}"#, &["such as \"postgresql://channeld@db.internal/channeld\""]),
    (r#"{"type": "postgres", "url": "postgresql://a@b/c?sslmode=verify-full"}"#, &["disable, prefer or require"]),
    (r#"{"type": "postgres", "url": "postgresql://a@b/c?sslrootcert=/ca.pem"}"#, &["sinks.out.url", "set ca_file"]),
    (r#"{"type": "postgres", "url": "postgresql://a@b,d/c?target_session_attrs=primary"}"#, &["write read-write"]),
    (r#"{"type": "postgres", "url": "postgresql://a@b/c?gssencmode=disable"}"#, &["must not have gssencmode"]),
    (r#"{"type": "postgres", "url": "postgresql://a@b/c?passfile=/p"}"#, &["must not have passfile", "url_file"]),
    (
        r#"{"type": "postgres", "url": "postgresql:///?service=main"}"#,
        &["must not have service", "host, dbname and user"],
    ),
    (
        r#"{"type": "postgres", "url": "postgresql://a@b/c?require_auth=md5"}"#,
        &["must not have require_auth, which is not"],
    ),
    (
        r#"{"type": "postgres", "url": "postgresql://a@b/c", "table": "A-B"}"#,
        &["lower-case letters, digits and _", "\"events\""],
    ),
    (r#"{"type": "postgres", "url": "postgresql://a@b/c", "search": "full"}"#, &[r#""none" or "words" or "trigrams""#]),
    (r#"{"type": "sqlite"}"#, &["sinks.out.path: is missing"]),
    (r#"{"type": "sqlite", "path": "~/e.db", "format": "text"}"#, &["cannot be \"text\" for a table", "use \"json\""]),
    (r#"{"type": "nats", "url": "http://x"}"#, &["such as \"nats://bus.internal:4222\""]),
    (r#"{"type": "nats", "url": "nats://x", "stream": "a b"}"#, &["sinks.out.stream", "a stream's name"]),
    (
        r#"{"type": "nats", "url": "nats://x", "subject": "x.{chanel}"}"#,
        &["sinks.out.subject", "{channel}, {channel_id} and {type}"],
    ),
    (
        r#"{"type": "nats", "url": "nats://x", "token": "a", "user": "b", "password": "c"}"#,
        &["keep one of credentials_file, user and token"],
    ),
];

/// A wrong environment variable: its name, its value, and words of the message.
const VARIABLES: &[(&str, &str, &[&str])] = &[
    (
        "CHANNELD_API__IDLE_WIAT",
        "5s",
        &["environment variable CHANNELD_API__IDLE_WIAT", "did you mean CHANNELD_API__IDLE_WAIT?"],
    ),
    ("CHANNELD_API_IDLE_WAIT", "5s", &["did you mean CHANNELD_API__IDLE_WAIT?"]),
    ("CHANNELD_API", "5s", &["is a table; name one of its keys after another __"]),
    ("CHANNELD_API____X", "5s", &["write __ between levels and nowhere else"]),
    (
        "CHANNELD_API__IDLE_WAIT",
        "x",
        &["api.idle_wait (environment variable CHANNELD_API__IDLE_WAIT)", "a duration with its unit"],
    ),
];

/// A wrong command line, its exit code, and words of the message. A `-c` at the end names the valid configuration.
const COMMANDS: &[(&str, i32, &[&str])] = &[
    ("chekc", 64, &["'chekc'", "'check'", "--help"]),
    ("check --conect", 64, &["'--conect'", "'--connect'"]),
    ("check -c /nowhere.toml", 78, &["/nowhere.toml", "correct the path or the file"]),
    ("check -c ~", 78, &["is not a regular file", "correct the path or the file"]),
    ("check -c ~/open", 78, &["line 1: not TOML", "correct the file"]),
    ("status -c", 1, &["no state exists in ~/state", "is this the daemon's configuration?"]),
    ("cluster -c", 1, &["no state exists in ~/state"]),
    ("pause a -c", 1, &["no daemon is running with the state in ~/state"]),
    ("pause a --for 5 -c", 64, &["'--for <DURATION>'", "a duration with its unit"]),
    ("resume a -c", 1, &["no daemon is running with the state in ~/state"]),
    ("reload -c", 1, &["no daemon is running with the state in ~/state"]),
    ("health -c", 1, &["admin.listen is \"\""]),
    ("cursor -c", 64, &["requires a subcommand", "show, set"]),
    ("cursor show -c", 1, &["no state exists in ~/state"]),
    ("cursor set a -c", 64, &["--to <OFFSET|TIME|earliest|latest>"]),
    ("quarantine show -c", 64, &["--help"]),
    ("quarantine list -c", 1, &["no state exists in ~/state"]),
    ("quarantine retry a -c", 64, &["--all"]),
    ("quarantine drop a -c", 64, &["--all"]),
    ("quarantine drop a 1 --all -c", 64, &["'[OFFSETS]...'", "cannot be used with", "'--all'"]),
    (
        "quarantine drop a --all -c",
        64,
        &["nothing was dropped: add --yes to drop all quarantined events of channel a permanently"],
    ),
    ("check --efective -c", 64, &["'--efective'", "'--effective'"]),
    ("check --effective --show-body -c", 64, &["--connect"]),
    ("dead-letters list -c", 1, &["no state exists in ~/state"]),
    ("replay --channel a --sink out -c", 64, &["--from <OFFSET|TIME>", "--to <OFFSET|TIME>"]),
    ("replay --channel a --sink out --from 2 --to 1 -c", 64, &["--from is above --to"]),
    ("replay --channel a --sink out --from 1.5 --to 1 -c", 64, &["must be an offset", "or a time", "@1778760000"]),
    ("state copy --to mysql -c", 64, &["'--to <TO>'", "sled, postgres"]),
    ("state copy --to postgres -c", 78, &["state.url: is missing"]),
    ("search zz -c", 64, &["`zz` is neither a configured channel (a) nor a UUID"]),
    ("get a 5x -c", 64, &["'<OFFSET|EVENT_ID>'", "must be an offset such as 15520, or a UUID"]),
    ("wait-watcher a x -c", 64, &["'<WATCHER_ID>'", "must be a UUID"]),
    ("channels pin zz -c", 64, &["`zz` is neither a configured channel (a) nor a UUID"]),
    ("test-sink zz -c", 64, &["unknown sink zz; the sinks are: out"]),
    ("explain nonsense", 64, &["no entry for \"nonsense\"", "`channeld explain` lists all"]),
    ("schema confg", 64, &["'confg'", "'config'"]),
    ("verify ~/none -c", 1, &["~/none could not be read: No such file"]),
    (
        "verify ~/open --valid-signers 0x1 --min-required-signatures 1 --org-id o",
        64,
        &["flag --valid-signers", "item 1 of the list is not an address"],
    ),
    (
        "verify ~/open --valid-signers 0x0000000000000000000000000000000000000001 --min-required-signatures 1",
        64,
        &["verification.org_id: is missing"],
    ),
    ("simulate --forged 2", 64, &["'--forged <P>'", "a number from 0 to 1"]),
    ("simulate --listen x", 64, &["'--listen <ADDRESS:PORT>'"]),
    ("demo --events 0", 64, &["'--events <N>'"]),
    ("completions tcsh", 64, &["bash, elvish, fish"]),
    ("init ~/new.toml", 64, &["nothing can be asked; give --org-id, --channel, --api-key-file with an existing file"]),
    ("init ~/new.toml --sink kafak", 64, &["'--sink <TYPE>'", "file, stdout, webhook"]),
    (
        "init ~/new.toml --org-id o --channel x=1 --api-key-file ~/open",
        78,
        &["channels.x.id (file ~/new.toml, line", "the channel's UUID"],
    ),
    (
        "init ~/new.toml --org-id o --channel x=1 --api-key-file ~/open --sink webhook",
        64,
        &["nothing can be asked; give --to or --to-file"],
    ),
    (
        "init ~/new.toml --org-id o --channel x=1 --api-key-file ~/open --sink nats",
        64,
        &["nothing can be asked; give --to"],
    ),
    (
        "init ~/new.toml --org-id o --channel x=1 --api-key-file ~/open --to-file ~/open",
        64,
        &["--to-file is for the address of a webhook or a PostgreSQL database: use --to for this sink"],
    ),
    ("init ~/new.toml --sink stdout --to-file ~/open", 64, &["--to-file is for", "leave out --to-file"]),
    ("init ~/new.toml --demo ~/none", 1, &["~/none could not be read: No such file"]),
    ("init ~/new.toml --demo ~/open", 64, &["does not begin with the line that `channeld simulate` prints"]),
    ("init ~/channeld.toml --org-id o", 64, &["exists already; choose another file, or overwrite it with --force"]),
];

/// A directory that contains the configuration of a test, which is valid at first.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap() };
        std::fs::write(place.directory.path().join("open"), "junk\n").unwrap();
        std::fs::write(place.directory.path().join("empty"), "").unwrap();
        place.write(&Self::good());
        place
    }

    fn good() -> BTreeMap<String, Value> {
        let id = ChannelId(Uuid::parse_str(CHANNEL).unwrap()).to_string();
        let keys = [
            ("api.base_url", json!("http://127.0.0.1:9/v1")),
            ("api.api_key", json!("k")),
            ("verification.org_id", json!("org_1")),
            ("state.path", json!("~/state")),
            ("admin.listen", json!("")),
            ("channels.a.id", json!(id)),
            ("channels.a.sinks", json!(["out"])),
            ("sinks.out.type", json!("file")),
            ("sinks.out.path", json!("~/events.jsonl")),
        ];
        keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn here(&self, text: &str) -> String {
        text.replace('~', &self.directory.path().display().to_string())
    }

    /// Writes the keys as TOML. Strings, numbers and lists are the same in JSON and TOML. An object becomes dotted
    /// keys.
    fn write(&self, keys: &BTreeMap<String, Value>) {
        let line = |(key, value): (&String, &Value)| match value {
            Value::Object(inner) => inner.iter().map(|(name, value)| lines(&format!("{key}.{name}"), value)).collect(),
            value => lines(key, value),
        };
        let text = self.here(&keys.iter().map(line).collect::<String>());
        std::fs::write(self.directory.path().join("channeld.toml"), text).unwrap();
    }

    /// Runs a command, and asserts its exit code and the words on standard error.
    fn must_say(&self, command: &str, variable: Option<(&str, &str)>, code: i32, words: &[&str]) {
        let arguments =
            command.strip_suffix(" -c").map_or(command.to_owned(), |given| format!("{given} -c ~/channeld.toml"));
        let mut program = Command::new(env!("CARGO_BIN_EXE_channeld"));
        program.args(arguments.split(' ').map(|argument| self.here(argument)));
        program.env_clear().envs(variable).current_dir("/").stdin(std::process::Stdio::null());
        let output = program.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{command}: {said}");
        for word in words {
            assert!(said.contains(&self.here(word)), "{command}: {word} is not in\n{said}");
        }
    }
}

fn lines(key: &str, value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Object(inner) => inner.iter().map(|(name, value)| lines(&format!("{key}.{name}"), value)).collect(),
        value => format!("{key} = {value}\n"),
    }
}

#[test]
fn a_mistake_in_a_key_is_reported_with_line_and_remedy() {
    let place = Place::new();
    place.must_say("check -c", None, 0, &[]);
    for (key, value, words) in KEYS {
        let mut keys = Place::good();
        let value: Value = serde_json::from_str(value).unwrap();
        if value.is_null() {
            keys.retain(|other, _| other != key && !other.starts_with(&format!("{key}.")));
        } else {
            keys.insert((*key).to_owned(), value);
        }
        place.write(&keys);
        place.must_say("check -c", None, 78, words);
    }
}

#[test]
fn a_mistake_in_a_sink_is_reported_with_line_and_remedy() {
    let place = Place::new();
    for (sink, words) in SINKS {
        let mut keys = Place::good();
        keys.retain(|key, _| !key.starts_with("sinks."));
        keys.insert("sinks.out".to_owned(), serde_json::from_str(sink).unwrap());
        place.write(&keys);
        place.must_say("check -c", None, 78, words);
    }
}

#[test]
fn a_mistake_in_a_variable_is_reported_with_name_and_remedy() {
    let place = Place::new();
    for (name, value, words) in VARIABLES {
        place.must_say("check -c", Some((name, value)), 78, words);
    }
}

#[test]
fn a_mistake_in_a_command_is_reported_with_remedy() {
    let place = Place::new();
    for (command, code, words) in COMMANDS {
        place.must_say(command, None, *code, words);
    }
    assert!(!place.directory.path().join("new.toml").exists() && !place.directory.path().join("api-key").exists());
}

#[test]
fn the_reported_line_is_the_line_of_the_key() {
    let place = Place::new();
    let text = "[api]\nbase_url = \"http://127.0.0.1:9/v1\"\n# why\napi_key = 5\n[verification]\norg_id = \"org_1\"\n[channels]\na = { id = \"x\", \
                sinks = [\n  \"out\",\n  \"nobody\" ] }\n[sinks.out]\ntype = \"stdout\"\nmode = 3\n";
    std::fs::write(place.directory.path().join("channeld.toml"), text).unwrap();
    let words = [
        "api.api_key (file ~/channeld.toml, line 4)",
        "channels.a.id (file ~/channeld.toml, line 8)",
        "channels.a.sinks (file ~/channeld.toml, line 8)",
        "sinks.out.mode (file ~/channeld.toml, line 13)",
    ];
    place.must_say("check -c", None, 78, &words);
}
