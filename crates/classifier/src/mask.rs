//! A mask as the list of its non-zero words, in stage order.

use crate::hash::MaskedHash;
use crate::stage::{LineWords, OPTIONS_STAGE, STAGE_WORD_COUNT, STAGE_WORDS, STAGES, WORDS, or_word, words_of};
use arrayvec::ArrayVec;
use sluice_flow::{FlowKey, TunMetadata};

/// A word of a mask and its index in the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaskWord {
    pub index: u16,
    pub bits: u64,
}

/// A mask divided into stages. Bits that belong to no field are left out.
#[derive(Clone)]
pub(crate) struct StagedMask {
    words: Box<[MaskWord]>,
    /// Each stage that has bits, in order, and where its words end.
    ends: ArrayVec<(u8, u16), STAGES>,
}

/// The words of a mask, used to find its subtable.
pub(crate) type MaskWords = Vec<MaskWord>;

/// The words of a mask, in stage order.
pub(crate) fn mask_words(mask: &FlowKey) -> MaskWords {
    let words = words_of(mask).lines;
    let mut out = MaskWords::with_capacity(STAGE_WORD_COUNT);
    let mut put = |index, bits| {
        if bits != 0 {
            out.push(MaskWord { index, bits });
        }
    };
    let (of_options_stage, others) = STAGE_WORDS.split_at(STAGE_WORDS.partition_point(|w| w.stage == OPTIONS_STAGE));
    of_options_stage.iter().for_each(|w| put(w.index, w.bits & words[usize::from(w.index)]));
    mask.tun_metadata.words().for_each(|(index, bits)| put((WORDS + index) as u16, bits));
    others.iter().for_each(|w| put(w.index, w.bits & words[usize::from(w.index)]));
    out
}

/// The hash of a mask.
pub(crate) fn hash_mask(words: &[MaskWord]) -> u32 {
    words.iter().fold(MaskedHash::start(0), |h, w| h.with(u64::from(w.index)).with(w.bits)).end()
}

impl StagedMask {
    pub fn new(words: &[MaskWord]) -> Self {
        let mut ends = ArrayVec::<(u8, u16), STAGES>::new();
        for (i, word) in words.iter().enumerate() {
            let is_option = usize::from(word.index) >= WORDS;
            let known = STAGE_WORDS.iter().find(|s| s.index == word.index && s.bits & word.bits != 0);
            let stage = if is_option {
                OPTIONS_STAGE
            } else {
                known.expect("invariant: mask words come from stage words").stage
            };
            match ends.last_mut() {
                Some(last) if last.0 == stage => last.1 = i as u16 + 1,
                _ => ends.push((stage, i as u16 + 1)),
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
    pub fn stages(&self) -> &[(u8, u16)] {
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

    /// Whether this mask has every bit of these lines and options.
    pub fn covers(&self, lines: &LineWords, options: &TunMetadata) -> bool {
        lines.iter().enumerate().all(|(i, &bits)| bits == 0 || bits & !self.bits_at(i) == 0)
            && options.words().all(|(i, bits)| bits & !self.bits_at(WORDS + i) == 0)
    }
}
