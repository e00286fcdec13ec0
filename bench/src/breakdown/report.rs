//! All breakdowns of a run: for programs, and as a page.

use serde::Serialize;

use super::{Breakdown, Part};
use crate::machine::Machine;
use crate::page::{self, Bar, Chart, Section};
use crate::report::json;

/// All that a run has found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Breakdowns {
    /// Names this form: [`SCHEMA`].
    pub schema: &'static str,
    /// What they were measured on.
    pub machine: Machine,
    /// In the order in which they were measured.
    pub breakdowns: Vec<Breakdown>,
}

impl Breakdowns {
    /// Of this machine.
    pub fn new(breakdowns: Vec<Breakdown>) -> Self {
        Self { schema: SCHEMA, machine: Machine::describe(), breakdowns }
    }

    /// The JSON form, indented.
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// A page for a browser: a chart and the table of each, and the JSON form.
    pub fn to_html(&self) -> String {
        let bar = |part: &Part| Bar {
            name: format!("{}: {}", part.layer, part.what),
            value: part.ns,
            range: None,
            label: format!("{:.0} ns", part.ns),
        };
        let section = |breakdown: &Breakdown| {
            let text = breakdown.to_string();
            // What it is of stands in its first line.
            let title = text.lines().next().unwrap_or_default().to_owned();
            Section { charts: vec![Chart::Bars { title, bars: breakdown.parts.iter().map(bar).collect() }], text }
        };
        let sections: Vec<_> = self.breakdowns.iter().map(section).collect();
        page::write("Sidelane: where each nanosecond goes", &self.machine.to_string(), &sections, &self.to_json())
    }
}

/// The form of [`Breakdowns::to_json`].
pub const SCHEMA: &str = "sidelane-breakdown/1";
