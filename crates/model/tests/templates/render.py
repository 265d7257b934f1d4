"""Renders the cases below with the reference renderer (Jinja2 as `transformers` sets it up) and encodes the prompts
with the reference tokenizer. Needs transformers and tokenizers.

python crates/model/tests/templates/render.py > crates/model/tests/templates/cases.json

With a folder of other templates (`*.jinja`), all conversations in each of them:

python crates/model/tests/templates/render.py FOLDER > FOLDER/cases.json
SMOE_TEMPLATES=FOLDER cargo test --release -p smoe-model --test chat_templates prompts
"""

import datetime
import json
import pathlib
import sys

import jinja2
from tokenizers import Tokenizer
from transformers.utils.chat_template_utils import _compile_jinja_template

HERE = pathlib.Path(__file__).parent
DEMO = HERE.parents[3] / "demo/moe-3m-qwen3/tokenizer.json"
NOW = datetime.datetime(2026, 2, 3, 4, 5, 6)  # 1770091506 seconds since 1970, UTC.


def token(content, special=True, **flags):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": special, **flags}


TOKENS = {
    "thinking": [token("<think>", False), token("</think>", False), token("<tool_call>", False),
                 token("</tool_call>", False), token("<tool_response>", False), token("</tool_response>", False)],
    "fullwidth": [token(t) for t in ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>",
                                     "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
                                     "<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "<｜tool▁output▁begin｜>",
                                     "<｜tool▁output▁end｜>", "<｜tool▁outputs▁end｜>"]]
    + [token("<think>", False), token("</think>", False)],
    "instruct": [token(t) for t in ["<s>", "</s>", "[INST]", "[/INST]"]],
    "joined": [token("<s>"), token("</s>"), token("<|user|>"), token("<|system|>", rstrip=True),
               token("<|assistant|>", rstrip=True), token("<|end|>", rstrip=True)],
    "dated": [token(t) for t in ["<|begin|>", "<|start_header|>", "<|end_header|>", "<|turn_end|>", "<|image|>"]],
    "channels": [token(t) for t in ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|call|>", "<|return|>"]],
    "tagged": [token(t) for t in ["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"]]
    + [token(t, False) for t in ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>",
                                 "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "/nothink"]],
    "declared": [token(t) for t in ["<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|calls_begin|>",
                                    "<|calls_end|>", "<|call_begin|>", "<|call_end|>", "<|arguments_begin|>"]]
    + [token("<think>", False), token("</think>", False)],
    "roles": [token(t) for t in ["<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "<|tool_call|>"]],
    "parameters": [token(t) for t in ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]]
    + [token(t, False) for t in ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>",
                                 "</tool_response>"]],
}
SPECIAL = {
    "thinking": {"eos_token": "<|im_end|>"},
    "fullwidth": {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"},
    "instruct": {"bos_token": "<s>", "eos_token": "</s>"},
    "joined": {"bos_token": "<s>", "eos_token": "</s>"},
    "dated": {"bos_token": "<|begin|>", "eos_token": "<|turn_end|>"},
    "channels": {"eos_token": "<|return|>"},
    "tagged": {"eos_token": "<|endoftext|>"},
    "declared": {"eos_token": "<|im_end|>"},
    "roles": {"eos_token": "<|end_of_text|>"},
    "parameters": {"eos_token": "<|im_end|>"},
}


def m(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


TOOLS = [{"type": "function", "function": {
    "name": "tide", "description": "When is the tide? <high> & 'low' \u00e9\u4e2d",
    "parameters": {"type": "object", "properties": {"port": {"type": "string", "enum": ["Brest", "K\u00f8benhavn"]},
                                                    "days": {"type": "integer", "default": 1.0},
                                                    "far": {"default": 1e-07}, "deep": {"default": 1e16}},
                   "required": ["port"], "additionalProperties": False, "minimum": None, "empty": [], "none": {}}}}]
TURNS = [m("system", "You are the sea."), m("user", "Who are you?"), m("assistant", "  Water.\n"), m("user", "Deep?")]

# Conversations for every template with tools and thinking; the first three are for all of them.
ARGUMENTS = {"port": "Brest <b> 'x' \u00e9", "days": 2, "ports": ["a", {"b": None}], "deep": 1.5, "far": True}
LOOK = m("assistant", "I look.", reasoning_content="\nwhich port?\n", tool_calls=[call("tide", ARGUMENTS)])
CONVERSATIONS = [
    ("one question", dict(messages=[m("user", "Hello there, sea.\n\n")])),
    ("several turns", dict(messages=TURNS)),
    ("no answer opened", dict(messages=TURNS[:3], add_generation_prompt=False)),
    ("thinking off", dict(messages=TURNS, enable_thinking=False, thinking=False)),
    ("thinking on", dict(messages=TURNS, enable_thinking=True, thinking=True)),
    ("tools", dict(messages=TURNS, tools=TOOLS)),
    ("tools without a system text", dict(messages=TURNS[1:2], tools=TOOLS, thinking=True, reasoning_effort="high")),
    ("old thoughts", dict(messages=[m("user", "a"), m("assistant", "<think>\nhm\n</think>\n\nWater."), m("user", "b")])),
    ("thoughts after the question", dict(messages=[m("user", "a"), m("assistant", "Salt.", reasoning_content="taste\n")],
                                         add_generation_prompt=False)),
    ("a call and its result", dict(tools=TOOLS, messages=[
        m("system", "Be brief."), m("user", "When?"), LOOK, m("tool", "06:12 & 18:40", tool_call_id="c1", name="tide")])),
    ("calls answered", dict(tools=TOOLS, enable_thinking=False, messages=[
        m("user", "When?"), m("assistant", "", tool_calls=[call("tide", {"port": "Brest"}), call("now", {})]),
        m("tool", "06:12", tool_call_id="c1"), m("tool", "{\"time\": null}", tool_call_id="c2"), m("assistant", "At six."),
        m("user", "Thanks.")])),
    ("parts", dict(messages=[m("user", [{"type": "text", "text": "See "}, {"type": "text", "text": "this"}])])),
]
SCHEMAS = [{"type": "function", "function": {"name": "swim", "description": "Swim there.", "parameters": {
    "type": "object", "required": ["to"], "properties": {
        "to": {"type": "object", "required": ["lat"], "properties": {"lat": {"type": "number"}, "name": {"type": "string"}}},
        "via": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "description": "In order"},
        "speed": {"oneOf": [{"type": "integer", "default": 3}, {"type": "string"}]}, "flags": {"type": ["string", "null"]},
        "deep": {"type": "boolean", "default": False}}}}},
    {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}}]

CASES = [
    ("thinking", "one question", dict(messages=[m("user", "Hello there, sea.\n\n")])),
    ("thinking", "several turns", dict(messages=TURNS)),
    ("thinking", "thinking off", dict(messages=TURNS, enable_thinking=False)),
    ("thinking", "thinking on", dict(messages=TURNS, enable_thinking=True)),
    ("thinking", "no answer opened", dict(messages=TURNS[:3], add_generation_prompt=False)),
    ("thinking", "old thoughts are cut", dict(messages=[m("user", "a"), m("assistant", "<think>\nhm\n</think>\n\nWater."),
                                                        m("user", "b")])),
    ("thinking", "thoughts after the question stay", dict(
        messages=[m("user", "a"), m("assistant", "<think>\nhm\n</think>\n\nWater.")], add_generation_prompt=False)),
    ("thinking", "thoughts apart", dict(messages=[m("user", "a"), m("assistant", "Salt.", reasoning_content="taste\n")],
                                        add_generation_prompt=False)),
    ("thinking", "tools", dict(messages=TURNS, tools=TOOLS)),
    ("thinking", "calls and results", dict(tools=TOOLS, messages=[
        m("user", "When?"), m("assistant", "I look.", tool_calls=[call("tide", {"port": "Brest <b> 'x' \u00e9", "days": 2}),
                                                                  call("tide", '{"port": "raw"}')]),
        m("tool", "06:12 & 18:40"), m("tool", "{\"time\": null}"), m("assistant", "At six."), m("user", "Thanks.")])),
    ("thinking", "a result as a user turn", dict(messages=[
        m("user", "When?"), m("assistant", "", tool_calls=[call("tide", {})]),
        m("user", "<tool_response>\n06:12\n</tool_response>"), m("assistant", "<think>\nso\n</think>\n\nSix.")],
        add_generation_prompt=False)),
    ("fullwidth", "several turns", dict(messages=TURNS)),
    ("fullwidth", "two system texts", dict(messages=[m("system", "A"), m("system", "B"), m("user", "c")])),
    ("fullwidth", "old thoughts are cut", dict(messages=[m("user", "a"), m("assistant", "<think>hm</think>Water."),
                                                         m("user", "b")])),
    ("fullwidth", "calls", dict(messages=[
        m("user", "When?"), m("assistant", None, tool_calls=[call("tide", "{\"port\": \"Brest\"}"), call("tide", "{}")]),
        m("tool", "06:12"), m("assistant", "Six.")])),
    ("instruct", "several turns", dict(messages=TURNS)),
    ("instruct", "one question", dict(messages=[m("user", "Hi ")])),
    ("joined", "several turns", dict(messages=TURNS)),
    ("joined", "no answer opened", dict(messages=TURNS[:3], add_generation_prompt=False)),
    ("dated", "several turns", dict(messages=TURNS)),
    ("dated", "tools and effort", dict(messages=TURNS, tools=TOOLS, reasoning_effort="high")),
    ("dated", "parts", dict(messages=[m("user", [{"type": "text", "text": "See "}, {"type": "image", "image": "x"},
                                                 {"type": "text", "text": "this"}]), m("developer", "skip me")])),
    ("dated", "no content", dict(messages=[m("user", None), m("user", 7), m("user", 7.0), m("user", True)])),
    ("channels", "types", dict(messages=TURNS, tools=SCHEMAS, model_identity="The sea.")),
    ("channels", "thoughts before a call", dict(tools=SCHEMAS, messages=[
        m("user", "When?"), m("assistant", None, thinking="which?", tool_calls=[call("now", {})]), m("tool", "6 \"am\"")])),
    ("channels", "a last answer", dict(messages=[m("user", "a"), m("assistant", "b", thinking="c")],
                                       add_generation_prompt=False)),
    ("tagged", "the switch is there already", dict(messages=[m("user", "a /nothink")], enable_thinking=False)),
    ("tagged", "a list of results", dict(messages=[m("user", "a"), m("tool", [{"output": "b"}, "c"])])),
    ("declared", "names and images", dict(messages=[m("user", [{"type": "image", "image": "x"}, {"text": "?"}], name="Ada"),
                                                    m("assistant", "A wave.")])),
    ("roles", "documents", dict(messages=[m("user", "a")], documents=[{"doc_id": 7, "text": "Deep."}],
                                controls={"length": "short"})),
    ("parameters", "images", dict(messages=[m("user", [{"type": "image"}, {"text": "a"}, {"image_url": "x"}])],
                                  number_images=True)),
    ("parameters", "types", dict(messages=TURNS, tools=SCHEMAS)),
] + [(template, name, chat) for template in ["channels", "tagged", "declared", "roles", "parameters"]
     for name, chat in CONVERSATIONS]

# expressions.txt: small programs with `s`, `n`, `x`, `l`, `d`, `o` and `messages`, where engines differ.
VARIABLES = {"s": "  Ab cD\nef  ", "n": None, "x": 7.0, "tiny": 1e-07, "huge": -2.5e+20, "l": [3, 1, 2], "d": {"b": 1, "a": [True, None, "q'"]},
             "o": [{"k": "p", "v": 1}, {"k": "q", "v": 2}, {"k": "p", "v": 3}]}
EXPRESSIONS = (HERE / "expressions.txt").read_text().splitlines()


def tokenizer(tokens):
    text = json.loads(DEMO.read_text())
    first = max(t["id"] for t in text["added_tokens"]) + 1
    text["added_tokens"] += [{"id": first + i, **t} for i, t in enumerate(tokens)]
    return Tokenizer.from_str(json.dumps(text))


def render(source, chat, special):
    """The prompt, or nothing where the template or the renderer refuses."""
    chat = {"add_generation_prompt": True, "tools": None, "documents": None, **chat}
    try:
        return _compile_jinja_template(source).render(strftime_now=NOW.strftime, **special, **chat)
    except (TypeError, AttributeError, jinja2.TemplateError):
        return None


def case(template, source, name, chat):
    text = render(source, chat, SPECIAL[template])
    # Where a message spells a control token, the reference takes it for one, and smoe does not.
    spells = any(t["content"] in json.dumps(chat, ensure_ascii=False) for t in TOKENS[template])
    ids = None if spells or text is None else tokenizer(TOKENS[template]).encode(text, add_special_tokens=False).ids
    return {"template": template, "name": name, "chat": {"add_generation_prompt": True, **chat}, "text": text, "ids": ids}


def expression(source):
    try:
        return _compile_jinja_template(source).render(messages=TURNS, tools=None, documents=None,
                                                      add_generation_prompt=True, **VARIABLES)
    except (TypeError, jinja2.TemplateError):
        return None


def main(folder):
    if folder == HERE:
        chosen, expressions = CASES, EXPRESSIONS
    else:
        names = sorted(path.stem for path in folder.glob("*.jinja"))
        TOKENS.update({name: [token("<s>"), token("</s>")] for name in names})
        SPECIAL.update({name: {"bos_token": "<s>", "eos_token": "</s>"} for name in names})
        chosen, expressions = [(template, *conversation) for template in names for conversation in CONVERSATIONS], []
    sources = {template: (folder / f"{template}.jinja").read_text() for template, _, _ in chosen}
    parts = {
        "variables": VARIABLES, "turns": TURNS, "now": 1770091506,
        "tokens": {name: TOKENS[name] for name in sources}, "special": {name: SPECIAL[name] for name in sources},
        "expressions": [{"source": source, "text": expression(source)} for source in expressions],
        "cases": [case(template, sources[template], name, chat) for template, name, chat in chosen],
    }
    rows = []
    for key, value in parts.items():
        inner = ",\n".join(json.dumps(item, ensure_ascii=False) for item in value) if isinstance(value, list) else None
        rows.append(f'"{key}": ' + (f"[\n{inner}\n]" if inner else json.dumps(value, ensure_ascii=False)))
    print("{\n" + ",\n".join(rows) + "\n}")


main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
