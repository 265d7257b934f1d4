"""Renders the cases below with the reference renderer (Jinja2 as `transformers` sets it up) and encodes the prompts
with the reference tokenizer. Needs transformers and tokenizers.

python crates/model/tests/templates/render.py > crates/model/tests/templates/cases.json
"""

import datetime
import json
import pathlib

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
}
SPECIAL = {
    "thinking": {"eos_token": "<|im_end|>"},
    "fullwidth": {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"},
    "instruct": {"bos_token": "<s>", "eos_token": "</s>"},
    "joined": {"bos_token": "<s>", "eos_token": "</s>"},
    "dated": {"bos_token": "<|begin|>", "eos_token": "<|turn_end|>"},
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
]

# expressions.txt: small programs with `s`, `n`, `x`, `l`, `d`, `o` and `messages`, where engines differ.
VARIABLES = {"s": "  Ab cD\nef  ", "n": None, "x": 7.0, "l": [3, 1, 2], "d": {"b": 1, "a": [True, None, "q'"]},
             "o": [{"k": "p", "v": 1}, {"k": "q", "v": 2}, {"k": "p", "v": 3}]}
EXPRESSIONS = (HERE / "expressions.txt").read_text().splitlines()


def tokenizer(template):
    text = json.loads(DEMO.read_text())
    first = max(t["id"] for t in text["added_tokens"]) + 1
    text["added_tokens"] += [{"id": first + i, **t} for i, t in enumerate(TOKENS[template])]
    return Tokenizer.from_str(json.dumps(text))


def main():
    cases = []
    for template, name, chat in CASES:
        compiled = _compile_jinja_template((HERE / f"{template}.jinja").read_text())
        chat = {"add_generation_prompt": True, "tools": None, **chat}
        text = compiled.render(documents=None, strftime_now=NOW.strftime, **SPECIAL[template], **chat)
        ids = tokenizer(template).encode(text, add_special_tokens=False).ids
        # Where a message spells a control token, the reference takes it for one, and smoe does not.
        spells = any(t["content"] in json.dumps(chat, ensure_ascii=False) for t in TOKENS[template])
        cases.append({"template": template, "name": name, "chat": chat, "text": text, "ids": None if spells else ids})
    expressions = []
    for source in EXPRESSIONS:
        try:
            text = _compile_jinja_template(source).render(messages=TURNS, tools=None, documents=None,
                                                          add_generation_prompt=True, **VARIABLES)
        except (TypeError, jinja2.TemplateError):
            text = None
        expressions.append({"source": source, "text": text})
    print(json.dumps({"variables": VARIABLES, "turns": TURNS, "expressions": expressions, "tokens": TOKENS, "special": SPECIAL, "now": 1770091506, "cases": cases}, ensure_ascii=False,
                     indent=1))


main()
