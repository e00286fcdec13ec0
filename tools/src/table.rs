//! Tables whose cells are cut into lines so that they fit where they are read.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{ContentArrangement, Table};

/// An empty one.
pub fn begin() -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    let columns = columns(table.width());
    table.set_width(columns);
    table
}

/// As many as the terminal has, if there is one. Serial consoles and some that programs make say that they have none.
fn columns(of_terminal: Option<u16>) -> u16 {
    match of_terminal {
        None | Some(0) => OF_FILE,
        Some(columns) => columns.max(LEAST),
    }
}

/// Columns for a table whose cells are not cut: as many as it wants, unless a terminal has fewer.
pub fn room() -> usize {
    match Table::new().width() {
        None | Some(0) => usize::MAX,
        Some(columns) => columns.into(),
    }
}

/// Columns of a table that does not go to a terminal.
const OF_FILE: u16 = 120;

/// With fewer, words stand letter below letter. Lines that a terminal wraps can be read more easily.
const LEAST: u16 = 72;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_room_for_words() {
        assert_eq!([None, Some(0), Some(1), Some(100)].map(columns), [OF_FILE, OF_FILE, LEAST, 100]);
    }
}
