//! A streamed model says what a resident one says, bit for bit, on every drive that can be read; and on one that cannot,
//! it says which expert.

use smoe_engine::sources::VaultExperts;
use smoe_engine::{Engine, EngineError, EngineOptions, Silent, VaultStore, Want};
use smoe_model::store::TensorStore;
use smoe_quantize::Control;
use smoe_quantize::convert::{QuantizeOptions, quantize};
use smoe_quantize::synth::{self, Overrides, SynthOptions};
use smoe_stream::{Direct, StreamOptions, Streamed, Traffic};
use smoe_vault::{Drive, VaultFile};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A small vault, and the folder that it lies in.
struct Vault {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

fn vault() -> Vault {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (source, path) = (folder.path().join("tiny"), folder.path().join("v"));
    let options = SynthOptions { shape: "tiny".into(), overrides: Overrides::default(), seed: 1, force: false };
    synth::checkpoint(&source, &options, &Control::silent()).expect("a synthetic checkpoint");
    quantize(&source, &path, &QuantizeOptions::new(smoe_codec::Codec::Q4), &Control::silent()).expect("converted");
    Vault { path, _folder: folder }
}

const MINUTE: Duration = Duration::from_secs(60);

const IDS: [u32; 24] = [5, 9, 14, 3, 88, 120, 7, 61, 4, 33, 45, 260, 300, 11, 12, 400, 77, 10, 9, 5, 2, 200, 310, 8];

fn options() -> EngineOptions {
    EngineOptions { threads: 2, ..EngineOptions::default() }
}

fn logits(engine: &Engine, chunk: usize) -> Result<Vec<f32>, EngineError> {
    let mut session = engine.session();
    session.chunk = chunk;
    engine.forward(&mut session, &IDS, &mut Silent, Want::All)
}

fn streamed(file: &Arc<VaultFile>, stream: &StreamOptions) -> (Engine, Arc<Streamed>) {
    let store = VaultStore::new(Arc::clone(file)).expect("a model");
    let source = Arc::new(Streamed::open(file, store.spec(), stream).expect("a source"));
    let engine = Engine::new(&store, Box::new(Arc::clone(&source)), &options()).expect("an engine");
    (engine, source)
}

fn on(drive: Box<dyn Drive>) -> Arc<VaultFile> {
    Arc::new(VaultFile::from_drive(drive, "v").expect("a vault"))
}

fn resident(vault: &Vault) -> Vec<f32> {
    let store = VaultStore::open(&vault.path).expect("a vault");
    let source = VaultExperts::load(store.file(), store.spec()).expect("experts");
    logits(&Engine::new(&store, Box::new(source), &options()).expect("an engine"), IDS.len()).expect("logits")
}

/// Bytes of the largest expert, and of all.
fn sizes(vault: &Vault) -> (u64, u64) {
    let file = VaultFile::open(&vault.path).expect("a vault");
    let lengths = || file.experts().iter().map(|record| record.length);
    (lengths().max().expect("experts"), lengths().sum())
}

#[test]
fn budgets_readers_chunks_and_ways_to_read_change_no_bit() {
    let vault = vault();
    let wanted = resident(&vault);
    let (largest, all) = sizes(&vault);
    for direct in [true, false] {
        for budget in [2 * largest, 5 * largest, all / 2, 2 * all] {
            for (readers, chunk) in [(1, 24), (4, 7), (3, 1)] {
                let drive = if direct { Direct::open(&vault.path) } else { Direct::buffered(&vault.path) };
                let drive = drive.expect("the vault");
                println!("{}", drive.reads().describe());
                let stream = StreamOptions { readers, ..StreamOptions::new(budget) };
                let (engine, source) = streamed(&on(Box::new(drive)), &stream);
                let found = logits(&engine, chunk).expect("logits");
                assert!(found == wanted, "budget {budget}, {readers} readers, chunks of {chunk}");
                let again = logits(&engine, chunk).expect("logits");
                assert!(again == wanted, "a second text");
                let traffic = source.traffic();
                assert_eq!(traffic.reads > 0, traffic.read_bytes > 0);
            }
        }
    }
}

/// What fits is read once, ever; what does not is read once for each layer of a chunk.
#[test]
fn an_expert_is_read_at_most_once_a_chunk() {
    let vault = vault();
    let (largest, all) = sizes(&vault);
    let count = VaultFile::open(&vault.path).expect("a vault").experts().len() as u64;
    let reads = |budget: u64, chunk: usize| -> (Traffic, u64) {
        let drive = Direct::open(&vault.path).expect("the vault");
        let (engine, source) = streamed(&on(Box::new(drive)), &StreamOptions::new(budget));
        logits(&engine, chunk).expect("logits");
        (source.traffic(), IDS.len().div_ceil(chunk) as u64)
    };
    for budget in [2 * largest, 3 * largest, all / 2] {
        for chunk in [24, 8] {
            let (traffic, chunks) = reads(budget, chunk);
            assert!(traffic.reads <= chunks * count, "{traffic:?} in {chunks} chunks of {count} experts");
            assert!(traffic.reads <= traffic.hits + traffic.misses, "{traffic:?}: something was read for nothing");
        }
    }
    let (traffic, _) = reads(2 * all, 1);
    // What was expected may be there before it is asked for: a read without a miss.
    assert!(traffic.reads <= count && traffic.reads >= traffic.misses, "{traffic:?}");
}

/// What a run used most is what another one reads first, as far as its budget goes; and it is then there.
#[test]
fn a_warm_start_reads_what_was_used_most() {
    let vault = vault();
    let (largest, all) = sizes(&vault);
    let open = |budget| {
        let drive = Direct::open(&vault.path).expect("the vault");
        streamed(&on(Box::new(drive)), &StreamOptions::new(budget))
    };
    let (engine, source) = open(2 * all);
    let wanted = logits(&engine, 8).expect("logits");
    let mut hot = source.hottest();
    assert_eq!(hot.len() as u64, source.traffic().reads);
    hot.insert(0, (99, 7)); // Another model's: passed over.
    let (engine, source) = open(2 * all);
    assert_eq!(source.warm(&hot), hot.len() - 1);
    assert!(logits(&engine, 8).expect("logits") == wanted);
    let traffic = source.traffic();
    assert_eq!(traffic.reads, hot.len() as u64 - 1, "nothing is read twice: {traffic:?}");
    let (_, source) = open(3 * largest);
    assert_eq!(source.warm(&hot), 3, "as many as fit");
}

/// A drive with a fault in every read of a blob.
struct Hostile {
    inner: std::fs::File,
    fault: Fault,
    reads: AtomicU64,
}

#[derive(Clone)]
enum Fault {
    /// At most so many bytes at once, and an interrupt in between.
    Short(usize),
    /// An error from this offset on.
    Error(u64),
    /// A flipped bit from this offset on.
    Flip(u64),
    /// Nothing, from this offset on, until the gate opens.
    Stall(u64, Arc<(Mutex<bool>, Condvar)>),
}

impl Drive for Hostile {
    fn len_bytes(&self) -> io::Result<u64> {
        self.inner.len_bytes()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        match &self.fault {
            Fault::Short(most) => {
                if self.reads.fetch_add(1, Ordering::Relaxed) % 3 == 2 {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                let len = out.len().min(*most);
                Drive::read_at(&self.inner, offset, &mut out[..len])
            }
            Fault::Error(from) if offset >= *from => Err(io::Error::other("the drive is gone")),
            Fault::Flip(from) if offset >= *from => {
                let read = Drive::read_at(&self.inner, offset, out)?;
                out[read / 2] ^= 16;
                Ok(read)
            }
            Fault::Stall(from, gate) if offset >= *from => {
                let mut open = gate.0.lock().expect("nobody panics");
                while !*open {
                    open = gate.1.wait(open).expect("nobody panics");
                }
                Err(io::Error::other("too late"))
            }
            _ => Drive::read_at(&self.inner, offset, out),
        }
    }
}

/// An engine whose experts lie on a hostile drive; trunk and index are read from the file as it is.
fn hostile(vault: &Vault, fault: impl FnOnce(u64) -> Fault, patience: Duration) -> Engine {
    let store = VaultStore::open(&vault.path).expect("a model");
    let from = store.file().experts().iter().map(|record| record.offset).min().expect("experts");
    let inner = std::fs::File::open(&vault.path).expect("the vault");
    let armed = Arc::new(AtomicBool::new(false));
    let calm = inner.try_clone().expect("a handle");
    let hostile = Hostile { inner, fault: fault(from), reads: AtomicU64::new(0) };
    let file = on(Box::new(Armed { calm, armed: Arc::clone(&armed), hostile }));
    armed.store(true, Ordering::Relaxed);
    let (largest, _) = sizes(vault);
    let stream = StreamOptions { patience, readers: 2, ..StreamOptions::new(6 * largest) };
    let source = Streamed::open(&file, store.spec(), &stream).expect("a source");
    Engine::new(&store, Box::new(source), &options()).expect("an engine")
}

/// Calm until it is armed.
struct Armed {
    calm: std::fs::File,
    armed: Arc<AtomicBool>,
    hostile: Hostile,
}

impl Drive for Armed {
    fn len_bytes(&self) -> io::Result<u64> {
        self.calm.len_bytes()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        if self.armed.load(Ordering::Relaxed) {
            self.hostile.read_at(offset, out)
        } else {
            Drive::read_at(&self.calm, offset, out)
        }
    }
}

#[test]
fn short_reads_and_interrupts_change_nothing() {
    let vault = vault();
    let wanted = resident(&vault);
    for most in [1, 511, 4096] {
        let engine = hostile(&vault, |_| Fault::Short(most), MINUTE);
        let found = logits(&engine, 8).expect("logits");
        assert!(found == wanted, "at most {most} B at once");
    }
}

#[test]
fn errors_and_damage_name_the_expert() {
    let vault = vault();
    let error = logits(&hostile(&vault, Fault::Error, MINUTE), 8).expect_err("a drive that is gone").to_string();
    assert!(error.contains("layer") && error.contains("expert") && error.contains("the drive is gone"), "{error}");
    let error = logits(&hostile(&vault, Fault::Flip, MINUTE), 8).expect_err("a damaged blob").to_string();
    assert!(error.contains("layer") && error.contains("expert") && error.contains("checksum"), "{error}");
}

#[test]
fn a_drive_that_does_not_answer_is_given_up() {
    let vault = vault();
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let engine = hostile(&vault, |from| Fault::Stall(from, Arc::clone(&gate)), Duration::from_millis(50));
    let error = logits(&engine, 8).expect_err("a stalled drive").to_string();
    assert!(error.contains("layer 0, expert") && error.contains("no answer to a read"), "{error}");
    // The source waits for its readers when it goes: let them.
    *gate.0.lock().expect("nobody panics") = true;
    gate.1.notify_all();
}
