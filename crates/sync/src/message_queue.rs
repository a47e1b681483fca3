//! Messages from control threads to a PMD.

use crate::primitive::atomic::{AtomicBool, Ordering};
use crate::primitive::{Mutex, lock};

/// A queue of messages of type `M` for one receiver, in order. Checking an empty queue reads one flag.
#[derive(Debug)]
pub struct MessageQueue<M> {
    full: AtomicBool,
    messages: Mutex<Vec<M>>,
}

impl<M> Default for MessageQueue<M> {
    fn default() -> Self {
        MessageQueue { full: AtomicBool::new(false), messages: Mutex::new(Vec::new()) }
    }
}

impl<M> MessageQueue<M> {
    /// Appends a message.
    pub fn post(&self, message: M) {
        let mut messages = lock(&self.messages);
        messages.push(message);
        self.full.store(true, Ordering::Release);
    }

    /// Whether there are messages. The answer may be a moment late.
    #[inline]
    pub fn has_messages(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Moves all messages to the end of `into`.
    #[inline]
    pub fn take(&self, into: &mut Vec<M>) {
        if self.has_messages() {
            let mut messages = lock(&self.messages);
            self.full.store(false, Ordering::Relaxed);
            into.append(&mut messages);
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
            assert_eq!(got, [1, 2]);
        });
    }
}
