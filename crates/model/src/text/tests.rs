use std::path::{Path, PathBuf};

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
