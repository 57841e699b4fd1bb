//! The answers that the flags give.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use super::answers::{ConfigAnswers, Key};
use super::sink::{self, Sink};
use super::{Args, prompt, simulated};
use crate::cli::context::{CommandError, Context};
use crate::cli::terminal::for_stdout;

pub(super) const SERVICE: &str = "https://cre-connect.api.chain.link/v1";

/// Returns the answers that the flags give. The other answers are empty or have their defaults.
///
/// The file that `--demo` names counts as flags, so they are added to `args`.
pub(super) fn answers(args: &mut Args, directory: &Path, cx: &mut Context<'_>) -> Result<ConfigAnswers, CommandError> {
    let key_file = std::path::absolute(args.api_key_file.take().unwrap_or_else(|| directory.join("api-key")))
        .map_err(CommandError::io("the path of the key file"))?;
    let mut key = None;
    if let Some(file) = &args.demo {
        let it = simulated::announced(file)?;
        (key, args.base_url, args.org_id) = (Some(it.api_key), Some(it.base_url), Some(it.org_id));
        (args.valid_signers, args.min_required_signatures) = (it.valid_signers, Some(it.min_required_signatures));
        args.channel = (0..).zip(it.channels).map(|(number, id)| format!("simulated-{number}={id}")).collect();
    }
    check_complete(args, key.is_some() || key_file.exists() || args.api_key_stdin)?;
    if args.api_key_stdin && key.is_none() {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map_err(CommandError::io("the key could not be read"))?;
        key = Some(text.trim().to_owned());
    }
    let key = if key_file.exists() {
        use_existing(&key_file, key.as_deref(), cx)?;
        Key::File
    } else {
        // The address of the service is checked before the key is known. That request contains no key.
        Key::New(key.unwrap_or_else(|| "not-known-yet".to_owned()))
    };
    let is_installed = directory == Path::new("/etc/channeld");
    Ok(ConfigAnswers {
        base_url: args.base_url.clone().unwrap_or_else(|| SERVICE.to_owned()),
        key_file,
        key,
        owner: match (&args.org_id, &args.workflow_owner) {
            (_, Some(address)) => ("workflow_owner", address.clone()),
            (id, None) => ("org_id", id.clone().unwrap_or_default()),
        },
        signers: args.valid_signers.clone(),
        required: args.min_required_signatures,
        channels: Vec::new(),
        sink: Sink::stdout(),
        feed: None,
        admin: None,
        state: if is_installed { "/var/lib/channeld".into() } else { directory.join("state") },
    })
}

/// Fails if a value is missing and cannot be asked for.
fn check_complete(args: &Args, has_key: bool) -> Result<(), CommandError> {
    let missing: Vec<_> = [
        (args.org_id.is_none() && args.workflow_owner.is_none(), "--org-id"),
        (args.channel.is_empty(), "--channel"),
        (!has_key, "--api-key-file with an existing file, or --api-key-stdin"),
    ]
    .into_iter()
    .filter_map(|(is_missing, flag)| (is_missing && !prompt::is_possible()).then_some(flag))
    .chain(sink::without_place(args.sink.as_deref(), args.to.is_some() || args.to_file.is_some()))
    .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!("this is not a terminal, so nothing can be asked; give {}", missing.join(", "));
    Err(CommandError::usage(message))
}

/// Says that the key in an existing file is used. Fails if another key was given, because the file is never changed.
fn use_existing(file: &Path, given: Option<&str>, cx: &mut Context<'_>) -> Result<(), CommandError> {
    let shown = file.display();
    if let Some(given) = given {
        let known = fs::read_to_string(file).map_err(CommandError::io(format!("{shown} could not be read")))?;
        if known.trim() != given {
            let message =
                format!("{shown} contains another API key: remove it, or name a new file with --api-key-file");
            return Err(CommandError::usage(message));
        }
    }
    cx.say(for_stdout(&format!("Using the API key in {shown}"))).map(drop)
}
