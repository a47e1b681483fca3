//! The members of buckets, and rebalancing by what each bucket has carried. Source: ofproto/bond.c, `bond_rebalance`.

use crate::bond::{Balance, Bond};

/// Buckets of a bond.
pub const BUCKETS: usize = 256;

/// Members whose loads differ by less are left alone, bytes: about 1 Mbps over ten seconds.
const OVERLOAD_MIN: u64 = 100_000;

/// They are also left alone if they differ by less than this part of the lesser load, as a shift: about 3 %.
const OVERLOAD_SHIFT: u32 = 5;

/// A member's part in a rebalancing.
struct MemberLoad {
    id: u16,
    load: u64,
    /// Its buckets, the one with most load first.
    buckets: Vec<usize>,
}

impl Bond {
    /// No bucket has a member or a load any more.
    pub(crate) fn reset_buckets(&mut self, now_ms: u64) {
        self.buckets = [None; BUCKETS];
        self.load = [0; BUCKETS];
        self.has_carried = false;
        self.next_rebalance_ms = now_ms + self.config.rebalance_interval_ms;
    }

    /// Gives each bucket without a member that works the next one that does. Others keep theirs, unless a member is new.
    pub(crate) fn fill_buckets(&mut self) {
        if self.balance() == Balance::Active {
            return;
        }
        if std::mem::take(&mut self.spreads_anew) {
            self.buckets = [None; BUCKETS];
        }
        let enabled: Vec<u16> = self.members.iter().filter(|member| member.enabled).map(|member| member.id).collect();
        for bucket in &mut self.buckets {
            if bucket.is_none_or(|id| !enabled.contains(&id)) {
                *bucket = enabled.get(self.next_member % enabled.len().max(1)).copied();
                self.next_member = (self.next_member + 1) % enabled.len().max(1);
            }
        }
    }

    /// A bucket has carried that much more.
    pub fn account(&mut self, bucket: u8, bytes: u64) {
        self.has_carried |= bytes != 0;
        if self.is_balanced() {
            let load = &mut self.load[usize::from(bucket)];
            *load = load.saturating_add(bytes);
        }
    }

    /// Whether it is time to spread load anew. The loads of buckets should be up to date then.
    pub fn is_rebalance_due(&self, now_ms: u64) -> bool {
        self.is_balanced() && now_ms >= self.next_rebalance_ms
    }

    /// Spreads load anew: buckets move from the member with most load to that with least, as long as that helps. Then
    /// loads are halved, so that they are those of the last few intervals.
    pub fn rebalance(&mut self, now_ms: u64) {
        self.next_rebalance_ms = now_ms + self.config.rebalance_interval_ms;
        let mut loads = self.loads();
        self.log_loads(&loads);
        while loads.len() > 1 {
            loads.sort_by_key(|member| std::cmp::Reverse(member.load));
            let (first, last) = (&loads[0], &loads[loads.len() - 1]);
            let overload = first.load - last.load;
            if overload < last.load >> OVERLOAD_SHIFT || overload < OVERLOAD_MIN {
                break;
            }
            let moving = self.choose_to_move(first, last.load);
            if moving.is_empty() {
                // Nothing that it could give away helps.
                loads.remove(0);
                continue;
            }
            let to = loads.len() - 1;
            for bucket in moving {
                let bytes = self.load[bucket];
                self.log_shift(bucket, (&loads[0], &loads[to]));
                self.buckets[bucket] = Some(loads[to].id);
                loads[0].buckets.retain(|other| *other != bucket);
                loads[0].load -= bytes;
                loads[to].load += bytes;
            }
        }
        self.load.iter_mut().for_each(|load| *load /= 2);
    }

    /// The loads of members that work.
    fn loads(&self) -> Vec<MemberLoad> {
        let of_member = |id: u16| {
            let of_it = |bucket: &usize| self.buckets[*bucket] == Some(id) && self.load[*bucket] != 0;
            let mut buckets: Vec<usize> = (0..BUCKETS).filter(of_it).collect();
            buckets.sort_by_key(|bucket| std::cmp::Reverse(self.load[*bucket]));
            MemberLoad { id, load: buckets.iter().map(|bucket| self.load[*bucket]).sum(), buckets }
        };
        self.members.iter().filter(|member| member.enabled).map(|member| of_member(member.id)).collect()
    }

    /// The buckets that a member should give to one that has `to_load`: together they come close to half the difference,
    /// and bring at least a tenth of it.
    fn choose_to_move(&self, from: &MemberLoad, to_load: u64) -> Vec<usize> {
        let ideal = (from.load + to_load) / 2 - to_load;
        let threshold = ideal / 10;
        if from.buckets.len() < 2 {
            return Vec::new();
        }
        let (mut chosen, mut sum) = (Vec::new(), 0);
        for bucket in &from.buckets {
            if sum + self.load[*bucket] <= ideal {
                chosen.push(*bucket);
                sum += self.load[*bucket];
            }
            if ideal - sum < threshold {
                break;
            }
        }
        if let (true, Some(lightest)) = (chosen.is_empty(), from.buckets.last()) {
            // Each alone is more than half the difference: the lightest comes closest.
            chosen.push(*lightest);
            sum = self.load[*lightest];
        }
        let new_low = (from.load - sum).min(to_load + sum);
        if new_low > to_load && new_low - to_load >= threshold { chosen } else { Vec::new() }
    }

    fn name_of(&self, id: u16) -> &str {
        self.member(id).map_or("", |member| &member.name)
    }

    fn log_shift(&self, bucket: usize, (from, to): (&MemberLoad, &MemberLoad)) {
        let bytes = self.load[bucket];
        tracing::info!(
            target: "bond",
            "bond {}: shift {}kB of load (with hash {bucket}) from {} to {} (now carrying {}kB and {}kB load, respectively)",
            self.name,
            bytes / 1024,
            self.name_of(from.id),
            self.name_of(to.id),
            (from.load - bytes) / 1024,
            (to.load + bytes) / 1024
        );
    }

    fn log_loads(&self, loads: &[MemberLoad]) {
        if !tracing::enabled!(target: "bond", tracing::Level::DEBUG) {
            return;
        }
        let of_member = |member: &MemberLoad| {
            let buckets: Vec<_> =
                member.buckets.iter().map(|bucket| format!("h{bucket}: {}kB", self.load[*bucket] / 1024)).collect();
            let buckets = if buckets.is_empty() { String::new() } else { format!(" ({})", buckets.join(" + ")) };
            format!(" {} {}kB{buckets}", self.name_of(member.id), member.load / 1024)
        };
        let members: Vec<_> = loads.iter().map(of_member).collect();
        tracing::debug!(target: "bond", "bond {}:{}", self.name, members.join(","));
    }
}
