//! Reading evaluation text: the windowing rules, and what is refused.

use std::fs;
use std::path::{Path, PathBuf};

use smoe_engine::tensors::{self, Array, Arrays};
use smoe_gate::Windows;
use smoe_model::text::{TextFiles, TextModel};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text() -> TextModel {
    let files = TextFiles::open(&repository().join("demo/moe-3m-qwen3")).expect("readable").expect("a tokenizer");
    TextModel::new(&files).expect("a tokenizer")
}

/// The rows of some content, at a window of 8.
fn read(name: &str, content: &[u8]) -> Result<Windows, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    fs::write(&path, content).expect("written");
    let prefix = format!("{}/", folder.path().display());
    Windows::read(&path, Some(&text()), 8).map_err(|error| error.to_string().replace(&prefix, ""))
}

fn words(count: usize) -> String {
    vec!["sea"; count].join(" ")
}

#[test]
fn documents_are_cut_each_by_itself() {
    let text = text();
    let each = text.encode_plain(&words(3)).expect("encodes").len();
    let per_word = (text.encode_plain(&words(13)).expect("encodes").len() - each) / 10;
    assert_eq!(per_word, 1, "a word of the tokenizer");
    let first = each - 3; // Ids of the first word beyond one.
    // 20 tokens: two windows of 8, the rest dropped; 8: one; 5: kept as it is; 1 or 0: left out.
    let lines: Vec<String> = [20, 8, 5]
        .map(|count| words(count - first))
        .iter()
        .chain(&["a".to_owned(), String::new()])
        .map(|text| serde_json::json!({ "id": 1, "text": text }).to_string())
        .collect();
    let windows = read("eval.jsonl", lines.join("\n\n").as_bytes()).expect("windows");
    let lengths: Vec<usize> = (0..windows.rows()).map(|row| windows.row(row).len()).collect();
    assert_eq!(lengths, [8, 8, 8, 5]);
    let documents: Vec<usize> = (0..windows.rows()).map(|row| windows.document(row)).collect();
    assert_eq!((documents, windows.documents(), windows.tokens()), (vec![0, 0, 1, 2], 3, 25));
    assert_eq!(
        windows.notes(),
        [
            "2 documents have fewer than 2 tokens and are left out",
            "4 tokens after the last whole window of their document are left out"
        ]
    );
}

#[test]
fn a_plain_file_is_one_document_and_a_folder_one_a_file() {
    let windows = read("eval.txt", words(40).as_bytes()).expect("windows");
    assert_eq!(windows.documents(), 1);
    assert!(windows.notes().contains(&"one document: no interval can be given".to_owned()), "{:?}", windows.notes());
    let folder = tempfile::tempdir().expect("a folder");
    for (name, count) in [("b.txt", 9), ("a.md", 30), (".hidden", 30)] {
        fs::write(folder.path().join(name), words(count)).expect("written");
    }
    fs::create_dir(folder.path().join("sub")).expect("made");
    let windows = Windows::read(folder.path(), Some(&text()), 8).expect("windows");
    assert_eq!(windows.documents(), 2);
    assert!(windows.notes()[0].ends_with("sub: not a file, ignored"), "{:?}", windows.notes());
}

fn token_file(ids: Array, document: Array) -> Vec<u8> {
    tensors::image(&Arrays::from([("ids".to_owned(), ids), ("document".to_owned(), document)]))
}

#[test]
fn token_windows_are_taken_as_they_are() {
    let file = token_file(Array::integers(&[3, 2], vec![1, 2, 3, 4, 5, 6]), Array::integers(&[3], vec![7, 2, 7]));
    let windows = read("w.safetensors", &file).expect("windows");
    assert_eq!((windows.row(1), windows.documents(), windows.document(2)), (&[3, 4][..], 2, 0));
    assert_eq!((windows.tokens(), windows.longest(), windows.first(1).documents()), (3, 2, 1));
}

#[test]
fn what_is_no_text_is_named() {
    let ids = |shape: &[usize], values| Array::integers(shape, values);
    let one = || Array::integers(&[1], vec![0]);
    let floats = Array::floats(&[1, 2], vec![1.0, 2.0]);
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("a.txt", b"".to_vec(), "a.txt: expected text, found an empty file"),
        ("a.jsonl", b" \n\n".to_vec(), "a.jsonl: expected text, found an empty file"),
        ("a.txt", b"ab\xff".to_vec(), "a.txt: expected UTF-8 text, found a byte that is not at offset 2"),
        (
            "a.jsonl",
            b"{\"text\": \"a b c\"}\n{\"txt\": 1}".to_vec(),
            "a.jsonl line 2: expected an object with a string",
        ),
        ("a.jsonl", b"{\"text\": \"a b c\"}\n\nhello".to_vec(), "a.jsonl line 3: expected a JSON object, found"),
        ("a.txt", b"a".to_vec(), "a.txt: expected at least one window of two tokens, found none"),
        ("w.safetensors", b"".to_vec(), "w.safetensors: not a safetensors file"),
        ("w.safetensors", b"\xff\xff\xff\xff\xff\xff\xff\xff{}".to_vec(), "w.safetensors: not a safetensors file"),
        ("w.safetensors", token_file(floats, one()), "w.safetensors: `ids`: expected integers (I32), found floats"),
        ("w.safetensors", token_file(ids(&[2], vec![1, 2]), one()), "w.safetensors: `ids`: expected the shape [rows"),
        ("w.safetensors", token_file(ids(&[2, 1], vec![1, 2]), one()), "w.safetensors: `document`: expected the sh"),
        ("w.safetensors", token_file(ids(&[1, 1], vec![1]), one()), "w.safetensors: `ids`: expected rows of 2 ids"),
        ("w.safetensors", token_file(ids(&[0, 2], vec![]), ids(&[0], vec![])), "w.safetensors: `ids`: expected rows"),
        ("w.safetensors", token_file(ids(&[1, 2], vec![1, -2]), one()), "w.safetensors: `ids` row 0, position 1: exp"),
    ];
    for (name, content, message) in cases {
        let error = read(name, &content).expect_err(message);
        assert!(error.starts_with(message), "got {error:?}, want {message:?}");
    }
    let missing = Windows::read(Path::new("no/such/eval.txt"), Some(&text()), 8).expect_err("missing").to_string();
    assert!(missing.starts_with("no/such/eval.txt: "), "{missing}");
}

/// The shared windows were cut by an independent program.
#[test]
fn shared_documents_give_the_shared_windows() {
    let shared = std::env::var_os("SMOE_SHARED").map_or_else(|| repository().join("../shared"), PathBuf::from);
    if !shared.is_dir() {
        println!("ran without ../shared");
        return;
    }
    println!("ran with ../shared");
    let text = text();
    let from_text = Windows::read(&shared.join("text/eval.jsonl"), Some(&text), 512).expect("windows");
    let from_ids = Windows::read(&shared.join("text/eval-windows.safetensors"), None, 512).expect("windows");
    assert_eq!((from_text.rows(), from_text.documents(), from_text.tokens()), (128, 32, 128 * 511));
    for row in 0..128 {
        assert_eq!(from_text.row(row), from_ids.row(row), "row {row}");
        assert_eq!(from_text.document(row), from_ids.document(row), "row {row}");
    }
}
