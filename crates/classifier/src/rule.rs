//! Rules and the slab that stores them.

/// A rule's number in its classifier. It is reused after the rule is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u32);

/// The removal version of a rule that is not marked for removal.
pub const NEVER: u64 = u64::MAX;
/// At this version every rule is visible that is not marked for removal.
pub const LATEST: u64 = u64::MAX - 1;

/// What a rule contributes to a conjunctive match: clause `clause` (from 0) of the `n_clauses` of conjunction `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conjunction {
    /// The conjunction. When all its clauses match, a rule that matches this value in `conj_id` applies.
    pub id: u32,
    /// Which clause, from 0. At most 63.
    pub clause: u8,
    /// Number of clauses: 2 to 64.
    pub n_clauses: u8,
}

/// A rule of a table. The classifier stores its match in a compact form: see `Classifier::match_of`.
#[derive(Debug)]
pub struct Rule<R> {
    pub(crate) payload: R,
    pub(crate) conjunctions: Option<Box<[Conjunction]>>,
    pub(crate) add_version: u64,
    pub(crate) remove_version: u64,
    pub(crate) priority: u32,
    pub(crate) id: RuleId,
    pub(crate) subtable: u32,
    /// The index of its masked key in the subtable.
    pub(crate) entry: u32,
    /// The next rule of the same match, of equal or lower priority.
    pub(crate) next: RuleLink,
    /// The previous and the next rule of the subtable, in order of insertion.
    pub(crate) list: [RuleLink; 2],
}

/// The number of a rule, of its place or of its entry, or none, in four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuleLink(pub u32);

impl RuleLink {
    pub const NONE: RuleLink = RuleLink(u32::MAX);

    #[inline]
    pub fn get(self) -> Option<RuleId> {
        (self != RuleLink::NONE).then_some(RuleId(self.0))
    }
}

impl From<RuleId> for RuleLink {
    fn from(id: RuleId) -> Self {
        RuleLink(id.0)
    }
}

impl<R> Rule<R> {
    /// Its id, until it is removed.
    pub fn id(&self) -> RuleId {
        self.id
    }

    /// Its priority: higher wins.
    pub fn priority(&self) -> u32 {
        self.priority
    }

    /// The caller's data.
    pub fn payload(&self) -> &R {
        &self.payload
    }

    /// The first version at which it is visible.
    pub fn add_version(&self) -> u64 {
        self.add_version
    }

    /// The first version at which it is hidden again; [`NEVER`] if it is not marked for removal.
    pub fn remove_version(&self) -> u64 {
        self.remove_version
    }

    /// Its clauses of conjunctions; empty for an ordinary rule.
    pub fn conjunctions(&self) -> &[Conjunction] {
        self.conjunctions.as_deref().unwrap_or_default()
    }

    /// Whether it is visible at `version`.
    #[inline]
    pub fn is_visible(&self, version: u64) -> bool {
        self.add_version <= version && version < self.remove_version
    }
}

/// Rules by id. Ids of removed rules are reused, the latest first.
#[derive(Debug)]
pub(crate) struct Slab<R> {
    slots: Vec<Slot<R>>,
    len: usize,
    /// The first vacant slot.
    vacant: RuleLink,
}

/// A rule's place. A vacant one leads to the next, so that removing a rule allocates nothing.
#[derive(Debug)]
enum Slot<R> {
    Used(Rule<R>),
    Vacant(RuleLink),
}

impl<R> Slot<R> {
    #[inline]
    fn rule(&self) -> Option<&Rule<R>> {
        match self {
            Slot::Used(rule) => Some(rule),
            Slot::Vacant(_) => None,
        }
    }
}

impl<R> Slab<R> {
    /// The size of a rule's place.
    pub const SLOT_SIZE: usize = size_of::<Slot<R>>();

    pub fn new() -> Self {
        Slab { slots: Vec::new(), len: 0, vacant: RuleLink::NONE }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn ids_end(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The rules, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Rule<R>> {
        self.slots.iter().filter_map(Slot::rule)
    }

    /// Stores the rule that `make` returns for its new id.
    pub fn insert(&mut self, make: impl FnOnce(RuleId) -> Rule<R>) -> RuleId {
        let id = self.vacant.get().unwrap_or_else(|| {
            self.slots.push(Slot::Vacant(RuleLink::NONE));
            RuleId(u32::try_from(self.slots.len() - 1).expect("invariant: fewer than 2^32 - 1 rules fit in memory"))
        });
        let slot = &mut self.slots[id.0 as usize];
        if let Slot::Vacant(next) = std::mem::replace(slot, Slot::Used(make(id))) {
            self.vacant = next;
        }
        self.len += 1;
        id
    }

    pub fn remove(&mut self, id: RuleId) -> Option<Rule<R>> {
        let slot = self.slots.get_mut(id.0 as usize).filter(|slot| slot.rule().is_some())?;
        let Slot::Used(rule) = std::mem::replace(slot, Slot::Vacant(self.vacant)) else { return None };
        self.vacant = id.into();
        self.len -= 1;
        Some(rule)
    }

    #[inline]
    pub fn get(&self, id: RuleId) -> Option<&Rule<R>> {
        self.slots.get(id.0 as usize)?.rule()
    }

    #[inline]
    pub fn get_mut(&mut self, id: RuleId) -> Option<&mut Rule<R>> {
        match self.slots.get_mut(id.0 as usize)? {
            Slot::Used(rule) => Some(rule),
            Slot::Vacant(_) => None,
        }
    }

    /// The rule of an id from the classifier's own links.
    #[inline]
    pub fn at(&self, id: RuleId) -> &Rule<R> {
        self.get(id).expect("invariant: links lead to stored rules")
    }

    #[inline]
    pub fn at_mut(&mut self, id: RuleId) -> &mut Rule<R> {
        self.get_mut(id).expect("invariant: links lead to stored rules")
    }

    /// The rule and the ones that follow it in the chain of its match.
    pub fn chain(&self, head: RuleId) -> impl Iterator<Item = &Rule<R>> {
        std::iter::successors(Some(self.at(head)), |rule| rule.next.get().map(|id| self.at(id)))
    }
}
