//! Actions that send a packet.

use super::{Version, Writer};

impl Writer<'_> {
    pub(super) fn output(&mut self) {
        let port = self.port();
        let action = match self.rng.weighted(&[66, 8, 10, 12, 2, 2]) {
            0 => format!("output:{port}"),
            1 => "in_port".into(),
            2 => "flood".into(),
            3 => "all".into(),
            4 => "local".into(),
            // In later versions this is three actions, with which the test has other lines already.
            _ if self.place.version == Version::Of10 => format!("enqueue:{port}:{}", self.rng.below(3)),
            _ => format!("output:{port}"),
        };
        self.push(action);
    }

    pub(super) fn output_to_register(&mut self) {
        if self.rng.chance(70) {
            let port = self.port();
            self.push(format!("load:{port}->NXM_NX_REG1[0..15]"));
        }
        let field = *self.rng.pick(&["NXM_NX_REG1[0..15]", "NXM_NX_REG0[0..2]", "NXM_OF_IN_PORT[]", "NXM_NX_REG2[]"]);
        self.push(format!("output:{field}"));
    }

    pub(super) fn output_truncated(&mut self) {
        let port = match self.rng.below(10) {
            0 => "in_port".to_owned(),
            1 => "local".to_owned(),
            _ => self.port().to_string(),
        };
        // Two tags may be popped before it leaves, and OVS's dummy device gives up on all of a batch for a runt.
        let length = *self.rng.pick(&[22, 24, 34, 60, 128]);
        self.push(format!("output(port={port},max_len={length})"));
        if self.rng.chance(50) {
            self.output();
        }
    }

    pub(super) fn controller(&mut self) {
        let action = match self.rng.below(5) {
            0 => "controller".to_owned(),
            1 => "controller:64".to_owned(),
            2 => "controller(reason=no_match,max_len=100,id=3)".to_owned(),
            3 => "controller(userdata=01.02.03.04,max_len=128)".to_owned(),
            _ => "controller(reason=invalid_ttl)".to_owned(),
        };
        self.push(action);
    }

    pub(super) fn bundle(&mut self) {
        let fields = *self.rng.pick(&["eth_src", "symmetric_l4", "symmetric_l3l4", "nw_src"]);
        let algorithm = *self.rng.pick(&["hrw", "active_backup"]);
        let basis = self.rng.below(3);
        let (a, b) = (self.port(), self.port());
        if self.rng.chance(50) {
            self.push(format!("bundle({fields},{basis},{algorithm},ofport,slaves:{a},{b},77)"));
        } else {
            let place = "NXM_NX_REG1[0..15]";
            self.push(format!("bundle_load({fields},{basis},{algorithm},ofport,{place},slaves:{a},{b})"));
            self.push(format!("output:{place}"));
        }
    }

    pub(super) fn normal(&mut self) {
        if self.place.theme.learns() { self.push("normal".to_owned()) } else { self.output() }
    }
}
