//! Messages from control threads to a PMD.

use crate::BlockDeque;
use crate::primitive::atomic::{AtomicUsize, Ordering};
use crate::primitive::{Mutex, lock, try_lock};

/// A queue of messages of type `M` for one receiver, in order. Checking an empty queue reads one number.
#[derive(Debug)]
pub struct MessageQueue<M> {
    len: AtomicUsize,
    messages: Mutex<BlockDeque<M>>,
}

impl<M> Default for MessageQueue<M> {
    fn default() -> Self {
        MessageQueue { len: AtomicUsize::new(0), messages: Mutex::new(BlockDeque::default()) }
    }
}

impl<M> MessageQueue<M> {
    /// Appends a message.
    pub fn post(&self, message: M) {
        let mut messages = lock(&self.messages);
        messages.push_back(message);
        self.len.store(messages.len(), Ordering::Release);
    }

    /// Whether there are messages. The answer may be a moment late.
    #[inline]
    pub fn has_messages(&self) -> bool {
        self.len.load(Ordering::Relaxed) != 0
    }

    /// How many messages there are. The answer may be a moment late.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether there is none, as late.
    pub fn is_empty(&self) -> bool {
        !self.has_messages()
    }

    /// Moves the first messages, `most` of them at most, to the end of `into`. It waits for no sender: while one appends a
    /// message there are none.
    #[inline]
    pub fn take(&self, most: usize, into: &mut Vec<M>) {
        if self.has_messages()
            && let Some(mut messages) = try_lock(&self.messages)
        {
            let n = most.min(messages.len());
            into.extend((0..n).map_while(|_| messages.pop_front()));
            self.len.store(messages.len(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn messages_arrive_once_and_in_order() {
        loom::model(|| {
            let queue = Arc::new(MessageQueue::default());
            let sender = queue.clone();
            let thread = loom::thread::spawn(move || {
                sender.post(1);
                sender.post(2);
            });
            let mut got = Vec::new();
            queue.take(9, &mut got);
            thread.join().unwrap();
            queue.take(9, &mut got);
            assert_eq!((&got[..], queue.len()), (&[1, 2][..], 0));
        });
    }

    /// What two threads post is there for the receiver once they are done, whatever it has taken meanwhile.
    #[test]
    fn senders_do_not_hide_each_others_messages() {
        loom::model(|| {
            let queue = Arc::new(MessageQueue::default());
            let threads = [1, 2].map(|message| {
                let sender = queue.clone();
                loom::thread::spawn(move || sender.post(message))
            });
            let (mut first, mut rest) = (Vec::new(), Vec::new());
            queue.take(1, &mut first);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(queue.len() + first.len(), 2);
            queue.take(9, &mut rest);
            first.append(&mut rest);
            first.sort_unstable();
            assert_eq!((first, queue.is_empty()), (vec![1, 2], true));
        });
    }
}
