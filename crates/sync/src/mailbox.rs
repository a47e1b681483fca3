//! Messages to a PMD.

use crate::primitive::atomic::{AtomicBool, Ordering};
use crate::primitive::{Mutex, lock};

/// Messages of type `M` for one receiver, in order. Looking into an empty one reads one flag.
#[derive(Debug)]
pub struct Mailbox<M> {
    full: AtomicBool,
    messages: Mutex<Vec<M>>,
}

impl<M> Default for Mailbox<M> {
    fn default() -> Self {
        Mailbox { full: AtomicBool::new(false), messages: Mutex::new(Vec::new()) }
    }
}

impl<M> Mailbox<M> {
    /// Leaves a message.
    pub fn post(&self, message: M) {
        let mut messages = lock(&self.messages);
        messages.push(message);
        self.full.store(true, Ordering::Release);
    }

    /// Whether something waits; may be a moment late.
    #[inline]
    pub fn has_mail(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Moves all messages to the end of `into`.
    #[inline]
    pub fn take(&self, into: &mut Vec<M>) {
        if self.has_mail() {
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
            let mailbox = Arc::new(Mailbox::default());
            let sender = mailbox.clone();
            let thread = loom::thread::spawn(move || {
                sender.post(1);
                sender.post(2);
            });
            let mut got = Vec::new();
            mailbox.take(&mut got);
            thread.join().unwrap();
            mailbox.take(&mut got);
            assert_eq!(got, [1, 2]);
        });
    }
}
