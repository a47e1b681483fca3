//! What `sluice top` shows, whatever the size of the screen.

use super::rates::{Rates, scaled};
use super::section::{Column, Section};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

/// A screen of what happened between two overviews.
pub struct Screen<'a>(pub Rates<'a>);

/// A level's colour in the bar, in the order of [`Rates::levels`].
const COLOURS: [Color; 5] = [Color::Green, Color::Cyan, Color::Blue, Color::Yellow, Color::Red];
/// A share of a PMD's cycles from which it has little to spare.
const NEARLY_FULL: f64 = 0.95;

impl Widget for &Screen<'_> {
    fn render(self, area: Rect, buf: &mut Buffer) {
        let mut lines = pack(self.totals(), area.width);
        lines.push(self.levels_bar(area.width));
        lines.extend(pack(self.levels(), area.width));
        lines.push(Line::default());
        let mut y = area.y;
        for line in lines.iter().take(area.height.into()) {
            line.render(Rect { y, height: 1, ..area }, buf);
            y += 1;
        }
        let sections = [self.ports(), self.pmds(), self.queues(), self.flows()];
        // An empty line stands between two of them.
        let room = usize::from(area.bottom() - y).saturating_sub(sections.len() - 1);
        let heights = shares(room, sections.each_ref().map(Section::height));
        for (section, height) in sections.iter().zip(heights) {
            section.render(Rect { y, height: height as u16, ..area }, buf);
            y = (y + height as u16 + 1).min(area.bottom());
        }
    }
}

impl Screen<'_> {
    fn totals(&self) -> Vec<Span<'static>> {
        let rates = &self.0;
        let dropped = rates.per_second(|t| t.dropped);
        vec![
            Span::raw(format!("{} pps in", scaled(rates.per_second(|t| t.received)))),
            Span::raw(format!("{} pps out", scaled(rates.per_second(|t| t.sent)))),
            Span::styled(format!("{} dropped/s", scaled(dropped)), alarm(dropped > 0.0)),
            Span::raw(format!("{:.0} cycles/packet", rates.cycles())),
            Span::raw(format!("{} megaflows", rates.now.megaflows)),
        ]
    }

    /// A bar over the width, of the levels' shares.
    fn levels_bar(&self, width: u16) -> Line<'static> {
        let (mut from, mut sum, mut spans) = (0, 0.0, Vec::new());
        for ((_, share), colour) in self.0.levels().into_iter().zip(COLOURS) {
            sum += share;
            let to = ((sum * f64::from(width)).round() as usize).min(width.into());
            spans.push(Span::styled("█".repeat(to - from), colour));
            from = to;
        }
        spans.push(Span::raw("·".repeat(usize::from(width) - from)));
        Line::from(spans)
    }

    fn levels(&self) -> Vec<Span<'static>> {
        let shown = |((name, share), colour)| Span::styled(format!("{name} {:.1} %", 100.0 * share), colour);
        self.0.levels().into_iter().zip(COLOURS).map(shown).collect()
    }

    fn ports(&self) -> Section {
        let row = |port| {
            let rates = self.0.port(port);
            vec![
                plain(&port.name),
                (if port.is_up { "up" } else { "down" }.to_owned(), alarm(!port.is_up)),
                plain(scaled(rates.rx_pps)),
                plain(scaled(rates.tx_pps)),
                (scaled(rates.dropped), alarm(rates.dropped > 0.0)),
                plain(scaled(rates.rx_bits)),
                plain(scaled(rates.tx_bits)),
                plain(&port.kind),
            ]
        };
        let number = |title| Column::Number(title, 9);
        let columns = vec![
            Column::Name("port"),
            Column::Name("link"),
            number("rx pps"),
            number("tx pps"),
            number("dropped/s"),
            number("rx bit/s"),
            number("tx bit/s"),
            Column::Rest("type"),
        ];
        Section { columns, rows: self.0.now.ports.iter().map(row).collect() }
    }

    fn pmds(&self) -> Section {
        let row = |pmd| {
            let busy = self.0.busy(pmd);
            let style = if busy >= NEARLY_FULL { Style::from(Color::Yellow) } else { Style::new() };
            vec![
                plain(pmd.pmd),
                pmd.core.map_or_else(|| plain("main"), plain),
                (format!("{:.0} %", 100.0 * busy), style),
                plain(pmd.megaflows),
                plain(pmd.subtables),
                plain(format!("{} of {}", pmd.emc_used, pmd.emc_entries)),
            ]
        };
        let columns = vec![
            Column::Number("PMD", 4),
            Column::Number("core", 5),
            Column::Number("busy", 6),
            Column::Number("megaflows", 10),
            Column::Number("subtables", 10),
            Column::Number("EMC in use", 16),
        ];
        Section { columns, rows: self.0.now.pmds.iter().map(row).collect() }
    }

    fn queues(&self) -> Section {
        let rows = self.0.now.queues.iter().map(|queue| {
            let cycles = queue.cycles.map_or("-".to_owned(), |cycles| format!("{cycles:.1}"));
            vec![plain(&queue.port), plain(queue.queue), plain(&queue.levels), plain(cycles), plain(queue.changes)]
        });
        let columns = vec![
            Column::Name("autopilot of"),
            Column::Number("queue", 5),
            Column::Name("levels chosen"),
            Column::Number("cycles", 8),
            Column::Number("changes", 7),
        ];
        Section { columns, rows: rows.collect() }
    }

    fn flows(&self) -> Section {
        let rows = self.0.flows().into_iter().map(|(pps, text)| vec![plain(scaled(pps)), plain(text)]).collect();
        Section { columns: vec![Column::Number("pps", 9), Column::Rest("busiest megaflows")], rows }
    }
}

fn plain(text: impl ToString) -> (String, Style) {
    (text.to_string(), Style::new())
}

fn alarm(is_on: bool) -> Style {
    if is_on { Style::from(Color::Red) } else { Style::new() }
}

/// Items over as many lines as they take, two spaces between them.
fn pack(items: Vec<Span<'static>>, width: u16) -> Vec<Line<'static>> {
    let mut lines: Vec<Line> = Vec::new();
    for item in items {
        match lines.last_mut() {
            Some(line) if line.width() + 2 + item.width() <= width.into() => {
                line.push_span("  ");
                line.push_span(item);
            }
            _ => lines.push(Line::from(item)),
        }
    }
    lines
}

/// Divides lines among sections: none gets more than it wants, and none gets less than another unless it wants less.
fn shares<const N: usize>(room: usize, wanted: [usize; N]) -> [usize; N] {
    let mut given = [0; N];
    let mut left = room;
    while left > 0 && given != wanted {
        for (given, wanted) in given.iter_mut().zip(wanted) {
            if left > 0 && *given < wanted {
                *given += 1;
                left -= 1;
            }
        }
    }
    given
}

#[cfg(test)]
mod tests;
