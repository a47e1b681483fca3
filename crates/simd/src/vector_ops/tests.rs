//! Every instruction set against the specification.

use super::*;
use crate::HashKey;
use crate::compare;
use crate::hash::{MaskedWord, splitmix64};
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

type Said = ([bool; 2], u16, u32, [u64; TOGETHER], u64, [[u8; 64]; 2], Columns, [[u32; TOGETHER]; 3]);

impl Kernel for Say<'_> {
    type Output = Said;

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) -> Said {
        let Say { lines, mask, want, wanted } = self;
        let words: [[u64; 8]; TOGETHER] = std::array::from_fn(|i| compare::words(&lines[i]));
        let bytes = |words: &[u64; 8]| -> [u8; 64] { std::array::from_fn(|i| words[i / 8].to_ne_bytes()[i % 8]) };
        let small = |i: usize| words[i / 8][i % 8] as u32 & 3;
        let signatures = std::array::from_fn(|i| small(i) as u16 | 0x8000);
        let tags = std::array::from_fn(|i| small(i) << 30);
        let source = lines[0].first_chunk().expect("a line is longer than a source");
        let mut permuted = [[0xa5; 64]; 2];
        ops.permute::<Scrambled>(source, &mask, &want, &mut permuted[0]);
        ops.permute::<Plain>(source, &[u64::MAX; 8], &words[1], &mut permuted[1]);
        let mut columns = Columns([[0xa5; TOGETHER]; 8]);
        ops.transpose(std::array::from_fn(|i| &lines[i]), &mut columns);
        let term = |place: usize| MaskedWord { place, mask: mask[place % 8], addends: words[2][place % 8] };
        let tags_by_words = [
            ops.masked_tags::<0>(&columns, &[]),
            ops.masked_tags(&columns, &[term(7)]),
            ops.masked_tags(&columns, &[term(1), term(2), term(4), term(14)]),
        ];
        (
            [ops.masked_eq(&lines[0], &mask, &want), ops.masked_eq_bytes(&lines[0], &bytes(&mask), &bytes(&want))],
            ops.signatures(&signatures, wanted as u16 | 0x8000),
            ops.tags(&tags, wanted << 30),
            ops.sums(&words[2], std::array::from_fn(|i| &lines[i])),
            ops.masked_sum(&lines[0], &mask, &words[2]),
            permuted,
            columns,
            tags_by_words,
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
        assert_eq!(said.0[0], said.0[1], "round {round}");
        equal += usize::from(said.0[0]);
        for isa in Isa::available() {
            assert_eq!(isa.run(say()), said, "{isa:?}, round {round}");
        }
    }
    assert_eq!(equal, 10_000);
}

/// A sum whose tag would be 0 has tag 1, as an empty slot is 0. Found by the finaliser's inverse: the sum 0 is its own.
#[test]
fn no_tag_is_zero() {
    struct Tags;
    impl Kernel for Tags {
        type Output = [u32; TOGETHER];
        #[inline(always)]
        fn run<V: VectorOps>(self, ops: V) -> [u32; TOGETHER] {
            ops.masked_tags::<1>(&Columns::default(), &[MaskedWord::default()])
        }
    }
    Isa::available().into_iter().for_each(|isa| assert_eq!(isa.run(Tags), [1; TOGETHER], "{isa:?}"));
}

#[test]
fn columns_are_words_by_place() {
    let lines: [[u8; 64]; TOGETHER] = std::array::from_fn(|line| std::array::from_fn(|i| (line * 8 + i / 8) as u8));
    let mut columns = Columns::default();
    Scalar.transpose(std::array::from_fn(|i| &lines[i]), &mut columns);
    let word = |line: usize, place: usize| u64::from_ne_bytes([(line * 8 + place) as u8; 8]);
    assert!((0..64).all(|i| columns.0[i % 8][i / 8] == word(i / 8, i % 8)));
}

#[test]
fn the_specification_is_the_definition() {
    let line: [u8; 64] = std::array::from_fn(|i| i as u8 + 1);
    let key = HashKey::from_seed(3);
    let sums = Scalar.sums(key.addends_of_line(1), [&line; TOGETHER]);
    assert_eq!(sums, [key.line(1, &compare::words(&line)); TOGETHER]);
    let (mut mask, mut addends) = ([0; 8], [0; 8]);
    (mask[3], addends[3]) = (0xff00, key.addends(11));
    let word = MaskedWord { place: 3, mask: mask[3], addends: addends[3] };
    assert_eq!(Scalar.masked_sum(&line, &mask, &addends), word.add_to(0, compare::words(&line)[3]));
    let mut permuted = [0; 64];
    let mut keep = [u64::MAX; 8];
    keep[5] = 0;
    Scalar.permute::<Plain>(line.first_chunk().unwrap(), &keep, &[0, 0, 0, 0, 0, 0, 0, 9], &mut permuted);
    let mut want = [0; 64];
    (want[3], want[56]) = (1, 9);
    assert_eq!(permuted, want, "byte 40 comes from byte 47, but is not kept");
}
