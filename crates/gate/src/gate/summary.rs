//! From findings to the report.

use smoe_codec::Codec;
use smoe_model::counts::counts;
use smoe_model::store::TensorStore;

use super::arm::{Arm, Reference};
use super::checks::{self, Check, Verdict};
use super::claims::{Claims, MatrixAt, PROJECTIONS};
use super::measures::{Draws, Measures, difference, measures, worst_document};
use super::overlap::{self, Dropped};
use super::report::{
    ArmReport, BootstrapReport, DocumentReport, ExpertsReport, LayerReport, OutputShares, ReferenceReport, Report,
    SumsReport, TextReport, WorstDocument, WorstTensor,
};
use super::survey::{ArmSums, ByExpert, Survey};
use super::{Findings, GateOptions, Making, Places};
use crate::bootstrap::RESAMPLES;
use crate::windows::Windows;

/// Judges the findings.
pub(super) fn report(
    found: &Findings,
    (arms, places): (&[Arm], Places),
    reference: &Reference,
    windows: &Windows,
    options: &GateOptions,
) -> Report {
    let draws = Draws { seed: options.seed, resamples: options.resamples.max(RESAMPLES) };
    let survey = found.survey.as_ref().ok();
    let reports: Vec<ArmReport> = arms.iter().enumerate().map(|(i, arm)| arm_report(arm, survey, i, draws)).collect();
    let against = |place: Option<usize>| {
        let survey = survey?;
        Some(difference(&survey.arms[0], &survey.arms[place?], draws))
    };
    let (difference, given_difference) = (against(places.baseline), against(places.given));
    let candidate = &reports[0];
    let bound = options.max_kld.unwrap_or_else(|| checks::kld_bound(code_bits(&arms[0])));
    let mut checks = candidate_checks(found, candidate, &arms[0], bound);
    if found.claims.making == Making::Calibrated {
        checks
            .extend(found.equality.iter().flat_map(|it| [checks::matrices_differ(it), checks::rtn_matrices_equal(it)]));
        checks.extend(difference.iter().flat_map(|it| [checks::scores_differ(it), checks::better(it)]));
    }
    if let (Some(place), Some(difference)) = (places.given, &given_difference) {
        let bytes = [candidate.model_bytes, reports[place].model_bytes];
        checks.push(checks::not_dominated(bytes, difference));
    }
    let verdict = checks::together(&checks);
    let sums = survey.map(|survey| &survey.arms[0]);
    let reference_nll = sums.map(|sums| {
        let all = sums.documents.iter().fold((0.0, 0), |all, it| (all.0 + it.reference_nll, all.1 + it.tokens));
        all.0 / all.1 as f64
    });
    let expert_bytes = 2 * counts(reference.checkpoint.spec()).experts;
    Report {
        verdict,
        summary: summary(verdict, found.claims.making, &checks, candidate.measures.as_ref(), bound),
        made: found.claims.making,
        checks,
        candidate: candidate.clone(),
        baseline: places.baseline.map(|place| reports[place].clone()),
        given: places.given.map(|place| reports[place].clone()),
        reference: ReferenceReport { name: reference.name.clone(), nll: reference_nll, expert_bytes },
        difference,
        given_difference,
        text: text(windows, found),
        layers: survey.map(|survey| layers(survey, places)).unwrap_or_default(),
        worst_document: sums.map(|sums| worst(sums, windows)),
        worst_tensor: survey.and_then(|survey| worst_tensor(survey, places)),
        experts: experts(found, &arms[0]),
        documents: survey.map(|survey| documents(survey, places, windows)).unwrap_or_default(),
        bootstrap: BootstrapReport { seed: draws.seed, resamples: draws.resamples },
        smoe: env!("CARGO_PKG_VERSION"),
        build: build(),
        notes: notes(windows, found),
    }
}

/// The checks that need no baseline.
fn candidate_checks(found: &Findings, candidate: &ArmReport, arm: &Arm, bound: f64) -> Vec<Check> {
    let mut all = vec![checks::not_diagnostic(&found.claims)];
    all.push(checks::finite_logits(found.survey.as_ref().err().map(String::as_str)));
    if let Some(measures) = &candidate.measures {
        all.push(checks::divergence(measures, code_bits(arm), bound));
    }
    all.push(checks::size(found.size));
    if let Ok(survey) = &found.survey {
        let (sums, fetches) = (&survey.arms[0], |layer, expert| arm.fetches.of(layer, expert));
        all.push(checks::all_read(&unread(&arm.unread, fetches, (&sums.routed, &sums.computed), &found.decoded)));
    }
    all.push(checks::same_path("noise_floor_chunks", &found.chunks, bound));
    for (name, difference) in &found.instruction_sets {
        all.push(checks::same_path(&format!("noise_floor_{name}"), difference, bound));
    }
    all.extend(found.as_run.iter().map(|as_run| checks::same_path("noise_floor_as_run", as_run, bound)));
    all.extend(found.decode.iter().map(|decode| checks::same_path("decode_path", decode, bound)));
    if found.claims.making == Making::Calibrated {
        let all_tokens = found.text_tokens as f64;
        let shares = found.text_known.then_some((found.dropped.tokens as f64 / all_tokens, overlap::TOKEN_SHARE));
        all.push(checks::text_overlap(shares));
    }
    all
}

/// Tensors that the engine did not use, by name: trunk tensors, experts that were chosen and not computed or never
/// fetched, experts without a token that do not decode.
fn unread(
    trunk: &[String],
    fetches: impl Fn(usize, usize) -> u64,
    (routed, computed): (&ByExpert, &ByExpert),
    decoded: &[(usize, usize, bool)],
) -> Vec<String> {
    let mut unread: Vec<String> = trunk.iter().map(|name| format!("`{name}`")).collect();
    for (layer, experts) in routed.iter().enumerate() {
        for (expert, &routed) in experts.iter().enumerate() {
            let name = format!("layer {layer} expert {expert} (chosen for {routed} tokens");
            let computed = computed[layer][expert];
            if computed != routed {
                unread.push(format!("{name}, computed for {computed})"));
            } else if routed > 0 && fetches(layer, expert) == 0 {
                unread.push(format!("{name}, never fetched)"));
            }
        }
    }
    let broken = decoded.iter().filter(|(_, _, sound)| !sound);
    unread.extend(broken.map(|(layer, expert, _)| format!("layer {layer} expert {expert} (does not decode)")));
    unread
}

/// Mean bits of a code over all expert weights, scales not counted.
fn code_bits(arm: &Arm) -> f64 {
    over_weights(arm, |codec, _| codec.bits() as f64)
}

/// A mean over expert weights of something that a codec and a row's length decide.
fn over_weights(arm: &Arm, bits: impl Fn(Codec, usize) -> f64) -> f64 {
    let (mut sum, mut weights) = (0.0, 0.0);
    for record in arm.file.experts() {
        for (index, codec) in record.codecs.into_iter().enumerate() {
            let cols = if index == 2 { record.width } else { record.hidden } as usize;
            let count = f64::from(record.width) * f64::from(record.hidden);
            sum += count * bits(codec, cols);
            weights += count;
        }
    }
    sum / weights
}

fn arm_report(arm: &Arm, survey: Option<&Survey>, place: usize, draws: Draws) -> ArmReport {
    let used = |codec: &Codec| arm.file.experts().iter().any(|record| record.codecs.contains(codec));
    let stored =
        |codec: Codec, cols: usize| 8.0 * (codec.code_bytes(cols) + codec.scale_bytes(cols)) as f64 / cols as f64;
    let manifest = arm.file.manifest();
    let expert_bytes: u64 = arm.file.experts().iter().map(|record| record.length).sum();
    ArmReport {
        name: arm.name.clone(),
        made: Claims::of(&manifest.provenance).making,
        codecs: Codec::ALL.into_iter().filter(used).map(Codec::name).collect(),
        bits_per_weight: over_weights(arm, stored),
        bytes: arm.bytes(),
        model_bytes: expert_bytes + manifest.trunk.iter().map(|tensor| tensor.length).sum::<u64>(),
        expert_bytes,
        measures: survey.map(|survey| measures(&survey.arms[place], draws)),
    }
}

/// A checksum of the running program. Figures of two builds are not those of one program.
fn build() -> Option<String> {
    let program = std::env::current_exe().and_then(std::fs::read).ok()?;
    Some(format!("{:016x}", smoe_vault::checksum(&program)))
}

fn text(windows: &Windows, found: &Findings) -> TextReport {
    TextReport {
        source: windows.source().rsplit(['/', '\\']).next().unwrap_or_default().to_owned(),
        windows: windows.rows(),
        documents: windows.documents(),
        tokens: windows.tokens(),
        dropped_documents: found.dropped.documents,
        dropped_tokens: found.dropped.tokens,
        checksum: windows.checksum(),
    }
}

fn layers(survey: &Survey, places: Places) -> Vec<LayerReport> {
    let overlap = |arm: usize, layer: usize| {
        let (same, all) = survey.arms[arm].overlap[layer];
        (all > 0).then(|| same as f64 / all as f64)
    };
    let shares = |arm: usize, layer: usize| {
        let of = |projection: usize| {
            let matrices = survey.outputs[layer].iter().map(|expert| &expert[projection]);
            let (error, norm) = matrices.fold((0.0, 0.0), |sum, it| (sum.0 + it.errors[arm], sum.1 + it.norm));
            (norm > 0.0).then(|| error / norm)
        };
        OutputShares { gate: of(0), up: of(1), down: of(2) }
    };
    let with_experts = (0..survey.outputs.len()).filter(|layer| !survey.outputs[*layer].is_empty());
    let one = |layer: usize| LayerReport {
        layer,
        router_overlap: overlap(0, layer),
        baseline_router_overlap: places.baseline.and_then(|place| overlap(place, layer)),
        output_error: shares(0, layer),
        baseline_output_error: places.baseline.map(|place| shares(place, layer)),
        tokens: survey.arms[0].routed[layer].clone(),
    };
    with_experts.map(one).collect()
}

fn worst(sums: &ArmSums, windows: &Windows) -> WorstDocument {
    let place = worst_document(&sums.documents);
    let it = &sums.documents[place];
    let tokens = it.tokens as f64;
    WorstDocument {
        name: windows.label(place).to_owned(),
        tokens: it.tokens,
        kld: it.kld / tokens,
        dnll: (it.nll - it.reference_nll) / tokens,
    }
}

fn worst_tensor(survey: &Survey, places: Places) -> Option<WorstTensor> {
    let mut worst: Option<(f64, MatrixAt)> = None;
    for (layer, experts) in survey.outputs.iter().enumerate() {
        for (expert, matrices) in experts.iter().enumerate() {
            for (projection, matrix) in matrices.iter().enumerate() {
                let share = matrix.share(0).filter(|share| worst.is_none_or(|(most, _)| *share > most));
                worst = share.map(|share| (share, (layer, expert, projection))).or(worst);
            }
        }
    }
    let (error, (layer, expert, projection)) = worst?;
    let matrix = &survey.outputs[layer][expert][projection];
    Some(WorstTensor {
        layer,
        expert,
        projection: PROJECTIONS[projection],
        error,
        baseline_error: places.baseline.and_then(|place| matrix.share(place)),
        tokens: matrix.rows,
    })
}

fn experts(found: &Findings, arm: &Arm) -> ExpertsReport {
    let total = arm.file.experts().len();
    let decoded_only = found.decoded.len();
    let equality = found.equality.as_ref();
    ExpertsReport {
        total,
        reached: if found.survey.is_ok() { total - decoded_only } else { 0 },
        decoded_only,
        compared_with_baseline: equality.map_or(0, |it| it.compared),
        equal_to_baseline: equality.map_or(0, |it| it.equal.len()),
    }
}

fn documents(survey: &Survey, places: Places, windows: &Windows) -> Vec<DocumentReport> {
    let sums = |arm: usize, document: usize| {
        let it = &survey.arms[arm].documents[document];
        SumsReport { nll: it.nll, kld: it.kld, same: it.same }
    };
    let one = |document: usize| DocumentReport {
        name: windows.label(document).to_owned(),
        tokens: survey.arms[0].documents[document].tokens,
        reference_nll: survey.arms[0].documents[document].reference_nll,
        candidate: sums(0, document),
        baseline: places.baseline.map(|place| sums(place, document)),
        given: places.given.map(|place| sums(place, document)),
    };
    (0..windows.documents()).map(one).collect()
}

fn notes(windows: &Windows, found: &Findings) -> Vec<String> {
    let mut notes = windows.notes().to_vec();
    match found.claims.making {
        Making::Calibrated => {}
        Making::Rtn => notes.push("rounded to nearest throughout: held against the absolute bounds alone".into()),
        Making::Unrecorded => {
            notes.push("the vault does not say how it was made: held against the absolute bounds alone".into());
        }
    }
    if found.dropped.documents > 0 {
        let Dropped { documents, tokens } = found.dropped;
        notes.push(format!("{documents} documents ({tokens} tokens) are calibration text and were left out"));
    }
    if found.instruction_sets.is_empty() {
        notes.push("this machine has one instruction set: nothing to compare between several".into());
    }
    if !found.decoded.is_empty() {
        notes.push(format!("{} experts saw no token of this text: decoded, not judged", found.decoded.len()));
    }
    notes
}

/// The verdict in a line.
fn summary(verdict: Verdict, making: Making, checks: &[Check], measures: Option<&Measures>, bound: f64) -> String {
    let how = match making {
        Making::Calibrated => "",
        Making::Rtn => ", uncalibrated",
        Making::Unrecorded => ", of unrecorded making",
    };
    let kld = measures.map(|it| {
        let interval = it.kld_interval.map(|[low, high]| format!(" [{low:.4}, {high:.4}]")).unwrap_or_default();
        format!("KLD {:.4}{interval}, bound {bound:.4}", it.kld)
    });
    let open: Vec<String> = checks
        .iter()
        .filter(|check| check.outcome == verdict && !check.pass)
        .map(|c| format!("{}: {}", c.name, c.what))
        .collect();
    let better = checks.iter().find(|check| check.name == "better_than_baseline" && check.pass);
    let parts = open.into_iter().chain(kld).chain(better.map(|check| check.what.clone()));
    format!("{verdict}{how}: {}", parts.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_is_named() {
        let (routed, all) = (vec![vec![], vec![3, 0, 2]], |_, _| 1);
        assert_eq!(unread(&[], all, (&routed, &routed), &[(1, 1, true)]), [""; 0]);
        let names = unread(&["a".into()], all, (&routed, &vec![vec![], vec![3, 0, 1]]), &[(1, 1, false)]);
        assert_eq!(
            names,
            ["`a`", "layer 1 expert 2 (chosen for 2 tokens, computed for 1)", "layer 1 expert 1 (does not decode)"]
        );
        let bypassed = unread(&[], |_, expert| u64::from(expert == 0), (&routed, &routed), &[]);
        assert_eq!(bypassed, ["layer 1 expert 2 (chosen for 2 tokens, never fetched)"]);
    }
}
