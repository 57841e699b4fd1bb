//! `channeld console`: events, their proofs and the daemon, in a browser. A signal ends the command at once, without waiting
//! for browsers. The daemon completes the requests that it has received from the console.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tempfile::NamedTempFile;
use tracing::warn;

use crate::cli::context::{CommandError, Context, Exit};
use crate::daemon::signals::Signals;

#[cfg(feature = "console")]
mod serve;

#[cfg(feature = "console")]
pub(crate) use serve::serve;

/// Show events, their proofs and the daemon in a browser.
///
/// Prints an address that works once. The browser that opens the address stays signed in, by a cookie, and can sign in
/// other browsers. The console runs next to the daemon, as a user who may use its control socket. The console listens
/// only on loopback addresses, and contacts no other machines except the configured service and database. It runs until
/// Ctrl-C.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The loopback address to listen on; with port 0, the system chooses the port [default: a random address in 127/8, so that
    /// browsers send the cookie to no other server]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = loopback)]
    listen: Option<SocketAddr>,
    /// The sink of type `sqlite` or `postgres` whose table is read [default: the first such sink that a channel uses]
    #[arg(long, value_name = "SINK")]
    from: Option<String>,
    /// Show everything, but allow no changes: no retry, no replay, no pause.
    #[arg(long)]
    read_only: bool,
    /// Open the address in the browser of this desktop.
    #[arg(long)]
    open: bool,
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "must be an IP address and a port".to_owned())?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err("must be a loopback address, such as 127.0.0.1:8480; from another machine, use `ssh -L`".to_owned())
}

pub(crate) async fn run(args: &Args, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let config = cx.config()?;
    telemetry::init_plain(&config.log);
    let mut signals = Signals::listen().map_err(CommandError::output)?;
    // The file exists until this command ends.
    let page = OnceLock::new();
    let announce = |address: &str| {
        cx.say(address)?;
        anstream::eprintln!("The address works once. Ctrl-C ends the console.");
        if args.open {
            page.get_or_init(|| open_browser(address));
        }
        Ok(())
    };
    tokio::select! {
        served = serve(&config, args.listen, args.from.as_deref(), args.read_only, announce) => match served? {},
        _ = signals.next() => Ok(Exit::Done),
    }
}

/// Returns an error, because this program was built without the console.
#[cfg(not(feature = "console"))]
#[expect(clippy::unused_async, reason = "it has the signature of the function with the console")]
pub(crate) async fn serve(
    _config: &crate::config::Config,
    _listen: Option<SocketAddr>,
    _from: Option<&str>,
    _read_only: bool,
    _announce: impl FnOnce(&str) -> Result<(), CommandError>,
) -> Result<std::convert::Infallible, CommandError> {
    Err(CommandError::usage(crate::config::built_without("the console", "console")))
}

/// Asks the desktop to open the address. The address is printed in any case.
///
/// Every user of the machine can read the arguments of a program, and the address signs in the first browser that opens it.
/// This function therefore passes the path of a file that only this user can read. The file is removed when the returned
/// handle is dropped.
#[must_use]
pub(crate) fn open_browser(address: &str) -> Option<NamedTempFile> {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let opened = private_page(address).and_then(|page| {
        let mut browser = Command::new(program);
        browser.arg(page.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        browser.spawn().map(|_| page)
    });
    opened.inspect_err(|error| warn!(%error, "no browser could be started: open the address yourself")).ok()
}

/// A page that leads to the address. Only this user can read its file.
fn private_page(address: &str) -> io::Result<NamedTempFile> {
    let mut page = tempfile::Builder::new().prefix("channeld-").suffix(".html").tempfile()?;
    write!(page, "<!DOCTYPE html><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0; url={address}\">")?;
    page.flush()?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_page_that_leads_to_the_address_is_private_and_removed() {
        let page = private_page("http://127.0.0.1:8480/enter?key=once").unwrap();
        let path = page.path().to_owned();
        assert!(std::fs::read_to_string(&path).unwrap().contains("url=http://127.0.0.1:8480/enter?key=once\""));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(page);
        assert!(!path.exists());
    }
}
