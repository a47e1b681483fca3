//! The two lists a rule is in: the chain of rules with its match, highest priority first, and its subtable's rules in
//! order of insertion.

use crate::rule::{Rule, RuleId, RuleLink, Slab};

/// What adding to a chain did.
pub(crate) struct ChainChange {
    /// The chain begins with the new rule.
    pub is_head: bool,
    /// The rule whose place the new one took.
    pub replaced: Option<RuleId>,
}

impl<R> Slab<R> {
    /// Puts `new` into the chain that begins with `head`: behind higher priorities, and behind rules of its own
    /// priority that are marked for removal; one that is not it replaces.
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

    /// Takes a rule out of the chain that begins with `head`. Whether it was the head.
    pub fn remove_from_chain(&mut self, head: RuleId, id: RuleId) -> bool {
        if head == id {
            return true;
        }
        let before =
            self.chain(head).find(|rule| rule.next == id.into()).expect("invariant: a rule is in its chain").id;
        self.at_mut(before).next = self.at(id).next;
        false
    }

    /// Appends a rule to a list, given as its ends.
    pub fn append_to_list(&mut self, list: &mut [RuleLink; 2], id: RuleId) {
        let [first, last] = list;
        self.at_mut(id).list = [*last, RuleLink::NONE];
        match last.get() {
            Some(last) => self.at_mut(last).list[1] = id.into(),
            None => *first = id.into(),
        }
        *last = id.into();
    }

    /// Takes a rule out of a list.
    pub fn remove_from_list(&mut self, list: &mut [RuleLink; 2], id: RuleId) {
        let [before, after] = self.at(id).list;
        self.join(list, before, after);
    }

    /// Gives a rule's place in a list to another one.
    pub fn replace_in_list(&mut self, list: &mut [RuleLink; 2], old: RuleId, new: RuleId) {
        let [before, after] = self.at(old).list;
        self.join(list, before, new.into());
        self.join(list, new.into(), after);
    }

    /// Makes two ranks of a list neighbours; [`RuleLink::NONE`] is its beginning or end.
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

    /// A list's rules, first to last.
    pub fn list(&self, list: &[RuleLink; 2]) -> impl Iterator<Item = &Rule<R>> + use<'_, R> {
        std::iter::successors(list[0].get().map(|id| self.at(id)), |rule| rule.list[1].get().map(|id| self.at(id)))
    }
}
