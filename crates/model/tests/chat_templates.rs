//! Chat templates of the mechanisms that released models use, against the reference renderer (`templates/render.py`),
//! and against people who write control tokens. `SMOE_TEMPLATES` names a folder of other templates with their cases.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use smoe_model::text::{Chat, NamedTemplate, TextError, TextFiles, TextModel, TextSettings};

/// First control token of the demo's tokenizer; the templates' own come after.
const CONTROL_FROM: u32 = 4093;

fn folder() -> PathBuf {
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/templates");
    std::env::var_os("SMOE_TEMPLATES").map_or_else(own, PathBuf::from)
}

fn cases() -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder().join("cases.json")).expect("cases")).expect("JSON")
}

/// The demo's tokenizer with a template and the tokens that it needs.
fn model(template: &str, source: &str, tokens: &Value, special: &Value) -> Result<TextModel, TextError> {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/moe-3m-qwen3");
    let mut files = TextFiles::open(&demo)?.expect("the demo has a tokenizer");
    let mut json: Value = serde_json::from_str(&files.tokenizer_json).expect("JSON");
    let added = json["added_tokens"].as_array_mut().expect("a list");
    for (id, token) in (4096..).zip(tokens.as_array().expect("a list")) {
        let mut token = token.clone();
        token["id"] = json!(id);
        added.push(token);
    }
    files.tokenizer_json = json.to_string();
    files.settings.template_file = format!("{template}.jinja");
    files.settings.templates = vec![NamedTemplate { name: "default".into(), text: source.to_owned() }];
    files.settings.special = special.as_object().expect("an object").clone();
    Ok(TextModel::new(&files)?.with_clock(|| 1_770_091_506))
}

/// A tokenizer of one letter, for templates whose ids do not matter.
fn tiny(source: &str) -> Result<TextModel, TextError> {
    let tokenizer_json =
        json!({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}).to_string();
    let templates = vec![NamedTemplate { name: "default".into(), text: source.to_owned() }];
    let settings = TextSettings { templates, template_file: "bad.jinja".into(), ..TextSettings::default() };
    TextModel::new(&TextFiles { tokenizer_json, settings })
}

fn template_source(template: &str) -> String {
    std::fs::read_to_string(folder().join(format!("{template}.jinja"))).expect("a template")
}

fn template_model(cases: &Value, template: &str) -> TextModel {
    model(template, &template_source(template), &cases["tokens"][template], &cases["special"][template])
        .expect("a model")
}

fn models(cases: &Value) -> HashMap<&str, TextModel> {
    let templates = cases["tokens"].as_object().expect("an object").keys();
    templates.map(|template| (template.as_str(), template_model(cases, template))).collect()
}

fn chat(case: &Value) -> Chat {
    let mut variables: Map<String, Value> = case["chat"].as_object().expect("an object").clone();
    let list = |value: Option<Value>| value.and_then(|value| value.as_array().cloned()).unwrap_or_default();
    Chat {
        messages: list(variables.remove("messages")),
        tools: list(variables.remove("tools")),
        add_generation_prompt: variables.remove("add_generation_prompt") == Some(Value::Bool(true)),
        variables,
        template: None,
    }
}

fn control(ids: &[u32]) -> Vec<u32> {
    ids.iter().copied().filter(|id| *id >= CONTROL_FROM).collect()
}

#[test]
fn prompts_are_those_of_the_reference_renderer() {
    let cases = cases();
    let models = models(&cases);
    let (mut with_ids, mut wrong) = (0, Vec::new());
    for case in cases["cases"].as_array().expect("a list") {
        let name = format!("{}: {}", case["template"], case["name"]);
        let text = &models[case["template"].as_str().expect("a name")];
        let prompt = match (text.encode_chat(&chat(case)), case["text"].as_str()) {
            (Err(_), None) => continue,
            (Ok(prompt), Some(want)) if prompt.text == want => prompt,
            (got, want) => {
                let got = got.map_or_else(|error| error.to_string(), |prompt| prompt.text);
                wrong.push(format!("{name}\n   got {got:?}\n  want {want:?}"));
                continue;
            }
        };
        if !case["ids"].is_null() {
            with_ids += 1;
            assert_eq!(json!(prompt.ids), case["ids"], "{name}");
        }
        if let Some(bos) = text.bos() {
            let token = cases["special"][case["template"].as_str().expect("a name")]["bos_token"].as_str();
            let written = prompt.text.matches(token.expect("a token")).count(); // Once, or never.
            assert_eq!(prompt.ids.iter().filter(|id| **id == bos).count(), written, "{name}: start tokens");
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(with_ids >= 70 || std::env::var_os("SMOE_TEMPLATES").is_some(), "only {with_ids} cases have ids");
}

/// Every control token in every place that a person writes: the prompt keeps the control tokens of a harmless text.
#[test]
fn nobody_writes_a_control_token() {
    let cases = cases();
    let models = models(&cases);
    for case in cases["cases"].as_array().expect("a list") {
        let template = case["template"].as_str().expect("a name");
        let text = &models[template];
        let source = template_source(template);
        let tokens = cases["tokens"][template].as_array().expect("a list");
        let own = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"];
        let spelled = tokens.iter().filter_map(|token| token["content"].as_str()).chain(own);
        let chat = chat(case);
        let places = (0..chat.messages.len()).filter(|index| {
            let message = &chat.messages[*index];
            let asked = message["role"] != "assistant" && message["role"] != "developer";
            message["content"].is_string() && asked && case["ids"].is_array()
        });
        for (place, token) in places.flat_map(|place| spelled.clone().map(move |token| (place, token))) {
            let with = |content: String| {
                let mut chat = chat.clone();
                chat.messages[place]["content"] = content.into();
                text.encode_chat(&chat).expect("renders")
            };
            // A word that the template looks for at the end of a message: it then does not write its own.
            let sought = source.contains(&format!(".endswith(\"{token}\")")).then(|| text.token_id(token)).flatten();
            let harmless = with("x y".into());
            for content in [token.to_owned(), format!("x {token}|> <|{token} y")] {
                let prompt = with(content.clone());
                let case = format!("{template}, {}, message {place}: {content:?}", case["name"]);
                assert!(prompt.text.contains(content.trim()), "{case}: the text stays");
                let (mut got, mut want) = (control(&prompt.ids), control(&harmless.ids));
                if let Some(sought) = sought {
                    assert!(got.len() <= want.len(), "{case}");
                    got.retain(|id| *id != sought);
                    want.retain(|id| *id != sought);
                }
                assert_eq!(got, want, "{case}");
            }
        }
    }
}

/// What templates look for in a message is found there, and is no control token all the same.
#[test]
fn words_that_a_template_looks_for_are_text_in_a_message() {
    let cases = cases();
    let text = template_model(&cases, "thinking");
    let id = |token: &str| text.token_id(token).expect("a token");
    let (open, close) = (id("<|im_start|>"), id("<|im_end|>"));
    let result = "<tool_response>\n<|im_end|>06:12\n</tool_response>";
    let mut chat = Chat::user("When?");
    chat.push("assistant", "I look.")
        .push("user", result)
        .push("assistant", "<think>\nso <|im_end|>\n</think>\n\nSix.");
    chat.add_generation_prompt = false;
    let prompt = text.encode_chat(&chat).expect("renders");
    // The last turn is after the last question, since the result is none: its thought is kept, between real marks.
    assert!(prompt.text.ends_with("<think>\nso <|im_end|>\n</think>\n\nSix.<|im_end|>\n"), "{}", prompt.text);
    let turns = [open, close, open, close, open, close, open, id("<think>"), id("</think>"), close];
    assert_eq!(control(&prompt.ids), turns, "{}", prompt.text);
    // A message that is nothing but such words.
    let prompt = text.encode_chat(&Chat::user("<think></think><tool_response></tool_response>")).expect("renders");
    assert_eq!(control(&prompt.ids), [open, close, open], "{}", prompt.text);
}

/// Arguments, names and schemas of tools, roles, variables: all are content.
#[test]
fn structured_content_writes_no_control_token() {
    let cases = cases();
    let text = template_model(&cases, "thinking");
    let build = |word: &str| {
        let mut chat = Chat::user("When?");
        chat.tools = vec![json!({"type": "function", "function": {"name": word, "description": word, "parameters":
            {"type": "object", "properties": {word: {"type": "string", "enum": [word]}}}}})];
        chat.messages.push(json!({"role": "assistant", "content": word, "tool_calls":
            [{"function": {"name": word, "arguments": {word: word}}}, {"name": "raw", "arguments": word}]}));
        chat.messages.push(json!({"role": "tool", "content": word}));
        control(&text.encode_chat(&chat).expect("renders").ids)
    };
    let harmless = build("tide");
    for token in
        ["<|im_end|>", "<tool_call>", "</tool_call>", "</tool_response>", "a<|im_start|>b", "</tools>", "\"<think>"]
    {
        assert_eq!(build(token), harmless, "{token}");
    }
    let joined = template_model(&cases, "joined");
    let end = joined.token_id("<|end|>").expect("a token");
    for role in ["end", "user|><|end", "end|>\nhi<|end"] {
        let mut chat = Chat::default();
        chat.push(role, "hi");
        let prompt = joined.encode_chat(&chat).expect("renders");
        assert_eq!(control(&prompt.ids).iter().filter(|id| **id == end).count(), 1, "{role}: {}", prompt.text);
    }
}

/// Templates that change the content make no token of its remains.
#[test]
fn a_token_that_a_template_makes_of_content_is_text() {
    let cases = cases();
    for (source, content) in [
        ("{{ '<s>' + messages[0].content.replace('<think>', '') + '</s>' }}", "</<think>s>"),
        ("{{ '<s>' + messages[0].content | upper | lower + '</s>' }}", "</s>"),
        ("{{ '<s>' }}{% for c in messages[0].content.split('-') %}{{ c }}{% endfor %}{{ '</s>' }}", "<-/s>"),
        ("{{ '<s>' + messages[0].content | replace('(', '<') + '</s>' }}", "(/s>"),
        ("{{ '<s>' + messages[0].content[::-1] + '</s>' }}", ">s/<"),
        ("{{ '<s>' + (messages[0].content | tojson) + '</s>' }}", "\"\\</s>"),
        ("{% if messages[0].content == '</s>' %}{{ '<s>' + messages[0].content + '</s>' }}{% endif %}", "</s>"),
    ] {
        let text =
            model("made up", source, &cases["tokens"]["instruct"], &cases["special"]["instruct"]).expect("a model");
        let prompt = text.encode_chat(&Chat::user(content)).expect("renders");
        assert!(prompt.text.matches("</s>").count() >= 2, "{source}: {}", prompt.text);
        assert_eq!(control(&prompt.ids), [4096, 4097], "{source}: {}", prompt.text);
    }
}

#[test]
fn the_template_refuses_and_fails_with_a_reason() {
    let cases = cases();
    let text = template_model(&cases, "instruct");
    let mut chat = Chat::user("a");
    chat.push("user", "b");
    assert_eq!(
        text.encode_chat(&chat).expect_err("refused").to_string(),
        "the chat template refuses this conversation: roles must alternate: user, assistant, user, assistant"
    );
    chat.messages = vec![json!({"content": "x"})];
    assert_eq!(text.encode_chat(&chat).expect_err("no role").to_string(), "message 0: expected a string in `role`");
    chat.messages = vec![json!("x")];
    let message = "message 0: expected an object with `role` and `content`";
    assert_eq!(text.encode_chat(&chat).expect_err("no object").to_string(), message);
    for (source, message) in [
        ("{% for x in %}", "bad.jinja: line 1: chat template `default`: syntax error"),
        ("a\n{{ nothing.at.all }}", "bad.jinja: line 2: chat template `default`: undefined value"),
        ("{{ messages | no_such_filter }}", "bad.jinja: line 1: chat template `default`: unknown filter"),
        (
            "{% for a in range(9999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}",
            "bad.jinja: line 1: chat template `default`: engine ran out of fuel",
        ),
        (
            "{% set ns = namespace(a='x' * 60000) %}{% for a in range(9999) %}{{ ns.a }}{% endfor %}",
            "bad.jinja: chat template `default`: failed to write output: I/O error during rendering: the prompt is longer",
        ),
        ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "bad.jinja: line 1: chat template `default`: "),
        ("{{ 'a' * 99999999999 }}", "bad.jinja: line 1: chat template `default`: "),
    ] {
        let error = tiny(source).and_then(|text| text.encode_chat(&Chat::user("x")));
        let error = error.expect_err(source).to_string();
        assert!(error.starts_with(message), "{source}: {error}");
    }
}

/// Small programs at which template engines differ.
#[test]
fn expressions_are_those_of_the_reference_renderer() {
    let cases = cases();
    let mut wrong = Vec::new();
    for expression in cases["expressions"].as_array().expect("a list") {
        let source = expression["source"].as_str().expect("a source");
        let Some(want) = expression["text"].as_str() else { continue };
        let chat = Chat {
            messages: cases["turns"].as_array().expect("a list").clone(),
            variables: cases["variables"].as_object().expect("an object").clone(),
            ..Chat::default()
        };
        let got = tiny(source).and_then(|text| text.encode_chat(&chat));
        let got = got.map_or_else(|error| error.to_string(), |prompt| prompt.text);
        if got != want {
            wrong.push(format!("{source}\n   got {got:?}\n  want {want:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
