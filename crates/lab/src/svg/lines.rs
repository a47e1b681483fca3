//! Lines through points with error bars.

use super::{COLOURS, Canvas, Scale, stroke};
use crate::record::{Axis, Series};

/// Half the width of an error bar's ends.
const CAP: f64 = 3.0;

/// How far apart series stand whose points have the same place, and all of them at most.
const APART: f64 = 2.0 * CAP + 1.0;
const APART_IN_ALL: f64 = 36.0;

/// An error bar is drawn up to this factor above the highest point.
const BAR_MAX: f64 = 1.2;

pub fn draw(canvas: &mut Canvas, x: &Axis, y: &Axis, series: &[Series]) {
    let (left, right, top, bottom) = Canvas::frame();
    let all = || series.iter().flat_map(|s| &s.points);
    let apart = APART.min(APART_IN_ALL / series.len().max(1) as f64);
    let margin = 6.0 + apart * series.len().saturating_sub(1) as f64 / 2.0;
    let across = Scale::new(all().map(|p| p[0]), x.log, (left + margin, right - margin));
    // An error bar may leave the picture: one stalled repetition must not flatten all the rest.
    let highest = all().map(|p| p[1]).fold(0.0, f64::max);
    let values = all().flat_map(|p| [p[1], p[2].min(p[1]), p[3].min(highest * BAR_MAX)]);
    let up = Scale::new(values, y.log, (bottom, top)).with_headroom();
    canvas.y_axis(&up, y);
    canvas.x_axis(&across, x);
    for (i, line) in series.iter().enumerate() {
        let (stroke, colour) = (stroke(i), i % COLOURS);
        // Beside each other, or one error bar would hide the others.
        let aside = apart * (i as f64 - (series.len() as f64 - 1.0) / 2.0);
        let at = |p: &[f64; 4]| (across.place(p[0]) + aside, up.place(p[1]));
        let path: Vec<String> = line.points.iter().map(|p| format!("{:.1} {:.1}", at(p).0, at(p).1)).collect();
        if path.len() > 1 {
            canvas.put(format_args!("<path class='line {stroke}' d='M{}'/>", path.join("L")));
        }
        for p in &line.points {
            let ((cx, cy), low, high) = (at(p), up.place(p[2]), up.place(p[3]));
            if (low - high).abs() > 1.0 {
                canvas.put(format_args!(
                    "<path class='bar k{colour}' d='M{cx:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h{w}M{:.1} {high:.1}h{w}'/>",
                    cx - CAP,
                    cx - CAP,
                    w = 2.0 * CAP
                ));
            }
            canvas.put(format_args!("<circle class='f{colour}' cx='{cx:.1}' cy='{cy:.1}' r='2.6'/>"));
        }
        canvas.name(&line.name);
    }
}
