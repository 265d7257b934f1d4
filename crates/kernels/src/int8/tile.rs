//! The loops: some rows times some tokens at once, block after block.

use super::activations::{Int8, Plane, Sixteen};
use super::kind::Kind;
use super::lanes::Ints;
use crate::simd::Lane;
use smoe_codec::{Codec, GROUP};

/// Bytes of codes that are computed at once.
pub(super) const BLOCK: usize = 64;

/// Groups whose scales are read at once.
pub(super) const GROUPS: usize = 16;

/// Bytes between what is computed and what is asked for: the hardware's own prefetch ends at each page.
const AHEAD: usize = 6144;

/// Tokens of a tile.
const TOKENS: usize = 4;

/// A matrix's bytes.
pub(super) struct Packed<'a> {
    codes: &'a [u8],
    scales: &'a [u8],
    code_bytes: usize,
    scale_bytes: usize,
    groups: usize,
}

impl<'a> Packed<'a> {
    pub(super) fn new(codec: Codec, codes: &'a [u8], scales: &'a [u8], cols: usize) -> Self {
        let (code_bytes, scale_bytes) = (codec.code_bytes(cols), codec.scale_bytes(cols));
        Self { codes, scales, code_bytes, scale_bytes, groups: cols.div_ceil(GROUP) }
    }

    /// Blocks of a row, the last of which may be short.
    fn blocks(&self) -> usize {
        self.code_bytes.div_ceil(BLOCK)
    }

    /// The codes of a row from a block on.
    #[inline(always)]
    fn codes(&self, row: usize, block: usize) -> &'a [u8] {
        &self.codes[row * self.code_bytes + block * BLOCK..(row + 1) * self.code_bytes]
    }

    /// The scales of 16 groups of a row, zeros past the last.
    #[inline(always)]
    fn scales<L: Ints>(&self, ints: L, row: usize, at: usize) -> L::F {
        let row = &self.scales[row * self.scale_bytes + 2 * GROUPS * at..(row + 1) * self.scale_bytes];
        match row.first_chunk() {
            Some(whole) => ints.halves(whole),
            None => {
                let mut spare = [0; 2 * GROUPS];
                spare[..row.len()].copy_from_slice(row);
                ints.halves(&spare)
            }
        }
    }
}

/// All rows of `out`, `[rows, tokens]`.
#[inline(always)]
pub(super) fn product<L: Ints, K: Kind>(ints: L, packed: &Packed<'_>, first: usize, x: &Int8, out: &mut [f32]) {
    let n = x.tokens();
    if n == 0 || out.is_empty() {
        return;
    }
    let rows = out.len() / n;
    let several = L::ROWS[usize::from(n > 1)];
    let mut r = 0;
    while r < rows {
        let out = &mut out[r * n..];
        let left = rows - r;
        let done = match several.min(left) {
            4.. => rows_of::<L, K, 4>(ints, packed, first + r, x, out),
            2.. => rows_of::<L, K, 2>(ints, packed, first + r, x, out),
            _ => rows_of::<L, K, 1>(ints, packed, first + r, x, out),
        };
        r += done;
    }
}

/// `R` rows with all tokens; gives `R`.
#[inline(always)]
fn rows_of<L: Ints, K: Kind, const R: usize>(
    ints: L,
    packed: &Packed<'_>,
    row: usize,
    x: &Int8,
    out: &mut [f32],
) -> usize {
    let n = x.tokens();
    let mut t = 0;
    while n - t >= TOKENS {
        tile::<L, K, R, TOKENS>(ints, packed, row, x, t, out);
        t += TOKENS;
    }
    while t < n {
        tile::<L, K, R, 1>(ints, packed, row, x, t, out);
        t += 1;
    }
    R
}

/// One token's side.
#[derive(Clone, Copy)]
struct Token<'a> {
    planes: &'a [Plane],
    scales: &'a [Sixteen],
    sums: &'a [Sixteen],
}

impl<'a> Token<'a> {
    #[inline(always)]
    fn new(x: &'a Int8, t: usize) -> Self {
        let (planes, supers) = (x.planes.len() / x.tokens(), x.scales.len() / x.tokens());
        Self {
            planes: &x.planes[t * planes..][..planes],
            scales: &x.scales[t * supers..][..supers],
            sums: &x.sums[t * supers..][..supers],
        }
    }
}

/// Rows `row ..` and tokens `t ..`. The sums of a (row, token) are the same whatever `R` and `T` are.
#[inline(always)]
fn tile<L: Ints, K: Kind, const R: usize, const T: usize>(
    ints: L,
    packed: &Packed<'_>,
    row: usize,
    x: &Int8,
    t: usize,
    out: &mut [f32],
) {
    let n = x.tokens();
    let mut tokens = [Token::new(x, t); T];
    for (i, token) in tokens.iter_mut().enumerate() {
        *token = Token::new(x, t + i);
    }
    let blocks = packed.blocks();
    let per_super = GROUPS / K::PLANES;
    let mut sums = [[ints.zero(); T]; R];
    let mut taken = [[ints.zero(); T]; R];
    for s in 0..packed.groups.div_ceil(GROUPS) {
        let mut scales = [[ints.spreadable(ints.zero()); T]; R];
        for r in 0..R {
            let weights = packed.scales(ints, row + r, s);
            for i in 0..T {
                scales[r][i] = ints.spreadable(ints.mul(weights, ints.load(&tokens[i].scales[s].0)));
                if K::OFFSET != 0.0 {
                    taken[r][i] = ints.fma(weights, ints.load(&tokens[i].sums[s].0), taken[r][i]);
                }
            }
        }
        let first = s * per_super;
        let mut codes = [packed.codes(row, first); R];
        let mut planes = [&tokens[0].planes[first * K::PLANES..]; T];
        for (r, codes) in codes.iter_mut().enumerate() {
            *codes = packed.codes(row + r, first);
        }
        for (planes, token) in planes.iter_mut().zip(&tokens) {
            *planes = &token.planes[first * K::PLANES..];
        }
        let here = Super { codes, planes, scales };
        let done = match K::PLANES {
            4 => here.whole::<K, 4, 4>(ints, &mut sums),
            2 => here.whole::<K, 8, 2>(ints, &mut sums),
            _ => here.whole::<K, 16, 1>(ints, &mut sums),
        };
        if !done {
            here.part::<K>(ints, blocks - first, &mut sums);
        }
    }
    for r in 0..R {
        for i in 0..T {
            let offset = ints.load(&[-K::OFFSET; GROUPS]);
            let all = if K::OFFSET == 0.0 { sums[r][i] } else { ints.fma(taken[r][i], offset, sums[r][i]) };
            out[r * n + t + i] = Lane(ints.store(all)).sum() * K::FACTOR;
        }
    }
}

/// 16 groups of some rows and tokens.
struct Super<'a, L: Ints, const R: usize, const T: usize> {
    codes: [&'a [u8]; R],
    planes: [&'a [Plane]; T],
    scales: [[L::S; T]; R],
}

impl<L: Ints, const R: usize, const T: usize> Super<'_, L, R, T> {
    /// All `B` blocks, written out, of `P` planes each; `false` where the rows end before.
    #[inline(always)]
    fn whole<K: Kind, const B: usize, const P: usize>(&self, ints: L, sums: &mut [[L::F; T]; R]) -> bool {
        let mut codes = [&[[0u8; BLOCK]; B]; R];
        for (whole, bytes) in codes.iter_mut().zip(&self.codes) {
            match bytes.as_chunks::<BLOCK>().0.first_chunk() {
                Some(first) => *whole = first,
                None => return false,
            }
        }
        let mut planes = [&[[Plane([0; BLOCK]); P]; B]; T];
        for (whole, all) in planes.iter_mut().zip(&self.planes) {
            match all.as_chunks::<P>().0.first_chunk() {
                Some(first) => *whole = first,
                None => return false,
            }
        }
        for b in 0..B {
            for r in 0..R {
                if T == 1 {
                    ints.prefetch(&codes[r][b], AHEAD);
                }
                let codes = K::unpack(ints, &codes[r][b]);
                for i in 0..T {
                    let dot = ints.float(K::dot(ints, &codes, &planes[i][b]));
                    sums[r][i] = ints.fma(dot, spread::<L, K>(ints, &self.scales[r][i], b), sums[r][i]);
                }
            }
        }
        true
    }

    /// At most `blocks` blocks, the last of which may be short.
    #[inline(always)]
    fn part<K: Kind>(&self, ints: L, blocks: usize, sums: &mut [[L::F; T]; R]) {
        for b in 0..blocks.min(GROUPS / K::PLANES) {
            for (r, sums) in sums.iter_mut().enumerate() {
                let bytes = &self.codes[r][b * BLOCK..];
                let codes = match bytes.first_chunk() {
                    Some(whole) => K::unpack(ints, whole),
                    None => {
                        let mut whole = [0; BLOCK];
                        whole[..bytes.len()].copy_from_slice(bytes);
                        K::unpack(ints, &whole)
                    }
                };
                for (i, sum) in sums.iter_mut().enumerate() {
                    let x = &self.planes[i][b * K::PLANES..][..K::PLANES];
                    let dot = ints.float(K::dot(ints, &codes, x));
                    *sum = ints.fma(dot, spread::<L, K>(ints, &self.scales[r][i], b), *sum);
                }
            }
        }
    }
}

#[inline(always)]
fn spread<L: Ints, K: Kind>(ints: L, scales: &L::S, block: usize) -> L::F {
    match K::PLANES {
        1 => ints.spread::<1>(scales, block),
        2 => ints.spread::<2>(scales, block),
        _ => ints.spread::<4>(scales, block),
    }
}
