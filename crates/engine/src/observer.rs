//! [`Observer`]: what a caller may see while the model computes.

/// The router's choice for some tokens.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Routes {
    /// Experts a token.
    pub k: usize,
    /// `[n, k]`, each token's experts by falling combine weight (then by falling index of choice).
    pub ids: Vec<u32>,
    /// `[n, k]` combine weights: what each expert's output is multiplied by.
    pub weights: Vec<f32>,
}

impl Routes {
    /// Tokens.
    pub fn tokens(&self) -> usize {
        self.ids.len() / self.k.max(1)
    }

    /// Every expert that some token chose, by index.
    pub fn needed(&self) -> Vec<u32> {
        let mut ids = self.ids.clone();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// `(slot, weight)` lists by expert: for each expert of `experts` that some token chose, in expert order, the flat
    /// slots `t * k + s` that hold it.
    pub fn by_expert(&self, experts: usize) -> Vec<(u32, Vec<u32>)> {
        let mut slots = vec![Vec::new(); experts];
        for (slot, &id) in (0u32..).zip(&self.ids) {
            slots[id as usize].push(slot);
        }
        (0u32..).zip(slots).filter(|(_, s)| !s.is_empty()).collect()
    }
}

/// Which events an observer asks for; each costs a copy off the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wants {
    /// [`Observer::hidden`].
    pub hidden: bool,
    /// [`Observer::router`].
    pub router: bool,
    /// [`Observer::moe_input`].
    pub moe_input: bool,
    /// [`Observer::expert_hidden`].
    pub expert_hidden: bool,
}

/// Where an event happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// Decoder layer.
    pub layer: usize,
    /// Position of the first token.
    pub start: usize,
}

/// Sees the forward pass; the events of a chunk come in layer order.
pub trait Observer: Send {
    /// What to report.
    fn wants(&self) -> Wants;
    /// The residual stream `[n, hidden]`: `at.layer` 0 is what enters layer 0, i + 1 what leaves layer i.
    fn hidden(&mut self, at: At, x: &[f32]) {
        let _ = (at, x);
    }
    /// The router's choice in a layer with experts.
    fn router(&mut self, at: At, routes: &Routes) {
        let _ = (at, routes);
    }
    /// What enters the router and the experts `[n, hidden]` (after the norm).
    fn moe_input(&mut self, at: At, x: &[f32]) {
        let _ = (at, x);
    }
    /// `g = act(gate x, up x)` `[rows.len(), width]` of the tokens `rows` (indices within the chunk) routed to `expert`.
    fn expert_hidden(&mut self, at: At, expert: u32, rows: &[u32], g: &[f32]) {
        let _ = (at, expert, rows, g);
    }
}

/// Sees nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {
    fn wants(&self) -> Wants {
        Wants::default()
    }
}

/// Keeps the residual stream and the choices of a run, as golden files hold them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    /// By entry (0 = what enters layer 0): `[tokens, hidden]`.
    pub hidden: Vec<Vec<f32>>,
    /// By layer with experts, in layer order: the layer and its choices.
    pub routes: Vec<(usize, Routes)>,
}

impl Observer for Recording {
    fn wants(&self) -> Wants {
        Wants { hidden: true, router: true, ..Wants::default() }
    }

    fn hidden(&mut self, at: At, x: &[f32]) {
        if self.hidden.len() <= at.layer {
            self.hidden.resize_with(at.layer + 1, Vec::new);
        }
        self.hidden[at.layer].extend_from_slice(x);
    }

    fn router(&mut self, at: At, routes: &Routes) {
        let i = self.routes.iter().position(|(layer, _)| *layer == at.layer).unwrap_or_else(|| {
            self.routes.push((at.layer, Routes { k: routes.k, ..Routes::default() }));
            self.routes.len() - 1
        });
        self.routes[i].1.ids.extend_from_slice(&routes.ids);
        self.routes[i].1.weights.extend_from_slice(&routes.weights);
    }
}
