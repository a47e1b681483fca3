//! A mask as the list of its non-zero words, in stage order.

use crate::hash::MaskedHash;
use crate::stage::{KeyWords, STAGE_WORD_COUNT, STAGE_WORDS, STAGES, or_word, words_of};
use arrayvec::ArrayVec;
use sluice_flow::FlowKey;

/// A word of a mask and its index in the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaskWord {
    pub index: u8,
    pub bits: u64,
}

/// A mask divided into stages. Bits that belong to no field are left out.
#[derive(Clone)]
pub(crate) struct StagedMask {
    words: Box<[MaskWord]>,
    /// Each stage that has bits, in order, and where its words end.
    ends: ArrayVec<(u8, u8), STAGES>,
}

/// The words of a mask on the stack, used to find its subtable.
pub(crate) type MaskWords = ArrayVec<MaskWord, STAGE_WORD_COUNT>;

/// The words of a mask, in stage order.
pub(crate) fn mask_words(mask: &FlowKey) -> MaskWords {
    let words = words_of(mask);
    STAGE_WORDS
        .iter()
        .map(|w| MaskWord { index: w.index, bits: w.bits & words[usize::from(w.index)] })
        .filter(|w| w.bits != 0)
        .collect()
}

/// The hash of a mask.
pub(crate) fn hash_mask(words: &[MaskWord]) -> u32 {
    words.iter().fold(MaskedHash::start(0), |h, w| h.with(u64::from(w.index)).with(w.bits)).end()
}

impl StagedMask {
    pub fn new(words: &[MaskWord]) -> Self {
        let mut ends = ArrayVec::<(u8, u8), STAGES>::new();
        for (i, word) in words.iter().enumerate() {
            let stage = STAGE_WORDS
                .iter()
                .find(|s| s.index == word.index && s.bits & word.bits != 0)
                .expect("invariant: mask words come from stage words")
                .stage;
            match ends.last_mut() {
                Some(last) if last.0 == stage => last.1 = i as u8 + 1,
                _ => ends.push((stage, i as u8 + 1)),
            }
        }
        StagedMask { words: words.into(), ends }
    }

    /// All words, in stage order.
    #[inline]
    pub fn words(&self) -> &[MaskWord] {
        &self.words
    }

    /// Each stage that has bits, in order, and where its words end.
    #[inline]
    pub fn stages(&self) -> &[(u8, u8)] {
        &self.ends
    }

    /// The whole mask.
    pub fn unpack(&self) -> FlowKey {
        self.unpack_words(self.words.iter().map(|w| w.bits))
    }

    /// A key from its masked words.
    pub fn unpack_words(&self, values: impl Iterator<Item = u64>) -> FlowKey {
        let mut key = FlowKey::ZERO;
        self.words.iter().zip(values).for_each(|(w, value)| or_word(&mut key, usize::from(w.index), value));
        key
    }

    /// The mask's bits in a word of the key.
    pub fn bits_at(&self, index: usize) -> u64 {
        self.words.iter().filter(|w| usize::from(w.index) == index).fold(0, |bits, w| bits | w.bits)
    }

    /// Whether this mask has every bit of `criteria`.
    pub fn covers(&self, criteria: &KeyWords) -> bool {
        criteria.iter().enumerate().all(|(i, &bits)| bits == 0 || bits & !self.bits_at(i) == 0)
    }
}
