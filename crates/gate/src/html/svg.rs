//! The little of SVG that the charts need: shapes, scales, ticks.

use std::fmt::{self, Display, Write};

/// Text as HTML and SVG take it.
pub(super) struct Escaped<T>(pub(super) T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.to_string().chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Where a text is held.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A point.
pub(super) type At = (f64, f64);

/// A drawing in the making. Classes are those of `style.css`.
pub(super) struct Svg {
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    fn push(&mut self, element: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }

    pub(super) fn line(&mut self, class: &str, from: At, to: At) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(format_args!(r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#));
    }

    pub(super) fn path(&mut self, class: &str, points: &[At]) {
        let mut data = String::new();
        for (i, (x, y)) in points.iter().enumerate() {
            let _ = write!(data, "{}{x:.1} {y:.1}", if i == 0 { "M" } else { " L" });
        }
        self.push(format_args!(r#"<path class="{class}" d="{data}"/>"#));
    }

    pub(super) fn rect(&mut self, style: fmt::Arguments<'_>, (x, y): At, (width, height): At, title: &str) {
        let title = Escaped(title);
        self.push(format_args!(
            r#"<rect {style} x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"><title>{title}</title></rect>"#
        ));
    }

    /// A mark: each class has a shape of its own, so that a print without colours tells them apart.
    pub(super) fn mark(&mut self, class: &str, (x, y): At, title: &str) {
        let title = Escaped(title);
        let shape = match class {
            "twin" => {
                format!(
                    r#"<path class="twin hollow" stroke-width="1.6" d="M{x:.1} {:.1} l5 5 l-5 5 l-5 -5 z">"#,
                    y - 5.0
                )
            }
            "given" => format!(
                r#"<rect class="given hollow" stroke-width="1.6" x="{:.1}" y="{:.1}" width="8" height="8">"#,
                x - 4.0,
                y - 4.0
            ),
            class => format!(r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="4">"#),
        };
        let end = shape[1..].split(' ').next().unwrap_or_default().to_owned();
        self.push(format_args!("{shape}<title>{title}</title></{end}>"));
    }

    pub(super) fn text(&mut self, class: &str, anchor: Anchor, (x, y): At, text: impl Display) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = Escaped(text);
        self.push(format_args!(r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#));
    }

    /// The element, with a text for those who do not see it.
    pub(super) fn finish(self, label: &str) -> String {
        let Self { width, height, body } = self;
        let label = Escaped(label);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">\n{body}</svg>\n"
        )
    }
}

/// From values to places.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) from: f64,
    pub(super) to: f64,
}

impl Scale {
    /// From 0, or from the smallest value where one is below, to a little over the largest.
    pub(super) fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (mut low, mut high) = (0.0_f64, 0.0_f64);
        for value in values.filter(|value| value.is_finite()) {
            (low, high) = (low.min(value), high.max(value));
        }
        let room = if high > low { 0.06 * (high - low) } else { 1.0 };
        Self { low: if low < 0.0 { low - room } else { 0.0 }, high: high + room, from, to }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    /// Round numbers within the scale, about `wanted` of them.
    pub(super) fn ticks(&self, wanted: usize) -> Vec<f64> {
        let raw = (self.high - self.low) / wanted.max(1) as f64;
        let unit = 10_f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * unit).into_iter().find(|step| *step >= raw);
        let step = step.unwrap_or(10.0 * unit);
        let first = (self.low / step).ceil() as i64;
        (first..).map(|i| i as f64 * step).take_while(|tick| *tick <= self.high).take(50).collect()
    }
}

/// A tick's number: no more places than it needs.
pub(super) fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let places = (2.0 - value.abs().log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        for (low, high) in [(0.0, 0.213), (-0.03, 0.004), (0.0, 1e9), (0.0, 7.0)] {
            let scale = Scale { low, high, from: 0.0, to: 100.0 };
            let ticks = scale.ticks(5);
            assert!((2..=12).contains(&ticks.len()), "{low} {high}: {ticks:?}");
            assert!(ticks.iter().all(|tick| (0.0..=100.0).contains(&scale.at(*tick))), "{ticks:?}");
        }
        let flat = Scale::over([0.0].into_iter(), 0.0, 100.0);
        assert_eq!((flat.at(0.0), flat.at(1.0)), (0.0, 100.0));
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in
            [(0.05, "0.05"), (-0.025, "-0.025"), (100.0, "100"), (0.0, "0"), (12.5, "12.5"), (1e-5, "0.00001")]
        {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn names_cannot_break_out() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.text("soft", Anchor::Start, (1.0, 2.0), "<script>&\"");
        svg.mark("twin", (1.0, 2.0), "</title><b>");
        let text = svg.finish("a \"label\"");
        assert!(text.contains("&lt;script&gt;&amp;&quot;") && text.contains("&lt;/title&gt;"), "{text}");
        assert!(text.contains("</path>") && text.contains("a &quot;label&quot;"), "{text}");
    }
}
