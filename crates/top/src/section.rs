//! A table of the screen. Columns stand in order of importance: those that do not fit the width are left out from the
//! right. If several rows do not fit the height, the last line says how many.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table, Widget};

/// How a column is laid out.
#[derive(Clone, Copy)]
pub enum Column {
    /// Text, as wide as its longest.
    Name(&'static str),
    /// Numbers, at the right of a width of their own, so that they stand still while they change.
    Number(&'static str, u16),
    /// Text over all the width that is left.
    Rest(&'static str),
}

/// A table: columns and as many cells in every row.
pub struct Section {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<(String, Style)>>,
}

/// Least width of a text that takes the rest.
const REST_MIN: u16 = 12;
/// Most width of a name.
const NAME_MAX: usize = 32;

impl Section {
    /// Lines it takes in all.
    pub fn height(&self) -> usize {
        self.rows.len() + 1
    }

    fn width(&self, i: usize) -> u16 {
        match self.columns[i] {
            Column::Name(title) => {
                let longest = self.rows.iter().map(|row| row[i].0.chars().count()).max().unwrap_or(0);
                longest.max(title.len()).min(NAME_MAX) as u16
            }
            Column::Number(_, width) => width,
            Column::Rest(_) => REST_MIN,
        }
    }

    /// The columns that fit: at least the first.
    fn fitting(&self, width: u16) -> usize {
        let mut used = 0;
        let fits = |i: &usize| {
            used += self.width(*i) + u16::from(*i > 0);
            *i == 0 || used <= width
        };
        (0..self.columns.len()).take_while(fits).count()
    }

    fn cell(&self, i: usize, text: String, style: Style) -> Cell<'_> {
        let line = Line::styled(text, style);
        Cell::from(if matches!(self.columns[i], Column::Number(..)) { line.right_aligned() } else { line })
    }
}

impl Widget for &Section {
    fn render(self, area: Rect, buf: &mut Buffer) {
        if area.height == 0 {
            return;
        }
        let n = self.fitting(area.width);
        let title = |i: usize| match self.columns[i] {
            Column::Name(title) | Column::Number(title, _) | Column::Rest(title) => title,
        };
        let heads = (0..n).map(|i| self.cell(i, title(i).to_owned(), Style::new()));
        let lines = usize::from(area.height) - 1;
        // A single line is better spent on a row.
        let is_noted = self.rows.len() > lines && lines > 1;
        let shown = if is_noted { lines - 1 } else { self.rows.len().min(lines) };
        let cells = |row: &Vec<(String, Style)>| {
            Row::new(
                row.iter()
                    .take(n)
                    .cloned()
                    .enumerate()
                    .map(|(i, (text, style))| self.cell(i, text, style))
                    .collect::<Vec<_>>(),
            )
        };
        let widths = (0..n).map(|i| match self.columns[i] {
            Column::Rest(_) => Constraint::Fill(1),
            _ => Constraint::Length(self.width(i)),
        });
        Table::new(self.rows.iter().take(shown).map(cells), widths)
            .header(Row::new(heads).style(Style::new().add_modifier(Modifier::REVERSED)))
            .render(area, buf);
        if is_noted {
            let hidden = self.rows.len() - shown;
            let note = Line::styled(format!("… {hidden} more"), Style::new().add_modifier(Modifier::DIM));
            note.render(Rect { y: area.bottom() - 1, height: 1, ..area }, buf);
        }
    }
}
