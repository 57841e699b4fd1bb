//! The state of the screen, and how keys change it. Draws nothing.

use std::cmp::Reverse;
use std::sync::Arc;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use strum::VariantArray;

use super::pause::Question;
use channel::{ChannelStatus, Level, Sample};
use operator::api::SetPaused;
use operator::{Report, SignerNames};

/// Maximum length of the name filter, in characters.
const LONGEST_NAME: usize = 40;

/// The next action of the caller after a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeyAction {
    GoOn,
    /// Send this request, which the operator has confirmed.
    Send(SetPaused),
    Suspend,
    End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub(super) enum Order {
    #[default]
    Trouble,
    Name,
    Lag,
    Oldest,
}

/// Selects the channels that are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub(super) enum StatusFilter {
    #[default]
    All,
    Trouble,
    Behind,
    Paused,
}

/// The open page of the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ScreenPage {
    #[default]
    List,
    Channel(Arc<str>),
    Reasons,
    Help,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) signer_names: SignerNames,
    pub(super) report: Option<Report>,
    /// Why the last request failed. If it failed, `report` is from an earlier request.
    pub(super) failure: Option<String>,
    /// The channels that are shown, as indices into the channels of the report.
    pub(super) rows: Vec<usize>,
    pub(super) order: Order,
    pub(super) filter: StatusFilter,
    /// The name filter: only channels whose names contain this text are shown.
    pub(super) name: String,
    pub(super) is_typing: bool,
    /// The open question whether to pause or resume something. The next key answers it.
    pub(super) question: Option<Question>,
    /// The result of the last request. The next key removes it.
    pub(super) notice: Option<String>,
    /// The channel whose last hour was requested, and the samples of this hour.
    pub(super) hour: Option<(Arc<str>, Vec<Sample>)>,
    pub(super) page: ScreenPage,
    pub(super) selected: usize,
    /// The channel that a key has selected. It stays selected when a new report changes the order of the rows.
    pub(super) kept: Option<Arc<str>>,
    /// The first visible row of the list, or the first visible line of a page.
    pub(super) top: usize,
    /// How many rows or lines fit on the screen.
    pub(super) room: usize,
    pub(super) lines: usize,
}

impl Model {
    /// Stores the answer to a request. If the request failed, the previous report stays.
    pub(super) fn refresh(&mut self, answer: Result<Report, String>) {
        match answer {
            Ok(report) => {
                (self.report, self.failure) = (Some(report), None);
                self.arrange();
            }
            Err(failure) => self.failure = Some(failure),
        }
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> KeyAction {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        self.notice = None;
        match key.code {
            KeyCode::Char('c') if is_control => return KeyAction::End,
            KeyCode::Char('z') if is_control => return KeyAction::Suspend,
            code if self.question.is_some() => return self.answer(code),
            _ if self.is_typing => self.typed(key.code),
            KeyCode::Char('q') => return KeyAction::End,
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left | KeyCode::Char('h') => self.back(),
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') if self.page == ScreenPage::List => self.open(),
            KeyCode::Char('r') => self.toggle(ScreenPage::Reasons),
            KeyCode::Char('?') => self.toggle(ScreenPage::Help),
            KeyCode::Char('p') => self.question = self.shown_channel().map(Question::about),
            KeyCode::Char('s') if self.page == ScreenPage::List => self.change(|model| model.order = next(model.order)),
            KeyCode::Char('f') if self.page == ScreenPage::List => {
                self.change(|model| model.filter = next(model.filter));
            }
            KeyCode::Char('/') if self.page == ScreenPage::List => self.is_typing = true,
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.step(self.a_page()),
            KeyCode::PageUp => self.step(-self.a_page()),
            KeyCode::Home | KeyCode::Char('g') => self.step(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.step(isize::MAX),
            _ => {}
        }
        KeyAction::GoOn
    }

    /// The channel of the selected row.
    pub(super) fn at_selected(&self) -> Option<&ChannelStatus> {
        self.report.as_ref()?.channels.get(*self.rows.get(self.selected)?)
    }

    /// The channel of the open page or, in the list, of the selected row.
    pub(super) fn shown_channel(&self) -> Option<&ChannelStatus> {
        match &self.page {
            ScreenPage::List => self.at_selected(),
            ScreenPage::Channel(name) => self.report.as_ref()?.channels.iter().find(|channel| channel.channel == *name),
            ScreenPage::Reasons | ScreenPage::Help => None,
        }
    }

    /// The last hour of the channel that is shown, once it is known.
    pub(super) fn trend(&self) -> Option<(&str, &[Sample])> {
        let (name, samples) = self.hour.as_ref()?;
        (self.shown_channel()?.channel == *name).then_some((&**name, samples.as_slice()))
    }

    /// The channel that is shown, if its last hour was not requested yet.
    pub(super) fn channel_without_hour(&self) -> Option<Arc<str>> {
        let channel = &self.shown_channel()?.channel;
        self.trend().is_none().then(|| channel.clone())
    }

    /// Whether the shown channels fit on the screen together with their sinks.
    pub(super) fn sinks_fit(&self) -> bool {
        let Some(report) = &self.report else { return false };
        let lines: usize = self.rows.iter().map(|at| 1 + report.channels[*at].lanes.len()).sum();
        lines <= self.room
    }

    /// Scrolls so that the selected row is visible, and so that no line of the screen stays empty while rows are hidden
    /// above or below the screen.
    pub(super) fn keep_in_view(&mut self, lines: usize, room: usize) {
        (self.lines, self.room) = (lines, room.max(1));
        if self.page == ScreenPage::List {
            self.top = self.top.min(self.selected).max((self.selected + 1).saturating_sub(self.room));
        }
        self.top = self.top.min(self.lines.saturating_sub(self.room));
    }

    /// Answers the open question: a key of the question confirms, and every other key cancels.
    fn answer(&mut self, code: KeyCode) -> KeyAction {
        let question = self.question.take();
        let KeyCode::Char(key) = code else { return KeyAction::GoOn };
        question.and_then(|question| question.confirmed(key)).map_or(KeyAction::GoOn, KeyAction::Send)
    }

    fn typed(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.change(|model| model.name.clear());
            }
            KeyCode::Backspace => self.change(|model| {
                model.name.pop();
            }),
            KeyCode::Char(c) if self.name.chars().count() < LONGEST_NAME => self.change(|model| model.name.push(c)),
            _ => {}
        }
    }

    /// Goes back from a page to the list. In the list, removes the filters.
    fn back(&mut self) {
        if self.page == ScreenPage::List {
            self.change(|model| {
                model.name.clear();
                model.filter = StatusFilter::All;
            });
        } else {
            self.go(ScreenPage::List);
        }
    }

    /// Opens a page, or goes back to the list if the page is open.
    fn toggle(&mut self, page: ScreenPage) {
        self.go(if self.page == page { ScreenPage::List } else { page });
    }

    fn open(&mut self) {
        if let Some(name) = self.selected_name() {
            self.kept = Some(name.clone());
            self.go(ScreenPage::Channel(name));
        }
    }

    fn selected_name(&self) -> Option<Arc<str>> {
        self.at_selected().map(|channel| channel.channel.clone())
    }

    fn go(&mut self, page: ScreenPage) {
        (self.page, self.top) = (page, 0);
    }

    fn change(&mut self, change: impl FnOnce(&mut Self)) {
        change(self);
        (self.kept, self.selected, self.top) = (None, 0, 0);
        self.arrange();
    }

    fn a_page(&self) -> isize {
        isize::try_from(self.room.saturating_sub(1).max(1)).unwrap_or(1)
    }

    fn step(&mut self, by: isize) {
        if self.page != ScreenPage::List {
            self.top = self.top.saturating_add_signed(by).min(self.lines.saturating_sub(self.room));
            return;
        }
        self.selected = self.selected.saturating_add_signed(by).min(self.rows.len().saturating_sub(1));
        self.kept = self.selected_name().filter(|_| self.selected > 0);
    }

    /// Filters and sorts the rows again. The channel in `kept` stays selected if it is still shown.
    fn arrange(&mut self) {
        let Some(report) = &self.report else { return };
        let channels = &report.channels;
        let wanted = self.name.to_lowercase();
        let is_shown = |at: &usize| {
            let is_named = channels[*at].channel.to_lowercase().contains(&wanted);
            is_named && self.filter.shows(channels[*at].condition.level())
        };
        let mut rows: Vec<_> = (0..channels.len()).filter(is_shown).collect();
        let lag = |at: usize| Reverse(channels[at].lag_events);
        let oldest = |at: usize| Reverse(channels[at].oldest_undelivered_seconds);
        // The sort is stable: rows with equal keys stay in the order of the report, which is by name.
        match self.order {
            Order::Trouble => rows.sort_by_key(|at| (Reverse(channels[*at].condition.level()), lag(*at))),
            Order::Name => {}
            Order::Lag => rows.sort_by_key(|at| lag(*at)),
            Order::Oldest => rows.sort_by_key(|at| oldest(*at)),
        }
        self.rows = rows;
        let kept = self.kept.as_ref();
        let at = kept.and_then(|name| self.rows.iter().position(|at| channels[*at].channel == *name));
        self.selected = at.unwrap_or(self.selected).min(self.rows.len().saturating_sub(1));
    }
}

/// The next variant. After the last variant, the first one.
fn next<T: VariantArray + Copy + PartialEq>(variant: T) -> T {
    let at = T::VARIANTS.iter().position(|each| *each == variant).unwrap_or(0);
    T::VARIANTS[(at + 1) % T::VARIANTS.len()]
}

impl StatusFilter {
    fn shows(self, level: Level) -> bool {
        match self {
            Self::All => true,
            Self::Trouble => level >= Level::Passing,
            Self::Behind => level == Level::Behind,
            Self::Paused => level == Level::Aside,
        }
    }
}
