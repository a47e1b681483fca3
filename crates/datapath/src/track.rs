//! The actions `ct` and `ct_clear`, on one packet.

use crate::execute::Traveller;
use crate::walk::Context;
use sluice_action::{Ct, Header, MaskedField};
use sluice_conntrack::{Checksums, Conntrack, Moment, Outcome, Refusal, clear};
use sluice_fate::{Counter, DropReason, Tally};
use sluice_flow::layout;

/// Finds the packet's connection, or makes it; writes its state into the key and translates the packet.
pub(crate) fn track(
    conntrack: &Conntrack,
    ct: &Ct,
    entropy: u64,
    traveller: &mut Traveller<'_>,
    context: &mut Context<'_, '_>,
) -> Result<(), DropReason> {
    traveller.renew_key()?;
    let moment = Moment { now_ms: context.now_ms, entropy, checksums: Checksums::Unknown };
    let Traveller { packet, key, carried, .. } = traveller;
    count(conntrack.execute(packet, key, ct, &moment, carried), context.tally);
    Ok(())
}

fn count(outcome: Outcome, tally: &mut Tally) {
    let counter = match outcome {
        Outcome::Tracked => return,
        Outcome::Committed => Counter::ConntrackCommits,
        Outcome::Invalid => Counter::ConntrackInvalid,
        Outcome::Refused(Refusal::ZoneLimit) => Counter::ConntrackZoneLimit,
        Outcome::Refused(Refusal::TableFull) => Counter::ConntrackTableFull,
        Outcome::Refused(Refusal::NatExhausted) => Counter::ConntrackNatExhausted,
    };
    tally[counter] += 1;
}

/// Forgets the connection and its state.
pub(crate) fn forget(traveller: &mut Traveller<'_>) {
    traveller.carried.forget();
    if traveller.key.get(layout::CT_STATE) != [0] {
        clear(traveller.key);
    }
}

/// Whether a set action changes what names a connection. Source: OVS lib/packets.c, pkt_metadata_init_conn().
pub(crate) fn renames(header: Header, fields: &[MaskedField]) -> bool {
    use layout::{IPV6_DST, IPV6_SRC, NW_DST, NW_SRC};
    match header {
        Header::Ipv4 | Header::Ipv6 => {
            fields.iter().any(|field| [NW_SRC, NW_DST, IPV6_SRC, IPV6_DST].contains(&field.span))
        }
        Header::Tcp | Header::Udp | Header::Sctp => true,
        _ => false,
    }
}
