//! Hostile drives and hostile files: the right answer or an error, never a panic, a hang or bytes that were not
//! written.

mod small;

use serde_json::Value;
use small::{Memory, Rng};
use smoe_vault::{
    Drive, DriveMut, HEADER_BYTES, Header, VaultFile, VaultIndex, checksum, record_verdict_on, verify_drive,
};
use std::io;
use std::sync::Mutex;

/// Short reads, interrupts, and errors now and then.
struct Unreliable {
    memory: Memory,
    rng: Mutex<Rng>,
    errors: bool,
}

impl Drive for Unreliable {
    fn len_bytes(&self) -> io::Result<u64> {
        self.memory.len_bytes()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let (dice, share) = {
            let mut rng = self.rng.lock().expect("no test thread panicked");
            (rng.below(40), rng.below(out.len().max(1)) + 1)
        };
        match dice {
            0 if self.errors => Err(io::Error::from_raw_os_error(5)),
            1..=8 => Err(io::ErrorKind::Interrupted.into()),
            _ => self.memory.read_at(offset, &mut out[..share]),
        }
    }
}

/// Reads everything; the bytes of trunk and blobs one after another.
fn read_all(drive: Box<dyn Drive>) -> Result<Vec<u8>, smoe_vault::VaultError> {
    let vault = VaultFile::from_drive(drive, "v")?;
    let mut all = Vec::new();
    for section in &vault.manifest().sections {
        all.extend(vault.section(&section.name)?.unwrap_or_default());
    }
    for tensor in &vault.manifest().trunk {
        let mut bytes = vec![0; tensor.length as usize];
        // In two pieces, as a reader of rows does.
        let (head, tail) = bytes.split_at_mut(tensor.length as usize / 2);
        vault.read_trunk(&tensor.name, 0, head)?;
        vault.read_trunk(&tensor.name, head.len() as u64, tail)?;
        all.extend(bytes);
    }
    for record in vault.experts() {
        all.extend(vault.read_blob(record)?);
    }
    Ok(all)
}

#[test]
fn short_reads_and_interrupts_change_nothing_and_errors_are_errors() {
    let bytes = small::bytes();
    let expected = read_all(Box::new(Memory::of(&bytes))).expect("a vault");
    let mut failed = 0;
    for seed in 0..60 {
        let errors = seed % 2 == 1;
        let drive = || Unreliable { memory: Memory::of(&bytes), rng: Mutex::new(Rng(seed)), errors };
        match read_all(Box::new(drive())) {
            Ok(found) => assert_eq!(found, expected),
            Err(error) => {
                assert!(errors && error.to_string().contains("cannot read: "), "{error}");
                failed += 1;
            }
        }
        let faults = verify_drive(&drive(), &mut |_, _| ());
        assert!(errors || faults.is_empty(), "{faults:?}");
    }
    assert!(failed > 10, "{failed}");
}

/// A drive that interrupts for ever must not hang a reader.
struct Stuck;

impl Drive for Stuck {
    fn len_bytes(&self) -> io::Result<u64> {
        Ok(1 << 20)
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Interrupted.into())
    }
}

#[test]
fn endless_interrupts_end() {
    assert!(read_all(Box::new(Stuck)).expect_err("stuck").to_string().starts_with("v: header: cannot read"));
}

#[test]
fn a_cut_at_every_byte_is_refused() {
    let bytes = small::bytes();
    for cut in 0..bytes.len() {
        // A drive that knows its length, and one that ends early in spite of it.
        let error = VaultFile::from_drive(Box::new(Memory::of(&bytes[..cut])), "v").expect_err("cut").to_string();
        assert!(error.starts_with("v: "), "{error}");
    }
    for cut in (0..bytes.len()).step_by(97) {
        let drive = Cut { memory: Memory::of(&bytes[..cut]), length: bytes.len() as u64 };
        assert!(read_all(Box::new(drive)).is_err(), "cut at {cut}");
    }
    let mut longer = bytes;
    longer.push(0);
    let faults = verify_drive(&Memory::of(&longer), &mut |_, _| ());
    assert!(faults.len() == 1 && faults[0].to_string().starts_with("tail: 1 B follow the end"), "{faults:?}");
}

/// A file that shrank after its length was read.
struct Cut {
    memory: Memory,
    length: u64,
}

impl Drive for Cut {
    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.length)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        self.memory.read_at(offset, out)
    }
}

#[test]
fn a_flipped_bit_never_comes_out_of_a_read() {
    let bytes = small::bytes();
    let expected = read_all(Box::new(Memory::of(&bytes))).expect("a vault");
    let mut rng = Rng(3);
    for _ in 0..3000 {
        let drive = Memory::of(&bytes);
        drive.flip(rng.below(bytes.len()), 1 << rng.below(8));
        if let Ok(found) = read_all(Box::new(drive)) {
            assert_eq!(found, expected, "only padding may be flipped unseen, and `verify` sees that");
        }
    }
}

/// A vault's bytes with a changed table and manifest and all checksums right.
fn rebuilt(bytes: &[u8], index: &VaultIndex, table: &[u8], manifest: &[u8]) -> Vec<u8> {
    let mut out = bytes[..index.header.manifest_offset as usize].to_vec();
    let at = index.manifest.experts.offset as usize;
    out[at..at + table.len()].copy_from_slice(table);
    out.extend(manifest);
    let header = Header {
        manifest_length: manifest.len() as u64,
        file_length: out.len() as u64,
        manifest_checksum: checksum(manifest),
        ..index.header
    };
    out[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
    out
}

/// Changes one value of the JSON tree.
fn mutate(value: &mut Value, rng: &mut Rng) {
    match value {
        Value::Array(list) if !list.is_empty() && rng.below(8) > 0 => {
            let at = rng.below(list.len());
            match rng.below(6) {
                0 => drop(list.remove(at)),
                1 => list.push(list[at].clone()),
                2 => list.swap(0, at),
                _ => mutate(&mut list[at], rng),
            }
        }
        Value::Object(map) if !map.is_empty() && rng.below(12) > 0 => {
            let key = map.keys().nth(rng.below(map.len())).expect("a key").clone();
            match rng.below(16) {
                0 => drop(map.remove(&key)),
                1 => drop(map.insert("more".into(), Value::Null)),
                _ => mutate(&mut map[&key], rng),
            }
        }
        Value::Number(n) => {
            let n = n.as_u64().unwrap_or(0);
            let near = [n ^ (1 << rng.below(64)), n.wrapping_add(1), n.wrapping_sub(1), n.wrapping_add(64)];
            let far = [0, 1, u64::MAX, u64::MAX / 2, 1 << 32, n.wrapping_mul(3)];
            *value = near.iter().chain(&far).nth(rng.below(10)).copied().into();
        }
        _ => *value = [Value::Null, "x".into(), (-1).into(), 1e300.into(), Value::Array(vec![])][rng.below(5)].clone(),
    }
}

#[test]
fn mutations_with_right_checksums_are_refused_or_harmless() {
    let bytes = small::bytes();
    let index = VaultFile::from_drive(Box::new(Memory::of(&bytes)), "v").expect("a vault").index().clone();
    let table: Vec<u8> = index.experts.iter().flat_map(smoe_vault::ExpertRecord::to_bytes).collect();
    let manifest = serde_json::to_value(&index.manifest).expect("JSON");
    let mut rng = Rng(11);
    let (mut refused, cases) = (0, 20_000);
    for case in 0..cases {
        let (mut table, mut manifest) = (table.clone(), manifest.clone());
        if case % 2 == 0 {
            for _ in 0..1 + rng.below(2) {
                let at = rng.below(table.len());
                table[at] = [0, 1, 0x80, 0xff, rng.next() as u8][rng.below(5)];
            }
        } else {
            mutate(&mut manifest, &mut rng);
        }
        if let Some(experts) = manifest.get_mut("experts").and_then(Value::as_object_mut) {
            experts.insert("checksum".into(), format!("{:016x}", checksum(&table)).into());
        }
        let hostile = rebuilt(&bytes, &index, &table, &serde_json::to_vec(&manifest).expect("JSON"));
        let drive = Memory::of(&hostile);
        let faults = verify_drive(&drive, &mut |_, _| ());
        refused += usize::from(!faults.is_empty());
        // A tensor that was taken out leaves bytes that only `verify` sees; what it accepts can be read.
        assert!(read_all(Box::new(drive)).is_ok() || !faults.is_empty(), "case {case}");
    }
    assert!(refused > cases / 2, "{refused} of {cases}");
}

/// A scale that no writer writes, in a blob whose checksum is right: refused where it is read.
#[test]
fn a_bad_scale_with_a_right_checksum_is_refused() {
    let bytes = small::bytes();
    let index = VaultFile::from_drive(Box::new(Memory::of(&bytes)), "v").expect("a vault").index().clone();
    for (expert, proj, name) in [(0, 0, "gate"), (1, 1, "up"), (2, 2, "down")] {
        for bad in [0x7C00u16, 0x7E01, 0x8000, 0xBC00] {
            let (mut bytes, mut index) = (bytes.clone(), index.clone());
            let record = &mut index.experts[expert];
            let place = record.offset as usize..(record.offset + record.length) as usize;
            let scales = record.layout().expect("a small expert").scales(proj);
            bytes[place.clone()][scales][..2].copy_from_slice(&bad.to_le_bytes());
            record.checksum = checksum(&bytes[place]);
            let table: Vec<u8> = index.experts.iter().flat_map(smoe_vault::ExpertRecord::to_bytes).collect();
            index.manifest.experts.checksum = checksum(&table);
            let manifest = serde_json::to_vec(&index.manifest).expect("JSON");
            let drive = Memory::of(&rebuilt(&bytes, &index, &table, &manifest));
            let vault = VaultFile::from_drive(Box::new(drive.clone()), "v").expect("an index without fault");
            let error = vault.read_blob(&vault.experts()[expert]).expect_err("refused").to_string();
            assert!(error.contains(&format!("{name} scale 0 is negative or not finite")), "{bad:#06x}: {error}");
            assert_eq!(verify_drive(&drive, &mut |_, _| ()).len(), 1, "{bad:#06x}");
        }
    }
}

#[test]
fn random_files_are_refused() {
    let mut rng = Rng(5);
    for case in 0..3000 {
        let n = rng.below(4096);
        let mut bytes = rng.bytes(n);
        if case % 2 == 0 && bytes.len() >= HEADER_BYTES {
            // A right header over random bytes.
            let manifest = rng.below(bytes.len() - 63) + 64;
            let length = bytes.len() as u64;
            let header = Header {
                flags: 0,
                manifest_offset: manifest as u64,
                manifest_length: length - manifest as u64,
                file_length: length,
                manifest_checksum: checksum(&bytes[manifest..]),
            };
            bytes[..64].copy_from_slice(&header.to_bytes());
        }
        assert_eq!(verify_drive(&Memory::of(&bytes), &mut |_, _| ()).len(), 1);
    }
}

/// Remembers what was done to a drive.
struct Recorder {
    memory: Memory,
    log: Mutex<Vec<Op>>,
}

#[derive(Clone)]
enum Op {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

impl Drive for Recorder {
    fn len_bytes(&self) -> io::Result<u64> {
        self.memory.len_bytes()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        self.memory.read_at(offset, out)
    }
}

impl DriveMut for Recorder {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.log.lock().expect("alone").push(Op::Write(offset, bytes.to_vec()));
        self.memory.write_at(offset, bytes)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.log.lock().expect("alone").push(Op::SetLen(length));
        self.memory.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_verdict_that_is_cut_short_leaves_a_whole_vault() {
    let bytes = small::bytes();
    let recorder = Recorder { memory: Memory::of(&bytes), log: Mutex::default() };
    record_verdict_on(&recorder, Value::from("pass")).expect("room");
    let log = recorder.log.lock().expect("alone").clone();
    let mut cases = Vec::new();
    for (i, op) in log.iter().enumerate() {
        // The header is written at once; the manifest may be cut at any byte.
        let cuts = match op {
            Op::Write(offset, data) if *offset > 0 => (0..data.len()).step_by(41).collect(),
            _ => vec![0],
        };
        cases.extend(cuts.into_iter().map(|cut| (i, cut)));
    }
    assert!(cases.len() > 20);
    for (whole, cut) in cases {
        let drive = Memory::of(&bytes);
        for op in &log[..whole] {
            apply(&drive, op);
        }
        if let Op::Write(offset, data) = &log[whole] {
            apply(&drive, &Op::Write(*offset, data[..cut].to_vec()));
        }
        let vault = VaultFile::from_drive(Box::new(drive.clone()), "v").expect("whole");
        assert_eq!(vault.manifest().verdict, None, "step {whole}, cut {cut}");
        read_all(Box::new(drive.clone())).expect("whole");
        record_verdict_on(&drive, Value::from("fail")).expect("room");
        assert_eq!(verify_drive(&drive, &mut |_, _| ()), [], "step {whole}, cut {cut}");
        let vault = VaultFile::from_drive(Box::new(drive), "v").expect("whole");
        assert_eq!(vault.manifest().verdict, Some(Value::from("fail")));
    }
}

fn apply(drive: &Memory, op: &Op) {
    match op {
        Op::Write(offset, data) => drop(drive.write_at(*offset, data).expect("room")),
        Op::SetLen(length) => drive.set_len(*length).expect("room"),
    }
}
