#!/usr/bin/env python3
"""Makes crates/quantize/tests/golden/calibrate.json: a tiny layer, and what the prototype of the recipe gives for it.

Needs torch, safetensors and the prototype: SMOE_SHARED=../shared python scripts/calibrate_fixture.py
Inputs are stored as integers over 64, so that every reader has the same floats.
"""
import json
import os
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
SHARED = os.environ.get("SMOE_SHARED", os.path.join(ROOT, "..", "shared"))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(SHARED, "recipe"))
import torch  # noqa: E402
from calibrate import Codec, calibrate, solve  # noqa: E402

EXPERTS, TOP_K, HIDDEN, WIDTH, TOKENS = 4, 2, 128, 64, 192
torch.manual_seed(11)


def whole(values, scale):
    """Rounded to integers: what the file holds; over 64 they are what is computed with."""
    return (values * scale).round().clamp(-2000, 2000)


def inputs():
    """Correlated inputs with a few loud channels; the second stream differs a little. The last channel is dead."""
    mix = torch.randn(HIDDEN, HIDDEN) / HIDDEN**0.5 + torch.eye(HIDDEN)
    loud = 0.3 + torch.rand(HIDDEN) ** 3 * 3
    x = whole(torch.randn(TOKENS, HIDDEN) @ mix * loud, 64)
    x[:, -1] = 0
    f = (x + whole(torch.randn(TOKENS, HIDDEN) * 0.1, 64)) * (x != 0)
    return x, f


x, f = inputs()
gate, up = (whole(torch.randn(EXPERTS, WIDTH, HIDDEN) * 0.12, 64) for _ in range(2))
down = whole(torch.randn(EXPERTS, HIDDEN, WIDTH) * 0.15, 64)
# The last expert gets no token; the one before few.
score = torch.randn(TOKENS, EXPERTS) + torch.tensor([1.0, 1.0, -0.5, -99.0])
weights, ids = (score * 0.7).softmax(-1).topk(TOP_K, -1)
weights = whole(weights / weights.sum(-1, keepdim=True), 64).clamp_min(1)


class Layer:
    """One layer in the shape of the prototype's model: `pre` hands out the two streams in turn."""

    L, E, k, H, I, first, ds = 1, EXPERTS, TOP_K, HIDDEN, WIDTH, 0, False
    ex = {0: {"gate": gate / 64, "up": up / 64, "down": down / 64}}

    def __init__(self):
        self.calls = 0

    def embed(self, ids):
        return torch.zeros(1, TOKENS, HIDDEN)

    def pre(self, i, h):
        self.calls += 1
        return h, (x if self.calls == 1 else f)[None] / 64

    def route(self, i, z):
        return weights / 64, ids

    def moe(self, i, y, ex):
        return torch.zeros_like(y)


PLAIN = dict(kappa=0, lam=0.01, pw=0, shared_gu=True, cd=False, refit=False, iters=0)
RECIPE = dict(kappa=3.0, lam=0.03)
CORRECTED = dict(kappa=3.0, lam=0.1, asym=0.5, pw=0.5)


class Kept(Codec):
    """The prototype's codec; keeps codes and scales, in the order gate, up, down."""

    def solve(self, W, H, r):
        q, levels, scales = solve(W, H, self.name, iters=r["iters"], sweeps=r["sweeps"], cdon=r["cd"], refiton=r["refit"])
        m = (2 ** int(self.name[1]) - 1) / 2
        codes = (levels * m + m).round().long().flatten().tolist()
        self.kept = getattr(self, "kept", []) + [{"codes": "".join(f"{c:x}" for c in codes), "scales": scales.flatten().tolist()}]
        return q


def solved(name, recipe):
    codec = Kept(name)
    calibrate(Layer(), torch.zeros(1, TOKENS, dtype=torch.long), codec, recipe)
    return codec.kept


def integers(t):
    return [int(v) for v in t.flatten().tolist()]


golden = {"experts": EXPERTS, "top_k": TOP_K, "hidden": HIDDEN, "width": WIDTH, "tokens": TOKENS}
golden |= {"x": integers(x), "reference": integers(f), "ids": integers(ids), "gates": integers(weights)}
golden |= {"gate": integers(gate), "up": integers(up), "down": integers(down)}
golden["solved"] = {"recipe q2": solved("q2", RECIPE), "corrected q2": solved("q2", CORRECTED)}
golden["solved"]["recipe q4"] = solved("q4", RECIPE)
# Plain GPTQ has no solution for an expert without tokens: its down statistic is zero. Such experts are left out.
Layer.E = EXPERTS - 1
Layer.ex = {0: {k: v[:-1] for k, v in Layer.ex[0].items()}}
golden["solved"]["plain q2"] = solved("q2", PLAIN)
path = os.path.join(ROOT, "crates", "quantize", "tests", "golden", "calibrate.json")
with open(path, "w", encoding="utf-8") as file:
    json.dump(golden, file, separators=(",", ":"))
    file.write("\n")
print(os.path.getsize(path), "bytes,", torch.bincount(ids.flatten(), minlength=EXPERTS).tolist(), "tokens by expert")
