//! Numbers of actions: each declared once, for reading and writing.

use crate::Version::{self, V10, V13, V14, V15};
use crate::error::{NICIRA, ONF};

/// A form that an action can have on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    Output10,
    Output,
    SetVlanVid10,
    SetVlanPcp10,
    SetVlanVid,
    SetVlanPcp,
    PushVlan,
    StripVlan,
    PopVlan,
    SetDlSrc,
    SetDlDst,
    SetNwSrc,
    SetNwDst,
    SetNwTos,
    SetNwEcn,
    SetTpSrc,
    SetTpDst,
    Enqueue,
    SetMplsLabel,
    SetMplsTc,
    SetMplsTtl,
    DecMplsTtl,
    PushMpls,
    PopMpls,
    SetQueue,
    Group,
    SetNwTtl,
    DecNwTtl,
    DecTtlIds,
    SetField,
    RegLoad,
    RegLoad2,
    CopyField,
    CopyField13,
    RegMove,
    Meter,
    Resubmit,
    ResubmitTable,
    ResubmitTableCt,
    SetTunnel,
    SetTunnel64,
    PopQueue,
    Note,
    Multipath,
    Bundle,
    BundleLoad,
    OutputReg,
    OutputReg2,
    Learn,
    Learn2,
    Exit,
    FinTimeout,
    Controller,
    Controller2,
    WriteMetadata,
    StackPush,
    StackPop,
    Sample,
    Sample2,
    Sample3,
    Conjunction,
    Ct,
    Nat,
    OutputTrunc,
    Clone,
    CtClear,
    Encap,
    Decap,
    DecNshTtl,
    CheckPktLarger,
    DeleteField,
}

/// A row: the form, whose number it is (0: the standard's), in which versions, the number.
type Row = (Form, u32, Version, Version, u16);

/// Every form with its numbers. OpenFlow 1.3 and later call those below 16, but for output, deprecated; they are read all
/// the same. Source: the OpenFlow specifications and Open vSwitch 3.1, `ofp-actions.c`.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    (Form::Output10, 0, V10, V10, 0), (Form::Output, 0, V13, V15, 0),
    (Form::SetVlanVid10, 0, V10, V10, 1), (Form::SetVlanVid, 0, V13, V15, 1),
    (Form::SetVlanPcp10, 0, V10, V10, 2), (Form::SetVlanPcp, 0, V13, V15, 2),
    (Form::PushVlan, 0, V13, V15, 17),
    (Form::StripVlan, 0, V10, V10, 3), (Form::PopVlan, 0, V13, V15, 18),
    (Form::SetDlSrc, 0, V10, V10, 4), (Form::SetDlSrc, 0, V13, V15, 3),
    (Form::SetDlDst, 0, V10, V10, 5), (Form::SetDlDst, 0, V13, V15, 4),
    (Form::SetNwSrc, 0, V10, V10, 6), (Form::SetNwSrc, 0, V13, V15, 5),
    (Form::SetNwDst, 0, V10, V10, 7), (Form::SetNwDst, 0, V13, V15, 6),
    (Form::SetNwTos, 0, V10, V10, 8), (Form::SetNwTos, 0, V13, V15, 7),
    (Form::SetNwEcn, 0, V13, V15, 8),
    (Form::SetTpSrc, 0, V10, V15, 9), (Form::SetTpDst, 0, V10, V15, 10),
    (Form::Enqueue, 0, V10, V10, 11),
    (Form::SetMplsLabel, NICIRA, V10, V10, 30), (Form::SetMplsLabel, 0, V13, V15, 13),
    (Form::SetMplsTc, NICIRA, V10, V10, 31), (Form::SetMplsTc, 0, V13, V15, 14),
    (Form::SetMplsTtl, NICIRA, V10, V10, 25), (Form::SetMplsTtl, 0, V13, V15, 15),
    (Form::DecMplsTtl, NICIRA, V10, V10, 26), (Form::DecMplsTtl, 0, V13, V15, 16),
    (Form::PushMpls, NICIRA, V10, V10, 23), (Form::PushMpls, 0, V13, V15, 19),
    (Form::PopMpls, NICIRA, V10, V10, 24), (Form::PopMpls, 0, V13, V15, 20),
    (Form::SetQueue, NICIRA, V10, V10, 4), (Form::SetQueue, 0, V13, V15, 21),
    (Form::Group, NICIRA, V10, V10, 40), (Form::Group, 0, V13, V15, 22),
    (Form::SetNwTtl, 0, V13, V15, 23),
    (Form::DecNwTtl, NICIRA, V10, V10, 18), (Form::DecNwTtl, 0, V13, V15, 24),
    (Form::DecTtlIds, NICIRA, V10, V15, 21),
    (Form::SetField, 0, V13, V15, 25),
    (Form::RegLoad, NICIRA, V10, V14, 7), (Form::RegLoad2, NICIRA, V10, V14, 33),
    (Form::CopyField, 0, V15, V15, 28), (Form::CopyField13, ONF, V13, V14, 3200),
    (Form::RegMove, NICIRA, V10, V14, 6),
    (Form::Meter, 0, V15, V15, 29),
    (Form::Resubmit, NICIRA, V10, V15, 1), (Form::ResubmitTable, NICIRA, V10, V15, 14),
    (Form::ResubmitTableCt, NICIRA, V10, V15, 44),
    (Form::SetTunnel, NICIRA, V10, V15, 2), (Form::SetTunnel64, NICIRA, V10, V15, 9),
    (Form::PopQueue, NICIRA, V10, V15, 5), (Form::Note, NICIRA, V10, V15, 8),
    (Form::Multipath, NICIRA, V10, V15, 10),
    (Form::Bundle, NICIRA, V10, V15, 12), (Form::BundleLoad, NICIRA, V10, V15, 13),
    (Form::OutputReg, NICIRA, V10, V15, 15), (Form::OutputReg2, NICIRA, V10, V15, 32),
    (Form::Learn, NICIRA, V10, V15, 16), (Form::Learn2, NICIRA, V10, V15, 45),
    (Form::Exit, NICIRA, V10, V15, 17), (Form::FinTimeout, NICIRA, V10, V15, 19),
    (Form::Controller, NICIRA, V10, V15, 20), (Form::Controller2, NICIRA, V10, V15, 37),
    (Form::WriteMetadata, NICIRA, V10, V15, 22),
    (Form::StackPush, NICIRA, V10, V15, 27), (Form::StackPop, NICIRA, V10, V15, 28),
    (Form::Sample, NICIRA, V10, V15, 29), (Form::Sample2, NICIRA, V10, V15, 38),
    (Form::Sample3, NICIRA, V10, V15, 41),
    (Form::Conjunction, NICIRA, V10, V15, 34),
    (Form::Ct, NICIRA, V10, V15, 35), (Form::Nat, NICIRA, V10, V15, 36),
    (Form::OutputTrunc, NICIRA, V10, V15, 39), (Form::Clone, NICIRA, V10, V15, 42),
    (Form::CtClear, NICIRA, V10, V15, 43),
    (Form::Encap, NICIRA, V13, V15, 46), (Form::Decap, NICIRA, V13, V15, 47),
    (Form::DecNshTtl, NICIRA, V13, V15, 48),
    (Form::CheckPktLarger, NICIRA, V10, V15, 49), (Form::DeleteField, NICIRA, V10, V15, 50),
];

/// The form that a number means in a version.
pub(super) fn form(vendor: u32, number: u16, version: Version) -> Option<Form> {
    let row = ROWS.iter().find(|(_, v, from, to, n)| (*v, *n) == (vendor, number) && (*from..=*to).contains(&version));
    row.map(|(form, ..)| *form)
}

/// Whose number a form has in a version, and which; `None` if the version lacks it.
pub(super) fn number(form: Form, version: Version) -> Option<(u32, u16)> {
    let row = ROWS.iter().find(|(f, _, from, to, _)| *f == form && (*from..=*to).contains(&version));
    row.map(|(_, vendor, .., number)| (*vendor, *number))
}

/// The numbers of the standard's own actions in a version, those aside that `set_field` has replaced.
pub(crate) fn standard_actions(version: Version) -> impl Iterator<Item = u16> {
    let mine = ROWS.iter().filter(move |(_, vendor, from, to, _)| *vendor == 0 && (*from..=*to).contains(&version));
    mine.map(|(.., n)| *n).filter(move |n| version == V10 || *n == 0 || *n >= 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_means_one_form() {
        for version in Version::SPOKEN {
            for (form_of_row, vendor, from, to, n) in ROWS {
                if (*from..=*to).contains(&version) {
                    assert_eq!(form(*vendor, *n, version), Some(*form_of_row));
                    assert_eq!(number(*form_of_row, version), Some((*vendor, *n)));
                }
            }
        }
    }
}
