//! Filters of dumps and captures: a match as `ovs-ofctl` writes it, and `geneve(…)` as flows of the datapath have it.

use sluice_action::parse_option_filter;
use sluice_flow::geneve::OptionMap;
use sluice_flow::{Match, OptionFilter, PacketFilter, PacketKey, PortNames};
use sluice_ofproto::Ofproto;

/// A filter as it was written.
#[derive(Clone, Debug)]
pub struct FilterText {
    /// What it says without `geneve(…)`.
    pub matches: Match,
    /// What it says in `geneve(…)`.
    options: OptionFilter,
}

/// A filter of packets of any bridge.
pub enum AnyBridgeFilter {
    /// It names no field that stands for an option: it is the same for all bridges.
    Same(PacketFilter),
    /// Each bridge maps options of its own.
    ByBridge(FilterText),
}

impl FilterText {
    /// Reads it.
    ///
    /// # Errors
    /// With what is wrong.
    pub fn parse(text: &str, ports: &PortNames) -> Result<Self, String> {
        const OPTIONS: &str = "geneve(";
        let (mut rest, mut options) = (text.to_owned(), OptionFilter::default());
        if let Some((before, list)) = text.split_once(OPTIONS) {
            let (list, behind) =
                list.split_once(')').ok_or_else(|| format!("{OPTIONS}{list}: expected a closing parenthesis"))?;
            options = parse_option_filter(list).map_err(|error| error.to_string())?;
            rest = format!("{before}{behind}");
        }
        let matches = Match::parse(&rest, ports).map_err(|error| error.to_string())?;
        Ok(FilterText { matches, options })
    }

    /// What it means where options are mapped so.
    ///
    /// # Errors
    /// If it names a field that no packet there has.
    pub fn within(&self, map: &OptionMap) -> Result<PacketFilter, String> {
        PacketFilter::new(&self.matches, map, self.options.clone()).map_err(|error| error.to_string())
    }
}

impl AnyBridgeFilter {
    /// What a text means for packets of any bridge.
    pub fn new(text: FilterText) -> Self {
        match text.within(&OptionMap::default()) {
            Ok(filter) => AnyBridgeFilter::Same(filter),
            Err(_) => AnyBridgeFilter::ByBridge(text),
        }
    }

    /// Whether a packet with that key is wanted. If it names an option, the bridge of the packet's port tells which one; no
    /// packet of a bridge is wanted that does not map the field.
    pub fn admits(&self, key: &PacketKey, ofproto: &Ofproto) -> bool {
        match self {
            AnyBridgeFilter::Same(filter) => filter.admits(key),
            AnyBridgeFilter::ByBridge(text) => {
                text.within(&ofproto.tunnel_options_at(key)).is_ok_and(|filter| filter.admits(key))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_stand_anywhere_in_the_text() {
        let list = [1, 2, 0x80, 1, 0, 0, 0, 0xa];
        let mut key = PacketKey::ZERO;
        key.put_options(&list);
        let option = "geneve({class=0x102,type=0x80,len=4,0xa/0xf})";
        for text in [
            option.to_owned(),
            format!("{option},tun_id=0"),
            format!("tun_id=0,{option}"),
            format!("tun_id=0,{option},in_port=0"),
        ] {
            let filter = FilterText::parse(&text, &PortNames::NONE).unwrap().within(&OptionMap::default()).unwrap();
            assert!(filter.admits(&key) && !filter.admits(&PacketKey::ZERO), "{text}");
        }
        // Of all that a request has room for, a packet is compared with one list.
        let twice = format!("{option},{option}");
        for wrong in ["geneve({class=1", "geneve(x)", "no_field=1", &twice] {
            assert!(FilterText::parse(wrong, &PortNames::NONE).is_err(), "{wrong}");
        }
        let named = FilterText::parse("tun_metadata0=5", &PortNames::NONE).unwrap();
        assert!(named.within(&OptionMap::default()).unwrap_err().contains("no option is mapped to tun_metadata0"));
    }
}
