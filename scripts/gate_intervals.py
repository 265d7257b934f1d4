#!/usr/bin/env python3
"""Computes every figure and interval of a gate's report again, from its sums by document. Plain Python 3, no packages.

    smoe gate CANDIDATE --reference CHECKPOINT --text FILE --json > report.json
    python3 scripts/gate_intervals.py report.json

Shares nothing with the program but the definition in docs/measuring.md. Exit code 0: they agree within rounding.
"""

import json
import math
import sys

MASK = (1 << 64) - 1
# Sums of a few thousand terms in f64, in another order.
TOLERANCE = 1e-9


def splitmix64(state):
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def percentile(values, q):
    """By linear interpolation, as numpy.percentile does unless told otherwise."""
    values = sorted(values)
    place = q / 100 * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def draws(documents, seed, resamples):
    """How often each resample holds each document; the same for all figures."""
    random = splitmix64(seed & MASK)
    counts = []
    for _ in range(resamples):
        count = [0] * documents
        for _ in range(documents):
            count[(next(random) * documents) >> 64] += 1
        counts.append(count)
    return counts


def interval(sums, tokens, counts):
    if len(sums) < 2:
        return None
    values = []
    for count in counts:
        over = math.fsum(n * s for n, s in zip(count, sums) if n)
        values.append(over / sum(n * t for n, t in zip(count, tokens) if n))
    return [percentile(values, 2.5), percentile(values, 97.5)]


class Comparison:
    def __init__(self):
        self.compared, self.worst, self.wrong = 0, 0.0, 0

    def number(self, name, own, theirs):
        if own is None or theirs is None:
            apart = 0.0 if own is theirs else math.inf
        else:
            apart = abs(own - theirs) / max(1.0, abs(own))
        self.compared += 1
        self.worst = max(self.worst, apart)
        if not apart <= TOLERANCE:
            self.wrong += 1
            print(f"{name}: the report says {theirs}, computed again {own}")

    def figure(self, name, part, key, sums, tokens, counts):
        self.number(f"{name} {key}", math.fsum(sums) / sum(tokens), part[key])
        own = interval(sums, tokens, counts) or [None, None]
        theirs = part[f"{key}_interval"] or [None, None]
        for end, a, b in zip(["low", "high"], own, theirs):
            self.number(f"{name} {key} {end}", a, b)
        if own[0] is not None:
            print(f"{name:<18}{key:<6}{math.fsum(sums) / sum(tokens):+.6f} [{own[0]:+.6f}, {own[1]:+.6f}]")


def main():
    report = json.load(open(sys.argv[1]) if len(sys.argv) > 1 else sys.stdin)
    documents = report["documents"]
    tokens = [it["tokens"] for it in documents]
    reference = [it["reference_nll"] for it in documents]
    bootstrap = report["bootstrap"]
    counts = draws(len(documents), bootstrap["seed"], bootstrap["resamples"])
    found = Comparison()
    found.number("reference nll", math.fsum(reference) / sum(tokens), report["reference"]["nll"])
    found.number("tokens", sum(tokens), report["text"]["tokens"])
    columns = {}
    for arm in ["candidate", "baseline", "given"]:
        part = report[arm]
        if part is None or part.get("nll") is None:
            continue
        nll, kld, same = ([it[arm][key] for it in documents] for key in ["nll", "kld", "same"])
        columns[arm] = {"nll": nll, "kld": kld, "top1": same}
        figures = {**columns[arm], "dnll": [a - b for a, b in zip(nll, reference)]}
        for key, sums in figures.items():
            found.figure(arm, part, key, sums, tokens, counts)
        found.number(f"{arm} flips", sum(tokens) - sum(same), part["flips"])
    for arm, key in [("baseline", "difference"), ("given", "given_difference")]:
        if report[key] is None:
            continue
        for metric in ["nll", "kld", "top1"]:
            sums = [a - b for a, b in zip(columns["candidate"][metric], columns[arm][metric])]
            found.figure(f"less {arm}", report[key], metric, sums, tokens, counts)
    print(f"{found.compared} numbers, {found.wrong} differ; the largest relative difference is {found.worst:.1e}")
    return 1 if found.wrong or found.compared < 6 else 0


sys.exit(main())
