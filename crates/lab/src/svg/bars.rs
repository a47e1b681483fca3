//! Bars: stacked of parts, and histograms.

use super::{COLOURS, Canvas, Scale};
use crate::record::Axis;
use crate::text::number;

/// The share of a bar's place that it fills.
const FILL: f64 = 0.7;
/// Distance of a value's text above its bar, and the space that the highest one takes.
const VALUE_ABOVE: f64 = 5.0;
const VALUE_ROOM: f64 = 8.0;

pub fn stacked(canvas: &mut Canvas, y: &Axis, bars: &[String], parts: &[(String, Vec<f64>)]) {
    let (left, right, top, bottom) = Canvas::frame();
    let height = |bar: usize| parts.iter().filter_map(|(_, heights)| heights.get(bar)).sum::<f64>();
    canvas.is_filled = true;
    let up = Scale::new((0..bars.len()).map(height), false, (bottom, top + VALUE_ROOM)).with_headroom();
    canvas.y_axis(&up, y);
    let step = (right - left) / bars.len().max(1) as f64;
    for (bar, name) in bars.iter().enumerate() {
        let x = left + step * (bar as f64 + (1.0 - FILL) / 2.0);
        let mut floor = 0.0;
        for (i, (_, heights)) in parts.iter().enumerate() {
            let ceiling = floor + heights.get(bar).copied().unwrap_or(0.0);
            let (low, high) = (up.place(floor), up.place(ceiling));
            canvas.put(format_args!(
                "<rect class='f{}' x='{x:.1}' y='{high:.1}' width='{:.1}' height='{:.1}'/>",
                i % COLOURS,
                step * FILL,
                low - high
            ));
            floor = ceiling;
        }
        let middle = x + step * FILL / 2.0;
        canvas.text(middle, up.place(floor) - VALUE_ABOVE, "middle", &number(floor));
        canvas.text(middle, bottom + 17.0, "middle", name);
    }
    parts.iter().for_each(|(name, _)| canvas.name(name));
}

pub fn histogram(canvas: &mut Canvas, x: &Axis, bins: &[(f64, f64, u64)]) {
    let (left, right, top, bottom) = Canvas::frame();
    let across = Scale::new(bins.iter().flat_map(|(from, to, _)| [*from, *to]), x.log, (left, right));
    let up = Scale::new(bins.iter().map(|(_, _, n)| *n as f64), false, (bottom, top)).with_headroom();
    canvas.y_axis(&up, &Axis::linear("packets"));
    canvas.x_axis(&across, x);
    for (from, to, n) in bins.iter().filter(|(_, _, n)| *n != 0) {
        let (low, high, level) = (across.place(*from), across.place(*to), up.place(*n as f64));
        canvas.put(format_args!(
            "<rect class='f1' x='{low:.1}' y='{level:.1}' width='{:.1}' height='{:.1}'/>",
            (high - low - 0.5).max(0.5),
            bottom - level
        ));
    }
}
