//! The questions of `channeld init`, in their order.
//!
//! A question whose answer a flag gives is not asked. On a terminal, each answer is checked at once and asked again if the check
//! fails. The answer `back` returns to the previous question.

use std::io;
use std::path::Path;

use super::answers::{ConfigAnswers, Key, load};
use super::choices::Choices;
use super::feed::Feed;
use super::prompt::{self, Stop};
use super::sink::{self, Sink};
use super::{Args, given};
use crate::cli::context::{CommandError, Context, Exit};
use crate::cli::look::channels::list;
use crate::cli::prove::check;
use crate::cli::terminal::{GOOD, failure_for_stderr, for_stdout, shortened, styled, width_of};
use crate::config::{self, ConfigText};
use api::{AccountName, ApiError, Client};
use net::{Chain, http};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Service,
    Key,
    Owner,
    Channels,
    Sink,
    Feed,
}

const QUESTIONS: [Question; 6] =
    [Question::Service, Question::Key, Question::Owner, Question::Channels, Question::Sink, Question::Feed];

/// The questions, and the answers until now.
pub(super) struct Interview<'a, 'c> {
    args: Args,
    directory: &'a Path,
    cx: &'a mut Context<'c>,
    answers: ConfigAnswers,
}

impl<'a, 'c> Interview<'a, 'c> {
    pub(super) fn new(mut args: Args, directory: &'a Path, cx: &'a mut Context<'c>) -> Result<Self, CommandError> {
        let answers = given::answers(&mut args, directory, cx)?;
        Ok(Self { args, directory, cx, answers })
    }

    /// Asks all questions.
    pub(super) async fn answers(mut self) -> Result<ConfigAnswers, CommandError> {
        if QUESTIONS.into_iter().any(|question| self.asks(question)) {
            eprintln!("Each answer is checked at once. Enter back for the previous question, Ctrl-C to cancel.");
        }
        let (mut at, mut asked) = (0, Vec::new());
        while let Some(question) = QUESTIONS.get(at) {
            let is_asked = self.asks(*question);
            if is_asked {
                asked.push(at);
            }
            match self.ask(*question).await {
                Ok(()) => at += 1,
                Err(Stop::Back) => {
                    if is_asked {
                        asked.pop();
                    }
                    at = asked.pop().unwrap_or(at);
                }
                Err(Stop::Failed(failure)) => return Err(failure),
            }
        }
        Ok(self.answers)
    }

    /// Whether a question is asked, because no flag answers it.
    fn asks(&self, question: Question) -> bool {
        let args = &self.args;
        prompt::is_possible()
            && match question {
                Question::Service => args.base_url.is_none(),
                Question::Key => self.is_key_asked(),
                Question::Owner => args.org_id.is_none() && args.workflow_owner.is_none(),
                Question::Channels => args.channel.is_empty(),
                Question::Sink => {
                    let has_place = args.to.is_some() || args.to_file.is_some();
                    args.sink.as_deref().is_none_or(|kind| sink::needs_place(kind) && !has_place)
                }
                Question::Feed => args.feed.is_none() && self.answers.sink.is_table(),
            }
    }

    /// Whether neither a flag nor a file contains the key.
    fn is_key_asked(&self) -> bool {
        !self.args.api_key_stdin && self.args.demo.is_none() && matches!(self.answers.key, Key::New(_))
    }

    async fn ask(&mut self, question: Question) -> Result<(), Stop> {
        match question {
            Question::Service if self.asks(question) => self.ask_service().await,
            Question::Key => self.ask_key().await,
            Question::Owner if self.asks(question) => self.ask_owner(),
            Question::Channels if self.asks(question) => self.ask_channels().await,
            Question::Channels => {
                self.answers.channels = self.named_channels().await?;
                Ok(())
            }
            Question::Sink => self.ask_sink().await,
            Question::Feed => {
                self.answers.feed = Feed::of(self.args.feed.clone(), &self.answers.sink, self.directory)?;
                Ok(())
            }
            Question::Service | Question::Owner => Ok(()),
        }
    }

    async fn ask_service(&mut self) -> Result<(), Stop> {
        loop {
            self.answers.base_url = prompt::ask_or("The service's address", given::SERVICE)?;
            if self.args.unchecked {
                return Ok(());
            }
            let answered = match self.client() {
                Ok(client) => client.health().await.map_err(|error| explained(&error)),
                Err(failure) => Err(failure.to_string()),
            };
            match answered {
                Ok(()) => return self.say_ok("the service answers"),
                Err(failure) => say_failure(&failure),
            }
        }
    }

    /// Asks for the key, unless it is given. Then lets the service check it, if an operator can correct it.
    async fn ask_key(&mut self) -> Result<(), Stop> {
        loop {
            let is_asked = self.asks(Question::Key);
            if is_asked {
                self.answers.key = Key::New(prompt::ask_secret("The API key (not shown)")?);
            }
            let can_be_corrected = is_asked || matches!(self.answers.key, Key::File);
            if self.args.unchecked || !prompt::is_possible() || !can_be_corrected {
                return Ok(());
            }
            match self.refused_key().await {
                None => return self.say_ok("the service accepts the API key"),
                Some(failure) => say_failure(&failure),
            }
            if !is_asked {
                let file = self.answers.key_file.display();
                prompt::ask_or_nothing(&format!("Correct the key in {file}, then press Enter"))?;
            }
        }
    }

    /// Why the service does not accept the key. A key that may not read the list of channels is accepted.
    async fn refused_key(&self) -> Option<String> {
        match self.client() {
            Ok(client) => match client.channels().await {
                Ok(_) => None,
                Err(ApiError::Refused(answer)) if answer.status != 401 => None,
                Err(error) => Some(explained(&error)),
            },
            Err(failure) => Some(failure.to_string()),
        }
    }

    fn ask_owner(&mut self) -> Result<(), Stop> {
        loop {
            self.answers.owner = ("org_id", prompt::ask("The organization's id (org_…)")?);
            // Without any channel, the configuration is incomplete.
            let channel = ("check".to_owned(), uuid::Uuid::nil().to_string());
            let answers = ConfigAnswers { channels: vec![channel], sink: Sink::stdout(), ..self.answers.clone() };
            match load(&self.args.file, &answers.text_to_check()) {
                Ok(_) => return Ok(()),
                Err(failure) => say_failure(&failure.to_string()),
            }
        }
    }

    /// The channels that the flags name. The service is asked for its list only if a flag does not contain the id.
    async fn named_channels(&self) -> Result<Vec<(String, String)>, CommandError> {
        let flags = &self.args.channel;
        let has_ids = flags.iter().all(|flag| flag.contains('='));
        let choices = if has_ids { Choices::default() } else { self.choices().await? };
        flags.iter().map(|flag| choices.one(flag)).collect()
    }

    /// Requests the list of channels.
    async fn choices(&self) -> Result<Choices, CommandError> {
        Ok(Choices::of(list::listed(self.service_settings()?).await?))
    }

    fn service_settings(&self) -> Result<api::Settings, CommandError> {
        let text = ConfigText::written(&self.args.file, self.answers.text_to_check());
        Ok(config::load_service(&text, &AccountName::default())?.account.client)
    }

    fn client(&self) -> Result<Client, CommandError> {
        Client::new(self.service_settings()?).map_err(|error| CommandError(Exit::Config, Chain(&error).to_string()))
    }

    /// Asks for one or more channels, until the answer is empty. `back` removes the last one.
    async fn ask_channels(&mut self) -> Result<(), Stop> {
        self.answers.channels.clear();
        let listed = if self.args.unchecked { Ok(Choices::default()) } else { self.choices().await };
        let choices = listed.unwrap_or_else(|failure| {
            say_failure(&failure.to_string());
            Choices::default()
        });
        let width = width_of(&io::stdout()).unwrap_or(usize::MAX);
        self.cx.say_lines(choices.lines().map(|line| for_stdout(&shortened(&line, width))))?;
        loop {
            let answered = match (self.answers.channels.len(), choices.first()) {
                (0, Some(first)) => prompt::ask_or(choices.question(), first),
                (0, None) => prompt::ask(choices.question()),
                _ => prompt::ask_or_nothing("Another channel, or nothing"),
            };
            match answered {
                Ok(answer) if answer.is_empty() => return Ok(()),
                Ok(answer) => match choices.chosen(&answer) {
                    Ok(chosen) => self.accept(chosen).await?,
                    Err(failure) => say_failure(&failure.to_string()),
                },
                Err(Stop::Back) => match self.answers.channels.pop() {
                    Some((name, _)) => drop(self.cx.say(format!("{name} is removed"))?),
                    None => return Err(Stop::Back),
                },
                Err(stop) => return Err(stop),
            }
        }
    }

    /// Adds the channels that can be read, and says which cannot.
    async fn accept(&mut self, chosen: Vec<(String, String)>) -> Result<(), CommandError> {
        for channel in chosen {
            if self.answers.channels.iter().any(|(_, id)| *id == channel.1) {
                continue;
            }
            let (channels, state) = (vec![channel.clone()], self.directory.join("state"));
            let alone = ConfigAnswers { channels, state, sink: Sink::stdout(), ..self.answers.clone() };
            match self.passes(&alone, "channel").await {
                Ok(true) => self.answers.channels.push(channel),
                Ok(false) => {
                    let text = "That channel is not accepted. Enter a channel, or back for the previous question";
                    self.cx.say(text).map(drop)?;
                }
                // The mistake can be in this answer or in an earlier one.
                Err(failure) => say_failure(&failure.to_string()),
            }
        }
        Ok(())
    }

    /// Asks for the sink, unless it is given, until it can be used.
    async fn ask_sink(&mut self) -> Result<(), Stop> {
        loop {
            let Args { sink: kind, to, to_file, .. } = &self.args;
            self.answers.sink = Sink::of(kind.clone(), to.clone(), to_file.clone(), self.directory)?;
            if !self.asks(Question::Sink) {
                return Ok(());
            }
            match self.passes(&self.answers.clone(), "sink").await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(failure) => say_failure(&failure.to_string()),
            }
        }
    }

    /// Checks these answers. Prints the result of one kind of check, and every failure.
    async fn passes(&mut self, answers: &ConfigAnswers, what: &str) -> Result<bool, CommandError> {
        if self.args.unchecked {
            return Ok(true);
        }
        let config = load(&self.args.file, &answers.text_to_check())?;
        let checks = check::ask(&config, config.state.examine(), false).await;
        let shown = checks.iter().filter(|check| !check.ok || check.what == what);
        self.cx.say_lines(shown.map(|check| for_stdout(&check.to_string())))?;
        Ok(checks.iter().all(|check| check.ok))
    }

    fn say_ok(&mut self, text: &str) -> Result<(), Stop> {
        self.cx.say(for_stdout(&format!("{} {text}", styled(GOOD, "ok  "))))?;
        Ok(())
    }
}

fn explained(error: &ApiError) -> String {
    http::explained(error).map_or_else(|| Chain(error).to_string(), str::to_owned)
}

fn say_failure(failure: &str) {
    anstream::eprintln!("{}", failure_for_stderr("", failure));
}
