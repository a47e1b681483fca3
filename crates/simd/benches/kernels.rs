//! Each vector operation on every instruction set of this machine: TSC cycles an item, results checked first.
//!
//! `cargo bench -p sluice-simd`; as a test (`cargo test --bench kernels`) it only checks. Rounds are interleaved over
//! the instruction sets. The fastest round shows the program, the others show the machine's other load.

use sluice_simd::hash::{self, HashKey, splitmix64};
use sluice_simd::hints::{self, Hints};
use sluice_simd::isa::Kernel;
use sluice_simd::vector_ops::{NOWHERE, Permutation, SOURCE, TOGETHER};
use sluice_simd::words;
use sluice_simd::{Isa, VectorOps, tsc};
use std::hint::black_box;

/// Items of a batch, as in the switch.
const BATCH: usize = 32;
/// Lines of a table that stays in the first-level cache, and of one that does not.
const TABLES: [usize; 2] = [256, 1 << 14];

/// Sizes of L4 packets whose words are added up.
const SIZES: [usize; 4] = [26, 200, 492, 1480];

/// A batch of lines.
type Lines = [[u8; 64]; BATCH];

/// Hashes of whole lines.
struct Hashes<'a>(&'a HashKey, &'a Lines);

impl Kernel for Hashes<'_> {
    type Output = [u64; BATCH];

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) -> [u64; BATCH] {
        let mut hashes = [0; BATCH];
        for (hashes, lines) in hashes.chunks_exact_mut(TOGETHER).zip(self.1.chunks_exact(TOGETHER)) {
            let sums = ops.sums(self.0.addends_of_line(0), std::array::from_fn(|i| &lines[i]));
            hashes.iter_mut().zip(sums).for_each(|(hash, sum)| *hash = hash::finish(sum));
        }
        hashes
    }
}

/// Which of the lines, masked, are what is wanted.
struct Compares<'a>(&'a Lines, &'a [[u64; 8]; BATCH], &'a [[u64; 8]; BATCH]);

impl Kernel for Compares<'_> {
    type Output = u32;

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) -> u32 {
        let Compares(keys, masks, wanted) = self;
        let mut equal = 0;
        for i in 0..BATCH {
            equal |= u32::from(ops.masked_eq(&keys[i], &masks[i], &wanted[i])) << i;
        }
        equal
    }
}

/// Lines by permutation of others' beginnings. Without shuffles, the specification.
struct Permutes<'a>(&'a Lines, &'a mut Lines);

/// As an ordinary packet's key is made: most bytes in runs, some from nowhere.
struct Key;

impl Permutation for Key {
    const FROM: [u8; 64] = {
        let mut from = [NOWHERE; 64];
        let mut i = 24;
        while i < 64 {
            from[i] = if i < 36 {
                i as u8 - 24
            } else if i < 44 {
                NOWHERE
            } else {
                (i * 7 % SOURCE) as u8
            };
            i += 1;
        }
        from
    };
}

impl Kernel for Permutes<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) {
        for (to, from) in self.1.iter_mut().zip(self.0) {
            let from = from.first_chunk().expect("a line is longer than a source");
            ops.permute::<Key>(from, &[u64::MAX; 8], &[7, 7, 7, 0, 0, 0, 0, 0], to);
        }
    }
}

/// Random words.
fn random_words(state: &mut u64) -> [[u64; 8]; BATCH] {
    std::array::from_fn(|_| std::array::from_fn(|_| splitmix64(state)))
}

/// The bytes of little-endian words.
fn bytes(words: &[[u64; 8]; BATCH]) -> Lines {
    std::array::from_fn(|line| std::array::from_fn(|i| words[line][i / 8].to_le_bytes()[i % 8]))
}

/// Prints a vector operation's fastest and median cycles an item on each instruction set.
fn time(name: &str, rounds: usize, mut batch: impl FnMut(Isa)) {
    let isas = Isa::available();
    let mut cycles = vec![Vec::new(); isas.len()];
    for _ in 0..rounds {
        for (isa, cycles) in isas.iter().zip(&mut cycles) {
            let began = tsc::now();
            (0..200).for_each(|_| batch(*isa));
            cycles.push((tsc::now() - began) as f64 / (200 * BATCH) as f64);
        }
    }
    print!("{name:<36}");
    for (isa, cycles) in isas.iter().zip(&mut cycles) {
        cycles.sort_by(f64::total_cmp);
        print!("  {} {:.2} ({:.2})", isa.name(), cycles[0], cycles[cycles.len() / 2]);
    }
    println!();
}

fn main() {
    let rounds = if std::env::args().any(|arg| arg == "--bench") { 2000 } else { 1 };
    println!("TSC cycles an item, fastest (median) of {rounds} rounds of 200 batches of {BATCH}");
    let mut state = 1;
    let key = HashKey::from_seed(7);
    let (keys, masks) = (random_words(&mut state), random_words(&mut state));
    let mut wanted: [[u64; 8]; BATCH] = std::array::from_fn(|i| std::array::from_fn(|w| keys[i][w] & masks[i][w]));
    wanted.iter_mut().step_by(3).for_each(|words| words[5] ^= masks[0][0] | 1);
    let lines = bytes(&keys);
    let (mut permuted, mut specified) = ([[0; 64]; BATCH], [[0; 64]; BATCH]);
    Isa::SCALAR.run(Permutes(&lines, &mut specified));
    for isa in Isa::available() {
        assert_eq!(isa.run(Hashes(&key, &lines)), Isa::SCALAR.run(Hashes(&key, &lines)), "{isa:?}");
        let equal = Isa::SCALAR.run(Compares(&lines, &masks, &wanted));
        assert_eq!(isa.run(Compares(&lines, &masks, &wanted)), equal, "{isa:?}");
        isa.run(Permutes(&lines, &mut permuted));
        assert_eq!(permuted, specified, "{isa:?}");
    }
    time("hash of a line", rounds, |isa| {
        black_box(isa.run(Hashes(&key, black_box(&lines))));
    });
    time("masked comparison of a line", rounds, |isa| {
        black_box(isa.run(Compares(black_box(&lines), &masks, &wanted)));
    });
    time("a line by permutation", rounds, |isa| {
        isa.run(Permutes(black_box(&lines), &mut permuted));
        black_box(&permuted);
    });
    let packets: Vec<[u8; 1480]> = (0..BATCH).map(|_| std::array::from_fn(|_| splitmix64(&mut state) as u8)).collect();
    for size in SIZES {
        time(&format!("sum of the words of {size} bytes"), rounds, |isa| {
            black_box(packets.iter().fold(0, |sum: u64, packet| sum ^ words::sum(isa, black_box(&packet[..size]))));
        });
    }
    for lines in TABLES {
        let table: Vec<Hints> = (0..lines)
            .map(|_| Hints {
                signatures: std::array::from_fn(|_| splitmix64(&mut state) as u16),
                hints: std::array::from_fn(|slot| slot as u16 + 1),
            })
            .collect();
        let (mut at, mut wanted, mut found) = ([0; BATCH], [0; BATCH], [0; BATCH]);
        time(&format!("hint in one of {lines} lines, 2 of 3 hit"), rounds, |isa| {
            for i in 0..BATCH {
                let random = splitmix64(&mut state);
                at[i] = random as u32 % lines as u32;
                let line = &table[at[i] as usize];
                wanted[i] =
                    line.signatures[(random >> 32) as usize % 16] ^ u16::from(random >> 40 & 1 == 0 && i % 3 == 0);
            }
            hints::find(isa, &table, &at, &wanted, &mut found);
            black_box(&found);
        });
    }
}
