//! Huge counts in small files: refused before memory is taken. Alone in its process, so that its peak is its own.

mod small;

use small::Memory;
use smoe_vault::smoe_v2::SmoeFile;
use smoe_vault::{Header, VaultFile, checksum};

/// Peak resident bytes of this process, where the system says.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// A file of a right header and this manifest.
fn with_manifest(manifest: &[u8], flags: u32) -> Vec<u8> {
    let header = Header {
        flags,
        manifest_offset: 64,
        manifest_length: manifest.len() as u64,
        file_length: 64 + manifest.len() as u64,
        manifest_checksum: checksum(manifest),
    };
    [&header.to_bytes()[..], manifest].concat()
}

#[test]
fn no_file_takes_more_than_its_length_and_64_mib() {
    let manifest = |table: &str, trunk: &str, spec: &str| {
        format!(
            r#"{{"spec":{spec},"bindings":null,"codecs":[],"experts":{table},"sections":[],"trunk":[{trunk}],"provenance":null,"verdict":null,"retired":[]}}"#
        )
    };
    let table = |length: u64| format!(r#"{{"offset":64,"length":{length},"checksum":"0000000000000000"}}"#);
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let wide = format!("[{}0]", "0,".repeat(2 << 20));
    let keys: Vec<_> = (0..300_000).map(|i| format!("\"{i}\":0")).collect();
    let tensor = r#"{"name":"t","dtype":"F32","shape":[4611686018427387904,8],"offset":64,"length":9223372036854775807,"checksum":"0000000000000000"}"#;
    let manifests = [
        manifest(&table(48 << 40), "", "null"),
        manifest(&table(u64::MAX), "", "null"),
        manifest(&table(0), tensor, "null"),
        manifest(&table(0), "", &deep),
        manifest(&table(0), "", &wide),
        manifest(&table(0), "", &format!("{{{}}}", keys.join(","))),
    ];
    let mut longest = 0;
    for text in &manifests {
        for flags in [0, 1] {
            let bytes = with_manifest(text.as_bytes(), flags);
            longest = longest.max(bytes.len() as u64);
            assert!(VaultFile::from_drive(Box::new(Memory::of(&bytes)), "v").is_err(), "{}", &text[..60]);
        }
    }
    let mut header = [0; 64];
    header[..12].copy_from_slice(b"SMOE\xde\xea\x00\x01\x02\0\0\0");
    header[12..24].fill(0xff);
    header[24] = 64;
    header[33] = 0x40;
    (header[40], header[44]) = (64, 4);
    let error = SmoeFile::from_drive(Box::new(Memory::of(&header)), "s").err().expect("huge");
    assert!(error.to_string().contains("4294967295 experts do not fit"), "{error}");
    // The texts above, twice as bytes, lie in memory too.
    let own = 4 * manifests.iter().map(|m| m.len() as u64).sum::<u64>();
    match peak_bytes() {
        Some(peak) => assert!(peak < longest + own + (64 << 20), "peak {peak} B"),
        None => println!("this system does not tell the peak: left out"),
    }
}
