//! Actions on what travels with a packet: registers, marks, tunnel key, queue, stack.

use super::{Version, Writer};

/// What can be pushed, and popped into.
const STACKED: [&str; 8] = [
    "NXM_NX_REG0[]",
    "NXM_NX_REG1[0..15]",
    "NXM_NX_XXREG0[]",
    "NXM_NX_REG2[5..9]",
    "OXM_OF_METADATA[0..47]",
    "NXM_OF_ETH_SRC[]",
    "NXM_OF_IN_PORT[]",
    "NXM_NX_TUN_ID[]",
];

impl Writer<'_> {
    pub(super) fn register(&mut self) {
        let (reg, word) = (self.rng.below(3), self.values.word(self.rng));
        let action = match self.rng.below(7) {
            0 => format!("load:{:#x}->NXM_NX_REG{reg}[]", word & 0xffff_ffff),
            1 => {
                let (low, width) = (self.rng.below(24), 1 + self.rng.below(8));
                format!("load:{:#x}->NXM_NX_REG{reg}[{low}..{}]", word & ((1 << width) - 1), low + width - 1)
            }
            2 => format!("set_field:{:#x}->reg{reg}", word & 0xffff_ffff),
            3 => format!("set_field:{:#x}/{:#x}->reg{reg}", word & 0xff0f, 0xff0f),
            4 => format!("set_field:{word:#x}->xreg{}", self.rng.below(2)),
            5 => format!("set_field:{word:#x}/{:#x}->xxreg0", 0xf_0000_00ff_u64 | word),
            _ => format!("set_field:{word:#x}->metadata"),
        };
        self.push(action);
    }

    pub(super) fn metadata(&mut self) {
        let word = self.values.word(self.rng);
        // Later versions of the protocol turn set_tunnel into set_field, which looks at what was there.
        let old = self.place.version == Version::Of10;
        let action = match self.rng.below(8) {
            0 => format!("set_field:{:#x}->pkt_mark", word & 0xffff_ffff),
            1 => format!("load:{:#x}->NXM_NX_PKT_MARK[0..7]", word & 0xff),
            2 if !old => format!("set_field:{word:#x}->tun_id"),
            3 if old => format!("set_tunnel:{:#x}", word & 0xffff_ffff),
            4 if old => format!("set_tunnel64:{word:#x}"),
            5 => "move:NXM_NX_PKT_MARK[0..15]->NXM_NX_TUN_ID[8..23]".to_owned(),
            6 => "move:NXM_NX_XXREG0[0..63]->OXM_OF_METADATA[]".to_owned(),
            _ => format!("load:{}->NXM_OF_IN_PORT[]", self.port()),
        };
        self.push(action);
    }

    pub(super) fn stack(&mut self) {
        let from = *self.rng.pick(&STACKED);
        self.push(format!("push:{from}"));
        if self.rng.chance(30) {
            self.edit();
        }
        if self.rng.chance(80) {
            // Not into the port, which some versions of the protocol refuse to write.
            let to = *self.rng.pick(&STACKED[..6]);
            self.push(format!("pop:{to}"));
        }
    }

    pub(super) fn queue(&mut self) {
        let queue = self.rng.below(3);
        self.push(format!("set_queue:{queue}"));
        if self.rng.chance(40) {
            self.output();
            self.push("pop_queue".to_owned());
        }
    }
}
