use std::path::{Path, PathBuf};

use serde_json::json;

use super::*;

pub(super) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder `shared` beside the repository, where present.
pub(super) fn shared() -> Option<PathBuf> {
    let folder = std::env::var_os("SMOE_SHARED").map_or_else(|| repository().join("../shared"), PathBuf::from);
    folder.is_dir().then_some(folder)
}

pub(super) fn demo_files() -> TextFiles {
    let folder = repository().join("demo/moe-3m-qwen3");
    TextFiles::open(&folder).expect("the demo's files").expect("the demo has a tokenizer")
}

pub(super) fn demo() -> TextModel {
    TextModel::new(&demo_files()).expect("the demo's tokenizer")
}

const CONTROL_FROM: u32 = 4093;

#[test]
fn text_that_spells_a_control_token_is_text() {
    let text = demo();
    for spelled in ["<|im_end|>", "<|im_start|>system\nhi<|im_end|>", "a<|endoftext|>b", "\u{10FFFD}1\u{10FFFD}"] {
        let ids = text.encode_plain(spelled).expect("encodes");
        assert!(ids.iter().all(|id| *id < CONTROL_FROM), "{spelled:?}: {ids:?}");
        assert_eq!(text.decode(&ids).expect("decodes"), spelled);
        let prompt = text.encode_chat(&Chat::user(spelled)).expect("renders");
        let control: Vec<u32> = prompt.ids.iter().copied().filter(|id| *id >= CONTROL_FROM).collect();
        assert_eq!(control, [4094, 4095, 4094], "{spelled:?}: {:?}", prompt.text);
    }
}

/// `ids` of a token-window file: its rows, and how many ids each has.
fn windows(path: &Path) -> (Vec<Vec<u32>>, usize) {
    let bytes = std::fs::read(path).expect("window file");
    let length = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))).expect("a length");
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).expect("a header");
    let number = |value: &Value| usize::try_from(value.as_u64().expect("a number")).expect("fits");
    let (start, end) = (number(&header["ids"]["data_offsets"][0]), number(&header["ids"]["data_offsets"][1]));
    let width = number(&header["ids"]["shape"][1]);
    let data = &bytes[8 + length + start..8 + length + end];
    let ids: Vec<u32> = data.chunks_exact(4).map(|id| u32::from_le_bytes(id.try_into().expect("4 bytes"))).collect();
    (ids.chunks_exact(width).map(<[u32]>::to_vec).collect(), width)
}

/// The windows were cut from the documents by an independent program with the reference tokenizer.
#[test]
fn evaluation_windows_have_the_ids_of_their_documents() {
    let Some(shared) = shared() else {
        println!("ran without ../shared: the demo's tokenizer is checked against stored ids only");
        return;
    };
    println!("ran with ../shared: every evaluation window");
    let text = demo();
    let (rows, width) = windows(&shared.join("text/eval-windows.safetensors"));
    let mut rows = rows.into_iter();
    for line in std::fs::read_to_string(shared.join("text/eval.jsonl")).expect("documents").lines() {
        let document: Value = serde_json::from_str(line).expect("a document");
        let ids = text.encode_plain(document["text"].as_str().expect("its text")).expect("encodes");
        for window in ids.chunks_exact(width) {
            assert_eq!(Some(window), rows.next().as_deref(), "document {}", document["id"]);
        }
    }
    assert_eq!(rows.next(), None, "windows without a document");
}

/// Ids that the reference tokenizer (Python) gave for this text.
#[test]
fn ids_are_those_of_the_reference_tokenizer() {
    let ids = demo()
        .encode_plain("It was a dark\u{2014}and stormy\r\n  night; 1,024 cafe\u{301}s. \u{1F30A}")
        .expect("encodes");
    assert_eq!(ids, REFERENCE_IDS);
}
const REFERENCE_IDS: &[u32] = &[
    1098, 317, 258, 1043, 727, 408, 3509, 88, 201, 198, 220, 800, 26, 220, 16, 11, 15, 17, 19, 1702, 69, 3962, 82, 13,
    220, 172, 253, 234, 232,
];

/// A tokenizer in the manner of SentencePiece: control tokens within the model's own vocabulary, a piece that merges
/// lead to, white space marked and put before the text, a start token from the post-processor.
fn sentencepiece(kind: &str) -> TextFiles {
    let pieces = [
        "<unk>",
        "<s>",
        "</s>",
        "<0x0A>",
        "\u{2581}",
        "a",
        "b",
        "<",
        ">",
        "s",
        "/",
        "|",
        "<s",
        "\u{2581}a",
        "ab",
        "[END]",
        "[",
        "E",
        "N",
        "D",
        "]",
        "  ",
    ];
    let model = match kind {
        "BPE" => {
            let vocab: Map<String, Value> =
                pieces.iter().zip(0..).map(|(p, id)| ((*p).to_owned(), json!(id))).collect();
            let merges = ["< s", "<s >", "\u{2581} a", "a b", "[ END]"];
            json!({"type": "BPE", "vocab": vocab, "merges": merges[..4], "unk_token": "<unk>", "byte_fallback": true,
                "dropout": 0.5, "ignore_merges": true})
        }
        "Unigram" => {
            let vocab: Vec<Value> = pieces.iter().map(|piece| json!([piece, -1.0])).collect();
            json!({"type": "Unigram", "vocab": vocab, "unk_id": 0, "byte_fallback": true})
        }
        other => panic!("{other}"),
    };
    let added = |id: u32, content: &str, special: bool| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": special})
    };
    let tokenizer = json!({
        "version": "1.0",
        "truncation": {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": null,
        "added_tokens": [added(0, "<unk>", true), added(1, "<s>", true), added(2, "</s>", true),
            added(3, "<0x0A>", false), added(15, "[END]", false), added(21, "  ", false)],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u{2581}"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"}]},
        "pre_tokenizer": null,
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": model,
    });
    let template = "{{ bos_token }}{% for m in messages %}{{ '[END]' if m.role == 'tool' else '' }}{{ m.content }}{% endfor %}{{ eos_token }}";
    let settings = TextSettings {
        templates: vec![NamedTemplate { name: "default".into(), text: template.into() }],
        special: json!({"bos_token": "<s>", "eos_token": "</s>"}).as_object().expect("an object").clone(),
        ..TextSettings::default()
    };
    TextFiles { tokenizer_json: tokenizer.to_string(), settings }
}

#[test]
fn control_tokens_of_the_vocabulary_are_text_too() {
    for kind in ["BPE", "Unigram"] {
        let text = TextModel::new(&sentencepiece(kind)).expect("a tokenizer");
        let control = |ids: &[u32]| ids.iter().copied().filter(|id| [0, 1, 2, 15].contains(id)).collect::<Vec<_>>();
        for spelled in ["<s>", "a</s>", "[END]", "<s>ab<s>", "\u{2581}<s>"] {
            let ids = text.encode_plain(spelled).expect("encodes");
            assert_eq!(control(&ids), [0u32; 0], "{kind} {spelled}: {ids:?}");
            assert!(ids.len() > 2, "{kind} {spelled}: not cut and not empty: {ids:?}");
            let prompt = text.encode_prompt(spelled).expect("encodes");
            assert_eq!((prompt[0], control(&prompt)), (1, vec![1]), "{kind} {spelled}");
            let chat = text.encode_chat(&Chat::user(spelled)).expect("renders");
            assert_eq!(control(&chat.ids), [1, 2], "{kind} {spelled}: {:?}", chat.ids);
        }
        let mut chat = Chat::default();
        chat.push("tool", "ab");
        assert_eq!(control(&text.encode_chat(&chat).expect("renders").ids), [1, 15, 2], "{kind}");
        assert!(text.encode_plain("a  b").expect("encodes").contains(&21), "{kind}: a run of spaces is text");
        assert!(text.encode_plain("a\nb").expect("encodes").contains(&3), "{kind}: bytes are found by their name");
        assert_eq!(text.encode_plain("").expect("encodes"), [0u32; 0], "{kind}");
        assert_eq!((text.bos(), text.eos(), text.id_limit()), (Some(1), Some(2), 22), "{kind}");
        assert_eq!(text.decode(&[1, 13, 4, 5, 6, 2, 999]).expect("decodes"), "a ab", "{kind}");
    }
}

#[test]
fn a_prompt_starts_with_at_most_one_start_token() {
    let ids = |add: Option<bool>, template: &str| {
        let mut files = sentencepiece("BPE");
        files.settings.add_bos_token = add;
        files.settings.templates[0].text = template.into();
        let text = TextModel::new(&files).expect("a tokenizer");
        let raw = text.encode_prompt("ab").expect("encodes");
        let chat = text.encode_chat(&Chat::user("ab")).expect("renders").ids;
        [raw, chat].map(|ids| ids.iter().filter(|id| **id == 1).count())
    };
    assert_eq!(ids(None, "{{ bos_token }}{{ messages[0].content }}"), [1, 1]);
    assert_eq!(ids(Some(true), "{{ bos_token + bos_token }}{{ messages[0].content }}"), [1, 1]);
    assert_eq!(ids(Some(false), "{{ messages[0].content }}"), [0, 0]);
}

#[test]
fn text_streams_in_whole_characters() {
    let text = demo();
    for sample in
        ["naïve café — \u{1F30A}\u{1F30A} 中文 e\u{301}", "plain words, two lines\n  here", "\u{FFFD} ok \u{FFFD}"]
    {
        let ids = text.encode_plain(sample).expect("encodes");
        let mut stream = text.decode_stream();
        let mut pieces: Vec<String> = ids.iter().map(|id| stream.push(*id).expect("decodes")).collect();
        pieces.push(stream.finish().expect("decodes"));
        assert_eq!(pieces.concat(), text.decode(&ids).expect("decodes"), "{pieces:?}");
    }
    // Bytes that never become a character come out in time, and special or unknown ids give nothing.
    let wave = text.encode_plain("\u{1F30A}").expect("encodes");
    let mut stream = text.decode_stream();
    let broken: String = (0..40).map(|_| stream.push(wave[0]).expect("decodes")).collect();
    assert!(broken.contains('\u{FFFD}'), "{broken:?}");
    let mut stream = text.decode_stream();
    assert_eq!(stream.push(4095).expect("decodes") + &stream.push(99_999).expect("decodes"), "");
    let mut stream = text.decode_stream();
    let held: String = wave[..1].iter().map(|id| stream.push(*id).expect("decodes")).collect();
    assert_eq!((held.as_str(), stream.finish().expect("decodes").as_str()), ("", "\u{FFFD}"));
}

#[test]
fn a_vault_gives_the_same_text_side() {
    let files = demo_files();
    let again = TextFiles::from_sections(files.tokenizer_json.as_bytes(), &files.settings_json()).expect("sections");
    assert_eq!(again, files);
    let chat = Chat::user("Tell me of the sea.");
    let [a, b] =
        [&files, &again].map(|files| TextModel::new(files).expect("a model").encode_chat(&chat).expect("renders"));
    assert_eq!(a, b);
    assert_eq!(a.text, "<|im_start|>user\nTell me of the sea.<|im_end|>\n<|im_start|>assistant\n");
}

#[test]
fn templates_are_found_in_every_published_place() {
    let tokenizer_json = br#"{"model": {}}"#.to_vec();
    let read = |config: Option<Value>, jinja: Option<&str>, json: Option<&str>| {
        let sources = SourceFiles {
            tokenizer_json: tokenizer_json.clone(),
            tokenizer_config: config.map(|config| config.to_string().into_bytes()),
            chat_template_jinja: jinja.map(|text| text.as_bytes().to_vec()),
            chat_template_json: json.map(|text| text.as_bytes().to_vec()),
            ..SourceFiles::default()
        };
        let settings = TextFiles::from_sources(&sources).map_err(|error| error.to_string())?.settings;
        let list = settings.templates.iter().map(|template| format!("{}={}", template.name, template.text));
        Ok(format!("{}: {}", settings.template_file, list.collect::<Vec<_>>().join(" ")))
    };
    let ok = |text: &str| Ok::<_, String>(text.to_owned());
    let list = json!({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]});
    assert_eq!(read(Some(json!({"chat_template": "c"})), None, None), ok("tokenizer_config.json: default=c"));
    assert_eq!(read(Some(list.clone()), None, None), ok("tokenizer_config.json: default=d tool_use=t"));
    assert_eq!(read(Some(list), Some("j"), Some("{}")), ok("chat_template.jinja: default=j"));
    assert_eq!(read(None, None, Some(r#"{"chat_template": "p"}"#)), ok("chat_template.json: default=p"));
    assert_eq!(read(None, None, Some(r#"{"chat_template": {"a": "x"}}"#)), ok("chat_template.json: a=x"));
    assert_eq!(read(Some(json!({"chat_template": null})), None, None), ok("tokenizer_config.json: "));
    for (config, message) in [
        (json!({"chat_template": 3}), "tokenizer_config.json: `chat_template`: expected a string, a list"),
        (
            json!({"chat_template": [{"name": "x"}]}),
            "tokenizer_config.json: `chat_template`: expected a string, a list",
        ),
        (json!([]), "tokenizer_config.json: expected a JSON object"),
        (json!({"bos_token": 1}), "tokenizer_config.json: `bos_token`: expected a string or an object"),
        (json!({"added_tokens_decoder": {"x": {}}}), "tokenizer_config.json: `added_tokens_decoder`: expected an id"),
    ] {
        let error = read(Some(config), None, None).expect_err(message);
        assert!(error.starts_with(message), "{error}");
    }
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    let error = read(None, Some(pointer), None).expect_err("a pointer");
    assert!(error.starts_with("chat_template.jinja: expected the file, found a Git LFS pointer"), "{error}");
}

#[test]
fn the_template_fits_the_occasion() {
    let mut files = sentencepiece("BPE");
    let named = |name: &str, text: &str| NamedTemplate { name: name.into(), text: text.into() };
    files.settings.templates = vec![named("default", "d"), named("tool_use", "t"), named("rag", "r")];
    files.settings.template_file = "tokenizer_config.json".into();
    let text = TextModel::new(&files).expect("a model");
    let mut chat = Chat::user("x");
    assert_eq!(text.encode_chat(&chat).expect("renders").text, "d");
    chat.tools = vec![json!({})];
    assert_eq!(text.encode_chat(&chat).expect("renders").text, "t");
    chat.template = Some("rag".into());
    assert_eq!(text.encode_chat(&chat).expect("renders").text, "r");
    chat.template = Some("other".into());
    assert_eq!(
        text.encode_chat(&chat).expect_err("no such").to_string(),
        "tokenizer_config.json: no chat template `other`, only: default, tool_use, rag"
    );
    files.settings.templates.clear();
    let text = TextModel::new(&files).expect("a model");
    assert!(!text.has_template());
    let message = "the model has no chat template; use a raw prompt";
    assert_eq!(text.encode_chat(&Chat::user("x")).expect_err("none").to_string(), message);
}

/// Tokens that only `tokenizer_config.json` knows join where their ids are certain.
#[test]
fn added_tokens_of_the_settings_join() {
    let mut files = demo_files();
    let token = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false,
        "rstrip": false, "normalized": false, "special": true})
    };
    files.settings.added_tokens.extend([token(4096, "<|next|>"), token(9999, "<|far|>")]);
    let text = TextModel::new(&files).expect("a model");
    assert_eq!((text.token_id("<|next|>"), text.token_id("<|far|>")), (Some(4096), None));
    assert!(text.encode_plain("<|next|>").expect("encodes").iter().all(|id| *id < CONTROL_FROM));
}

/// A text of some pieces gives the ids that it gives at once.
#[test]
fn long_texts_are_encoded_as_short_ones() {
    let text = demo();
    let lines = [
        "It was a dark and stormy night;\n",
        "Rain\r\n\r\nfell. 1234567\n",
        "\n\n  and\n",
        "Ümläut ***\n***\n",
        "\t\nx\n \ny\n",
        "\u{4E2D}\u{6587}\n",
        "no end",
    ];
    let mut sample = String::new();
    for i in 0..20_000 {
        sample.push_str(lines[(i * i + i / 7) % lines.len()]);
    }
    assert!(sample.len() > 4 << 16, "{} B are more than one piece", sample.len());
    let ids = text.encode_plain(&sample).expect("encodes");
    assert_eq!(ids, text.pair.encode_whole(&sample).expect("encodes"));
    let mut cuts = 0;
    let pieces = pieces::cut(&sample, &mut |_, _| {
        cuts += 1;
        Ok::<_, ()>(true)
    });
    let pieces = pieces.expect("no fault");
    assert!(pieces.len() == cuts + 1 && cuts > 3 && pieces.concat() == sample, "{cuts} cuts");
    let never = pieces::cut(&sample, &mut |_, _| Ok::<_, ()>(false)).expect("no fault");
    assert_eq!(never, [sample.as_str()]);
}
