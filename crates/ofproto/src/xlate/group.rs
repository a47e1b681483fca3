//! Groups: choosing buckets and running their actions.

use super::{ActionList, Failure, Translator, hash, nested};
use crate::group::{Group, SelectionMethod};
use crate::port::PortConfig;
use crate::trace::TraceKind;
use crate::xlate_cache::{Dependency, XcEntry};
use sluice_flow::hash::{murmur, murmur_add, murmur_finish};
use sluice_flow::{OfPort, PortNames, TUN_METADATA_BYTES, layout};
use sluice_ofp::ofpact::HashFields;
use sluice_ofp::{Bucket, GroupKind};
use std::sync::Arc;

/// Length of a chain of groups that watch each other, at most. Source: OVS, MAX_LIVENESS_RECURSION.
const MAX_WATCHES: usize = 128;

impl<'a> Translator<'a> {
    /// `group:ID`. False if there is no such group; the list of actions ends then.
    pub(super) fn group(&mut self, id: u32, last: bool) -> bool {
        if !self.may_resubmit() {
            return true;
        }
        self.depend_on(Dependency::Group(id));
        let Some(group) = self.bridge.groups.get(&id) else {
            self.warn(&format!("output to nonexistent group {id}"));
            return false;
        };
        let n = group.config.buckets.len();
        match group.config.kind {
            GroupKind::All | GroupKind::Indirect => {
                for i in 0..n {
                    self.bucket(group, i, last && i + 1 == n);
                }
                self.xcache.push(XcEntry::Group(Arc::clone(group), None));
            }
            GroupKind::Select => self.one_bucket(group, last, Self::selected),
            GroupKind::FastFailover => self.one_bucket(group, last, |t, group| t.first_live(group, 0)),
        }
        true
    }

    fn one_bucket(&mut self, group: &Arc<Group>, last: bool, choose: impl FnOnce(&mut Self, &Group) -> Option<usize>) {
        match choose(self, group) {
            Some(i) => {
                let id = group.config.buckets[i].id;
                self.detail(&format!("using bucket {id}"));
                self.bucket(group, i, last);
                self.xcache.push(XcEntry::Group(Arc::clone(group), Some(i)));
            }
            None => self.detail("no live bucket"),
        }
    }

    /// Runs the actions of a bucket, in the order of an action set. Its changes of the packet end with it.
    fn bucket(&mut self, group: &Group, i: usize, last: bool) {
        let bucket = &group.config.buckets[i];
        // Each action is also looked at to be put in order.
        if self.failure.is_some() || !self.charge(1 + bucket.actions.len()) {
            return;
        }
        let section = self.open(TraceKind::Bucket, || format!("bucket {}", bucket.id));
        // On the heap: groups nest.
        let (flow, was_mpls) = (Box::new(self.flow.clone()), self.was_mpls);
        let in_bucket = std::mem::replace(&mut self.in_bucket, true);
        let actions = nested::in_order(&bucket.actions);
        self.depth += 1;
        self.resubmits += 1;
        self.actions(ActionList::of(&actions), last);
        self.depth -= 1;
        if self.freezing {
            self.finish_freezing();
        }
        (*self.flow, self.was_mpls, self.in_bucket) = (*flow, was_mpls, in_bucket);
        // An exit of the bucket ends neither other buckets nor later actions. Only limits on the translation do.
        self.exit = false;
        if self.failure == Some(Failure::TooManyLabels) {
            self.failure = None;
        }
        self.close(section);
    }

    /// The bucket of a select group; none if no bucket is live, or if the packet must recirculate first.
    fn selected(&mut self, group: &Group) -> Option<usize> {
        if self.was_mpls {
            self.trigger_freeze();
            return None;
        }
        match &group.method {
            SelectionMethod::Symmetric => {
                hash::look_at_fields(self.flow, self.wc, HashFields::SymmetricL4);
                let basis = hash::of_fields(self.flow, HashFields::SymmetricL4, 0);
                self.best_live(group, basis)
            }
            SelectionMethod::Fields => {
                let basis = self.hash_of_fields(group);
                self.best_live(group, basis)
            }
            SelectionMethod::DpHash { algorithm, basis, map } => {
                let dp_hash = self.number(layout::DP_HASH);
                if dp_hash == 0 {
                    self.trigger_freeze();
                    self.hash = Some((*algorithm, *basis));
                    return None;
                }
                let mask = map.len() - 1;
                self.look_at(layout::DP_HASH, mask as u64);
                // A dead bucket's values go to the next live ones. As the buckets are mixed, this follows their
                // weights, too.
                let from = dp_hash as usize & mask;
                let order = map[from..].iter().chain(&map[..from]);
                order.copied().find(|&i| self.is_live(group, i, 0))
            }
        }
    }

    /// The hash of a group's fields, of those that the packet has.
    fn hash_of_fields(&mut self, group: &Group) -> u32 {
        let selection = &group.config.selection;
        let parameter = selection.parameter;
        let words = murmur_add(murmur_add(0, parameter as u32), (parameter >> 32) as u32);
        let mut basis = murmur_finish(words, 8);
        for (id, mask) in &selection.fields {
            if !self.has_field(*id) {
                continue;
            }
            let field = id.field();
            let mut bytes = [0; TUN_METADATA_BYTES];
            let bytes = &mut bytes[..field.n_bytes];
            field.get_wide(self.flow).and(&mask.wide()).put_be(bytes);
            basis = murmur(bytes, basis);
            if field.is_wide() {
                // An option of zeros is not one that is missing.
                basis = hash::of_bool(field.is_present(self.flow), basis);
                field.set_mask_wide(self.wc, mask.wide());
            } else {
                self.look_at_field(*id, mask.low());
            }
        }
        basis
    }

    fn best_live(&mut self, group: &Group, basis: u32) -> Option<usize> {
        let mut best: Option<(u32, usize)> = None;
        for (i, bucket) in group.config.buckets.iter().enumerate() {
            if self.is_live(group, i, 0) {
                let score = (hash::two_words(bucket.id, basis) & 0xffff) * u32::from(bucket.weight);
                self.detail(&format!("bucket {}: score {score}", bucket.id));
                // Of equals the last one wins.
                if best.is_none_or(|(most, _)| score >= most) {
                    best = Some((score, i));
                }
            } else {
                self.report_dead(bucket);
            }
        }
        best.map(|(_, i)| i)
    }

    fn first_live(&mut self, group: &Group, depth: usize) -> Option<usize> {
        for (i, bucket) in group.config.buckets.iter().enumerate() {
            if self.is_live(group, i, depth) {
                return Some(i);
            }
            self.report_dead(bucket);
        }
        None
    }

    /// Whether a bucket watches nothing, or a live port or group.
    fn is_live(&mut self, group: &Group, i: usize, depth: usize) -> bool {
        if depth >= MAX_WATCHES {
            self.error(|| format!("bucket chaining exceeded {MAX_WATCHES} links"));
            return false;
        }
        if self.failure.is_some() || !self.charge(1) {
            return false;
        }
        let bucket = &group.config.buckets[i];
        if group.config.kind == GroupKind::Select && bucket.weight == 0 {
            return false;
        }
        if bucket.watch_port.is_none() && bucket.watch_group.is_none() {
            return true;
        }
        if let Some(port) = bucket.watch_port {
            self.depend_on(Dependency::Port(port));
        }
        if let Some(id) = bucket.watch_group {
            self.depend_on(Dependency::Group(id));
        }
        let port_is_up = |port: OfPort| self.bridge.ports.get(&port).is_some_and(PortConfig::is_live);
        if bucket.watch_port.is_some_and(port_is_up) {
            return true;
        }
        let watched = bucket.watch_group.and_then(|id| self.bridge.groups.get(&id).map(Arc::clone));
        watched.is_some_and(|group| self.first_live(&group, depth + 1).is_some())
    }

    fn report_dead(&mut self, bucket: &Bucket) {
        if self.tracer.is_some() {
            let port = bucket.watch_port.map(|port| format!("port {}", PortNames::NONE.display(port)));
            let group = bucket.watch_group.map(|group| format!("port {group}"));
            let why: Vec<_> = port.into_iter().chain(group).collect();
            self.detail(&format!("bucket {}: not live due to {}", bucket.id, why.join(" and ")));
        }
    }
}
