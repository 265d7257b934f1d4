//! Sizes, counts and id lists: as users write them, and as we print them.

use std::str::FromStr;

/// A number of bytes on the command line: `16G`, `16GiB`, `512M`, `2GB`, `1.5T`, or plain bytes.
///
/// `G` and `GiB` are 2^30 (what memory is sold in), `GB` is 10^9 (what drives are sold in).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let said = || format!("`{text}` is no size; write 16G, 16GiB, 512M or a number of bytes");
        let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(at);
        let factor = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "k" | "kib" => 1024.0,
            "m" | "mib" => 1024f64.powi(2),
            "g" | "gib" => 1024f64.powi(3),
            "t" | "tib" => 1024f64.powi(4),
            "kb" => 1e3,
            "mb" => 1e6,
            "gb" => 1e9,
            "tb" => 1e12,
            _ => return Err(said()),
        };
        let bytes = number.parse::<f64>().map_err(|_| said())? * factor;
        // 2^53: beyond it an f64 is no longer exact, and nobody has such a machine.
        if bytes < 9.0e15 { Ok(Self(bytes.round() as u64)) } else { Err(said()) }
    }
}

/// Three figures and a decimal unit: `5.31 MB`, as drives and downloads are counted.
pub(crate) fn bytes(n: u64) -> String {
    scaled(n as f64, &["B", "kB", "MB", "GB", "TB", "PB"])
}

/// Three figures and a unit word: `30.5 B` for parameters, `740` for a rate.
pub(crate) fn count(n: f64) -> String {
    scaled(n, &["", "k", "M", "B", "T"]).trim_end().to_owned()
}

fn scaled(n: f64, units: &[&str]) -> String {
    let (mut n, mut unit) = (n, 0);
    // 999.5 would print as 1000 of the smaller unit.
    while n >= 999.5 && unit + 1 < units.len() {
        (n, unit) = (n / 1000.0, unit + 1);
    }
    let digits = if unit == 0 && n.fract() == 0.0 || n >= 99.95 { 0 } else { 1 + usize::from(n < 9.995) };
    format!("{n:.digits$} {}", units[unit])
}

/// Token ids as a list: `1,2,3`, blanks allowed.
pub(crate) fn parse_ids(text: &str) -> Result<Vec<u32>, String> {
    let parts = text.split([',', ' ', '\n', '\t', '\r', '[', ']']).filter(|part| !part.is_empty());
    let ids = parts.map(|part| part.parse().map_err(|_| format!("`{part}` is no token id; write 1,2,3")));
    let ids = ids.collect::<Result<Vec<_>, _>>()?;
    if ids.is_empty() { Err("the list of token ids is empty".into()) } else { Ok(ids) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let cases = [
            ("16G", 16 << 30),
            ("16GiB", 16 << 30),
            ("16 gib", 16 << 30),
            ("1.5k", 1536),
            ("2GB", 2_000_000_000),
            ("7", 7),
        ];
        for (text, want) in cases {
            assert_eq!(text.parse(), Ok(Size(want)), "{text}");
        }
        for text in ["", "G", "-1G", "1X", "1e99T", "999999999999999999999T", "1.2.3M"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn figures() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (5_310_000, "5.31 MB"),
            (37_748_736, "37.7 MB"),
            (999_600, "1.00 MB"),
            (195_000_000_000, "195 GB"),
        ];
        for (n, want) in cases {
            assert_eq!(bytes(n), want);
        }
        assert_eq!(count(740.4), "740");
        assert_eq!(count(30.53e9), "30.5 B");
    }

    #[test]
    fn ids() {
        assert_eq!(parse_ids("1, 2,3\n"), Ok(vec![1, 2, 3]));
        assert!(parse_ids("").is_err() && parse_ids("1,x").is_err() && parse_ids("-1").is_err());
    }
}
