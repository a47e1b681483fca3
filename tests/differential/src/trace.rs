//! The tail of `ofproto/trace`: what scripts read of it.

use crate::canonical::{canonical_actions, is_output, number, split, without_numbers_after};

/// One pass of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    flow: String,
    last: String,
    megaflow: String,
    actions: String,
}

impl Tail {
    /// All passes of a trace.
    pub fn all(text: &str) -> Vec<Tail> {
        let mut tails: Vec<Tail> = Vec::new();
        for line in text.lines() {
            if let Some(flow) = line.strip_prefix("Flow: ") {
                tails.push(Tail { flow: without_ids(flow), ..Tail::default() });
            }
            let Some(tail) = tails.last_mut() else { continue };
            if let Some(last) = line.strip_prefix("Final flow: ") {
                tail.last = without_ids(last);
            } else if let Some(megaflow) = line.strip_prefix("Megaflow: ") {
                tail.megaflow = with_whole_masks(&without_ids(megaflow));
            } else if let Some(actions) = line.strip_prefix("Datapath actions: ") {
                let actions = without_numbers_after(&canonical_actions(actions), "recirc(0x");
                tail.actions = with_tags_said(&actions, &mut tags(&tail.flow));
            } else if line.starts_with("Translation failed") {
                tail.actions = line.to_owned();
            }
        }
        tails
    }

    /// By kind of difference.
    pub fn parts(&self) -> [(&'static str, &str); 4] {
        [("flow", &self.flow), ("final", &self.last), ("mask", &self.megaflow), ("actions", &self.actions)]
    }

    pub fn has_mask_of(&self, other: &Tail) -> bool {
        self.megaflow == other.megaflow
    }

    /// Its actions without the values that they set.
    pub fn without_values(&self) -> Tail {
        let actions = split(&self.actions).into_iter().map(|a| if a.starts_with("set(") { "set(…)" } else { a });
        Tail { actions: actions.collect::<Vec<_>>().join(","), ..self.clone() }
    }
}

/// The tags that a flow has, the outermost last.
fn tags(flow: &str) -> Vec<String> {
    let value = |name: &str| flow.split(',').find_map(|term| term.strip_prefix(name)).map(str::to_owned);
    let tag = |vid: &str, pcp: &str| Some(format!("vid={},pcp={}", value(vid)?, value(pcp)?));
    [tag("dl_vlan1=", "dl_vlan_pcp1="), tag("dl_vlan=", "dl_vlan_pcp=")].into_iter().flatten().collect()
}

/// Actions with each output telling the tags that its packet has, instead of tags pushed and popped, and runs of
/// outputs in order: `NORMAL` floods in the order of a hash table, and retags the packet from port to port.
fn with_tags_said(actions: &str, tags: &mut Vec<String>) -> String {
    let (mut out, mut run) = (Vec::new(), Vec::new());
    for action in split(actions) {
        if is_output(action) {
            run.push(format!("{action}[{}]", tags.join(" ")));
        } else if action == "pop_vlan" {
            tags.pop();
        } else if let Some(tag) = action.strip_prefix("push_vlan(") {
            // The packets show which type the tag has.
            let tag = tag.trim_end_matches(')');
            tags.push(tag.split_once("vid=").map_or(tag.to_owned(), |(_, rest)| format!("vid={rest}")));
        } else {
            run.sort_unstable();
            out.append(&mut run);
            out.push(match action.strip_suffix(')').and_then(|a| a.split_once('(')) {
                Some((name @ ("clone" | "check_pkt_len" | "gt" | "le" | "sample"), inner)) => {
                    format!("{name}({})", with_tags_said(inner, &mut tags.clone()))
                }
                _ => action.to_owned(),
            });
        }
    }
    run.sort_unstable();
    out.append(&mut run);
    out.join(",")
}

/// OVS holds these fields in wider ones, and prints a mask of all their bits beside the value.
fn with_whole_masks(megaflow: &str) -> String {
    let whole = |term: &str| {
        let is_whole = |name: &str, mask: &str| term.starts_with(name) && term.ends_with(mask);
        if is_whole("ipv6_label=", "/0xfffff") {
            return term.trim_end_matches("/0xfffff").to_owned();
        }
        if ["icmp_type=", "icmp_code=", "nd_options_type="].into_iter().any(|name| is_whole(name, "/0xff")) {
            let (name, value) = term.trim_end_matches("/0xff").split_once('=').unwrap_or((term, ""));
            return format!("{name}={}", number(value).unwrap_or_default());
        }
        term.to_owned()
    };
    megaflow.split(',').map(whole).collect::<Vec<_>>().join(",")
}

/// Recirculation ids but 0 are drawn one after the other, and OVS does not begin again with each table.
fn without_ids(text: &str) -> String {
    let Some((before, rest)) = text.split_once("recirc_id=") else { return text.to_owned() };
    let end = rest.find(',').unwrap_or(rest.len());
    if &rest[..end] == "0" { text.to_owned() } else { format!("{before}recirc_id=N{}", &rest[end..]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pass_has_its_tail() {
        let text = "Flow: mpls,in_port=1\n\nbridge(\"br0\")\n\nFinal flow: unchanged\nMegaflow: recirc_id=0,mpls\n\
                    Datapath actions: pop_mpls(eth_type=0x800),recirc(0x1f)\n\n====\nrecirc(0x1f)\n====\n\n\
                    Flow: recirc_id=0x1f,ip\n\nFinal flow: unchanged\nMegaflow: recirc_id=0x1f,ip\nDatapath actions: 100,2\n";
        let tails = Tail::all(text);
        assert_eq!(tails.len(), 2);
        assert_eq!(tails[0].actions, "pop_mpls(eth_type=0x800),recirc(0x)");
        let parts = tails[1].parts().map(|(_, text)| text);
        assert_eq!(parts, ["recirc_id=N,ip", "unchanged", "recirc_id=N,ip", "br0[],p2[]"]);
    }

    #[test]
    fn the_order_of_a_flood_with_tags_does_not_count() {
        let said = |actions| with_tags_said(actions, &mut tags("in_port=1,dl_vlan=100,dl_vlan_pcp=4,vlan_tci1=0x0000"));
        let flood = said("br0,pop_vlan,p2,push_vlan(vid=100,pcp=4),p3");
        assert_eq!(flood, said("pop_vlan,p2,push_vlan(tpid=0x88a8,vid=100,pcp=4),p3,br0"));
        assert_ne!(flood, said("br0,pop_vlan,p2,p3"));
        assert_ne!(said("p1,set(a),p2"), said("p2,set(a),p1"));
    }
}
