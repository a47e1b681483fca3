//! The row of table `Open_vSwitch`.

use super::{ManagerRecord, Smap};
use crate::schema::SSL;
use sluice_ovsdb::{Replica, Row, Uuid};

/// What the switch is to be as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenVswitchRecord {
    /// Its row.
    pub uuid: Uuid,
    /// The configuration's number, which goes to `cur_cfg` once it is in force.
    pub next_cfg: i64,
    /// Settings by key.
    pub other_config: Smap,
    /// The managers of the database.
    pub managers: Vec<ManagerRecord>,
    /// Key and certificates.
    pub ssl: Option<SslRecord>,
}

/// Key and certificates. Source: Open vSwitch vswitchd/vswitch.xml, table SSL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SslRecord {
    /// The private key's file.
    pub private_key: String,
    /// The certificate's file.
    pub certificate: String,
    /// The authority's certificate's file.
    pub ca_cert: String,
    /// Whether the first peer's authority is trusted, and its certificate kept.
    pub bootstrap_ca_cert: bool,
}

impl OpenVswitchRecord {
    pub(super) fn read(replica: &Replica, row: &Row<'_>) -> Self {
        OpenVswitchRecord {
            uuid: row.uuid(),
            next_cfg: row.get("next_cfg"),
            other_config: Smap::read(row, "other_config"),
            managers: ManagerRecord::read_all(replica, row),
            ssl: row
                .get::<Option<Uuid>>("ssl")
                .and_then(|uuid| replica.row(SSL, uuid))
                .map(|row| SslRecord::read(&row)),
        }
    }
}

impl SslRecord {
    fn read(row: &Row<'_>) -> Self {
        let text = |column| row.get::<&str>(column).to_owned();
        SslRecord {
            private_key: text("private_key"),
            certificate: text("certificate"),
            ca_cert: text("ca_cert"),
            bootstrap_ca_cert: row.get("bootstrap_ca_cert"),
        }
    }
}
