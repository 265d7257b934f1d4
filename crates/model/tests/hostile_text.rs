//! Damaged and hostile tokenizers and templates end in an error that names the file: no panic, no hang.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use smoe_model::text::{Chat, NamedTemplate, SourceFiles, TextFiles, TextModel, TextSettings};

/// SplitMix64, so that a failure can be repeated from its number.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// Far beyond what any case takes, and far below what a person waits.
const LONGEST: Duration = Duration::from_secs(20);

/// Builds a model and uses it in every way; the result or the error's text.
fn exercise(files: &TextFiles) -> Result<(), String> {
    let text = TextModel::new(files).map_err(|error| error.to_string())?;
    let sample = "Hello  <|im_end|> w\u{f6}rld \u{1F30A}\n 12 </s>";
    let fault = |error: smoe_model::text::TextError| error.to_string();
    let ids = text.encode_prompt(sample).map_err(fault)?;
    text.decode(&ids).map_err(fault)?;
    let mut stream = text.decode_stream();
    for id in ids.iter().copied().chain([0, 1, 7, u32::MAX]) {
        stream.push(id).map_err(fault)?;
    }
    stream.finish().map_err(fault)?;
    text.encode_chat(&Chat::user(sample)).map_err(fault)?;
    Ok(())
}

/// Runs a case; an error must name one of the files.
fn check(case: &str, files: &TextFiles) -> bool {
    let start = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| exercise(files)));
    let result = result.unwrap_or_else(|_| panic!("{case}: panicked"));
    assert!(start.elapsed() < LONGEST, "{case}: took {:?}", start.elapsed());
    if let Err(message) = &result {
        let named = ["tokenizer.json: ", "tokenizer_config.json: ", "the chat template refuses"];
        assert!(named.iter().any(|name| message.starts_with(name)), "{case}: {message}");
        assert!(message.len() < 2000, "{case}: a message of {} bytes", message.len());
    }
    result.is_ok()
}

/// Small, and with all parts that a tokenizer may have.
fn small(kind: usize) -> Value {
    let pieces = ["<unk>", "<s>", "</s>", "a", "b", "ab", "H", "e", "l", "o", " ", "\u{120}", "##b", "<0x0A>"];
    let vocab: Map<String, Value> =
        pieces.iter().zip(0..).map(|(piece, id)| ((*piece).to_owned(), json!(id))).collect();
    let list: Vec<Value> = pieces.iter().map(|piece| json!([piece, -1.5])).collect();
    let model = match kind % 4 {
        0 => json!({"type": "BPE", "vocab": vocab, "merges": ["a b"], "unk_token": "<unk>", "byte_fallback": false,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": true, "ignore_merges": true}),
        1 => json!({"type": "Unigram", "vocab": list, "unk_id": 0, "byte_fallback": true}),
        2 => json!({"type": "WordPiece", "vocab": vocab, "unk_token": "<unk>", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100}),
        _ => json!({"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}),
    };
    let mut normalizers = vec![
        json!({"type": "NFC"}),
        json!({"type": "Lowercase"}),
        json!({"type": "Replace", "pattern": {"Regex": "x+"}, "content": "y"}),
        json!({"type": "Prepend", "prepend": "_"}),
    ];
    if kind > 3 {
        normalizers.push(json!({"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="}));
    }
    let added = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": id == 1, "lstrip": true,
        "rstrip": id == 2, "normalized": id == 0, "special": true})
    };
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>"), added(14, "<|im_end|>")],
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "\\s+(?!\\S)"},
            "behavior": "Isolated", "invert": false}, {"type": "Digits", "individual_digits": true},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
            {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": true}]},
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "ByteLevel", "add_prefix_space": true,
            "trim_offsets": true, "use_regex": true}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": model,
    })
}

fn files(tokenizer: String, template: &str) -> TextFiles {
    let templates = vec![NamedTemplate { name: "default".into(), text: template.into() }];
    let special = json!({"bos_token": "<s>", "eos_token": "</s>"}).as_object().expect("an object").clone();
    let template_file = "tokenizer_config.json".to_owned();
    TextFiles {
        tokenizer_json: tokenizer,
        settings: TextSettings { templates, template_file, special, ..Default::default() },
    }
}

const TEMPLATE: &str =
    "{{ bos_token }}{% for m in messages %}{{ m.role + ': ' + m.content | trim + '</s>' }}{% endfor %}";

/// What stands in for a value of the tokenizer.
fn hostile_value(rng: &mut Rng) -> Value {
    match rng.below(20) {
        0 => Value::Null,
        1 => json!(u64::MAX),
        2 => json!(u32::MAX),
        3 => json!(-1),
        4 => json!(1e308),
        5 => json!(""),
        6 => json!("\u{10FFFD}"),
        7 => json!("\u{0}\u{FFFF}"),
        8 => json!([]),
        9 => json!({}),
        10 => json!(true),
        11 => json!(0),
        12 => json!("(a+)+$"),
        13 => json!("("),
        14 => json!("<s>"),
        15 => json!([[[]]]),
        16 => json!("AAECAwQFBgcICQ=="),
        17 => json!(".*"),
        18 => json!("\u{2581}"),
        _ => json!("a".repeat(3000)),
    }
}

/// Changes one place of a document, chosen at random: the value, its key, its presence, its number.
fn mutate(value: &mut Value, rng: &mut Rng) {
    let inner = match value {
        Value::Array(list) if !list.is_empty() && rng.below(8) > 0 => {
            let index = rng.below(list.len());
            match rng.below(12) {
                0 => return drop(list.remove(index)),
                1 => return list.push(list[index].clone()),
                _ => Some(&mut list[index]),
            }
        }
        Value::Object(map) if !map.is_empty() && rng.below(8) > 0 => {
            let key = map.keys().nth(rng.below(map.len())).expect("a key").clone();
            match rng.below(12) {
                0 => return drop(map.remove(&key)),
                1 => {
                    let item = map.remove(&key).expect("the key");
                    map.insert(format!("{key}x"), item);
                    return;
                }
                _ => map.get_mut(&key),
            }
        }
        _ => None,
    };
    match inner {
        Some(inner) => mutate(inner, rng),
        None => *value = hostile_value(rng),
    }
}

#[test]
fn mutated_tokenizers_are_read_or_refused() {
    let cases = std::env::var("SMOE_TEXT_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(4000);
    let mut read = 0;
    for seed in 0..cases {
        let mut rng = Rng(seed);
        let mut tokenizer = small(rng.below(5));
        for _ in 0..=rng.below(3) {
            mutate(&mut tokenizer, &mut rng);
        }
        read += usize::from(check(&format!("seed {seed}"), &files(tokenizer.to_string(), TEMPLATE)));
    }
    println!("{read} of {cases} mutated tokenizers could still be used");
    assert!(read > 0, "a mutation is not the end of every tokenizer");
}

#[test]
fn damaged_bytes_of_a_tokenizer_are_refused() {
    let text = small(0).to_string();
    for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)).step_by(7) {
        assert!(!check(&format!("cut at {cut}"), &files(text[..cut].to_owned(), TEMPLATE)), "cut at {cut}");
    }
    for (name, text) in [
        ("deep", "[".repeat(100_000)),
        ("deep normalizers", deep(&small(0), 60)),
        ("nothing", String::new()),
        ("a number", "7".to_owned()),
        ("a list", "[]".to_owned()),
        ("no model", "{}".to_owned()),
    ] {
        check(name, &files(text, TEMPLATE));
    }
    let sources = SourceFiles { tokenizer_json: b"{\"model\": \"\xff\"}".to_vec(), ..SourceFiles::default() };
    let error = TextFiles::from_sources(&sources).expect_err("not UTF-8").to_string();
    assert_eq!(error, "tokenizer.json: expected UTF-8, found a bad byte at 11");
}

fn deep(tokenizer: &Value, levels: usize) -> String {
    let mut tokenizer = tokenizer.clone();
    for _ in 0..levels {
        let inner = tokenizer["normalizer"].take();
        tokenizer["normalizer"] = json!({"type": "Sequence", "normalizers": [inner]});
    }
    tokenizer.to_string()
}

/// An added token must have the id that the file says: anything else would garble every prompt.
#[test]
fn ids_of_added_tokens_are_checked() {
    let mut tokenizer = small(0);
    tokenizer["added_tokens"][3]["id"] = json!(15);
    let error = TextModel::new(&files(tokenizer.to_string(), TEMPLATE)).expect_err("a gap").to_string();
    assert_eq!(error, "tokenizer.json: added token `<|im_end|>`: expected id 15, found 14");
}

#[test]
fn mutated_templates_are_rendered_or_refused() {
    let sources = ["thinking", "fullwidth", "instruct", "joined", "dated"].map(|name| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/templates/{name}.jinja"));
        std::fs::read_to_string(path).expect("a template")
    });
    let pieces = [
        "{%",
        "%}",
        "{{",
        "}}",
        "{#",
        "#}",
        "'",
        "\"",
        "(",
        "[",
        "\\",
        "loop",
        "|",
        "messages",
        "range(99999)",
        "* 99999",
        "{% for x in range(9999) %}",
        "{% endfor %}",
        "{% if",
        "not",
        "\u{0}",
        "\u{10FFFD}",
        "-",
        "~",
        "{% generation %}",
        "{% include 'x' %}",
        "{% extends 'chat_template' %}",
        "{% import 'chat_template' as t %}",
        "{% raw %}",
        "**",
        "[::-1]",
    ];
    let tokenizer = small(0).to_string();
    let mut read = 0;
    for seed in 0..1500 {
        let mut rng = Rng(seed);
        let mut source = sources[rng.below(sources.len())].clone();
        for _ in 0..=rng.below(2) {
            let mut place = || {
                let place = rng.below(source.len() + 1);
                (place..=source.len()).find(|place| source.is_char_boundary(*place)).expect("the end")
            };
            let (a, b) = (place(), place());
            match rng.below(4) {
                0 if a.abs_diff(b) < 200 => source.replace_range(a.min(b)..a.max(b), ""),
                1 => source.truncate(a.max(10).min(source.len())),
                _ => source.insert_str(a, pieces[rng.below(pieces.len())]),
            }
        }
        read += usize::from(check(&format!("seed {seed}"), &files(tokenizer.clone(), &source)));
    }
    println!("{read} of 1500 mutated templates could still be used");
}
