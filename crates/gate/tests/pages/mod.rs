//! The report as one page: it shows what was found, holds all that it shows, and is well formed.

use smoe_gate::page;

use super::*;

/// The numbers in `name="..."` of an element.
fn numbers(element: &str, name: &str) -> Vec<f64> {
    let start = format!(" {name}=\"");
    let values = element.split(&start).skip(1).filter_map(|rest| rest.split('"').next());
    values.flat_map(|text| text.split(' ')).map(|text| text.parse().expect("a number")).collect()
}

/// Every element is closed, in order; no drawing leaves its frame.
fn assert_well_formed(html: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut frame = (0.0, 0.0);
    for part in html.split('<').skip(1) {
        let (tag, _) = part.split_once('>').unwrap_or_else(|| panic!("an open bracket: {part}"));
        assert!(!tag.contains("NaN") && !tag.contains("inf"), "numbers only: {tag}");
        let name = tag.split([' ', '\n', '/']).find(|name| !name.is_empty()).expect("a name");
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "closed in order");
        } else if !tag.starts_with('!') && !tag.ends_with('/') && !["meta", "br"].contains(&name) {
            open.push(name);
        }
        if name == "svg" && !tag.starts_with('/') {
            let view = numbers(tag, "viewBox");
            frame = (view[2], view[3]);
        }
        for (names, most) in [(["x", "x1", "x2", "width"], frame.0), (["y", "y1", "y2", "height"], frame.1)] {
            let out = |at: &f64| !(-0.5..=most + 0.5).contains(at);
            let found = names.iter().flat_map(|name| numbers(tag, name)).find(out);
            assert!(name == "svg" || found.is_none(), "{found:?} of {most}: {tag}");
        }
    }
    assert_eq!(open, [""; 0], "everything is closed");
}

/// No script, and nothing that a browser would fetch.
fn assert_self_contained(html: &str) {
    for word in ["<script", "<link", "<img", "src=", "href=", "url(", "@import", "javascript:"] {
        assert!(!html.contains(word), "{word}");
    }
    assert!(html.replace("http://www.w3.org/2000/svg", "").find("://").is_none(), "an address");
    assert!(html.contains("@media print") && html.contains("<style>"));
}

fn title_count(html: &str, class: &str) -> usize {
    html.matches(&format!("<path class=\"{class}")).count() + html.matches(&format!("<circle class=\"{class}")).count()
}

#[test]
fn a_page_shows_every_check_interval_layer_expert_and_document() {
    let scratch = Scratch::new();
    let candidate = claimed(Codec::Q2).write(scratch.path(), "good");
    let report = judge(&candidate, Some(&scratch.poor_baseline())).expect("judged");
    let html = page(&report);
    assert_well_formed(&html);
    assert_self_contained(&html);
    assert_eq!(html, page(&report), "the same report is the same page");
    for check in &report.checks {
        assert!(html.contains(&format!("<code>{}</code>", check.name)), "{}", check.name);
    }
    for heading in ["Checks", "What it cost", "Loss against bytes", "Layer by layer", "Experts that", "Documents"] {
        assert!(html.contains(&format!("<h2>{heading}")), "{heading}");
    }
    let kld = report.candidate.measures.as_ref().and_then(|it| it.kld_interval).expect("an interval");
    assert!(html.contains(&format!("[{:.4}, {:.4}]", kld[0], kld[1])));
    let difference = report.difference.and_then(|it| it.kld_interval).expect("an interval");
    assert!(html.contains(&format!("[{:.4}, {:.4}]", difference[0], difference[1])));
    for layer in &report.layers {
        for (expert, tokens) in layer.tokens.iter().enumerate() {
            let cell = format!("layer {} expert {expert}: {tokens} tokens", layer.layer);
            assert!(html.contains(&cell), "{cell}");
        }
        assert!(html.contains(&format!("candidate, layer {}", layer.layer)), "a mark of its errors");
        assert!(html.contains(&format!("baseline, layer {}", layer.layer)));
    }
    for document in &report.documents {
        assert!(html.contains(&format!(">{}</text>", document.name)), "{}", document.name);
    }
    assert!(title_count(&html, "own") > report.documents.len() && title_count(&html, "base") == 2, "marks are drawn");
    assert!(html.contains(r#"<div class="verdict pass">pass</div>"#) && html.contains("reference, 16 bits"));
}

#[test]
fn pages_of_other_verdicts_say_so() {
    let scratch = Scratch::new();
    let mut poisoned = Forge::of(&golden(), Codec::Q4);
    poisoned.poison = Some("model.norm.weight");
    let report = judge(&poisoned.write(scratch.path(), "poisoned"), None).expect("judged");
    let html = page(&report);
    assert_well_formed(&html);
    assert!(html.contains(r#"<div class="verdict fail">"#) && !html.contains("<svg"), "nothing was measured");

    let few = Windows::from_rows("few", &[vec![5, 5, 5]], &[0]).expect("rows");
    let vault = Forge::of(&golden(), Codec::Q4).write(scratch.path(), "vault");
    let report = judge_on(&vault, None, &few, &lenient()).expect("judged");
    let html = page(&report);
    assert_well_formed(&html);
    assert_eq!(html.matches("class=\"unreached\"").count(), report.experts.decoded_only);
    assert!(html.contains("uncalibrated") && html.contains("saw no token (outlined)"));
}

#[test]
fn names_cannot_break_out_of_the_page() {
    let scratch = Scratch::new();
    let vault = Forge::of(&golden(), Codec::Q4).write(scratch.path(), "vault");
    let mut report = judge(&vault, None).expect("judged");
    let evil = "\"><script>alert(1)</script><img src=x>&amp;";
    report.candidate.name = evil.into();
    report.reference.name = evil.into();
    report.text.source = evil.into();
    report.summary = evil.into();
    report.notes.push(evil.into());
    report.documents[0].name = evil.into();
    report.checks[0].what = evil.into();
    report.worst_document.as_mut().expect("one").name = evil.into();
    let html = page(&report);
    assert_well_formed(&html);
    assert!(!html.contains("<script") && !html.contains("<img") && html.contains("&lt;script&gt;"));
}
