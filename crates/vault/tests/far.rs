//! Offsets beyond 4 GiB, on a drive that stores only what is not zero.

mod small;

use smoe_vault::{
    Assembly, Drive, DriveMut, Dtype, Layout, Unit, VaultFile, WriteStep, checksum, run_steps, verify_drive,
};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

const PAGE: u64 = 4096;

/// Pages by number (others are zero), and the length.
type Pages = (BTreeMap<u64, Vec<u8>>, u64);

#[derive(Clone, Default)]
struct Sparse(Arc<Mutex<Pages>>);

impl Drive for Sparse {
    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.0.lock().expect("alone").1)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let state = self.0.lock().expect("alone");
        let take = out.len().min(state.1.saturating_sub(offset) as usize);
        out[..take].fill(0);
        for (page, bytes) in state.0.range(offset / PAGE..(offset + take as u64).div_ceil(PAGE)) {
            for (i, &byte) in bytes.iter().enumerate() {
                let at = page * PAGE + i as u64;
                if at >= offset && at < offset + take as u64 {
                    out[(at - offset) as usize] = byte;
                }
            }
        }
        Ok(take)
    }
}

impl DriveMut for Sparse {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock().expect("alone");
        let take = bytes.len().min((PAGE - offset % PAGE) as usize);
        let page = state.0.entry(offset / PAGE).or_insert_with(|| vec![0; PAGE as usize]);
        page[(offset % PAGE) as usize..][..take].copy_from_slice(&bytes[..take]);
        state.1 = state.1.max(offset + take as u64);
        Ok(take)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.lock().expect("alone").1 = length;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_expert_past_4_gib_is_written_read_and_verified() {
    let mut builder = Layout::builder();
    builder.trunk("zeros", Dtype::F32, &[1 << 30]);
    for shape in small::EXPERTS {
        builder.expert(shape);
    }
    let mut assembly = Assembly::new(builder.build().expect("places"));
    let drive = Sparse::default();
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    let zeros = vec![0; 1 << 20];
    (0..1 << 12).for_each(|_| hash.update(&zeros));
    assembly.accept(Unit::Trunk(0), hash.digest());
    for i in 0..3 {
        let (blob, offset) = (small::blob(i), assembly.region(Unit::Expert(i)).offset);
        assert!(offset > u64::from(u32::MAX));
        run_steps(&drive, &[WriteStep::Write { offset, bytes: blob.clone() }]).expect("room");
        assembly.accept(Unit::Expert(i), checksum(&blob));
    }
    run_steps(&drive, &assembly.close(small::contents()).expect("whole")).expect("room");

    let vault = VaultFile::from_drive(Box::new(drive.clone()), "far").expect("a vault");
    for (i, record) in vault.experts().iter().enumerate() {
        assert_eq!(vault.read_blob(record).expect("whole"), small::blob(i));
    }
    assert_eq!(verify_drive(&drive, &mut |_, _| ()), []);
    let at = vault.experts()[2].offset + 3;
    let mut byte = [0];
    drive.read_at(at, &mut byte).expect("a byte");
    drive.write_at(at, &[byte[0] ^ 1]).expect("room");
    assert_eq!(verify_drive(&drive, &mut |_, _| ())[0].place, vault.experts()[2].place());
}
