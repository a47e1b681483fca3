//! Charts as SVG: no fonts, no scripts, colours from style sheet variables, so that a page can be light or dark.
//!
//! Written by hand: four kinds of chart, and a library would bring its own colours as constants.

mod areas;
mod bars;
mod lines;
mod scale;

use crate::record::{Axis, Chart, Figure};
use scale::Scale;
use std::fmt::Write;

/// Width of a picture, in its own units; text is 13 high, so it can still be read on a phone's 320 pixels.
const WIDTH: f64 = 480.0;
/// Height of what is drawn, without the legend.
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;
/// Height of the strip above with the title, in a file of its own.
const TITLE: f64 = 20.0;
/// Height of a line of the legend.
const LEGEND_LINE: f64 = 20.0;
/// Colours there are; beyond, lines are dashed.
pub const COLOURS: usize = 8;

/// Colours and strokes, for light and dark. Source of the hues: Okabe and Ito, "Color Universal Design", 2008.
pub const STYLE: &str = "
svg.chart{--ink:#222;--faint:#8884;--c0:#444;--c1:#0072b2;--c2:#d55e00;--c3:#009e73;--c4:#cc79a7;--c5:#b8860b;--c6:#56b4e9;--c7:#7a5195;font:13px system-ui,sans-serif;background:none}
@media(prefers-color-scheme:dark){svg.chart{--ink:#ddd;--c0:#bbb;--c1:#4ea8de;--c2:#ff8c42;--c3:#2fc99b;--c4:#e39bc3;--c5:#e3b341;--c6:#8fd0f5;--c7:#b794d4}}
svg.chart text{fill:var(--ink)}
svg.chart .grid{stroke:var(--faint);stroke-width:1}
svg.chart .line{fill:none;stroke-width:2;stroke-linejoin:round}
svg.chart .swatch{stroke-width:10}
svg.chart .bar{stroke-width:1.2}
svg.chart .dash{stroke-dasharray:5 3}
svg.chart .k0{stroke:var(--c0)}svg.chart .k1{stroke:var(--c1)}svg.chart .k2{stroke:var(--c2)}svg.chart .k3{stroke:var(--c3)}svg.chart .k4{stroke:var(--c4)}svg.chart .k5{stroke:var(--c5)}svg.chart .k6{stroke:var(--c6)}svg.chart .k7{stroke:var(--c7)}
svg.chart .f0{fill:var(--c0)}svg.chart .f1{fill:var(--c1)}svg.chart .f2{fill:var(--c2)}svg.chart .f3{fill:var(--c3)}svg.chart .f4{fill:var(--c4)}svg.chart .f5{fill:var(--c5)}svg.chart .f6{fill:var(--c6)}svg.chart .f7{fill:var(--c7)}
";

/// A figure as an SVG element; its style sheet is [`STYLE`].
pub fn element(figure: &Figure) -> String {
    draw(figure, 0.0)
}

/// A figure as a file of its own. On a page the title stands above the picture; a file carries its own.
pub fn document(figure: &Figure) -> String {
    let svg = draw(figure, TITLE);
    let at = svg.find('>').map_or(0, |at| at + 1);
    format!("{}<style>{}</style>{}", &svg[..at], with_constants(STYLE), &svg[at..])
}

/// A style sheet with each colour as a constant, too: browsers know variables, but not every program that shows a file does.
fn with_constants(style: &str) -> String {
    let light = style.split_once("@media").map_or(style, |(light, _)| light);
    let colours = light.split(['{', ';']).filter_map(|part| part.trim().strip_prefix("--")?.split_once(':'));
    colours.fold(style.to_owned(), |style, (name, colour)| {
        ["fill", "stroke"].iter().fold(style, |style, property| {
            let variable = format!("{property}:var(--{name})");
            style.replace(&variable, &format!("{property}:{colour};{variable}"))
        })
    })
}

/// Draws a figure below a strip of this height for its title.
fn draw(figure: &Figure, strip: f64) -> String {
    let mut canvas = Canvas::new();
    match &figure.chart {
        Chart::Lines { x, y, series } => lines::draw(&mut canvas, x, y, series),
        Chart::Areas { x, at, shares } => areas::draw(&mut canvas, x, at, shares),
        Chart::Bars { y, bars, parts } => bars::stacked(&mut canvas, y, bars, parts),
        Chart::Histogram { x, bins } => bars::histogram(&mut canvas, x, bins),
    }
    if strip > 0.0 {
        let (middle, title) = (WIDTH / 2.0, escape(&figure.title));
        canvas.put(format_args!("<text x='{middle}' y='-4' text-anchor='middle' font-weight='600'>{title}</text>"));
    }
    canvas.finish(&figure.title, strip)
}

/// What is being drawn.
struct Canvas {
    body: String,
    legend: Vec<String>,
    /// Columns of the legend.
    columns: usize,
    /// Whether what is drawn is filled, not a line.
    is_filled: bool,
}

impl Canvas {
    fn new() -> Canvas {
        Canvas { body: String::new(), legend: Vec::new(), columns: 3, is_filled: false }
    }

    /// Where the drawing lies: left, right, top, bottom.
    fn frame() -> (f64, f64, f64, f64) {
        (LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM)
    }

    fn put(&mut self, piece: std::fmt::Arguments<'_>) {
        let _ = self.body.write_fmt(piece);
        self.body.push('\n');
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        self.put(format_args!("<text x='{x:.1}' y='{y:.1}' text-anchor='{anchor}'>{}</text>", escape(text)));
    }

    /// The left axis, with its lines across.
    fn y_axis(&mut self, scale: &Scale, axis: &Axis) {
        let (left, right, top, _) = Self::frame();
        for tick in scale.ticks() {
            let y = scale.place(tick);
            self.put(format_args!("<path class='grid' d='M{left:.1} {y:.1}H{right:.1}'/>"));
            self.text(left - 6.0, y + 4.5, "end", &tick_text(tick));
        }
        let middle = (top + HEIGHT - BOTTOM) / 2.0;
        let label = escape(&axis.label);
        self.put(format_args!(
            "<text x='12' y='{middle:.1}' text-anchor='middle' transform='rotate(-90 12 {middle:.1})'>{label}</text>"
        ));
    }

    /// The lower axis.
    fn x_axis(&mut self, scale: &Scale, axis: &Axis) {
        let (left, right, _, bottom) = Self::frame();
        self.put(format_args!("<path class='grid' d='M{left:.1} {bottom:.1}H{right:.1}'/>"));
        for tick in scale.ticks() {
            self.text(scale.place(tick), bottom + 17.0, "middle", &tick_text(tick));
        }
        self.text((left + right) / 2.0, bottom + 36.0, "middle", &axis.label);
    }

    /// Names what is drawn in colour number `i`.
    fn name(&mut self, name: &str) {
        self.legend.push(name.to_owned());
    }

    fn finish(mut self, title: &str, strip: f64) -> String {
        let legend = std::mem::take(&mut self.legend);
        let longest = legend.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        // A letter is up to 7.6 wide, the mark before it 26.
        self.columns = ((WIDTH - 20.0) / (longest as f64 * 7.6 + 34.0)).floor().clamp(1.0, 6.0) as usize;
        let step = (WIDTH - 20.0) / self.columns as f64;
        for (i, name) in legend.iter().enumerate() {
            let x = 14.0 + (i % self.columns) as f64 * step;
            let y = HEIGHT + 6.0 + (i / self.columns) as f64 * LEGEND_LINE;
            let stroke = stroke(i);
            let mark = if self.is_filled { "swatch" } else { "line" };
            self.put(format_args!("<path class='{mark} {stroke}' d='M{x:.1} {y:.1}h18'/>"));
            self.text(x + 24.0, y + 4.5, "start", name);
        }
        let height = strip + HEIGHT + (legend.len().div_ceil(self.columns) as f64) * LEGEND_LINE;
        format!(
            "<svg class='chart' xmlns='http://www.w3.org/2000/svg' viewBox='0 {} {WIDTH} {height}' role='img' \
             aria-label='{}'>\n{}</svg>\n",
            0.0 - strip,
            escape(title),
            self.body
        )
    }
}

/// The classes of line number `i`.
fn stroke(i: usize) -> String {
    format!("k{}{}", i % COLOURS, if i >= COLOURS { " dash" } else { "" })
}

fn tick_text(tick: f64) -> String {
    match tick {
        t if t != 0.0 && t < 0.01 => format!("{t:e}"),
        t if t >= 1000.0 => crate::text::count(t),
        t => format!("{}", (t * 1e6).round() / 1e6),
    }
}

/// Text as SVG and HTML want it.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Series;

    fn charts() -> Vec<Chart> {
        let series =
            |name: &str| Series { name: name.into(), points: vec![[1.0, 5.0, 4.0, 6.0], [1e6, 90.0, 80.0, 99.0]] };
        vec![
            Chart::Lines {
                x: Axis::log("x"),
                y: Axis::linear("y"),
                series: (0..10).map(|i| series(&format!("<{i}>"))).collect(),
            },
            Chart::Lines {
                x: Axis::log("x"),
                y: Axis::log("y"),
                series: vec![Series { name: "none".into(), points: vec![] }],
            },
            Chart::Lines {
                x: Axis::linear("x"),
                y: Axis::linear("y"),
                series: vec![Series { name: "one".into(), points: vec![[0.0; 4]] }],
            },
            Chart::Areas {
                x: Axis::log("x"),
                at: vec![1.0, 10.0],
                shares: vec![("a".into(), vec![50.0, 100.0]), ("b".into(), vec![50.0, 0.0])],
            },
            Chart::Areas { x: Axis::log("x"), at: vec![], shares: vec![] },
            Chart::Bars {
                y: Axis::linear("y"),
                bars: vec!["one".into(), "two".into()],
                parts: vec![("p".into(), vec![1.0, 2.0])],
            },
            Chart::Bars { y: Axis::linear("y"), bars: vec![], parts: vec![] },
            Chart::Histogram { x: Axis::linear("x"), bins: vec![(0.0, 1.0, 5), (1.0, 2.0, 0)] },
            Chart::Histogram { x: Axis::log("x"), bins: vec![] },
        ]
    }

    #[test]
    fn every_chart_is_well_formed_and_has_no_nonsense_in_it() {
        for chart in charts() {
            let svg = document(&Figure { title: "a & b".into(), caption: String::new(), chart: chart.clone() });
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{chart:?}: {svg}");
            assert!(svg.contains("a &amp; b"));
            assert!(!svg.contains("<0>"), "names are escaped");
            let opened = svg.matches("<text").count();
            assert_eq!(opened, svg.matches("</text>").count());
        }
    }
}
