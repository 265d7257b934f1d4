//! The charts of the report.

use super::svg::{Anchor, At, Scale, Svg, number};
use crate::bootstrap::Interval;
use crate::gate::{ArmReport, LayerReport, Measures, OutputShares, Report};

const WIDE: f64 = 720.0;
const HALF: f64 = 350.0;
/// Documents that are drawn one by one.
const MOST_DOCUMENTS: usize = 48;

/// The arms that were measured: class, role, report, measures.
fn arms(report: &Report) -> Vec<(&'static str, &'static str, &ArmReport, &Measures)> {
    let arms = [
        ("own", "candidate", Some(&report.candidate)),
        ("twin", "baseline", report.baseline.as_ref()),
        ("given", "given baseline", report.given.as_ref()),
    ];
    let measured = arms.into_iter().filter_map(|(class, role, arm)| {
        let arm = arm?;
        Some((class, role, arm, arm.measures.as_ref()?))
    });
    measured.collect()
}

/// A row of an interval chart.
struct Row {
    class: &'static str,
    label: String,
    value: f64,
    interval: Option<Interval>,
}

/// Intervals of KLD and dNLL of each arm, and of the paired differences.
pub(super) fn intervals(report: &Report) -> String {
    let row = |class, label: &str, value, interval| Row { class, label: label.to_owned(), value, interval };
    let of = |pick: &dyn Fn(&Measures) -> (f64, Option<Interval>)| {
        let one = |(class, role, _, found): &(&'static str, &'static str, &ArmReport, &Measures)| {
            let (value, interval) = pick(found);
            row(*class, role, value, interval)
        };
        arms(report).iter().map(one).collect::<Vec<Row>>()
    };
    let bound = report.checks.iter().find(|check| check.name == "kld").and_then(|check| check.bound);
    let mut out = forest("KL divergence from the reference, nats a token", &of(&|it| (it.kld, it.kld_interval)), bound);
    out += &forest("Loss less the reference's, nats a token", &of(&|it| (it.dnll, it.dnll_interval)), None);
    let pairs = [("twin", "less baseline", report.difference), ("given", "less given", report.given_difference)];
    let pairs = pairs.into_iter().filter_map(|(class, label, it)| Some((class, label, it?)));
    let rows: Vec<Row> = pairs.map(|(class, label, it)| row(class, label, it.kld, it.kld_interval)).collect();
    if !rows.is_empty() {
        out += &forest("Paired difference of the divergences: below zero, the candidate is better", &rows, None);
    }
    out
}

fn forest(title: &str, rows: &[Row], bound: Option<f64>) -> String {
    let (left, right, top) = (120.0, WIDE - 190.0, 34.0);
    let bottom = top + 24.0 * rows.len() as f64;
    let mut svg = Svg::new(WIDE, bottom + 34.0);
    let values = rows.iter().flat_map(|row| row.interval.unwrap_or([row.value; 2]).into_iter().chain([row.value]));
    let largest = values.clone().fold(0.0, f64::max);
    // A bound far away would squeeze what there is to see.
    let shown = bound.filter(|bound| *bound <= 5.0 * largest);
    let scale = Scale::over(values.chain(shown), left, right);
    svg.text("title", Anchor::Start, (0.0, 14.0), title);
    for tick in scale.ticks(6) {
        let x = scale.at(tick);
        svg.line(if tick == 0.0 { "axis" } else { "grid" }, (x, top - 8.0), (x, bottom));
        svg.text("soft", Anchor::Middle, (x, bottom + 16.0), number(tick));
    }
    if let Some(bound) = shown {
        let x = scale.at(bound);
        svg.line("bound", (x, top - 8.0), (x, bottom));
        svg.text("bound", Anchor::Middle, (x, bottom + 29.0), format!("bound {}", number(bound)));
    } else if let Some(bound) = bound {
        svg.text(
            "bound",
            Anchor::End,
            (right, bottom + 29.0),
            format!("bound {}, beyond the right edge", number(bound)),
        );
    }
    for (i, row) in rows.iter().enumerate() {
        let y = top + 24.0 * i as f64 + 8.0;
        svg.text("", Anchor::End, (left - 10.0, y + 4.0), &row.label);
        let interval = row.interval.map(|[low, high]| {
            svg.line(&format!("{} bar", row.class), (scale.at(low), y), (scale.at(high), y));
            format!(" [{low:.4}, {high:.4}]")
        });
        let text = format!("{:.4}{}", row.value, interval.unwrap_or_default());
        svg.mark(row.class, (scale.at(row.value), y), &text);
        svg.text("soft", Anchor::Start, (right + 12.0, y + 4.0), text);
    }
    svg.finish(title)
}

/// The frame of a small chart: title, axes and the scales within.
struct Frame {
    svg: Svg,
    x: Scale,
    y: Scale,
}

impl Frame {
    fn new(title: &str, x: Scale, y_values: impl Iterator<Item = f64>) -> Self {
        let (top, bottom) = (34.0, 190.0);
        let y = Scale::over(y_values, bottom, top);
        let mut svg = Svg::new(HALF, 236.0);
        svg.text("title", Anchor::Start, (0.0, 14.0), title);
        for tick in y.ticks(4) {
            svg.line(if tick == 0.0 { "axis" } else { "grid" }, (x.from, y.at(tick)), (x.to, y.at(tick)));
            svg.text("soft", Anchor::End, (x.from - 6.0, y.at(tick) + 4.0), number(tick));
        }
        Self { svg, x, y }
    }

    fn at(&self, x: f64, y: f64) -> At {
        (self.x.at(x), self.y.at(y))
    }

    fn below(&mut self, x: f64, text: &str) {
        self.svg.text("soft", Anchor::Middle, (self.x.at(x), 207.0), text);
    }

    fn finish(mut self, axis: &str, label: &str) -> String {
        let middle = f64::midpoint(self.x.from, self.x.to);
        self.svg.text("soft", Anchor::Middle, (middle, 226.0), axis);
        self.svg.finish(label)
    }
}

/// Loss and divergence against the bytes of the experts.
pub(super) fn against_bytes(report: &Report) -> String {
    let loss = |it: &Measures| (it.dnll, it.dnll_interval);
    let divergence = |it: &Measures| (it.kld, it.kld_interval);
    bytes_chart(report, "Loss less the reference's, nats", loss)
        + &bytes_chart(report, "KL divergence, nats", divergence)
}

fn bytes_chart(report: &Report, title: &str, pick: impl Fn(&Measures) -> (f64, Option<Interval>)) -> String {
    let arms = arms(report);
    let sizes = arms.iter().map(|(_, _, arm, _)| arm.expert_bytes).chain([report.reference.expert_bytes]);
    let (unit, name) = unit(sizes.clone().max().unwrap_or(1));
    let x = Scale::over(sizes.map(|bytes| bytes as f64 / unit), 48.0, HALF - 12.0);
    let values = arms.iter().flat_map(|(_, _, _, found)| {
        let (value, interval) = pick(found);
        interval.unwrap_or([value; 2])
    });
    let mut frame = Frame::new(title, x, values);
    for tick in x.ticks(5) {
        frame.below(tick, &number(tick));
    }
    let reference = frame.at(report.reference.expert_bytes as f64 / unit, 0.0);
    frame.svg.mark("base", reference, "reference");
    frame.svg.text("", Anchor::End, (reference.0, reference.1 - 9.0), "reference, 16 bits");
    for (class, role, arm, found) in arms {
        let (value, interval) = pick(found);
        let bytes = arm.expert_bytes as f64 / unit;
        if let Some([low, high]) = interval {
            let (low, high) = (frame.at(bytes, low), frame.at(bytes, high));
            frame.svg.line(&format!("{class} bar"), low, high);
        }
        let (px, py) = frame.at(bytes, value);
        frame.svg.mark(class, (px, py), &format!("{role}: {value:.4}"));
        // Names stay within the drawing.
        let (anchor, px) = if px > 0.6 * HALF { (Anchor::End, px - 9.0) } else { (Anchor::Start, px + 9.0) };
        frame.svg.text(class, anchor, (px, py + 4.0), format!("{role}, {:.2} bits", arm.bits_per_weight));
    }
    frame.finish(&format!("bytes of all experts, {name}"), title)
}

fn unit(bytes: u64) -> (f64, &'static str) {
    match bytes {
        0..10_000_000 => (1e3, "kB"),
        10_000_000..10_000_000_000 => (1e6, "MB"),
        _ => (1e9, "GB"),
    }
}

/// Output errors of gate, up and down by layer, and the routers' agreement.
pub(super) fn layers(report: &Report) -> String {
    let mut out = String::new();
    for (i, name) in ["gate", "up", "down"].into_iter().enumerate() {
        let pick = |it: &OutputShares| [it.gate, it.up, it.down][i];
        let own = |it: &LayerReport| Some(100.0 * pick(&it.output_error)?);
        let twin = |it: &LayerReport| Some(100.0 * pick(it.baseline_output_error.as_ref()?)?);
        out += &layer_chart(report, &format!("Output error of {name}, %"), own, twin);
    }
    let own = |it: &LayerReport| Some(100.0 * (1.0 - it.router_overlap?));
    let twin = |it: &LayerReport| Some(100.0 * (1.0 - it.baseline_router_overlap?));
    out + &layer_chart(report, "Router choices that differ, %", own, twin)
}

fn layer_chart(
    report: &Report,
    title: &str,
    own: impl Fn(&LayerReport) -> Option<f64>,
    twin: impl Fn(&LayerReport) -> Option<f64>,
) -> String {
    let layers = &report.layers;
    let (first, last) = (layers.first().map_or(0, |it| it.layer), layers.last().map_or(0, |it| it.layer));
    let x = Scale { low: first as f64 - 0.5, high: last as f64 + 0.5, from: 48.0, to: HALF - 12.0 };
    let all = layers.iter().flat_map(|it| own(it).into_iter().chain(twin(it)));
    let mut frame = Frame::new(title, x, all);
    let step = layers.len().div_ceil(10).max(1);
    for it in layers.iter().step_by(step) {
        frame.below(it.layer as f64, &it.layer.to_string());
    }
    let twins = layers.iter().filter_map(|it| Some((it.layer, twin(it)?)));
    series(&mut frame, ("twin", "baseline"), twins.collect());
    series(&mut frame, ("own", "candidate"), layers.iter().filter_map(|it| Some((it.layer, own(it)?))).collect());
    frame.finish("layer", title)
}

/// A line with a mark at each layer.
fn series(frame: &mut Frame, (class, role): (&str, &str), values: Vec<(usize, f64)>) {
    let points: Vec<At> = values.iter().map(|(layer, value)| frame.at(*layer as f64, *value)).collect();
    if points.len() > 1 {
        frame.svg.path(&format!("{class} line"), &points);
    }
    for (point, (layer, value)) in points.into_iter().zip(values) {
        frame.svg.mark(class, point, &format!("{role}, layer {layer}: {value:.3} %"));
    }
}

/// Tokens of each expert, by layer: darker is more, an outline is none.
pub(super) fn coverage(report: &Report) -> String {
    let widest = report.layers.iter().map(|it| it.tokens.len()).max().unwrap_or(0).max(1);
    let most = report.layers.iter().flat_map(|it| &it.tokens).copied().max().unwrap_or(0).max(1);
    let (left, top) = (48.0, 24.0);
    let cell = ((WIDE - left) / widest as f64).min(26.0);
    let height = cell.clamp(6.0, 18.0);
    let bottom = top + height * report.layers.len() as f64;
    let mut svg = Svg::new(WIDE, bottom + 40.0);
    svg.text("title", Anchor::Start, (0.0, 14.0), format!("Tokens an expert, by layer; darkest {most}"));
    let label = report.layers.len().div_ceil(24).max(1);
    for (row, it) in report.layers.iter().enumerate() {
        let y = top + height * row as f64;
        if row % label == 0 {
            svg.text("soft", Anchor::End, (left - 8.0, y + height / 2.0 + 4.0), it.layer);
        }
        for (expert, &tokens) in it.tokens.iter().enumerate() {
            let title = format!("layer {} expert {expert}: {tokens} tokens", it.layer);
            let at = (left + cell * expert as f64 + 0.5, y + 0.5);
            let size = (cell - 1.0, height - 1.0);
            if tokens == 0 {
                svg.rect(format_args!(r#"class="unreached""#), at, size, &title);
            } else {
                // The logarithm: routers prefer a few experts by far.
                let share = ((1 + tokens) as f64).ln() / ((1 + most) as f64).ln();
                let grey = |ink: f64| (255.0 - share * (255.0 - ink)).round() as u8;
                let (r, g, b) = (grey(29.0), grey(95.0), grey(174.0));
                svg.rect(format_args!(r#"fill="rgb({r},{g},{b})""#), at, size, &title);
            }
        }
    }
    let step = [1, 2, 5, 10, 20, 50, 100, 200].into_iter().find(|step| cell * *step as f64 >= 24.0).unwrap_or(500);
    for expert in (0..widest).step_by(step) {
        svg.text("soft", Anchor::Middle, (left + cell * (expert as f64 + 0.5), bottom + 15.0), expert);
    }
    svg.text("soft", Anchor::Start, (left, bottom + 34.0), "expert");
    svg.finish("Tokens of each expert by layer")
}

/// Mean divergence of each document, the worst first.
pub(super) fn documents(report: &Report) -> String {
    let mean = |sum: f64, tokens: u64| sum / tokens as f64;
    let mut order: Vec<_> = report.documents.iter().collect();
    order.sort_by(|a, b| mean(b.candidate.kld, b.tokens).total_cmp(&mean(a.candidate.kld, a.tokens)));
    order.truncate(MOST_DOCUMENTS);
    let (left, right, top, row) = (170.0, WIDE - 20.0, 30.0, 16.0);
    let bottom = top + row * order.len() as f64;
    let mut svg = Svg::new(WIDE, bottom + 26.0);
    let values = order.iter().flat_map(|it| {
        let twin = it.baseline.map(|baseline| mean(baseline.kld, it.tokens));
        [Some(mean(it.candidate.kld, it.tokens)), twin].into_iter().flatten()
    });
    let scale = Scale::over(values, left, right);
    svg.text("title", Anchor::Start, (0.0, 14.0), "KL divergence by document, nats a token, the worst first");
    for tick in scale.ticks(6) {
        svg.line("grid", (scale.at(tick), top - 6.0), (scale.at(tick), bottom));
        svg.text("soft", Anchor::Middle, (scale.at(tick), bottom + 16.0), number(tick));
    }
    for (i, it) in order.iter().enumerate() {
        let y = top + row * i as f64 + 5.0;
        // The end of a long name tells most: the line of its file.
        let skip = it.name.chars().count().saturating_sub(25);
        let name: String = it.name.chars().skip(skip).collect();
        svg.text("soft", Anchor::End, (left - 10.0, y + 4.0), name);
        let own = mean(it.candidate.kld, it.tokens);
        if let Some(baseline) = it.baseline {
            let twin = mean(baseline.kld, it.tokens);
            svg.line("axis", (scale.at(own), y), (scale.at(twin), y));
            svg.mark("twin", (scale.at(twin), y), &format!("{}: baseline {twin:.4}", it.name));
        }
        svg.mark("own", (scale.at(own), y), &format!("{}: candidate {own:.4}", it.name));
    }
    svg.finish("KL divergence by document")
}
