//! Are these the packets that had to leave?

/// A frame that had to leave, and the flow of the packet it came of.
#[derive(Clone, Debug)]
pub struct Sent {
    pub flow: u32,
    pub bytes: Vec<u8>,
}

/// The same frames; those of one flow in their order, or all of them if `in_order`.
pub fn same(want: &[Sent], got: &[Vec<u8>], in_order: bool) -> Result<(), String> {
    let mut left: Vec<&[u8]> = want.iter().map(|s| &s.bytes[..]).collect();
    for (i, frame) in got.iter().enumerate() {
        match left.iter().position(|f| f == frame) {
            Some(0) => drop(left.remove(0)),
            Some(_) if in_order => return Err(format!("packet {i} is out of order: {}", hex(frame))),
            Some(at) => drop(left.remove(at)),
            None => {
                let next = left.first().map_or("nothing".into(), |f| hex(f));
                return Err(format!("packet {i} is unexpected:\n  found    {}\n  expected {next}", hex(frame)));
            }
        }
    }
    if let Some(frame) = left.first() {
        return Err(format!("{} packets did not leave, the first of them: {}", left.len(), hex(frame)));
    }
    let mut flows: Vec<u32> = want.iter().map(|s| s.flow).collect();
    flows.sort_unstable();
    flows.dedup();
    flows.into_iter().try_for_each(|flow| flow_in_order(want, got, flow))
}

fn flow_in_order(want: &[Sent], got: &[Vec<u8>], flow: u32) -> Result<(), String> {
    let mut frames = got.iter();
    for sent in want.iter().filter(|s| s.flow == flow) {
        if !frames.any(|frame| *frame == sent.bytes) {
            return Err(format!("a flow's packets are out of order at {}", hex(&sent.bytes)));
        }
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_counts_within_a_flow() {
        let want: Vec<Sent> = [(1, 1), (2, 7), (1, 2)].map(|(flow, b)| Sent { flow, bytes: vec![b] }).into();
        let got = |bytes: [u8; 3]| bytes.map(|b| vec![b]);
        assert_eq!(same(&want, &got([1, 7, 2]), true), Ok(()));
        assert_eq!(same(&want, &got([7, 1, 2]), false), Ok(()));
        assert!(same(&want, &got([7, 1, 2]), true).is_err());
        assert!(same(&want, &got([2, 7, 1]), false).is_err());
        assert!(same(&want, &got([1, 7, 7]), false).is_err());
        assert!(same(&want, &[vec![1], vec![7]], false).is_err());
    }
}
