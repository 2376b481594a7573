//! What is wrong with a configuration, shown the way a compiler shows it.
//!
//! While the file is read, findings are [`Fault`]s that point at nodes; all of one stage are
//! collected. At the end each becomes a [`ConfigError`]: file, line, column, the line itself with
//! a caret, what is wrong, what would be accepted, and a suggestion where there is one.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::node::Mark;
use super::parse;

/// One mistake in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file it is in.
    pub file: PathBuf,
    /// Where in the file, when it can be pointed at.
    pub place: Option<Place>,
    /// What is wrong: a lower-case fragment.
    pub what: String,
    /// What would be accepted here.
    pub accepted: Option<String>,
    /// What to do instead.
    pub hint: Option<String>,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The line itself.
    pub text: String,
    /// Characters to underline, at least 1.
    pub width: usize,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        let mut gutter = 1;
        if let Some(p) = &self.place {
            gutter = p.line.to_string().len() + 1;
            write!(f, ":{}:{}: {}", p.line, p.column, self.what)?;
            let caret = " ".repeat(p.column - 1) + &"^".repeat(p.width);
            write!(f, "\n{:>gutter$} | {}\n{:gutter$} | {caret}", p.line, p.text, "")?;
        } else {
            write!(f, ": {}", self.what)?;
        }
        if let Some(accepted) = &self.accepted {
            write!(f, "\n{:gutter$} = accepted: {accepted}", "")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n{:gutter$} = {hint}", "")?;
        }
        Ok(())
    }
}

/// All mistakes found in one reading; never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors {
    /// In file order where they have a place.
    pub errors: Vec<ConfigError>,
    /// How many were found beyond those that are shown.
    pub more: usize,
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.errors.iter().enumerate() {
            if i > 0 {
                f.write_str("\n\n")?;
            }
            error.fmt(f)?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\n\nand {more} more"),
        }
    }
}

/// Most errors that are shown at once: one mistake in a generated list is a mistake in each of
/// its lines.
const ERRORS_MAX: usize = 20;

/// A mistake while its place is still a mark.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fault {
    mark: Option<Mark>,
    /// Bytes of the value's text that are wrong; all of it when absent.
    within: Option<Range<usize>>,
    /// Length of what to underline when `within` is absent.
    width: usize,
    what: String,
    accepted: Option<String>,
    hint: Option<String>,
    /// A line that belongs to the matter: "first given on line N".
    earlier: Option<(Mark, &'static str)>,
}

impl Fault {
    pub(super) fn new(what: impl Into<String>) -> Fault {
        Fault { what: what.into(), ..Fault::default() }
    }

    pub(super) fn at(mut self, mark: Option<Mark>) -> Fault {
        self.mark = mark;
        self
    }

    pub(super) fn width(mut self, text: &str) -> Fault {
        self.width = text.chars().count();
        self
    }

    pub(super) fn within(mut self, range: Option<Range<usize>>) -> Fault {
        self.within = range;
        self
    }

    pub(super) fn accepted(mut self, accepted: impl Into<String>) -> Fault {
        self.accepted = Some(accepted.into());
        self
    }

    pub(super) fn hint(mut self, hint: Option<String>) -> Fault {
        self.hint = hint;
        self
    }

    /// Adds "`words` on line N" as a hint.
    pub(super) fn earlier(mut self, mark: Option<Mark>, words: &'static str) -> Fault {
        self.earlier = mark.map(|m| (m, words));
        self
    }
}

/// Faults of one stage of reading.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    pub(super) fn push(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    /// `Ok` when nothing was found, else everything found, in file order.
    pub(super) fn settle(self, sources: &Sources) -> Result<(), ConfigErrors> {
        if self.0.is_empty() {
            return Ok(());
        }
        let mut faults = self.0;
        faults.sort_by_key(|f| f.mark.map(|m| (m.source, m.step)));
        let more = faults.len().saturating_sub(ERRORS_MAX);
        let shown = faults.into_iter().take(ERRORS_MAX);
        Err(ConfigErrors { errors: shown.map(|fault| sources.explain(fault)).collect(), more })
    }
}

/// The texts that were read, to find and show places in them.
#[derive(Debug, Default)]
pub(crate) struct Sources(Vec<(PathBuf, String)>);

impl Sources {
    /// Remembers a text and returns its number.
    pub(super) fn add(&mut self, file: &Path, text: String) -> usize {
        self.0.push((file.to_owned(), text));
        self.0.len() - 1
    }

    pub(super) fn text(&self, source: usize) -> &str {
        &self.0[source].1
    }

    /// The error for a text that is no YAML.
    pub(super) fn broken(&self, source: usize, broken: parse::Broken) -> ConfigErrors {
        let (file, text) = &self.0[source];
        let place = broken.place.map(|(line, column)| place(text, line, column, 1));
        ConfigErrors {
            more: 0,
            errors: vec![ConfigError {
                file: file.clone(),
                place,
                what: broken.what,
                accepted: None,
                hint: None,
            }],
        }
    }

    /// `FILE:LINE` of a mark, for warnings.
    pub(super) fn line_of(&self, mark: Mark) -> String {
        let (file, text) = &self.0[mark.source];
        match parse::locate(text, mark) {
            Some((line, _)) => format!("{}:{line}", file.display()),
            None => file.display().to_string(),
        }
    }

    fn explain(&self, fault: Fault) -> ConfigError {
        let source = fault.mark.map_or(0, |m| m.source);
        let (file, text) = &self.0[source];
        let found = fault.mark.and_then(|m| parse::locate(text, m));
        let place = found.map(|(line, column)| match &fault.within {
            Some(range) => {
                let (skip, width) = (range.start + quote(text, line, column), range.len());
                place(text, line, column + skip, width)
            }
            None => place(text, line, column, fault.width),
        });
        let earlier = fault.earlier.and_then(|(mark, words)| {
            let (line, _) = parse::locate(self.text(mark.source), mark)?;
            Some(match mark.source == source {
                true => format!("{words} on line {line}"),
                false => format!("{words} in {}:{line}", self.0[mark.source].0.display()),
            })
        });
        let hint = match (earlier, fault.hint) {
            (Some(earlier), Some(hint)) => Some(format!("{earlier}; {hint}")),
            (earlier, hint) => earlier.or(hint),
        };
        ConfigError { file: file.clone(), place, what: fault.what, accepted: fault.accepted, hint }
    }
}

/// 1 when a quote stands at that place, as the value's text begins after it.
fn quote(text: &str, line: usize, column: usize) -> usize {
    let c = text.lines().nth(line - 1).and_then(|l| l.chars().nth(column - 1));
    usize::from(matches!(c, Some('"' | '\'')))
}

fn place(text: &str, line: usize, column: usize, width: usize) -> Place {
    let shown = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    let rest = (shown.chars().count() + 1).saturating_sub(column);
    // The caret must keep its column under a tab.
    Place { line, column, text: shown.replace('\t', " "), width: width.clamp(1, rest.max(1)) }
}
