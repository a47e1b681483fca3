//! Every instruction set against the specification.

use super::*;
use crate::HashKey;
use crate::compare;
use crate::hash::splitmix64;
use crate::isa::Kernel;

/// A permutation with every case: reversed, repeated, from every third of the source, and zero bytes.
struct Scrambled;

impl Permutation for Scrambled {
    const FROM: [u8; 64] = {
        let mut from = [NOWHERE; 64];
        let mut i = 0;
        while i < 64 {
            if i % 5 != 3 {
                from[i] = (i * 29 + i / 7) as u8 % SOURCE as u8;
            }
            i += 1;
        }
        from
    };
}

/// A permutation in which some half of the line takes nothing from some third of the source.
struct Plain;

impl Permutation for Plain {
    const FROM: [u8; 64] = {
        let mut from = [NOWHERE; 64];
        from[3] = 0;
        from[40] = 47;
        from
    };
}

/// The results of all vector operations for one random input.
struct Say<'a> {
    lines: &'a [[u8; 64]; TOGETHER],
    mask: [u64; 8],
    want: [u64; 8],
    wanted: u32,
}

type Said = (bool, u16, u32, [u64; TOGETHER], [[u8; 64]; 2]);

impl Kernel for Say<'_> {
    type Output = Said;

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) -> Said {
        let Say { lines, mask, want, wanted } = self;
        let words: [[u64; 8]; TOGETHER] = std::array::from_fn(|i| compare::words(&lines[i]));
        let small = |i: usize| words[i / 8][i % 8] as u32 & 3;
        let signatures = std::array::from_fn(|i| small(i) as u16 | 0x8000);
        let tags = std::array::from_fn(|i| small(i) << 30);
        let source = lines[0].first_chunk().expect("a line is longer than a source");
        let mut permuted = [[0xa5; 64]; 2];
        ops.permute::<Scrambled>(source, &mask, &want, &mut permuted[0]);
        ops.permute::<Plain>(source, &[u64::MAX; 8], &words[1], &mut permuted[1]);
        (
            ops.masked_eq(&lines[0], &mask, &want),
            ops.signatures(&signatures, wanted as u16 | 0x8000),
            ops.tags(&tags, wanted << 30),
            ops.sums(&words[2], std::array::from_fn(|i| &lines[i])),
            permuted,
        )
    }
}

#[test]
fn every_instruction_set_agrees_with_scalar() {
    let mut state = 0x5eed;
    let mut equal = 0;
    for round in 0..20_000 {
        let mut draw = || splitmix64(&mut state);
        let lines: [[u8; 64]; TOGETHER] = std::array::from_fn(|_| {
            let words: [u64; 8] = std::array::from_fn(|_| draw());
            std::array::from_fn(|i| words[i / 8].to_le_bytes()[i % 8])
        });
        let mask: [u64; 8] = std::array::from_fn(|_| draw() & draw());
        let mut want: [u64; 8] = std::array::from_fn(|i| compare::words(&lines[0])[i] & mask[i]);
        if round % 2 == 0 {
            // One bit decides.
            let bit = draw() as usize % 512;
            want[bit / 64] ^= 1 << (bit % 64);
        }
        let wanted = draw() as u32 & 3;
        let say = || Say { lines: &lines, mask, want, wanted };
        let said = Isa::SCALAR.run(say());
        equal += usize::from(said.0);
        for isa in Isa::available() {
            assert_eq!(isa.run(say()), said, "{isa:?}, round {round}");
        }
    }
    assert_eq!(equal, 10_000);
}

#[test]
fn the_specification_is_the_definition() {
    let line: [u8; 64] = std::array::from_fn(|i| i as u8 + 1);
    let key = HashKey::from_seed(3);
    let sums = Scalar.sums(key.addends_of_line(1), [&line; TOGETHER]);
    assert_eq!(sums, [key.line(1, &compare::words(&line)); TOGETHER]);
    let mut permuted = [0; 64];
    let mut keep = [u64::MAX; 8];
    keep[5] = 0;
    Scalar.permute::<Plain>(line.first_chunk().unwrap(), &keep, &[0, 0, 0, 0, 0, 0, 0, 9], &mut permuted);
    let mut want = [0; 64];
    (want[3], want[56]) = (1, 9);
    assert_eq!(permuted, want, "byte 40 comes from byte 47, but is not kept");
}
