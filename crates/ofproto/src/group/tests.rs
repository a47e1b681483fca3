use super::*;
use sluice_fate::{Limit, SharedMemory};
use sluice_flow::PortNames;
use sluice_ofp::Selection;

fn parse(text: &str, command: GroupCommand) -> GroupMod {
    GroupMod::parse(text, command, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// As much as is needed.
fn memory() -> Arc<MemoryShare> {
    share_of(usize::MAX)
}

fn share_of(limit: usize) -> Arc<MemoryShare> {
    Arc::new(MemoryShare::new(Arc::new(SharedMemory::new(Limit::RuleMemory, limit))))
}

fn buckets(weights: &[u16]) -> Vec<Bucket> {
    weights.iter().map(|w| Bucket { weight: *w, ..Bucket::new(0, Vec::new()) }).collect()
}

/// How often each bucket comes in a map.
fn shares(weights: &[u16]) -> Option<Vec<usize>> {
    let map = hash_map(&buckets(weights))?;
    Some((0..weights.len()).map(|i| map.iter().filter(|b| **b == i).count()).collect())
}

#[test]
fn hash_values_are_dealt_by_weight() {
    assert_eq!(shares(&[1, 1]), Some(vec![8, 8]));
    assert_eq!(shares(&[1, 3]), Some(vec![4, 12]));
    assert_eq!(shares(&[5, 0, 5]), Some(vec![8, 0, 8]));
    // The lightest bucket has a value if 256 values are enough.
    assert_eq!(shares(&[1, 255]), Some(vec![1, 255]));
    assert_eq!(shares(&[1, 256]), None);
    assert_eq!(shares(&[0, 0]), None);
    assert_eq!(shares(&[]), None);
}

#[test]
fn the_method_is_what_the_group_allows() {
    let of = |method: &str, parameter, weights: &[u16]| {
        let selection = Selection { method: method.into(), parameter, fields: Vec::new() };
        method_of(GroupConfig { kind: GroupKind::Select, buckets: buckets(weights), selection })
    };
    fn method_of(config: GroupConfig) -> (Option<HashAlgorithm>, u32) {
        match method(1, &config) {
            SelectionMethod::DpHash { algorithm, basis, .. } => (Some(algorithm), basis),
            _ => (None, 0),
        }
    }
    assert_eq!(of("", 0, &[1, 2]), (Some(HashAlgorithm::SymmetricL4), 0));
    assert_eq!(of("dp_hash", 7, &[1, 2]), (Some(HashAlgorithm::L4), 7));
    assert_eq!(of("dp_hash", 1 << 32 | 9, &[1, 2]), (Some(HashAlgorithm::SymmetricL4), 9));
    assert_eq!(of("", 0, &[1, 1000]), (None, 0));
    assert_eq!(of("hash", 0, &[1, 2]), (None, 0));
}

#[test]
fn groups_come_change_and_go() {
    let mut groups = Groups::new();
    let add = parse("group_id=5,type=select,bucket=output:1,bucket=bucket_id=0,output:2", GroupCommand::Add);
    apply(&mut groups, &add, 10, &memory()).unwrap();
    let ids = |groups: &Groups| groups[&5].config.buckets.iter().map(|b| b.id).collect::<Vec<_>>();
    // The bucket without a number got the lowest that is free.
    assert_eq!(ids(&groups), [1, 0]);
    assert_eq!(apply(&mut groups, &add, 20, &memory()), Err(Error::GroupExists(5)));
    let mut edit = |text: &str, command| apply(&mut groups, &parse(text, command), 20, &memory()).map(|_| ids(&groups));
    let insert = GroupCommand::InsertBucket;
    assert_eq!(edit("group_id=5,command_bucket_id=1,bucket=bucket_id=7,output:3", insert), Ok(vec![1, 7, 0]));
    assert_eq!(edit("group_id=5,command_bucket_id=first,bucket=output:3", insert), Ok(vec![2, 1, 7, 0]));
    assert_eq!(edit("group_id=5,command_bucket_id=last,bucket=output:3", insert), Ok(vec![2, 1, 7, 0, 3]));
    let taken = Err(Error::BucketExists { group: 5, bucket: 7 });
    assert_eq!(edit("group_id=5,command_bucket_id=last,bucket=bucket_id=7,output:3", insert), taken);
    let unknown = Err(Error::NoBucket { group: 5, bucket: 9 });
    assert_eq!(edit("group_id=5,command_bucket_id=9,bucket=output:3", insert), unknown);
    let remove = GroupCommand::RemoveBucket;
    assert_eq!(edit("group_id=5,command_bucket_id=first", remove), Ok(vec![1, 7, 0, 3]));
    assert_eq!(edit("group_id=5,command_bucket_id=last", remove), Ok(vec![1, 7, 0]));
    assert_eq!(edit("group_id=5,command_bucket_id=7", remove), Ok(vec![1, 0]));
    assert_eq!(edit("group_id=5,command_bucket_id=7", remove), Err(Error::NoBucket { group: 5, bucket: 7 }));
    assert_eq!(edit("group_id=5,command_bucket_id=all", remove), Ok(vec![]));
    assert_eq!(groups[&5].created_ms, 10, "a modification does not make it younger");
    assert_eq!(apply(&mut groups, &parse("group_id=6", GroupCommand::Delete), 0, &memory()), Ok(vec![]));
    assert_eq!(apply(&mut groups, &parse("", GroupCommand::Delete), 0, &memory()), Ok(vec![5]));
    let modify = GroupMod { command: GroupCommand::Modify, ..add };
    assert_eq!(apply(&mut groups, &modify, 0, &memory()), Err(Error::NoGroup(5)));
}

#[test]
fn what_no_group_can_be_is_refused() {
    let mut groups = Groups::new();
    let mut add = |kind, bucket: Bucket| {
        let config = GroupConfig { kind, buckets: vec![bucket], selection: Selection::default() };
        let gm = GroupMod { command: GroupCommand::Add, group: 1, command_bucket: BUCKET_ALL, config };
        apply(&mut groups, &gm, 0, &memory()).unwrap_err().to_string()
    };
    let plain = || Bucket { weight: 0, ..Bucket::new(0, Vec::new()) };
    let watching = || Bucket { watch_group: Some(2), ..plain() };
    assert!(add(GroupKind::All, watching()).contains("watch"));
    assert!(add(GroupKind::FastFailover, plain()).contains("watch_port or watch_group"));
    assert!(add(GroupKind::All, Bucket::new(0, Vec::new())).contains("weights"));
    let config = GroupConfig { kind: GroupKind::Indirect, ..GroupConfig::default() };
    let gm = GroupMod { command: GroupCommand::Add, group: 1, command_bucket: BUCKET_ALL, config };
    assert!(apply(&mut groups, &gm, 0, &memory()).is_err());
    assert!(groups.is_empty());
}

#[test]
fn packets_are_credited_to_their_bucket() {
    let config = parse("group_id=1,type=all,bucket=output:1,bucket=output:2", GroupCommand::Add).config;
    let group = Group::new(1, config, 0, MemoryCharge::take(&memory(), 0, 0).unwrap());
    group.credit(None, 2, 120);
    group.credit(Some(1), 1, 60);
    let entry = group.entry(3);
    assert_eq!((entry.counts, entry.buckets, entry.ref_count), ((3, 180), vec![(2, 120), (3, 180)], 3));
}

#[test]
fn a_group_that_would_watch_itself_is_refused() {
    let mut groups = Groups::new();
    let mut change = |text: &str, command| apply(&mut groups, &parse(text, command), 0, &memory()).map(|_| ());
    let add = GroupCommand::Add;
    assert_eq!(change("group_id=1,type=ff,bucket=watch_group:1,output:1", add), Err(Error::GroupLoop(1)));
    // A ring of three, which comes about when the last group is added.
    assert_eq!(change("group_id=1,type=ff,bucket=watch_group:2,output:1", add), Ok(()));
    assert_eq!(change("group_id=2,type=ff,bucket=watch_port:1,output:1,bucket=watch_group:3,output:1", add), Ok(()));
    assert_eq!(change("group_id=3,type=select,bucket=weight:1,watch_group:1,output:1", add), Err(Error::GroupLoop(3)));
    // And by a modification, and by a bucket alone.
    assert_eq!(change("group_id=3,type=ff,bucket=watch_port:1,output:1", add), Ok(()));
    let modify = GroupCommand::Modify;
    assert_eq!(change("group_id=3,type=ff,bucket=watch_group:1,output:1", modify), Err(Error::GroupLoop(3)));
    let insert = GroupCommand::InsertBucket;
    let bucket = "group_id=3,command_bucket_id=last,bucket=watch_group:2,output:1";
    assert_eq!(change(bucket, insert), Err(Error::GroupLoop(3)));
    // Two ways to one group are no loop.
    let twice = "group_id=4,type=ff,bucket=watch_group:3,output:1,bucket=watch_group:1,output:2";
    assert_eq!(change(twice, add), Ok(()));
}

#[test]
fn a_group_without_memory_is_refused_and_may_shrink() {
    let (mut groups, share) = (Groups::new(), share_of(20_000));
    let wide = format!("group_id=1,type=all{}", ",bucket=actions=output:1".repeat(20));
    let mut change = |text: &str, command| apply(&mut groups, &parse(text, command), 0, &share).map(|_| share.bytes());
    let first = change(&wide, GroupCommand::Add).unwrap();
    let more = "group_id=1,command_bucket_id=last,bucket=actions=output:2";
    let last = (0..200).map_while(|_| change(more, GroupCommand::InsertBucket).ok()).last().unwrap();
    let full = change("group_id=2,type=all,bucket=actions=output:1", GroupCommand::Add);
    assert_eq!(full, Err(Error::GroupMemory(2)));
    assert!((first..=20_000).contains(&last));
    let least = change("group_id=1,type=all,bucket=actions=output:1", GroupCommand::Modify).unwrap();
    assert!(least < first);
    assert_eq!(change("group_id=1", GroupCommand::Delete), Ok(0));
}
