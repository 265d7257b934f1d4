//! [`Streamed`]: the experts of a vault, as many in memory as a budget allows.

use crate::policy::{Key, Policy};
use crate::readers::{Flight, Job, OnEnd, Readers, lock};
use crate::slot::Slot;
use smoe_engine::EngineError;
use smoe_engine::experts::{Arrival, Expert, ExpertLayout, ExpertSource, Pending};
use smoe_engine::sources::{ExpertPlace, expert_places};
use smoe_model::spec::ModelSpec;
use smoe_vault::VaultFile;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How experts are streamed.
#[derive(Debug, Clone, Copy)]
pub struct StreamOptions {
    /// Bytes of blobs in memory, at most.
    pub budget: u64,
    /// Threads that read. Two to four keep a drive busy; more only lengthen each read.
    pub readers: usize,
    /// How long a read may take before it is given up.
    pub patience: Duration,
    /// Whether the user wishes that a wait ends: asked while one lasts.
    pub interrupted: fn() -> bool,
}

impl StreamOptions {
    /// Four readers, a minute's patience, no interrupts.
    #[must_use]
    pub fn new(budget: u64) -> Self {
        Self { budget, readers: 4, patience: Duration::from_secs(60), interrupted: || false }
    }
}

/// What was asked for and what it took, since the source was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Experts that were in memory when they were asked for.
    pub hits: u64,
    /// Experts that were not.
    pub misses: u64,
    /// Blobs that were read.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Time that computing waited for them.
    pub waited: Duration,
}

/// A vault's experts under a budget.
pub struct Streamed {
    places: Vec<Vec<ExpertPlace>>,
    shared: Arc<Shared>,
    readers: Readers,
    /// Experts that may be pinned at once, half of those that fit: the other half is being read.
    at_once: usize,
    options: StreamOptions,
}

struct Shared {
    cache: Mutex<Cache>,
    /// A blob was read, or lost its last user.
    changed: Condvar,
    hits: AtomicU64,
    misses: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    waited_ns: AtomicU64,
}

#[derive(Default)]
struct Cache {
    policy: Policy,
    held: HashMap<Key, Arc<Slot>>,
    flights: HashMap<Key, Arc<Flight>>,
    /// Slots without a blob.
    free: Vec<Slot>,
    /// Bytes of all slots: held, free and being filled.
    bytes: u64,
}

impl Cache {
    /// An expert that is here or on its way, pinned.
    fn started(&self, key: &Key) -> Option<Started> {
        let here = || self.held.get(key).map(|slot| Started::Here(Arc::clone(slot)));
        let coming = || self.flights.get(key).map(|flight| Started::Coming(Arc::clone(flight)));
        here().or_else(coming)
    }

    /// Memory for a blob: a free slot of its size, new memory within the budget, or that of an expert that nobody uses.
    fn take(&mut self, len: usize, budget: u64) -> Result<Option<Slot>, std::io::Error> {
        loop {
            if let Some(at) = self.free.iter().position(|slot| slot.len() == len) {
                return Ok(Some(self.free.swap_remove(at)));
            }
            if self.bytes + len as u64 <= budget {
                self.bytes += len as u64;
                return Slot::new(len).inspect_err(|_| self.bytes -= len as u64).map(Some);
            }
            // A slot of another size makes room for one of this.
            if let Some(slot) = self.free.pop() {
                self.bytes -= slot.len() as u64;
                continue;
            }
            let unused = self.held.iter().filter(|(_, slot)| Arc::strong_count(slot) == 1).map(|(key, _)| *key);
            let Some(victim) = self.policy.victim(unused) else { return Ok(None) };
            if let Some(slot) = self.held.remove(&victim).and_then(Arc::into_inner) {
                self.free.push(slot);
            }
        }
    }
}

impl Streamed {
    /// The experts that `spec` asks for. None is read yet.
    ///
    /// # Errors
    /// An expert that is missing or has another shape than the spec says, a budget for fewer than two experts, threads
    /// that cannot be started.
    pub fn open(file: &Arc<VaultFile>, spec: &ModelSpec, options: &StreamOptions) -> Result<Self, EngineError> {
        let places = expert_places(file, spec)?;
        let largest = places.iter().flatten().map(|place| place.record.length).max().unwrap_or(1);
        let fit = options.budget / largest.max(1);
        if fit < 2 {
            let text = format!("a budget of {} B for experts of {largest} B; two must fit", options.budget);
            return Err(EngineError::Spec(text));
        }
        let shared = Arc::new(Shared {
            cache: Mutex::new(Cache::default()),
            changed: Condvar::new(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
        });
        let ends = Arc::clone(&shared);
        let on_end: Arc<OnEnd> = Arc::new(move |record, outcome| {
            let key = (record.layer as usize, record.expert);
            let mut cache = lock(&ends.cache);
            cache.flights.remove(&key);
            match outcome {
                Ok(slot) => {
                    ends.reads.fetch_add(1, Ordering::Relaxed);
                    ends.read_bytes.fetch_add(record.length, Ordering::Relaxed);
                    cache.held.insert(key, Arc::clone(slot));
                }
                // The slot went with the read.
                Err(_) => cache.bytes -= record.length,
            }
            ends.changed.notify_all();
        });
        let readers = Readers::start(options.readers, file, &on_end);
        let readers = readers.map_err(|e| EngineError::Threads { threads: options.readers, cause: e.to_string() })?;
        let at_once = usize::try_from(fit / 2).unwrap_or(usize::MAX);
        Ok(Self { places, shared, readers, at_once, options: *options })
    }

    /// The options that it was opened with.
    #[must_use]
    pub fn options(&self) -> &StreamOptions {
        &self.options
    }

    /// What was asked for and what it took.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let shared = &self.shared;
        Traffic {
            hits: of(&shared.hits),
            misses: of(&shared.misses),
            reads: of(&shared.reads),
            read_bytes: of(&shared.read_bytes),
            waited: Duration::from_nanos(of(&shared.waited_ns)),
        }
    }

    /// Experts by falling use: what another run over the same vault should read first.
    #[must_use]
    pub fn hottest(&self) -> Vec<Key> {
        lock(&self.shared.cache).policy.hottest()
    }

    /// Begins to read experts, in this order, until the budget is full; gives how many. Those that the vault does not have
    /// are passed over: a list from elsewhere is a hint. Nothing is counted as used.
    pub fn warm(&self, keys: &[Key]) -> usize {
        let mut cache = lock(&self.shared.cache);
        let mut begun = 0;
        for &key in keys {
            let Ok(place) = self.place(key) else { continue };
            if cache.started(&key).is_some() {
                continue;
            }
            if cache.bytes + place.record.length > self.options.budget {
                break;
            }
            begun += usize::from(matches!(self.begin(&mut cache, key, place), Ok(Some(_))));
        }
        begun
    }

    fn place(&self, (layer, id): Key) -> Result<&ExpertPlace, EngineError> {
        let place = self.places.get(layer).and_then(|layer| layer.get(id as usize));
        place.ok_or_else(|| EngineError::Spec(format!("layer {layer} has no expert {id}")))
    }

    /// Begins to read an expert that is neither here nor on its way; `None` while there is no room for it.
    fn begin(&self, cache: &mut Cache, key: Key, place: &ExpertPlace) -> Result<Option<Arc<Flight>>, EngineError> {
        let len = usize::try_from(place.record.length).unwrap_or(usize::MAX);
        let slot = cache.take(len, self.options.budget);
        let slot = slot.map_err(|e| EngineError::Spec(format!("no memory for {len} B of an expert: {e}")))?;
        let Some(slot) = slot else { return Ok(None) };
        let flight = Arc::new(Flight::default());
        cache.flights.insert(key, Arc::clone(&flight));
        self.readers.submit(Job { record: place.record, slot, flight: Arc::clone(&flight) });
        Ok(Some(flight))
    }

    /// [`Streamed::begin`], waiting for room: another session may hold it for a moment.
    fn begin_when_possible(&self, key: Key, place: &ExpertPlace) -> Result<Started, EngineError> {
        let end = Instant::now() + self.options.patience;
        let mut cache = lock(&self.shared.cache);
        loop {
            if let Some(started) = cache.started(&key) {
                return Ok(started);
            }
            if let Some(flight) = self.begin(&mut cache, key, place)? {
                return Ok(Started::Coming(flight));
            }
            if (self.options.interrupted)() {
                return Err(EngineError::Interrupted);
            }
            let Some(left) = end.checked_duration_since(Instant::now()) else {
                return Err(self.stalled(key, "no room in memory came free"));
            };
            // A pin that is dropped tells nobody: look again soon.
            let left = left.min(Duration::from_millis(1));
            cache = self.shared.changed.wait_timeout(cache, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn stalled(&self, (layer, expert): Key, what: &'static str) -> EngineError {
        EngineError::Stalled { layer, expert, what, seconds: self.options.patience.as_secs() }
    }
}

enum Started {
    Here(Arc<Slot>),
    Coming(Arc<Flight>),
}

impl ExpertSource for Streamed {
    fn fetch(&self, layer: usize, ids: &[u32]) -> Result<Vec<Expert>, EngineError> {
        let arrive = |pending| match pending {
            Pending::Here(expert) => Ok(expert),
            Pending::Coming(arrival) => arrival.wait(),
        };
        self.request(layer, ids)?.into_iter().map(arrive).collect()
    }

    fn request(&self, layer: usize, ids: &[u32]) -> Result<Vec<Pending>, EngineError> {
        // First those that are here or on their way, pinned before any room is made: none of them is read twice.
        let mut found: Vec<Option<Started>> = Vec::with_capacity(ids.len());
        {
            let mut cache = lock(&self.shared.cache);
            for &id in ids {
                self.place((layer, id))?;
                cache.policy.used((layer, id));
                let started = cache.started(&(layer, id));
                let hit = matches!(started, Some(Started::Here(_)));
                let counter = if hit { &self.shared.hits } else { &self.shared.misses };
                counter.fetch_add(1, Ordering::Relaxed);
                found.push(started);
            }
        }
        let mut pending = Vec::with_capacity(ids.len());
        for (&id, started) in ids.iter().zip(found) {
            let (key, place) = ((layer, id), self.place((layer, id))?);
            let layout = Arc::clone(&place.layout);
            let started = started.map_or_else(|| self.begin_when_possible(key, place), Ok)?;
            pending.push(match started {
                Started::Here(bytes) => Pending::Here(Expert { layout, bytes }),
                Started::Coming(flight) => Pending::Coming(Box::new(Coming {
                    key,
                    layout,
                    flight,
                    shared: Arc::clone(&self.shared),
                    options: self.options,
                })),
            });
        }
        Ok(pending)
    }

    fn at_once(&self) -> usize {
        self.at_once
    }

    fn holds(&self, layer: usize, id: u32) -> bool {
        let cache = lock(&self.shared.cache);
        cache.held.contains_key(&(layer, id)) || cache.flights.contains_key(&(layer, id))
    }

    fn expect(&self, layer: usize, ids: &[u32]) {
        let mut cache = lock(&self.shared.cache);
        for &id in ids {
            let key = (layer, id);
            if cache.held.contains_key(&key) || cache.flights.contains_key(&key) {
                continue;
            }
            let Ok(place) = self.place(key) else { return };
            // Only a hint: where there is no room now, the request will make it.
            if !matches!(self.begin(&mut cache, key, place), Ok(Some(_))) {
                return;
            }
        }
    }

    fn resident_bytes(&self) -> u64 {
        self.options.budget
    }
}

/// An expert on its way.
struct Coming {
    key: Key,
    layout: Arc<ExpertLayout>,
    flight: Arc<Flight>,
    shared: Arc<Shared>,
    options: StreamOptions,
}

impl Arrival for Coming {
    fn has_arrived(&self) -> bool {
        self.flight.has_landed()
    }

    fn wait(self: Box<Self>) -> Result<Expert, EngineError> {
        let (began, (layer, expert)) = (Instant::now(), self.key);
        let outcome = self.flight.wait(self.options.patience, self.options.interrupted);
        let waited = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.shared.waited_ns.fetch_add(waited, Ordering::Relaxed);
        let Some(outcome) = outcome else {
            if (self.options.interrupted)() {
                return Err(EngineError::Interrupted);
            }
            let seconds = self.options.patience.as_secs();
            return Err(EngineError::Stalled { layer, expert, what: "no answer to a read", seconds });
        };
        Ok(Expert { layout: self.layout, bytes: outcome.map_err(EngineError::Expert)? })
    }
}
