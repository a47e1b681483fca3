//! Rules and the slab they live in.

/// A rule's name: its place in its classifier, reused once the rule has been removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u32);

/// The removal version of a rule that nobody has asked to remove.
pub const NEVER: u64 = u64::MAX;
/// A version that sees every rule not yet marked for removal, whenever it was added.
pub const LATEST: u64 = u64::MAX - 1;

/// What a rule contributes to a conjunctive match: clause `clause` (from 0) of the `n_clauses` of conjunction `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conjunction {
    /// The conjunction; a rule that matches `conj_id` of this value takes the packet when all clauses match.
    pub id: u32,
    /// Which clause, from 0. At most 63.
    pub clause: u8,
    /// How many clauses there are: 2 to 64.
    pub n_clauses: u8,
}

/// A rule of a table. Its match is kept in the classifier in a compact form: see `Classifier::match_of`.
#[derive(Debug)]
pub struct Rule<R> {
    pub(crate) payload: R,
    pub(crate) conjunctions: Option<Box<[Conjunction]>>,
    pub(crate) add_version: u64,
    pub(crate) remove_version: u64,
    pub(crate) priority: u32,
    pub(crate) id: RuleId,
    pub(crate) subtable: u32,
    /// Which of the subtable's masked keys it has.
    pub(crate) entry: u32,
    /// The next rule of the same match, of equal or lower priority.
    pub(crate) next: RuleLink,
    /// Its neighbours in the subtable's list of rules, in order of insertion.
    pub(crate) list: [RuleLink; 2],
}

/// A rule or none, in four bytes.
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
    /// Its name, until it is removed.
    pub fn id(&self) -> RuleId {
        self.id
    }

    /// Its priority: higher wins.
    pub fn priority(&self) -> u32 {
        self.priority
    }

    /// What the caller attached to it.
    pub fn payload(&self) -> &R {
        &self.payload
    }

    /// The first version that sees it.
    pub fn add_version(&self) -> u64 {
        self.add_version
    }

    /// The first version that does not see it any more; [`NEVER`] if nobody has asked to remove it.
    pub fn remove_version(&self) -> u64 {
        self.remove_version
    }

    /// Its parts in conjunctions; empty for an ordinary rule.
    pub fn conjunctions(&self) -> &[Conjunction] {
        self.conjunctions.as_deref().unwrap_or_default()
    }

    /// Whether lookups at `version` see it.
    #[inline]
    pub fn is_visible(&self, version: u64) -> bool {
        self.add_version <= version && version < self.remove_version
    }
}

/// Rules by id. Places of removed rules are reused, the latest first.
#[derive(Debug)]
pub(crate) struct Slab<R> {
    slots: Vec<Option<Rule<R>>>,
    free: Vec<u32>,
}

impl<R> Slab<R> {
    pub fn new() -> Self {
        Slab { slots: Vec::new(), free: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Stores the rule that `make` builds for the id it gets.
    pub fn insert(&mut self, make: impl FnOnce(RuleId) -> Rule<R>) -> RuleId {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("invariant: fewer than 2^32 - 1 rules fit in memory")
        });
        self.slots[at as usize] = Some(make(RuleId(at)));
        RuleId(at)
    }

    pub fn remove(&mut self, id: RuleId) -> Option<Rule<R>> {
        let rule = self.slots.get_mut(id.0 as usize)?.take()?;
        self.free.push(id.0);
        Some(rule)
    }

    #[inline]
    pub fn get(&self, id: RuleId) -> Option<&Rule<R>> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, id: RuleId) -> Option<&mut Rule<R>> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    /// A rule that the classifier's own links lead to.
    #[inline]
    pub fn at(&self, id: RuleId) -> &Rule<R> {
        self.get(id).expect("invariant: links lead to rules that are in")
    }

    #[inline]
    pub fn at_mut(&mut self, id: RuleId) -> &mut Rule<R> {
        self.get_mut(id).expect("invariant: links lead to rules that are in")
    }

    /// The rule and those of the same match after it.
    pub fn chain(&self, head: RuleId) -> impl Iterator<Item = &Rule<R>> {
        std::iter::successors(Some(self.at(head)), |rule| rule.next.get().map(|id| self.at(id)))
    }
}
