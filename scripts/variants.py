#!/usr/bin/env python3
"""Many tiny checkpoints of every family, made with `transformers`, and what smoe says of each: the reference's logits,
or a refusal.

    cargo build --release -p smoe-cli
    python scripts/variants.py --cases 60 [--family deepseek_v3] [--seed 1] [--json report.json]

Needs torch, transformers and safetensors. Each case is a folder: one option of `variants/options.py` (first), a key of
config.json that is removed, null or changed (then), or several options at once (the rest: those that are neither
refused alone nor too much for the reference), saved in one of the layouts that the library writes, in one file or in
shards, in f32, bf16 or f16, with a config.json of the present or the older generation. The reference loads the folder
in f32 with eager kernels.

right      the largest difference is within 1e-4 of the largest logit, the most likely token is the same
refused    exit code 2
WRONG      anything else; then this exits with 1

A folder that the reference does not load (or not all of: weights missing) is no case, and neither is one whose logits
move by themselves where the embedding moves by 1e-6: there a choice of experts is a tie.
"""
import argparse
import collections
import copy
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "variants"))
sys.dont_write_bytecode = True
import torch  # noqa: E402
import transformers  # noqa: E402
from options import FAMILIES, OLD_NAMES, T, UNIT_OFFSET, VISION  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity(50)
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)
BOUND = 1e-4
BEFORE_5 = transformers.__version__ < "5"  # Experts one tensor each, configs of the older generation.


class NoCase(Exception):
    """The reference has no answer."""


def version(text):
    return [int(part) for part in re.findall(r"\d+", text)[:2]]


def options(family):
    """Changes by name."""
    return {name: change for table in FAMILIES[family][1] for name, change in table.items()}


def config_of(family, change):
    plain = {**FAMILIES[family][0], **change}
    plain = copy.deepcopy({k: v for k, v in plain.items() if not k.startswith("+")})  # The library writes into it.
    if BEFORE_5:
        older(family, plain)
    if family != "qwen3_5_moe":
        return transformers.AutoConfig.for_model(family, **plain)
    if "+wrap" not in change:
        return transformers.AutoConfig.for_model("qwen3_5_moe_text", **plain)
    tied = plain.get("tie_word_embeddings", False)
    vision = {**VISION, "out_hidden_size": plain["hidden_size"]}
    return transformers.AutoConfig.for_model("qwen3_5_moe", text_config=plain, vision_config=vision,
                                             tie_word_embeddings=tied, image_token_id=121, video_token_id=122,
                                             vision_start_token_id=123, vision_end_token_id=124)


def auto(config):
    return transformers.AutoModelForImageTextToText if "vision_config" in config else transformers.AutoModelForCausalLM


def draw(name, shape, family, gen):
    """Weights of a size at which everything shows."""
    normal = torch.randn(shape, generator=gen)
    uniform = torch.rand(shape, generator=gen)
    last = name.rsplit(".", 1)[-1]
    if "norm" in name and last == "weight":
        offset = 0.0 if family in UNIT_OFFSET and "linear_attn" not in name else 1.0
        return offset + 0.6 * (uniform - 0.5)
    if last in ("A_log", "dt_bias"):
        return 3.0 * uniform - 2.0
    if last in ("e_score_correction_bias", "expert_bias"):
        return 0.15 * normal
    if last == "sinks":
        return normal
    if last.endswith("bias"):
        return 0.3 * normal
    if "conv" in name and len(shape) == 3:
        return 0.6 * normal
    if "embed_tokens" in name:
        return normal
    stored_in_out = family == "gpt_oss" and len(shape) == 3
    gain = 3.0 if "lm_head" in name else 1.6
    return normal * gain / max(shape[1] if stored_in_out else shape[-1], 1) ** 0.5


def build(family, case, folder):
    """Writes the folder."""
    change = case["change"]
    config = config_of(family, change)
    model = auto(config.to_dict()).from_config(config)
    gen = torch.Generator().manual_seed(case["seed"])
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if name in model.state_dict():
                tensor.copy_(draw(name, tuple(tensor.shape), family, gen))
    layout = {} if BEFORE_5 else {"save_original_format": case["layout"] == "published"}
    shard = "5GB" if "+mtp" in change else case["shard"]
    model.to(getattr(torch, case["dtype"])).save_pretrained(folder, max_shard_size=shard, **layout)
    path = os.path.join(folder, "config.json")
    with open(path) as f:
        saved = json.load(f)
    if change.get("+mtp"):
        add_mtp(folder, change["+mtp"], saved, gen)
    text = saved.get("text_config", saved)
    if case["generation"] == "older" and not BEFORE_5:
        older(family, text)
    if case["edit"]:
        edit(text, case["edit"])
    write(path, saved)
    return saved


def write(path, value):
    with open(path, "w") as f:
        json.dump(value, f, indent=1)


def older(family, config):
    """As configs were before `rope_parameters`."""
    rope = config.pop("rope_parameters", None) or {}
    config["rope_theta"] = rope.pop("rope_theta", None)
    if "partial_rotary_factor" in rope:
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        if family == "minimax_m2":
            config["rotary_dim"] = int(config["partial_rotary_factor"] * config["head_dim"])
    kind = rope.pop("rope_type", "default")
    rope.pop("type", None)
    config["rope_scaling"] = None if kind == "default" else {"type": kind, **rope}
    if "dtype" in config:
        config["torch_dtype"] = config.pop("dtype")
    for new, old in OLD_NAMES.get(family, {}).items():
        if new in config:
            config[old] = config.pop(new)


def add_mtp(folder, count, config, gen):
    """Prediction layers as releases carry them: copies of the last layer, and what joins two streams."""
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    config = config.get("text_config", config)
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    dtype = tensors[next(n for n in tensors if n.endswith("embed_tokens.weight"))].dtype

    def new(*shape):
        return torch.randn(shape, generator=gen).to(dtype)
    last = {n: t for n, t in tensors.items() if f"layers.{layers - 1}." in n}
    for i in range(count):
        if "num_nextn_predict_layers" in config:
            to = f"model.layers.{layers + i}."
            tensors |= {to + "eh_proj.weight": new(hidden, 2 * hidden), to + "enorm.weight": new(hidden),
                        to + "shared_head.head.weight": new(config["vocab_size"], hidden)}
        else:
            ernie = "moe_layer_start_index" in config
            to = f"model.mtp_block.{i}." if ernie else f"mtp.layers.{i}."
            tensors |= {("model.mtp_linear_proj.0.weight" if ernie else "mtp.fc.weight"): new(hidden, 2 * hidden)}
        tensors |= {to + n.split(f"layers.{layers - 1}.")[1]: t.clone() for n, t in last.items()}
    save_file(tensors, path, metadata={"format": "pt"})


def edit(config, what):
    """Removes, nulls or changes the key that a number picks."""
    kind, pick = what
    keys = sorted(k for k in config if k not in ("model_type", "architectures", "transformers_version"))
    key = keys[pick % len(keys)]
    value = config[key]
    if isinstance(value, dict) and value and (kind == "change" or pick % 3):
        edit(value, what)
    elif kind == "remove":
        del config[key]
    elif kind == "null":
        config[key] = None
    elif isinstance(value, bool):
        config[key] = not value
    elif isinstance(value, int):
        config[key] = value + 1
    elif isinstance(value, float):
        config[key] = value * 1.5 + 1e-4
    elif isinstance(value, list) and value:
        config[key] = value[::-1]
    else:
        raise NoCase("nothing to change")
    what.append(key)


def reference(folder, ids, config):
    """Logits of the folder, and whether they are sure."""
    eager = {"attn_implementation": "eager"} | ({} if BEFORE_5 else {"experts_implementation": "eager"})
    model, info = auto(config).from_pretrained(folder, dtype=torch.float32, output_loading_info=True, **eager)
    if info["missing_keys"] or info["mismatched_keys"]:
        raise NoCase("weights are missing")
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=ids[None], use_cache=False).logits[0]
        noise = torch.randn(model.get_input_embeddings().weight.shape, generator=torch.Generator().manual_seed(0))
        model.get_input_embeddings().weight.mul_(1 + 1e-6 * noise)
        moved = model(input_ids=ids[None], use_cache=False).logits[0]
    if not logits.isfinite().all():
        raise NoCase("logits are not finite")
    return logits, distance(moved, logits) <= BOUND


def distance(a, b):
    return float((a - b).abs().max() / b.abs().max())


def smoe(binary, folder, ids, chunk):
    """(logits, None) or (None, (exit code, what it said))."""
    out = os.path.join(folder, "out.safetensors")
    args = [binary, "logits", folder, "--ids", ",".join(map(str, ids.tolist())), "-o", out, "--gpu", "off"]
    args += ["--chunk", str(chunk)] if chunk else []
    done = subprocess.run(args, capture_output=True, text=True, timeout=120)
    if done.returncode == 0:
        return load_file(out)["logits"].float(), None
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return None, (done.returncode, " ".join(said[-2:] if len(said) > 1 else said))


def judge(binary, family, case, folder):
    """Fills in `verdict` and what goes with it."""
    if version(case["change"].get("+since", "0")) > version(transformers.__version__):
        raise NoCase("not in this version")
    config = build(family, case, folder)
    ids = torch.tensor(random.Random(case["seed"]).choices(range(8, 121), k=T))
    want, sure = reference(folder, ids, config)
    if not sure:
        raise NoCase("a tie")
    if "+model_type" in case["change"]:
        write(os.path.join(folder, "config.json"), {**config, "model_type": case["change"]["+model_type"]})
    got, refusal = smoe(binary, folder, ids, case["chunk"])
    if refusal:
        code, case["reason"] = refusal
        case["verdict"] = "refused" if code == 2 else "WRONG"
        return
    gap = want.topk(2).values
    clear = (gap[:, 0] - gap[:, 1]) > 2 * BOUND * want.abs().max()
    same = bool((got.argmax(-1) == want.argmax(-1))[clear].all()) if got.shape == want.shape else False
    case["difference"] = distance(got, want) if got.shape == want.shape else None
    good = case["difference"] is not None and case["difference"] <= BOUND and same
    case["verdict"] = "right" if good else "WRONG"


def plan(family, seed, spent):
    """Cases without end: each option alone, keys of the config, options together but for the `spent` ones."""
    rng = random.Random(f"{family} {seed}")
    all_options = options(family)

    def case(name, change, what=None):
        return {"family": family, "name": name, "change": change, "edit": what, "seed": rng.randrange(1 << 30),
                "layout": rng.choice(["published", "published", "stacked"]),
                "shard": rng.choice(["5GB", "5GB", "40KB"]),
                "dtype": rng.choice(["float32", "bfloat16", "float16"]),
                "generation": rng.choice(["present", "present", "older"]), "chunk": rng.choice([None, None, 1, 7])}
    for name, change in all_options.items():
        yield case(name, change)
    while True:
        for kind in ("remove", "null", "change"):
            name = rng.choice(["plain", rng.choice(sorted(all_options.keys() - spent))])
            yield case(f"{name}, {kind} a key", all_options[name], [kind, rng.randrange(1 << 20)])
        for _ in range(3):
            names = rng.sample(sorted(all_options.keys() - spent), rng.randint(2, 4))
            merged = {}
            for name in names:
                merged |= all_options[name]
            yield case(" + ".join(names), merged)


def run(family, args):
    cases, none, spent = [], collections.Counter(), set()
    for case in plan(family, args.seed, spent):
        if len(cases) == args.cases:
            break
        with tempfile.TemporaryDirectory() as folder:
            try:
                judge(args.smoe, family, case, os.path.join(folder, "case"))
            except NoCase as why:
                none[str(why)] += 1
                spent.add(case["name"])
                continue
            except Exception as error:  # What the library does with a config that it does not take differs by place.
                none["the reference fails"] += 1
                spent.add(case["name"])
                if args.verbose:
                    print(f"  no case {family}: {case['name']}: {type(error).__name__} {str(error)[:150]!r}")
                continue
        if case["verdict"] == "refused":
            spent.add(case["name"])
        if case["edit"]:
            case["name"] += ": " + ".".join(reversed(case["edit"][2:]))
        cases.append(case)
        if case["verdict"] == "WRONG" or args.verbose:
            print(f"  {case['verdict']} {family}: {case['name']} ({case['layout']}, {case['dtype']}, "
                  f"shards of {case['shard']}, {case['generation']}, chunk {case['chunk']}, seed {case['seed']}): "
                  f"{case.get('reason') or case.get('difference')}", flush=True)
    return cases, none


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", action="append", choices=list(FAMILIES), help="only this one (may be repeated)")
    parser.add_argument("--cases", type=int, default=60, help="cases a family [60]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--smoe", default="target/release/smoe", help="the program [target/release/smoe]")
    parser.add_argument("--json", help="write all cases to this file")
    parser.add_argument("--verbose", action="store_true", help="print every case")
    args = parser.parse_args()
    report = {"transformers": transformers.__version__, "torch": torch.__version__, "seed": args.seed, "cases": []}
    rows, reasons = [], collections.Counter()
    for family in args.family or FAMILIES:
        if family not in transformers.CONFIG_MAPPING:
            print(f"{family}: not in transformers {transformers.__version__}")
            continue
        cases, none = run(family, args)
        report["cases"] += cases
        verdicts = collections.Counter(case["verdict"] for case in cases)
        largest = max((c["difference"] for c in cases if c["verdict"] == "right"), default=0.0)
        rows.append(f"| {family} | {len(cases)} | {verdicts['right']} | {verdicts['refused']} | {verdicts['WRONG']} | "
                    f"{largest:.0e} | {sum(none.values())} |")
        print(rows[-1], dict(none), flush=True)
        reasons.update(re.sub(r"^error: (\S*/case: )?", "", c["reason"]) for c in cases if c["verdict"] == "refused")
    print(f"\ntransformers {transformers.__version__}, seed {args.seed}\n")
    print("| family | cases | right | refused | wrong | largest difference | no case |\n|---|---|---|---|---|---|---|")
    print("\n".join(rows))
    print("\nrefused:")
    for reason, count in reasons.most_common():
        print(f"{count:4} {reason[:220]}")
    if args.json:
        write(args.json, report)
    return any(case["verdict"] == "WRONG" for case in report["cases"])


if __name__ == "__main__":
    sys.exit(main())
