//! The state of the screen, and how keys change it. Draws nothing.

use std::cmp::Reverse;
use std::sync::Arc;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use strum::VariantArray;

use channel::{ChannelStatus, Level};
use operator::{Report, SignerNames};

/// Maximum length of the name filter, in characters.
const LONGEST_NAME: usize = 40;

/// The next action of the caller after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyAction {
    GoOn,
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
        match key.code {
            KeyCode::Char('c') if is_control => return KeyAction::End,
            KeyCode::Char('z') if is_control => return KeyAction::Suspend,
            _ if self.is_typing => self.typed(key.code),
            KeyCode::Char('q') => return KeyAction::End,
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left | KeyCode::Char('h') => self.back(),
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') if self.page == ScreenPage::List => self.open(),
            KeyCode::Char('r') => {
                self.go(if self.page == ScreenPage::Reasons { ScreenPage::List } else { ScreenPage::Reasons });
            }
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

    /// Scrolls so that the selected row is visible, and so that no line of the screen stays empty while rows are hidden
    /// above or below the screen.
    pub(super) fn keep_in_view(&mut self, lines: usize, room: usize) {
        (self.lines, self.room) = (lines, room.max(1));
        if self.page == ScreenPage::List {
            self.top = self.top.min(self.selected).max((self.selected + 1).saturating_sub(self.room));
        }
        self.top = self.top.min(self.lines.saturating_sub(self.room));
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
