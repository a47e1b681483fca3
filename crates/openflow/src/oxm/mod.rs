//! Fields on the wire: NXM, as Nicira's messages have them, and OXM, as OpenFlow 1.2 and later have them.
//!
//! Names, numbers and sizes come from the table of fields in crate `flow`.

mod entry;
mod read;
mod write;

pub(crate) use entry::{
    OxmEntry, basic_number, expect_settable, field_header, is_whole_option, put_entry, put_field_header, put_header,
    put_option, read_entry, read_nxm_field, valid_value,
};
pub(crate) use read::{
    Strictness, read_field_masks, read_fields, read_match, read_match_into, read_nxm_match, read_nxm_match_and_cookie,
};
pub(crate) use write::{put_field_masks, put_fields, put_match, put_nxm_match, put_nxm_match_and_cookie};

/// The numbers that are written for fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// Nicira's first.
    Nxm,
    /// The newest that the version has.
    Oxm(crate::Version),
}

impl Numbering {
    /// As an `Oxm`'s `since` counts.
    fn since(self) -> u8 {
        match self {
            Numbering::Nxm => 0,
            Numbering::Oxm(version) => version as u8,
        }
    }
}
