"""Computes reference.json: an evaluation of two made-up models, independently of the crate. Needs numpy.

python crates/gate/tests/reference.py > crates/gate/tests/reference.json
"""

import json

import numpy as np

MASK = (1 << 64) - 1
VOCAB = 23
WIDTH = 9
RESAMPLES = 2000
# Document of each row, and its length where it is shorter than WIDTH.
ROWS = [(0, 9), (0, 9), (4, 9), (1, 3), (1, 9), (2, 9), (7, 2), (0, 9), (5, 9), (5, 9), (3, 6)]


class SplitMix64:
    def __init__(self, seed):
        self.state = seed & MASK

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)


def rows():
    rng = SplitMix64(12345)
    return [[rng.next() % VOCAB for _ in range(length)] for _, length in ROWS]


def logits(window, seed):
    """[len, VOCAB]: each position's numbers depend on all ids up to it. Exact in f32."""
    out = np.zeros((len(window), VOCAB), np.float32)
    key = seed
    for position, token in enumerate(window):
        key = (key * 31 + token + 1) & MASK
        rng = SplitMix64(key)
        for v in range(VOCAB):
            out[position, v] = np.float32((rng.next() >> 40) / 2**24 * 8 - 4)
    return out


def candidate(window):
    return logits(window, 1) + np.float32(0.25) * logits(window, 2)


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def main():
    order, sums = [], {}
    nlls, argmaxes, klds = [], [], []
    for (document, _), window in zip(ROWS, rows()):
        c, r = log_softmax(candidate(window))[:-1], log_softmax(logits(window, 1))[:-1]
        target = np.array(window[1:])
        at = np.arange(len(target))
        nll_c, nll_r = -c[at, target], -r[at, target]
        kld = (np.exp(r) * (r - c)).sum(-1)
        same = c.argmax(-1) == r.argmax(-1)
        if document not in sums:
            order.append(document)
            sums[document] = np.zeros(5)
        sums[document] += [len(target), nll_c.sum(), (nll_c - nll_r).sum(), kld.sum(), same.sum()]
        pad = WIDTH - 1 - len(target)
        nlls.append(list(nll_c) + [None] * pad)
        argmaxes.append([int(a) for a in c.argmax(-1)] + [-1] * pad)
        klds += list(kld)
    table = np.array([sums[document] for document in order])
    total = table.sum(0)
    rng = SplitMix64(7)
    values = []
    for _ in range(RESAMPLES):
        drawn = [(rng.next() * len(order)) >> 64 for _ in order]
        s = table[drawn].sum(0)
        values.append(s[1:] / s[0])
    low, high = np.percentile(np.array(values), [2.5, 97.5], axis=0)
    interval = lambda m: [low[m], high[m]]
    print(json.dumps({
        "seed": 7,
        "nll": total[1] / total[0], "nll_interval": interval(0),
        "tokens": int(total[0]), "windows": len(ROWS), "documents": len(order),
        "dnll": total[2] / total[0], "dnll_interval": interval(1),
        "kld": total[3] / total[0], "kld_interval": interval(2),
        "kld_p99": float(np.percentile(klds, 99)),
        "top1": total[4] / total[0], "top1_interval": interval(3),
        "per_token_nll": nlls, "per_token_argmax": argmaxes,
    }, indent=1))


main()
