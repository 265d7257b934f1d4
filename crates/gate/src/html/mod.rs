//! A [`Report`] as one page: HTML with its style and its drawings inside, no script, nothing to fetch.

mod charts;
mod svg;

use std::fmt::Write;

use crate::bootstrap::Interval;
use crate::gate::{ArmReport, Check, Making, Measures, Report, Verdict};
use svg::Escaped;

const STYLE: &str = include_str!("style.css");

/// The page.
#[must_use]
pub fn page(report: &Report) -> String {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    out += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    let _ = writeln!(out, "<title>{}: {}</title>", Escaped(&report.candidate.name), report.verdict);
    let _ = writeln!(out, "<style>\n{STYLE}</style>\n</head>\n<body>");
    head(report, &mut out);
    section("Checks", &checks(&report.checks), &mut out);
    if report.candidate.measures.is_some() {
        section("What it cost", &(figures(report) + &figure("", &charts::intervals(report))), &mut out);
        let caption = "Bars are 95 % intervals over documents. Down and to the left is better.";
        section("Loss against bytes", &figure(caption, &pair(&charts::against_bytes(report))), &mut out);
        let caption = format!(
            "Output error: sum |Qx \u{2212} Wx|\u{b2} / sum |Wx|\u{b2} over a layer\u{2019}s experts, on inputs of the \
             reference. {}",
            legend(report)
        );
        section("Layer by layer", &(figure(&caption, &pair(&charts::layers(report))) + &worst(report)), &mut out);
        section("Experts that the text reached", &coverage(report), &mut out);
        section("Documents", &figure(&documents_caption(report), &charts::documents(report)), &mut out);
    }
    foot(report, &mut out);
    out + "</body>\n</html>\n"
}

fn section(title: &str, body: &str, out: &mut String) {
    let _ = writeln!(out, "<section>\n<h2>{title}</h2>\n{body}</section>");
}

fn figure(caption: &str, drawing: &str) -> String {
    let caption = if caption.is_empty() { String::new() } else { format!("<figcaption>{caption}</figcaption>\n") };
    format!("<figure>\n{caption}{drawing}</figure>\n")
}

fn pair(drawings: &str) -> String {
    format!("<div class=\"pair\">\n{drawings}</div>\n")
}

fn legend(report: &Report) -> &'static str {
    match report.baseline {
        Some(_) => "Discs are the candidate, diamonds the round-to-nearest baseline.",
        None => "Discs are the candidate.",
    }
}

fn head(report: &Report, out: &mut String) {
    let (candidate, verdict) = (&report.candidate, report.verdict);
    let how = match report.made {
        Making::Calibrated => "calibrated",
        Making::Rtn => "uncalibrated: rounded to nearest throughout",
        Making::Unrecorded => "of unrecorded making",
    };
    let _ = writeln!(out, "<header>\n<div class=\"kicker\">smoe gate</div>\n<h1>{}</h1>", Escaped(&candidate.name));
    let _ = writeln!(out, "<div class=\"verdict {verdict}\">{verdict}</div>\n<p>{}</p>", Escaped(&report.summary));
    let text = &report.text;
    let _ = writeln!(
        out,
        "<p class=\"soft\">{} at {:.2} bits a weight, {how}; {} against <b>{}</b> on {} tokens of {} documents of \
         <b>{}</b>.</p>\n</header>",
        Escaped(candidate.codecs.join(" and ")),
        candidate.bits_per_weight,
        bytes(candidate.bytes),
        Escaped(&report.reference.name),
        text.tokens,
        text.documents,
        Escaped(&text.source),
    );
}

fn checks(checks: &[Check]) -> String {
    let mut rows = String::new();
    for check in checks {
        let word = match check.outcome {
            Verdict::Pass => "\u{2713} pass",
            Verdict::Fail => "\u{2717} fail",
            Verdict::Inconclusive => "? open",
        };
        let number = |value: Option<f64>| value.map_or_else(|| "\u{2013}".to_owned(), plain);
        let _ = writeln!(
            rows,
            "<tr><td class=\"mark {}\">{word}</td><td><code>{}</code></td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"what\">{}</td></tr>",
            check.outcome,
            Escaped(&check.name),
            number(check.value),
            number(check.bound),
            Escaped(&check.what)
        );
    }
    format!(
        "<div class=\"scroll\"><table>\n<tr><th></th><th>check</th><th class=\"n\">value</th><th class=\"n\">bound</th>\
         <th></th></tr>\n{rows}</table></div>\n"
    )
}

/// The table of the arms.
fn figures(report: &Report) -> String {
    let arms = [("candidate", Some(&report.candidate)), ("baseline", report.baseline.as_ref())];
    let arms = arms.into_iter().chain([("given baseline", report.given.as_ref())]);
    let arms: Vec<(&str, &ArmReport, &Measures)> =
        arms.filter_map(|(role, arm)| Some((role, arm?, arm?.measures.as_ref()?))).collect();
    let mut out = String::from("<div class=\"scroll\"><table>\n<tr><th></th>");
    for (role, arm, _) in &arms {
        let _ = write!(out, "<th class=\"n\">{role}<br><small>{}</small></th>", Escaped(&arm.name));
    }
    out += "</tr>\n";
    let mut row = |name: &str, cell: &dyn Fn(&ArmReport, &Measures) -> String| {
        let cells: String = arms.iter().map(|(_, arm, it)| format!("<td class=\"n\">{}</td>", cell(arm, it))).collect();
        let _ = writeln!(out, "<tr><td>{name}</td>{cells}</tr>");
    };
    row("bytes", &|arm, _| bytes(arm.bytes));
    row("bits a weight", &|arm, _| format!("{:.3}", arm.bits_per_weight));
    row("loss, nats a token", &|_, it| with(it.nll, it.nll_interval));
    row("less the reference\u{2019}s", &|_, it| with(it.dnll, it.dnll_interval));
    row("KL divergence, mean", &|_, it| with(it.kld, it.kld_interval));
    row("median \u{b7} 99 % \u{b7} max", &|_, it| {
        format!("{:.4} \u{b7} {:.4} \u{b7} {:.3}", it.kld_median, it.kld_p99, it.kld_max)
    });
    row("same top token", &|_, it| with(it.top1, it.top1_interval));
    row("flips", &|_, it| it.flips.to_string());
    row("router choices in common", &|_, it| {
        it.router_overlap.map_or_else(|| "\u{2013}".into(), |share| format!("{:.2} %", 100.0 * share))
    });
    out + "</table></div>\n"
}

fn worst(report: &Report) -> String {
    let Some(it) = &report.worst_tensor else { return String::new() };
    let twin = it.baseline_error.map(|error| format!("; its twin {:.2} %", 100.0 * error)).unwrap_or_default();
    format!(
        "<p>Furthest from the reference: {} of expert {} in layer {}, {:.2} % of its output ({} tokens looked at){twin}.</p>\n",
        it.projection,
        it.expert,
        it.layer,
        100.0 * it.error,
        it.tokens
    )
}

fn coverage(report: &Report) -> String {
    let it = report.experts;
    let rest = match it.decoded_only {
        0 => String::new(),
        n => format!("; {n} saw no token (outlined): decoded once, judged by nothing else"),
    };
    let caption = format!("{} of {} experts were chosen for at least one token{rest}.", it.reached, it.total);
    figure(&caption, &charts::coverage(report))
}

fn documents_caption(report: &Report) -> String {
    let dropped = match report.text.dropped_documents {
        0 => String::new(),
        n => format!(" {n} documents were left out: they are calibration text."),
    };
    let worst = report.worst_document.as_ref();
    let worst = worst.map(|it| format!("The worst is {}: {:.4}. ", Escaped(&it.name), it.kld)).unwrap_or_default();
    format!("{worst}{}{dropped}", legend(report))
}

fn foot(report: &Report, out: &mut String) {
    *out += "<footer>\n";
    for note in &report.notes {
        let _ = writeln!(out, "<p>Note: {}.</p>", Escaped(note));
    }
    let _ = writeln!(
        out,
        "<p>Intervals: 95 % percentile bootstrap over documents, {} resamples, seed {}, the same draws for every figure. \
         Ids of the text: XXH3-64 {}. smoe {}, build {}.</p>\n</footer>",
        report.bootstrap.resamples,
        report.bootstrap.seed,
        Escaped(&report.text.checksum),
        Escaped(report.smoe),
        Escaped(report.build.as_deref().unwrap_or("unknown"))
    );
}

fn with(value: f64, interval: Option<Interval>) -> String {
    let interval = interval.map(|[low, high]| format!(" <small>[{low:.4}, {high:.4}]</small>")).unwrap_or_default();
    format!("{value:.4}{interval}")
}

/// A number in the places that it needs.
fn plain(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        value if value.fract() == 0.0 && value.abs() < 1e15 => format!("{value}"),
        value if value.abs() < 1e-3 => format!("{value:.1e}"),
        value => format!("{value:.4}"),
    }
}

fn bytes(n: u64) -> String {
    match n {
        0..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} MB", n as f64 / 1e6),
        _ => format!("{:.2} GB", n as f64 / 1e9),
    }
}
