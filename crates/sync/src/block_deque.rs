//! A deque that grows without being moved: what a lock protects while a PMD may want it.

use std::collections::VecDeque;

/// Elements of a block.
const BLOCK: usize = 256;

/// A deque of any length. An insertion moves no element: 8 MiB of them, when a `VecDeque` doubles, take milliseconds.
///
/// Shape:  blocks of 256 elements, of which the first and the last may have fewer; one spare block.
#[derive(Debug)]
pub struct BlockDeque<T> {
    blocks: VecDeque<VecDeque<T>>,
    len: usize,
    /// A block that was emptied, for the next that is needed.
    spare: Option<VecDeque<T>>,
}

impl<T> Default for BlockDeque<T> {
    fn default() -> Self {
        BlockDeque { blocks: VecDeque::new(), len: 0, spare: None }
    }
}

impl<T> BlockDeque<T> {
    /// How many elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first element.
    pub fn front(&self) -> Option<&T> {
        self.blocks.front()?.front()
    }

    /// The last element.
    pub fn back(&self) -> Option<&T> {
        self.blocks.back()?.back()
    }

    /// Appends an element.
    pub fn push_back(&mut self, element: T) {
        let spare = &mut self.spare;
        let block = match self.blocks.back_mut() {
            Some(last) if last.len() < BLOCK => last,
            _ => {
                self.blocks.push_back(spare.take().unwrap_or_default());
                self.blocks.back_mut().expect("invariant: a block was appended")
            }
        };
        block.push_back(element);
        self.len += 1;
    }

    /// Takes the first element out.
    pub fn pop_front(&mut self) -> Option<T> {
        let block = self.blocks.front_mut()?;
        let element = block.pop_front()?;
        if block.is_empty() {
            self.spare = self.blocks.pop_front();
        }
        self.len -= 1;
        Some(element)
    }

    /// Takes the last element out.
    pub fn pop_back(&mut self) -> Option<T> {
        let block = self.blocks.back_mut()?;
        let element = block.pop_back()?;
        if block.is_empty() {
            self.spare = self.blocks.pop_back();
        }
        self.len -= 1;
        Some(element)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A run of one operation.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        PushBack,
        PopFront,
        PopBack,
    }

    proptest! {
        /// Runs are as long as some blocks, so that blocks fill and empty at both ends.
        #[test]
        fn it_is_a_deque(runs in prop::collection::vec(
            (prop::sample::select(&[Step::PushBack, Step::PopFront, Step::PopBack][..]), 1..700usize), 0..20,
        )) {
            let (mut deque, mut twin, mut next) = (BlockDeque::default(), VecDeque::new(), 0);
            for (step, times) in runs {
                for _ in 0..times {
                    match step {
                        Step::PushBack => {
                            deque.push_back(next);
                            twin.push_back(next);
                            next += 1;
                        }
                        Step::PopFront => prop_assert_eq!(deque.pop_front(), twin.pop_front()),
                        Step::PopBack => prop_assert_eq!(deque.pop_back(), twin.pop_back()),
                    }
                    prop_assert_eq!((deque.len(), deque.is_empty()), (twin.len(), twin.is_empty()));
                    prop_assert_eq!((deque.front(), deque.back()), (twin.front(), twin.back()));
                }
            }
        }
    }
}
