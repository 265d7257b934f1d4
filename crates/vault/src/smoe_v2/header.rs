//! The header and the architecture block of an S-MoE version 2 file.

use super::GROUP;
use crate::fault::FaultKind;
use crate::header::{u32_at, u64_at};
use serde::{Deserialize, Serialize};

/// First bytes of the file.
pub const MAGIC: [u8; 8] = *b"SMOE\xde\xea\x00\x01";
/// The version that is read and written.
pub const VERSION: u32 = 2;
/// Length of the header.
pub const HEADER_BYTES: usize = 64;
/// Length of the architecture block.
pub const ARCH_BYTES: usize = 128;

const _: () = assert!(8 + 4 * 4 + 2 * 8 + 6 * 4 == HEADER_BYTES);
const _: () = assert!(15 * 4 + 24 + 44 == ARCH_BYTES);

/// The header, each field as stored. In JSON it is its 64 bytes in hexadecimal digits: nothing is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Header {
    /// Layers with experts.
    pub moe_layers: u32,
    /// Experts of a layer.
    pub max_experts: u32,
    /// Entries of the table.
    pub total_experts: u32,
    /// Start of the table.
    pub table_offset: u64,
    /// Start of the blobs.
    pub data_offset: u64,
    /// Weights that share a scale.
    pub group_size: u32,
    /// Bits of a code.
    pub bits: u32,
    /// Width of the residual stream.
    pub d_model: u32,
    /// Rows of the embedding.
    pub vocab: u32,
    /// Not the experts' width: that is in their descriptors. Kept for a byte-identical export.
    pub ffn_dim: u32,
    /// Start of the architecture block; 0 without one.
    pub arch_block_offset: u32,
}

impl Header {
    /// The 64 bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..8].copy_from_slice(&MAGIC);
        let first = [VERSION, self.moe_layers, self.max_experts, self.total_experts];
        put_u32s(&mut out[8..24], &first);
        out[24..32].copy_from_slice(&self.table_offset.to_le_bytes());
        out[32..40].copy_from_slice(&self.data_offset.to_le_bytes());
        let rest = [self.group_size, self.bits, self.d_model, self.vocab, self.ffn_dim, self.arch_block_offset];
        put_u32s(&mut out[40..64], &rest);
        out
    }

    /// Reads the 64 bytes; offsets are not compared with anything yet.
    ///
    /// # Errors
    /// Another kind of file, another version, bits or group size.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FaultKind> {
        if bytes[0..8] != MAGIC {
            let vault = bytes[0..8] == crate::header::MAGIC;
            let kind = if vault { "it is a vault already" } else { "its first bytes are not `SMOE DE EA 00 01`" };
            return Err(FaultKind::refused(format!("not an S-MoE file: {kind}")));
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(FaultKind::refused(format!("S-MoE version {version}; expected version {VERSION}")));
        }
        let header = Self {
            moe_layers: u32_at(bytes, 12),
            max_experts: u32_at(bytes, 16),
            total_experts: u32_at(bytes, 20),
            table_offset: u64_at(bytes, 24),
            data_offset: u64_at(bytes, 32),
            group_size: u32_at(bytes, 40),
            bits: u32_at(bytes, 44),
            d_model: u32_at(bytes, 48),
            vocab: u32_at(bytes, 52),
            ffn_dim: u32_at(bytes, 56),
            arch_block_offset: u32_at(bytes, 60),
        };
        if header.group_size != GROUP || !matches!(header.bits, 2 | 4) {
            let (bits, group) = (header.bits, header.group_size);
            return Err(FaultKind::refused(format!(
                "{bits} bits in groups of {group}; expected 2 or 4 in groups of 64"
            )));
        }
        Ok(header)
    }
}

/// The architecture block, each field as stored; in JSON its 128 bytes in hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ArchBlock {
    /// Version of the block.
    pub block_version: u32,
    /// Bits of `FLAG_*`.
    pub flags: u32,
    /// Base of the rotary embedding.
    pub rope_theta: f32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Width of a head.
    pub head_dim: u32,
    /// Experts of a token.
    pub top_k: u32,
    /// Width of an expert.
    pub moe_ffn: u32,
    /// Width of a dense layer.
    pub dense_ffn: u32,
    /// Width of the shared expert; 0 without one.
    pub shared_ffn: u32,
    /// 0 is SiLU.
    pub activation: u32,
    /// Decoder layers.
    pub layers: u32,
    /// Epsilon of the norms.
    pub rms_eps: f32,
    /// `model_type`, padded with zeros.
    pub model_type: [u8; 24],
}

impl ArchBlock {
    /// The chosen scores are normalised.
    pub const FLAG_NORM_TOPK: u32 = 1;
    /// Queries and keys have norms.
    pub const FLAG_QK_NORM: u32 = 2;
    /// Layer 0 is dense.
    pub const FLAG_DENSE_LAYER_0: u32 = 4;

    /// The model type as text; `None` where it is no UTF-8.
    #[must_use]
    pub fn model_type(&self) -> Option<&str> {
        let end = self.model_type.iter().position(|&b| b == 0).unwrap_or(self.model_type.len());
        std::str::from_utf8(&self.model_type[..end]).ok()
    }

    /// A model type as stored; cut to 24 bytes.
    #[must_use]
    pub fn stored_model_type(name: &str) -> [u8; 24] {
        let mut out = [0; 24];
        out.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
        out
    }

    /// The 128 bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; ARCH_BYTES] {
        let mut out = [0; ARCH_BYTES];
        out[0..4].copy_from_slice(b"SARC");
        let fields = [
            self.block_version,
            ARCH_BYTES as u32,
            self.flags,
            self.rope_theta.to_bits(),
            self.heads,
            self.kv_heads,
            self.head_dim,
            self.top_k,
            self.moe_ffn,
            self.dense_ffn,
            self.shared_ffn,
            self.activation,
            self.layers,
            self.rms_eps.to_bits(),
        ];
        put_u32s(&mut out[4..60], &fields);
        out[60..84].copy_from_slice(&self.model_type);
        out
    }

    /// Reads the 128 bytes.
    ///
    /// # Errors
    /// Another block, another version or size, bytes where zeros belong, a float that is not finite.
    pub fn parse(bytes: &[u8; ARCH_BYTES]) -> Result<Self, FaultKind> {
        if bytes[0..4] != *b"SARC" {
            return Err(FaultKind::refused("it does not start with `SARC`"));
        }
        let field = |i: usize| u32_at(bytes, 4 + 4 * i);
        if field(0) != 1 || field(1) != ARCH_BYTES as u32 {
            let text = format!("version {} of {} B; expected version 1 of {ARCH_BYTES} B", field(0), field(1));
            return Err(FaultKind::refused(text));
        }
        if bytes[84..].iter().any(|&b| b != 0) {
            return Err(FaultKind::refused("bytes 84 to 128 are not zero; expected version 1's layout"));
        }
        let mut model_type = [0; 24];
        model_type.copy_from_slice(&bytes[60..84]);
        let block = Self {
            block_version: field(0),
            flags: field(2),
            rope_theta: f32::from_bits(field(3)),
            heads: field(4),
            kv_heads: field(5),
            head_dim: field(6),
            top_k: field(7),
            moe_ffn: field(8),
            dense_ffn: field(9),
            shared_ffn: field(10),
            activation: field(11),
            layers: field(12),
            rms_eps: f32::from_bits(field(13)),
            model_type,
        };
        if !block.rope_theta.is_finite() || !block.rms_eps.is_finite() {
            return Err(FaultKind::refused("its rope_theta or rms_eps is not finite"));
        }
        Ok(block)
    }
}

fn put_u32s(out: &mut [u8], values: &[u32]) {
    for (to, value) in out.chunks_exact_mut(4).zip(values) {
        to.copy_from_slice(&value.to_le_bytes());
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn from_hex<const N: usize>(text: &str) -> Result<[u8; N], String> {
    let wrong = || format!("expected {} hexadecimal digits", 2 * N);
    if text.len() != 2 * N || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let mut out = [0; N];
    for (i, to) in out.iter_mut().enumerate() {
        *to = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| wrong())?;
    }
    Ok(out)
}

impl From<Header> for String {
    fn from(header: Header) -> Self {
        to_hex(&header.to_bytes())
    }
}

impl TryFrom<String> for Header {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&from_hex(&text)?).map_err(|kind| kind.to_string())
    }
}

impl From<ArchBlock> for String {
    fn from(block: ArchBlock) -> Self {
        to_hex(&block.to_bytes())
    }
}

impl TryFrom<String> for ArchBlock {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&from_hex(&text)?).map_err(|kind| kind.to_string())
    }
}
