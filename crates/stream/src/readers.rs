//! Threads that read blobs.

use crate::slot::Slot;
use smoe_vault::{ExpertRecord, VaultError, VaultFile};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a read ended with.
pub(crate) type Outcome = Result<Arc<Slot>, Arc<VaultError>>;

/// How often a wait asks whether it is still wished for.
const ASK: Duration = Duration::from_millis(50);

/// A blob on its way, which several may wait for.
#[derive(Default)]
pub(crate) struct Flight {
    outcome: Mutex<Option<Outcome>>,
    landed: Condvar,
}

impl Flight {
    /// Whether [`Flight::wait`] would return at once.
    pub(crate) fn has_landed(&self) -> bool {
        lock(&self.outcome).is_some()
    }

    /// The blob, or why there is none; `None` when it is not there in time, or the user has no time.
    pub(crate) fn wait(&self, patience: Duration, interrupted: fn() -> bool) -> Option<Outcome> {
        let end = Instant::now() + patience;
        let mut outcome = lock(&self.outcome);
        loop {
            if let Some(outcome) = &*outcome {
                return Some(outcome.clone());
            }
            let left = end.checked_duration_since(Instant::now()).filter(|_| !interrupted())?;
            outcome = self.landed.wait_timeout(outcome, left.min(ASK)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn land(&self, outcome: Outcome) {
        *lock(&self.outcome) = Some(outcome);
        self.landed.notify_all();
    }
}

/// A panic elsewhere left what the lock guards whole: nothing here is half done while it is held.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A read to be made.
pub(crate) struct Job {
    pub(crate) record: ExpertRecord,
    pub(crate) slot: Slot,
    pub(crate) flight: Arc<Flight>,
}

/// Called with each job's end before those who wait for it.
pub(crate) type OnEnd = dyn Fn(&ExpertRecord, &Outcome) + Send + Sync;

/// Some threads with one queue.
pub(crate) struct Readers {
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub(crate) fn start(threads: usize, file: &Arc<VaultFile>, on_end: &Arc<OnEnd>) -> std::io::Result<Self> {
        let (jobs, queue) = channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        let start = |i: usize| {
            let (file, queue, on_end) = (Arc::clone(file), Arc::clone(&queue), Arc::clone(on_end));
            std::thread::Builder::new().name(format!("smoe-read-{i}")).spawn(move || work(&file, &queue, &*on_end))
        };
        let threads = (0..threads.max(1)).map(start).collect::<std::io::Result<_>>()?;
        Ok(Self { jobs: Some(jobs), threads })
    }

    /// Hands a read to the threads.
    pub(crate) fn submit(&self, job: Job) {
        // The threads end only when this is dropped.
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A reader that panicked has nothing to say here; its flight was never landed and its waiter gave up.
            let _ = thread.join();
        }
    }
}

fn work(file: &VaultFile, queue: &Mutex<Receiver<Job>>, on_end: &OnEnd) {
    loop {
        let job = lock(queue).recv();
        let Ok(Job { record, mut slot, flight }) = job else { return };
        let read = file.read_blob_into(&record, slot.bytes_mut());
        let outcome = read.map(|()| Arc::new(slot)).map_err(Arc::new);
        on_end(&record, &outcome);
        flight.land(outcome);
    }
}
