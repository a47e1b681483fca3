//! Shares stacked over an axis.

use super::{COLOURS, Canvas, Scale};
use crate::record::Axis;

pub fn draw(canvas: &mut Canvas, x: &Axis, at: &[f64], shares: &[(String, Vec<f64>)]) {
    let (left, right, top, bottom) = Canvas::frame();
    let across = Scale::new(at.iter().copied(), x.log, (left + 6.0, right - 6.0));
    let up = Scale::new([0.0, 100.0].into_iter(), false, (bottom, top));
    canvas.is_filled = true;
    let mut floor = vec![0.0; at.len()];
    for (i, (name, share)) in shares.iter().enumerate() {
        let ceiling: Vec<f64> = floor.iter().zip(share).map(|(f, s)| f + s).collect();
        let edge = |levels: &[f64]| -> Vec<String> {
            at.iter().zip(levels).map(|(x, y)| format!("{:.1} {:.1}", across.place(*x), up.place(*y))).collect()
        };
        let mut outline = edge(&floor);
        outline.extend(edge(&ceiling).into_iter().rev());
        if outline.len() > 2 {
            canvas.put(format_args!(
                "<path class='f{}' fill-opacity='0.75' d='M{}Z'/>",
                i % COLOURS,
                outline.join("L")
            ));
        }
        canvas.name(name);
        floor = ceiling;
    }
    canvas.y_axis(&up, &Axis::linear("percent"));
    canvas.x_axis(&across, x);
}
