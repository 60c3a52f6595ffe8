//! How tables look.

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, presets};

/// How the output looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal; none for as wide as it gets.
    pub width: Option<u16>,
    /// Colours and bold type.
    pub colour: bool,
}

/// An empty table that looks as `style` says.
pub fn new_table(style: Style) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()));
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if let Some(width) = style.width {
        table.set_width(width);
    }
    if style.colour {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table
}

/// A cell whose text ends at its right border.
pub fn right(text: impl ToString) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}
