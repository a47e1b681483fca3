//! The two linked lists of a rule: the chain of the rules with its match, highest priority first, and the list of its
//! subtable's rules in order of insertion.

use crate::rule::{Rule, RuleId, RuleLink, Slab};

/// What adding to a chain did.
pub(crate) struct ChainChange {
    /// The new rule is the first of the chain.
    pub is_head: bool,
    /// The rule that the new one replaces.
    pub replaced: Option<RuleId>,
}

impl<R> Slab<R> {
    /// Puts `new` into the chain that begins with `head`, after higher priorities and after rules of its own priority
    /// that are marked for removal. A rule of its priority that is not marked is replaced.
    pub fn add_to_chain(&mut self, head: RuleId, new: RuleId) -> ChainChange {
        let priority = self.at(new).priority;
        let goes_before = |rule: &Rule<R>| {
            priority > rule.priority || priority == rule.priority && rule.remove_version == crate::NEVER
        };
        let mut before = None;
        let mut at: RuleLink = head.into();
        while let Some(id) = at.get()
            && !goes_before(self.at(id))
        {
            before = Some(id);
            at = self.at(id).next;
        }
        let replaced = at.get().filter(|&id| self.at(id).priority == priority);
        self.at_mut(new).next = replaced.map_or(at, |id| self.at(id).next);
        if let Some(before) = before {
            self.at_mut(before).next = new.into();
        }
        ChainChange { is_head: before.is_none(), replaced }
    }

    /// Removes a rule from the chain that begins with `head`; whether it was the head.
    pub fn remove_from_chain(&mut self, head: RuleId, id: RuleId) -> bool {
        if head == id {
            return true;
        }
        let before =
            self.chain(head).find(|rule| rule.next == id.into()).expect("invariant: a rule is in its chain").id;
        self.at_mut(before).next = self.at(id).next;
        false
    }

    /// Appends a rule to a list, given by its first and last rule.
    pub fn append_to_list(&mut self, list: &mut [RuleLink; 2], id: RuleId) {
        let [first, last] = list;
        self.at_mut(id).list = [*last, RuleLink::NONE];
        match last.get() {
            Some(last) => self.at_mut(last).list[1] = id.into(),
            None => *first = id.into(),
        }
        *last = id.into();
    }

    /// Removes a rule from a list.
    pub fn remove_from_list(&mut self, list: &mut [RuleLink; 2], id: RuleId) {
        let [before, after] = self.at(id).list;
        self.join(list, before, after);
    }

    /// Replaces a rule of a list.
    pub fn replace_in_list(&mut self, list: &mut [RuleLink; 2], old: RuleId, new: RuleId) {
        let [before, after] = self.at(old).list;
        self.join(list, before, new.into());
        self.join(list, new.into(), after);
    }

    /// Links two rules of a list; [`RuleLink::NONE`] is its beginning or its end.
    fn join(&mut self, list: &mut [RuleLink; 2], before: RuleLink, after: RuleLink) {
        match before.get() {
            Some(id) => self.at_mut(id).list[1] = after,
            None => list[0] = after,
        }
        match after.get() {
            Some(id) => self.at_mut(id).list[0] = before,
            None => list[1] = before,
        }
    }

    /// The rules of a list, first to last.
    pub fn list(&self, list: &[RuleLink; 2]) -> impl Iterator<Item = &Rule<R>> + use<'_, R> {
        std::iter::successors(list[0].get().map(|id| self.at(id)), |rule| rule.list[1].get().map(|id| self.at(id)))
    }
}
