//! Bars, and curves by size, drawn as SVG.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::report::bytes;

/// One drawing.
pub(crate) enum Chart {
    /// Side by side, from zero on.
    Bars {
        /// What they are of, and the unit.
        title: String,
        /// From top to bottom.
        bars: Vec<Bar>,
    },
    /// By size in bytes; both axes logarithmic.
    Curves {
        /// What they are of, and the unit.
        title: String,
        /// In the legend's order.
        curves: Vec<Curve>,
        /// A figure as its axis shows it.
        figure: fn(f64) -> String,
    },
}

/// A figure.
pub(crate) struct Bar {
    pub name: String,
    pub value: f64,
    /// The least and the most of several rounds.
    pub range: Option<(f64, f64)>,
    /// The figure as it is to be read.
    pub label: String,
}

/// Figures by size.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Curve {
    pub name: String,
    /// By ascending size.
    pub points: Vec<Point>,
}

/// One of them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Point {
    /// In bytes.
    pub size: usize,
    pub value: f64,
}

impl Chart {
    /// `None` where there is no figure.
    pub fn to_svg(&self) -> Option<String> {
        let mut svg = String::new();
        match self {
            Self::Bars { title, bars } => {
                let most =
                    largest(bars.iter().map(|bar| bar.range.map_or(bar.value, |(_, most)| most.max(bar.value))))?;
                draw_bars(&mut svg, title, bars, most)
            }
            Self::Curves { title, curves, figure } => {
                let values = || curves.iter().flat_map(|curve| &curve.points).map(|point| point.value);
                let (least, most) = (values().reduce(f64::min)?, largest(values())?);
                draw_curves(&mut svg, title, curves, (least, most), *figure)
            }
        }
        .expect("a string takes every drawing");
        Some(svg)
    }
}

/// `None` where no figure is above zero: there is nothing to draw then.
fn largest(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.reduce(f64::max).filter(|most| *most > 0.0 && most.is_finite())
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw_bars(svg: &mut String, title: &str, bars: &[Bar], most: f64) -> Drawn {
    let height = TITLE + BAR * bars.len() as u32 + MARGIN;
    let root = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    root.draw(&Text::new(title, (MARGIN as i32, MARGIN as i32), FONT.into_font()))?;
    let names = bars.iter().map(|bar| bar.name.chars().count()).max().unwrap_or(0) as u32 * LETTER;
    let labels = bars.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0) as u32 * LETTER;
    let left = (names + 2 * MARGIN).min(WIDTH / 2) as i32;
    let length = f64::from(WIDTH.saturating_sub(left as u32 + labels + 2 * MARGIN).max(WIDTH / 4));
    let at = |value: f64| left + (length * value.max(0.0) / most) as i32;
    let right = TextStyle::from(FONT.into_font()).pos(Pos::new(HPos::Right, VPos::Center));
    let beside = TextStyle::from(FONT.into_font()).pos(Pos::new(HPos::Left, VPos::Center));
    for (index, bar) in bars.iter().enumerate() {
        let middle = (TITLE + BAR * index as u32 + BAR / 2) as i32;
        let half = BAR as i32 / 3;
        root.draw(&Text::new(bar.name.as_str(), (left - MARGIN as i32, middle), &right))?;
        root.draw(&Rectangle::new([(left, middle - half), (at(bar.value), middle + half)], BLUE.mix(0.5).filled()))?;
        let mut end = bar.value;
        if let Some((least, most)) = bar.range {
            root.draw(&PathElement::new([(at(least), middle), (at(most), middle)], BLACK))?;
            end = end.max(most);
        }
        root.draw(&Text::new(bar.label.as_str(), (at(end) + MARGIN as i32, middle), &beside))?;
    }
    Ok(root.present()?)
}

fn draw_curves(
    svg: &mut String,
    title: &str,
    curves: &[Curve],
    (least, most): (f64, f64),
    figure: fn(f64) -> String,
) -> Drawn {
    let curves: Vec<&Curve> = curves.iter().filter(|curve| !curve.points.is_empty()).collect();
    let sizes = || curves.iter().flat_map(|curve| &curve.points).map(|point| place(point.size));
    let (first, last) = (sizes().fold(f64::MAX, f64::min), sizes().fold(1.0, f64::max));
    let root = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
    let names = curves.iter().map(|curve| curve.name.chars().count()).max().unwrap_or(0) as u32 * LETTER;
    let legend = (names + 4 * MARGIN).min(WIDTH / 3);
    let (area, legend) = root.split_horizontally(WIDTH - legend);
    // A value that is nothing is not on a logarithmic axis.
    let least = if least > 0.0 { least } else { most / 1e6 };
    let mut chart = ChartBuilder::on(&area)
        .caption(title, FONT)
        .margin(MARGIN)
        .x_label_area_size(2 * BAR)
        .y_label_area_size(9 * LETTER)
        .build_cartesian_2d((first..last * 1.05).log_scale().base(2.0), (least / 1.3..most * 1.3).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15))
        .label_style(FONT)
        .x_label_formatter(&|size| bytes(size.round() as usize))
        .y_label_formatter(&|value| figure(*value))
        .draw()?;
    for (index, curve) in curves.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        let points: Vec<_> = curve.points.iter().map(|point| (place(point.size), point.value.max(least))).collect();
        chart.draw_series(points.iter().map(|at| Circle::new(*at, DOT, color.filled())))?;
        chart.draw_series([PathElement::new(points, color.stroke_width(2))])?;
        let y = (TITLE + BAR * index as u32) as i32;
        legend.draw(&Rectangle::new([(0, y + 4), (LETTER as i32 * 2, y + 10)], color.filled()))?;
        legend.draw(&Text::new(curve.name.as_str(), (LETTER as i32 * 3, y), FONT.into_font()))?;
    }
    Ok(root.present()?)
}

/// Where a size is on a logarithmic axis, on which there is no zero.
fn place(size: usize) -> f64 {
    size.max(1) as f64
}

/// In pixels, as all of these.
const WIDTH: u32 = 640;
const HEIGHT: u32 = 400;
const TITLE: u32 = 36;
const BAR: u32 = 22;
const MARGIN: u32 = 8;
/// What a letter takes, about.
const LETTER: u32 = 8;
const DOT: u32 = 3;
const FONT: (&str, u32) = ("sans-serif", 15);

#[cfg(test)]
mod tests {
    use super::*;

    fn curves(values: &[(usize, f64)]) -> Chart {
        let points = values.iter().map(|(size, value)| Point { size: *size, value: *value }).collect();
        let curves =
            vec![Curve { name: "proto".to_owned(), points }, Curve { name: "raw".to_owned(), points: Vec::new() }];
        Chart::Curves { title: "Times".to_owned(), curves, figure: |value| format!("{value} ns") }
    }

    #[test]
    fn what_has_no_figure_is_not_drawn() {
        let bar = |value| Bar { name: "raw".to_owned(), value, range: None, label: "0".to_owned() };
        assert!(Chart::Bars { title: String::new(), bars: Vec::new() }.to_svg().is_none());
        assert!(Chart::Bars { title: String::new(), bars: vec![bar(0.0)] }.to_svg().is_none());
        assert!(curves(&[]).to_svg().is_none());
        assert!(curves(&[(8, 0.0)]).to_svg().is_none());
    }

    #[test]
    fn bars_are_as_long_as_their_values() {
        let bar = |name: &str, value| Bar { name: name.to_owned(), value, range: None, label: format!("{value} ns") };
        let bars = vec![bar("raw", 50.0), bar("proto", 100.0), bar("am", -1.0)];
        let svg = Chart::Bars { title: "Times".to_owned(), bars }.to_svg().unwrap();
        let widths: Vec<f64> = svg
            .split("<rect ")
            .skip(1)
            .filter_map(|rect| rect.split_once("width=\"")?.1.split_once('"')?.0.parse().ok())
            .collect();
        assert!(widths.len() == 3 && (widths[1] - 2.0 * widths[0]).abs() <= 2.0 && widths[2] <= 1.0, "{widths:?}");
        assert!(["Times", "raw", "100 ns"].iter().all(|text| svg.contains(text)), "{svg}");
    }

    #[test]
    fn curves_have_sizes_figures_and_a_legend_of_those_with_points() {
        let svg = curves(&[(0, 0.0), (8, 50.0), (1 << 20, 5000.0)]).to_svg().unwrap();
        assert!(["Times", "proto", " ns", " KiB"].iter().all(|text| svg.contains(text)), "{svg}");
        assert!(!svg.contains("raw") && svg.matches("<circle").count() == 3, "{svg}");
    }
}
