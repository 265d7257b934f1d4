//! [`Watch`]: an observer that keeps what enters the experts of one layer and whom the router chose, for one text.

use smoe_engine::Observer;
use smoe_engine::observer::{At, Routes, Wants};

/// What the experts of a layer see of one text.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// `[tokens, hidden]`, after the norm.
    pub(crate) inputs: Vec<f32>,
    /// The router's choice.
    pub(crate) routes: Routes,
}

impl Observer for Watch {
    fn wants(&self) -> Wants {
        Wants { moe_input: true, router: true, ..Wants::default() }
    }

    fn moe_input(&mut self, _: At, x: &[f32]) {
        self.inputs.extend_from_slice(x);
    }

    fn router(&mut self, _: At, routes: &Routes) {
        self.routes.k = routes.k;
        self.routes.ids.extend_from_slice(&routes.ids);
        self.routes.weights.extend_from_slice(&routes.weights);
    }
}
