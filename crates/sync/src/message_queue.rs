//! Messages from control threads to a PMD.

use crate::primitive::atomic::{AtomicUsize, Ordering};
use crate::primitive::{Mutex, lock, try_lock};

/// A queue of messages of type `M` for one receiver, in order. Checking an empty queue reads one number.
#[derive(Debug)]
pub struct MessageQueue<M> {
    len: AtomicUsize,
    messages: Mutex<Vec<M>>,
}

impl<M> Default for MessageQueue<M> {
    fn default() -> Self {
        MessageQueue { len: AtomicUsize::new(0), messages: Mutex::new(Vec::new()) }
    }
}

impl<M> MessageQueue<M> {
    /// Appends a message.
    pub fn post(&self, message: M) {
        let mut messages = lock(&self.messages);
        messages.push(message);
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

    /// Moves all messages to the end of `into`; into an empty one without a copy, however many there are. It waits for no
    /// sender: while one appends a message there are none.
    #[inline]
    pub fn take(&self, into: &mut Vec<M>) {
        if self.has_messages()
            && let Some(mut messages) = try_lock(&self.messages)
        {
            self.len.store(0, Ordering::Relaxed);
            if into.is_empty() {
                std::mem::swap(into, &mut messages);
            } else {
                into.append(&mut messages);
            }
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
            queue.take(&mut got);
            thread.join().unwrap();
            queue.take(&mut got);
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
            queue.take(&mut first);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(queue.len() + first.len(), 2);
            queue.take(&mut rest);
            first.append(&mut rest);
            first.sort_unstable();
            assert_eq!((first, queue.is_empty()), (vec![1, 2], true));
        });
    }
}
