//! Routed experts, expert-major: each needed expert is visited once with all its tokens.

use super::Cpu;
use super::activate;
use super::product::{Tokens, expert_view, transpose};
use crate::backend::ExpertsCall;
use crate::error::EngineError;
use crate::experts::{Expert, Part, Pending};
use crate::math::axpy;
use crate::observer::Routes;
use rayon::prelude::*;
use smoe_kernels::{Int8, Isa, Matrix as View};
use smoe_model::role::Proj;
use smoe_model::spec::Activation;

/// Experts in a turn: bounds the memory of a turn's activations, whatever the model.
const TURN: usize = 64;

/// One expert with the tokens that chose it.
struct Visit {
    expert: Expert,
    id: u32,
    /// Flat slots `t * k + s`.
    slots: Vec<u32>,
    /// `[slots, hidden]`.
    x: Vec<f32>,
    /// `[slots, width]`.
    g: Vec<f32>,
    /// `[slots, hidden]`.
    y: Vec<f32>,
}

impl Cpu {
    /// See [`crate::backend::Recorder::experts`].
    pub(super) fn experts(
        &self,
        mut call: ExpertsCall<'_>,
        routes: &Routes,
        x: &[f32],
        out: &mut [f32],
    ) -> Result<(), EngineError> {
        let (hidden, k) = (call.hidden, routes.k);
        let mut by_slot = vec![0.0; call.n * k * hidden];
        let mut needed = routes.by_expert(call.moe.experts);
        // What is in memory goes first: it is used before it makes room for what is not.
        needed.sort_by_key(|(id, _)| !call.source.holds(call.layer, *id));
        let ids_of = |turn: &[Use]| -> Vec<u32> { turn.iter().map(|(id, _)| *id).collect() };
        let mut turns = needed.chunks(call.source.at_once().clamp(1, TURN)).peekable();
        while let Some(turn) = turns.next() {
            let pending = call.source.request(call.layer, &ids_of(turn))?;
            if let Some(next) = turns.peek() {
                call.source.expect(call.layer, &ids_of(next));
            }
            let mut waiting: Vec<_> = pending.into_iter().zip(turn).collect();
            while !waiting.is_empty() {
                let mut visits: Vec<Visit> = (arrived(&mut waiting)?.into_iter())
                    .map(|(expert, (id, slots))| {
                        Visit::new(expert, *id, slots, |slot| {
                            let t = slot / k;
                            &x[t * hidden..(t + 1) * hidden]
                        })
                    })
                    .collect();
                self.visit(&mut call, k, &mut visits);
                for visit in &visits {
                    for (y, &slot) in visit.y.chunks_exact(hidden).zip(&visit.slots) {
                        by_slot[slot as usize * hidden..][..hidden].copy_from_slice(y);
                    }
                }
            }
        }
        let tokens = out.par_chunks_mut(hidden).zip(by_slot.par_chunks(k * hidden)).zip(routes.weights.par_chunks(k));
        tokens.with_min_len(16).for_each(|((out, slots), weights)| {
            out.fill(0.0);
            slots.chunks_exact(hidden).zip(weights).for_each(|(y, weight)| axpy(*weight, y, out));
        });
        Ok(())
    }

    /// Fills the outputs of some visits, all in the same parallel regions.
    fn visit(&self, call: &mut ExpertsCall<'_>, k: usize, visits: &mut [Visit]) {
        self.gate_and_up(visits, call.moe.act);
        if let Some(tap) = &mut call.tap {
            for visit in visits.iter() {
                let rows: Vec<u32> = visit.slots.iter().map(|slot| slot / k as u32).collect();
                tap.expert_hidden(visit.id, &rows, &visit.g);
            }
        }
        self.down(visits);
    }

    /// Fills each visit's `g`.
    fn gate_and_up(&self, visits: &mut [Visit], act: Activation) {
        let total: usize = visits.iter().map(|v| v.slots.len()).sum();
        let mut parts: Vec<(Vec<f32>, Vec<f32>)> =
            visits.iter().map(|v| (vec![0.0; v.g.len()], vec![0.0; v.g.len()])).collect();
        let sides: Vec<[Option<Int8>; 2]> = visits
            .par_iter()
            .map(|v| [self.side(v, Proj::Gate, None), self.side(v, Proj::Up, Some(Proj::Gate))])
            .collect();
        let mut tasks = Vec::new();
        for ((visit, [first, second]), (gate, up)) in visits.iter().zip(&sides).zip(&mut parts) {
            let m = visit.slots.len();
            let x = Tokens::of(first.as_ref(), &visit.x, m);
            self.tasks(visit, (Proj::Gate, x), (gate, total), &mut tasks);
            // One rounding serves both where they have one codec.
            let x = Tokens::of(second.as_ref().or(first.as_ref()), &visit.x, m);
            self.tasks(visit, (Proj::Up, x), (up, total), &mut tasks);
        }
        tasks.into_par_iter().with_max_len(1).for_each(Task::run);
        visits.par_iter_mut().zip(parts).for_each(|(visit, (gate, up))| {
            let (width, m) = (visit.expert.layout.width, visit.slots.len());
            let mut by_token = vec![0.0; up.len()];
            transpose(&gate, width, m, &mut visit.g);
            transpose(&up, width, m, &mut by_token);
            add_bias(&visit.expert, Proj::Gate, &mut visit.g);
            add_bias(&visit.expert, Proj::Up, &mut by_token);
            activate(act, &mut visit.g, &by_token);
        });
    }

    /// Fills each visit's `y`.
    fn down(&self, visits: &mut [Visit]) {
        let total: usize = visits.iter().map(|v| v.slots.len()).sum();
        let mut parts: Vec<Vec<f32>> = visits.iter().map(|v| vec![0.0; v.y.len()]).collect();
        let sides: Vec<Option<Int8>> = visits.par_iter().map(|v| self.side(v, Proj::Down, None)).collect();
        let mut tasks = Vec::new();
        for ((visit, side), part) in visits.iter().zip(&sides).zip(&mut parts) {
            let g = Tokens::of(side.as_ref(), &visit.g, visit.slots.len());
            self.tasks(visit, (Proj::Down, g), (part, total), &mut tasks);
        }
        tasks.into_par_iter().with_max_len(1).for_each(Task::run);
        visits.par_iter_mut().zip(parts).for_each(|(visit, part)| {
            let (hidden, m) = (visit.expert.layout.hidden, visit.slots.len());
            transpose(&part, hidden, m, &mut visit.y);
            add_bias(&visit.expert, Proj::Down, &mut visit.y);
        });
    }

    /// What a visit's matrix is multiplied with, in eight bits where that is how; nothing where the rounding for the
    /// matrix `beside` serves it too.
    fn side(&self, visit: &Visit, proj: Proj, beside: Option<Proj>) -> Option<Int8> {
        if beside.is_some_and(|beside| same_codec(&visit.expert, beside, proj)) {
            return None;
        }
        let x = if proj == Proj::Down { &visit.g } else { &visit.x };
        self.rounded(&expert_view(&visit.expert, proj), x, visit.slots.len())
    }

    /// Cuts one matrix of a visit into tasks over rows; `out` is `[rows, slots]`, `total` the tokens of all visits.
    fn tasks<'a>(
        &self,
        visit: &'a Visit,
        (proj, x): (Proj, Tokens<'a>),
        (out, total): (&'a mut [f32], usize),
        tasks: &mut Vec<Task<'a>>,
    ) {
        let (rows, cols) = visit.expert.shape(proj);
        let m = visit.slots.len();
        // The visits are tasks themselves: only a share of the threads is left for each.
        let block = self.rows_per_task(rows * total.div_ceil(m), cols, m).min(rows).max(1);
        for (i, out) in out.chunks_mut(block * m).enumerate() {
            tasks.push(Task { isa: self.isa(), view: expert_view(&visit.expert, proj), first: i * block, x, m, out });
        }
    }
}

/// An expert and the flat slots that chose it.
type Use = (u32, Vec<u32>);

/// Takes out those that are here; where none is, waits for the first. Coarse on purpose: one launch for all that is
/// here, not one each.
fn arrived<'t>(waiting: &mut Vec<(Pending, &'t Use)>) -> Result<Vec<(Expert, &'t Use)>, EngineError> {
    let is_here = |pending: &Pending| match pending {
        Pending::Here(_) => true,
        Pending::Coming(arrival) => arrival.has_arrived(),
    };
    let (mut here, mut coming): (Vec<_>, Vec<_>) = std::mem::take(waiting).into_iter().partition(|(p, _)| is_here(p));
    if here.is_empty() {
        here.push(coming.remove(0));
    }
    *waiting = coming;
    let expert = |pending| match pending {
        Pending::Here(expert) => Ok(expert),
        Pending::Coming(arrival) => arrival.wait(),
    };
    here.into_iter().map(|(pending, use_of)| Ok((expert(pending)?, use_of))).collect()
}

impl Visit {
    fn new<'x>(expert: Expert, id: u32, slots: &[u32], row: impl Fn(usize) -> &'x [f32]) -> Self {
        let (m, hidden, width) = (slots.len(), expert.layout.hidden, expert.layout.width);
        let x = slots.iter().flat_map(|slot| row(*slot as usize)).copied().collect();
        Self { expert, id, slots: slots.to_vec(), x, g: vec![0.0; m * width], y: vec![0.0; m * hidden] }
    }
}

/// Whether two matrices of an expert are stored alike.
fn same_codec(expert: &Expert, a: Proj, b: Proj) -> bool {
    match (expert.part(a), expert.part(b)) {
        (Part::Coded { codec: a, .. }, Part::Coded { codec: b, .. }) => a == b,
        (Part::Dense { .. }, Part::Dense { .. }) => true,
        _ => false,
    }
}

/// Some rows of one expert's matrix.
struct Task<'a> {
    isa: Isa,
    view: View<'a>,
    first: usize,
    x: Tokens<'a>,
    m: usize,
    out: &'a mut [f32],
}

impl Task<'_> {
    fn run(self) {
        let rows = self.first..self.first + self.out.len() / self.m;
        self.x.product(self.isa, &self.view, rows, self.out);
    }
}

/// Adds a matrix's bias to each row of `x`.
fn add_bias(expert: &Expert, proj: Proj, x: &mut [f32]) {
    if let Some(bias) = expert.bias(proj) {
        x.chunks_exact_mut(bias.len()).for_each(|row| row.iter_mut().zip(&bias).for_each(|(x, b)| *x += b));
    }
}
