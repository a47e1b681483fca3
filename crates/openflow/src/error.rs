//! Errors of the protocol: their names, and their numbers in each version.
//!
//! Source: the OpenFlow specifications and, for Nicira's and the ONF's extensions, Open vSwitch 3.1's `ofp-errors.h`.

use crate::Version::{self, V10, V11, V12, V13, V14, V15};
pub use sluice_ofp::ofpact::vendor::{NICIRA, ONF};

/// Type of an OpenFlow 1.0 error whose numbers stand in its data. Source: Open vSwitch, `NXET_VENDOR`.
const VENDOR_ERROR: u16 = 0xb0c2;

/// Type of an experimenter's error from OpenFlow 1.2 on.
const EXPERIMENTER_ERROR: u16 = 0xffff;

/// The numbers of an error in some versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    from: Version,
    to: Version,
    vendor: u32,
    class: u16,
    code: u16,
}

const fn of(from: Version, to: Version, class: u16, code: u16) -> Numbers {
    Numbers { from, to, vendor: 0, class, code }
}

/// A Nicira error of before experimenter errors.
const fn nx(from: Version, to: Version, class: u16, code: u16) -> Numbers {
    Numbers { from, to, vendor: NICIRA, class, code }
}

/// An experimenter error, which has one number.
const fn ext(from: Version, to: Version, vendor: u32, code: u16) -> Numbers {
    Numbers { from, to, vendor, class: 0, code }
}

macro_rules! errors {
    ($($name:ident, $symbol:literal, [$($numbers:expr),+];)+) => {
        /// What is wrong with a message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "the specification's names; the table has them")]
        pub enum Error {
            $($name,)+
        }

        impl Error {
            /// Every error.
            pub const ALL: &[Error] = &[$(Error::$name,)+];

            /// Its name in the specification or in Open vSwitch.
            pub fn symbol(self) -> &'static str {
                match self {
                    $(Error::$name => $symbol,)+
                }
            }

            pub(super) fn numbers(self) -> &'static [Numbers] {
                match self {
                    $(Error::$name => const { &[$($numbers),+] },)+
                }
            }
        }
    };
}

#[rustfmt::skip]
mod table {
    use super::*;
errors! {
    HelloIncompatible, "OFPHFC_INCOMPATIBLE", [of(V10, V15, 0, 0)];
    HelloEperm, "OFPHFC_EPERM", [of(V10, V15, 0, 1)];
    RequestBadVersion, "OFPBRC_BAD_VERSION", [of(V10, V15, 1, 0)];
    RequestBadType, "OFPBRC_BAD_TYPE", [of(V10, V15, 1, 1)];
    RequestBadStat, "OFPBRC_BAD_STAT", [of(V10, V15, 1, 2)];
    RequestBadVendor, "OFPBRC_BAD_VENDOR", [of(V10, V15, 1, 3)];
    RequestBadSubtype, "OFPBRC_BAD_SUBTYPE", [of(V10, V15, 1, 4)];
    RequestEperm, "OFPBRC_EPERM", [of(V10, V15, 1, 5)];
    RequestBadLen, "OFPBRC_BAD_LEN", [of(V10, V15, 1, 6)];
    RequestBufferEmpty, "OFPBRC_BUFFER_EMPTY", [of(V10, V15, 1, 7)];
    RequestBufferUnknown, "OFPBRC_BUFFER_UNKNOWN", [of(V10, V15, 1, 8)];
    RequestBadTableId, "OFPBRC_BAD_TABLE_ID", [nx(V10, V10, 1, 512), of(V11, V15, 1, 9)];
    RequestIsSecondary, "OFPBRC_IS_SECONDARY", [of(V10, V11, 1, 5), of(V12, V15, 1, 10)];
    RequestBadPort, "OFPBRC_BAD_PORT", [nx(V10, V11, 1, 514), of(V12, V15, 1, 11)];
    RequestBadPacket, "OFPBRC_BAD_PACKET", [of(V12, V15, 1, 12)];
    RequestMultipartBufferOverflow, "OFPBRC_MULTIPART_BUFFER_OVERFLOW", [of(V13, V15, 1, 13)];
    RequestMultipartRequestTimeout, "OFPBRC_MULTIPART_REQUEST_TIMEOUT", [ext(V13, V13, ONF, 2640), of(V14, V15, 1, 14)];
    RequestMultipartReplyTimeout, "OFPBRC_MULTIPART_REPLY_TIMEOUT", [ext(V13, V13, ONF, 2641), of(V14, V15, 1, 15)];
    RequestMultipartBadSched, "OFPBRC_MULTIPART_BAD_SCHED", [of(V15, V15, 1, 16)];
    RequestPipelineFieldsOnly, "OFPBRC_PIPELINE_FIELDS_ONLY", [of(V15, V15, 1, 17)];
    RequestUnknown, "OFPBRC_UNKNOWN", [of(V15, V15, 1, 18)];
    RequestNxmInvalid, "NXBRC_NXM_INVALID", [nx(V10, V11, 1, 256), ext(V12, V15, NICIRA, 2)];
    RequestNxmBadType, "NXBRC_NXM_BAD_TYPE", [nx(V10, V11, 1, 257), ext(V12, V15, NICIRA, 3)];
    RequestMustBeZero, "NXBRC_MUST_BE_ZERO", [nx(V10, V11, 1, 515), ext(V12, V15, NICIRA, 4)];
    RequestBadReason, "NXBRC_BAD_REASON", [nx(V10, V11, 1, 516), ext(V12, V15, NICIRA, 5)];
    RequestFmBadEvent, "NXBRC_FM_BAD_EVENT", [nx(V10, V11, 1, 520), ext(V12, V15, NICIRA, 9)];
    RequestUnencodableError, "NXBRC_UNENCODABLE_ERROR", [nx(V10, V11, 1, 521), ext(V12, V15, NICIRA, 10)];
    ActionBadType, "OFPBAC_BAD_TYPE", [of(V10, V15, 2, 0)];
    ActionBadLen, "OFPBAC_BAD_LEN", [of(V10, V15, 2, 1)];
    ActionBadVendor, "OFPBAC_BAD_VENDOR", [of(V10, V15, 2, 2)];
    ActionBadVendorType, "OFPBAC_BAD_VENDOR_TYPE", [of(V10, V15, 2, 3)];
    ActionBadOutPort, "OFPBAC_BAD_OUT_PORT", [of(V10, V15, 2, 4)];
    ActionBadArgument, "OFPBAC_BAD_ARGUMENT", [of(V10, V15, 2, 5)];
    ActionEperm, "OFPBAC_EPERM", [of(V10, V15, 2, 6)];
    ActionTooMany, "OFPBAC_TOO_MANY", [of(V10, V15, 2, 7)];
    ActionBadQueue, "OFPBAC_BAD_QUEUE", [of(V10, V15, 2, 8)];
    ActionBadOutGroup, "OFPBAC_BAD_OUT_GROUP", [nx(V10, V10, 2, 9), of(V11, V15, 2, 9)];
    ActionMatchInconsistent, "OFPBAC_MATCH_INCONSISTENT", [nx(V10, V10, 1, 522), of(V11, V15, 2, 10)];
    ActionUnsupportedOrder, "OFPBAC_UNSUPPORTED_ORDER", [of(V11, V15, 2, 11)];
    ActionBadTag, "OFPBAC_BAD_TAG", [of(V11, V15, 2, 12)];
    ActionBadSetType, "OFPBAC_BAD_SET_TYPE", [nx(V10, V11, 1, 523), of(V12, V15, 2, 13)];
    ActionBadSetLen, "OFPBAC_BAD_SET_LEN", [nx(V10, V11, 1, 524), of(V12, V15, 2, 14)];
    ActionBadSetArgument, "OFPBAC_BAD_SET_ARGUMENT", [nx(V10, V11, 1, 525), of(V12, V15, 2, 15)];
    ActionBadSetMask, "OFPBAC_BAD_SET_MASK", [ext(V13, V14, ONF, 4250), of(V15, V15, 2, 16)];
    ActionBadMeter, "OFPBAC_BAD_METER", [of(V15, V15, 2, 17)];
    ActionMustBeZero, "NXBAC_MUST_BE_ZERO", [nx(V10, V11, 2, 256), ext(V12, V15, NICIRA, 11)];
    ActionBadConjunction, "NXBAC_BAD_CONJUNCTION", [nx(V10, V11, 2, 526), ext(V12, V15, NICIRA, 15)];
    ActionBadHeaderType, "NXBAC_BAD_HEADER_TYPE", [ext(V13, V15, NICIRA, 39)];
    ActionUnknownEdProp, "NXBAC_UNKNOWN_ED_PROP", [ext(V13, V15, NICIRA, 40)];
    ActionBadEdProp, "NXBAC_BAD_ED_PROP", [ext(V13, V15, NICIRA, 41)];
    ActionCtDatapathSupport, "NXBAC_CT_DATAPATH_SUPPORT", [nx(V10, V11, 1, 265), ext(V12, V15, NICIRA, 42)];
    InstructionUnknownInst, "OFPBIC_UNKNOWN_INST", [of(V11, V15, 3, 0)];
    InstructionUnsupInst, "OFPBIC_UNSUP_INST", [nx(V10, V10, 2, 257), of(V11, V15, 3, 1)];
    InstructionBadTableId, "OFPBIC_BAD_TABLE_ID", [of(V11, V15, 3, 2)];
    InstructionUnsupMetadata, "OFPBIC_UNSUP_METADATA", [of(V11, V15, 3, 3)];
    InstructionUnsupMetadataMask, "OFPBIC_UNSUP_METADATA_MASK", [of(V11, V15, 3, 4)];
    InstructionBadExperimenter, "OFPBIC_BAD_EXPERIMENTER", [of(V11, V15, 3, 5)];
    InstructionBadExpType, "OFPBIC_BAD_EXP_TYPE", [of(V11, V11, 3, 5), of(V12, V15, 3, 6)];
    InstructionBadLen, "OFPBIC_BAD_LEN", [of(V12, V15, 3, 7)];
    InstructionEperm, "OFPBIC_EPERM", [of(V12, V15, 3, 8)];
    InstructionDupInst, "OFPBIC_DUP_INST", [nx(V11, V11, 3, 256), ext(V12, V13, ONF, 2600), of(V14, V15, 3, 9)];
    MatchBadType, "OFPBMC_BAD_TYPE", [of(V11, V15, 4, 0)];
    MatchBadLen, "OFPBMC_BAD_LEN", [of(V11, V15, 4, 1)];
    MatchBadTag, "OFPBMC_BAD_TAG", [of(V11, V15, 4, 2)];
    MatchBadDlAddrMask, "OFPBMC_BAD_DL_ADDR_MASK", [of(V11, V15, 4, 3)];
    MatchBadNwAddrMask, "OFPBMC_BAD_NW_ADDR_MASK", [of(V11, V15, 4, 4)];
    MatchBadWildcards, "OFPBMC_BAD_WILDCARDS", [nx(V10, V10, 1, 262), of(V11, V15, 4, 5)];
    MatchBadField, "OFPBMC_BAD_FIELD", [nx(V10, V10, 0, 263), of(V11, V15, 4, 6)];
    MatchBadValue, "OFPBMC_BAD_VALUE", [nx(V10, V10, 1, 258), of(V11, V15, 4, 7)];
    MatchBadMask, "OFPBMC_BAD_MASK", [nx(V10, V11, 1, 259), of(V12, V15, 4, 8)];
    MatchBadPrereq, "OFPBMC_BAD_PREREQ", [nx(V10, V11, 1, 260), of(V12, V15, 4, 9)];
    MatchDupField, "OFPBMC_DUP_FIELD", [nx(V10, V11, 1, 261), of(V12, V15, 4, 10)];
    MatchEperm, "OFPBMC_EPERM", [of(V12, V15, 4, 11)];
    MatchCtDatapathSupport, "NXBMC_CT_DATAPATH_SUPPORT", [nx(V10, V11, 1, 264), ext(V12, V15, NICIRA, 43)];
    FlowModUnknown, "OFPFMFC_UNKNOWN", [of(V11, V15, 5, 0)];
    FlowModTableFull, "OFPFMFC_TABLE_FULL", [of(V10, V10, 3, 0), of(V11, V15, 5, 1)];
    FlowModBadTableId, "OFPFMFC_BAD_TABLE_ID", [of(V11, V15, 5, 2)];
    FlowModOverlap, "OFPFMFC_OVERLAP", [of(V10, V10, 3, 1), of(V11, V15, 5, 3)];
    FlowModEperm, "OFPFMFC_EPERM", [of(V10, V10, 3, 2), of(V11, V15, 5, 4)];
    FlowModBadTimeout, "OFPFMFC_BAD_TIMEOUT", [of(V11, V15, 5, 5)];
    FlowModBadEmergTimeout, "OFPFMFC_BAD_EMERG_TIMEOUT", [of(V10, V10, 3, 3)];
    FlowModBadCommand, "OFPFMFC_BAD_COMMAND", [of(V10, V10, 3, 4), of(V11, V15, 5, 6)];
    FlowModBadFlags, "OFPFMFC_BAD_FLAGS", [nx(V10, V10, 3, 258), nx(V11, V11, 5, 258), of(V12, V15, 5, 7)];
    FlowModCantSync, "OFPFMFC_CANT_SYNC", [of(V14, V15, 5, 8)];
    FlowModBadPriority, "OFPFMFC_BAD_PRIORITY", [ext(V13, V13, ONF, 2360), of(V14, V15, 5, 9)];
    FlowModIsSync, "OFPFMFC_IS_SYNC", [of(V14, V15, 5, 10)];
    FlowModUnsupported, "OFPFMFC_UNSUPPORTED", [of(V10, V10, 3, 5)];
    FlowModHardware, "NXFMFC_HARDWARE", [nx(V10, V11, 5, 256), ext(V12, V15, NICIRA, 12)];
    FlowModNxBadTable, "NXFMFC_BAD_TABLE_ID", [nx(V10, V11, 5, 257), ext(V12, V15, NICIRA, 13)];
    FlowModInvalidTlvField, "NXFMFC_INVALID_TLV_FIELD", [nx(V10, V11, 1, 536), ext(V12, V15, NICIRA, 37)];
    GroupModGroupExists, "OFPGMFC_GROUP_EXISTS", [nx(V10, V10, 6, 0), of(V11, V15, 6, 0)];
    GroupModInvalidGroup, "OFPGMFC_INVALID_GROUP", [nx(V10, V10, 6, 1), of(V11, V15, 6, 1)];
    GroupModWeightUnsupported, "OFPGMFC_WEIGHT_UNSUPPORTED", [nx(V10, V10, 6, 2), of(V11, V15, 6, 2)];
    GroupModOutOfGroups, "OFPGMFC_OUT_OF_GROUPS", [nx(V10, V10, 6, 3), of(V11, V15, 6, 3)];
    GroupModOutOfBuckets, "OFPGMFC_OUT_OF_BUCKETS", [nx(V10, V10, 6, 4), of(V11, V15, 6, 4)];
    GroupModChainingUnsupported, "OFPGMFC_CHAINING_UNSUPPORTED", [nx(V10, V10, 6, 5), of(V11, V15, 6, 5)];
    GroupModWatchUnsupported, "OFPGMFC_WATCH_UNSUPPORTED", [nx(V10, V10, 6, 6), of(V11, V15, 6, 6)];
    GroupModLoop, "OFPGMFC_LOOP", [nx(V10, V10, 6, 7), of(V11, V15, 6, 7)];
    GroupModUnknownGroup, "OFPGMFC_UNKNOWN_GROUP", [nx(V10, V10, 6, 8), of(V11, V15, 6, 8)];
    GroupModChainedGroup, "OFPGMFC_CHAINED_GROUP", [nx(V10, V10, 6, 9), of(V12, V15, 6, 9)];
    GroupModBadType, "OFPGMFC_BAD_TYPE", [nx(V10, V10, 6, 10), of(V12, V15, 6, 10)];
    GroupModBadCommand, "OFPGMFC_BAD_COMMAND", [nx(V10, V10, 6, 11), of(V12, V15, 6, 11)];
    GroupModBadBucket, "OFPGMFC_BAD_BUCKET", [nx(V10, V10, 6, 12), of(V12, V15, 6, 12)];
    GroupModBadWatch, "OFPGMFC_BAD_WATCH", [nx(V10, V10, 6, 13), of(V12, V15, 6, 13)];
    GroupModEperm, "OFPGMFC_EPERM", [nx(V10, V10, 6, 14), of(V12, V15, 6, 14)];
    GroupModUnknownBucket, "OFPGMFC_UNKNOWN_BUCKET", [nx(V10, V10, 6, 15), of(V15, V15, 6, 15)];
    GroupModBucketExists, "OFPGMFC_BUCKET_EXISTS", [nx(V10, V10, 6, 16), of(V15, V15, 6, 16)];
    PortModBadPort, "OFPPMFC_BAD_PORT", [of(V10, V10, 4, 0), of(V11, V15, 7, 0)];
    PortModBadHwAddr, "OFPPMFC_BAD_HW_ADDR", [of(V10, V10, 4, 1), of(V11, V15, 7, 1)];
    PortModBadConfig, "OFPPMFC_BAD_CONFIG", [of(V11, V15, 7, 2)];
    PortModBadAdvertise, "OFPPMFC_BAD_ADVERTISE", [of(V11, V15, 7, 3)];
    PortModEperm, "OFPPMFC_EPERM", [of(V12, V15, 7, 4)];
    TableModBadTable, "OFPTMFC_BAD_TABLE", [of(V11, V15, 8, 0)];
    TableModBadConfig, "OFPTMFC_BAD_CONFIG", [of(V11, V15, 8, 1)];
    TableModEperm, "OFPTMFC_EPERM", [of(V12, V15, 8, 2)];
    QueueBadPort, "OFPQOFC_BAD_PORT", [of(V10, V10, 5, 0), of(V11, V15, 9, 0)];
    QueueBadQueue, "OFPQOFC_BAD_QUEUE", [of(V10, V10, 5, 1), of(V11, V15, 9, 1)];
    QueueEperm, "OFPQOFC_EPERM", [of(V10, V10, 5, 2), of(V11, V15, 9, 2)];
    QueueQueueError, "NXQOFC_QUEUE_ERROR", [ext(V14, V15, NICIRA, 23)];
    ConfigBadFlags, "OFPSCFC_BAD_FLAGS", [of(V11, V15, 10, 0)];
    ConfigBadLen, "OFPSCFC_BAD_LEN", [of(V11, V15, 10, 1)];
    ConfigEperm, "OFPSCFC_EPERM", [of(V12, V15, 10, 2)];
    RoleStale, "OFPRRFC_STALE", [of(V12, V15, 11, 0)];
    RoleUnsup, "OFPRRFC_UNSUP", [of(V12, V15, 11, 1)];
    RoleBadRole, "OFPRRFC_BAD_ROLE", [nx(V10, V11, 1, 513), of(V12, V15, 11, 2)];
    RoleIdUnsup, "OFPRRFC_ID_UNSUP", [of(V15, V15, 11, 3)];
    RoleIdInUse, "OFPRRFC_ID_IN_USE", [of(V15, V15, 11, 4)];
    MeterModUnknown, "OFPMMFC_UNKNOWN", [of(V13, V15, 12, 0)];
    MeterModMeterExists, "OFPMMFC_METER_EXISTS", [of(V13, V15, 12, 1)];
    MeterModInvalidMeter, "OFPMMFC_INVALID_METER", [of(V13, V15, 12, 2)];
    MeterModUnknownMeter, "OFPMMFC_UNKNOWN_METER", [of(V13, V15, 12, 3)];
    MeterModBadCommand, "OFPMMFC_BAD_COMMAND", [of(V13, V15, 12, 4)];
    MeterModBadFlags, "OFPMMFC_BAD_FLAGS", [of(V13, V15, 12, 5)];
    MeterModBadRate, "OFPMMFC_BAD_RATE", [of(V13, V15, 12, 6)];
    MeterModBadBurst, "OFPMMFC_BAD_BURST", [of(V13, V15, 12, 7)];
    MeterModBadBand, "OFPMMFC_BAD_BAND", [of(V13, V15, 12, 8)];
    MeterModBadBandValue, "OFPMMFC_BAD_BAND_VALUE", [of(V13, V15, 12, 9)];
    MeterModOutOfMeters, "OFPMMFC_OUT_OF_METERS", [of(V13, V15, 12, 10)];
    MeterModOutOfBands, "OFPMMFC_OUT_OF_BANDS", [of(V13, V15, 12, 11)];
    TableFeaturesBadTable, "OFPTFFC_BAD_TABLE", [of(V13, V15, 13, 0)];
    TableFeaturesBadMetadata, "OFPTFFC_BAD_METADATA", [of(V13, V15, 13, 1)];
    TableFeaturesEperm, "OFPTFFC_EPERM", [of(V13, V15, 13, 5)];
    TableFeaturesBadCapa, "OFPTFFC_BAD_CAPA", [of(V15, V15, 13, 6)];
    TableFeaturesBadMaxEnt, "OFPTFFC_BAD_MAX_ENT", [of(V15, V15, 13, 7)];
    TableFeaturesBadFeatures, "OFPTFFC_BAD_FEATURES", [of(V15, V15, 13, 8)];
    TableFeaturesBadCommand, "OFPTFFC_BAD_COMMAND", [of(V15, V15, 13, 9)];
    TableFeaturesTooMany, "OFPTFFC_TOO_MANY", [of(V15, V15, 13, 10)];
    TableFeaturesDupTable, "NXTFFC_DUP_TABLE", [ext(V13, V15, NICIRA, 44)];
    PropertyBadType, "OFPBPC_BAD_TYPE", [nx(V10, V11, 13, 2), ext(V12, V12, NICIRA, 25), of(V13, V13, 13, 2), of(V14, V15, 14, 0)];
    PropertyBadLen, "OFPBPC_BAD_LEN", [nx(V10, V11, 13, 3), ext(V12, V12, NICIRA, 26), of(V13, V13, 13, 3), of(V14, V15, 14, 1)];
    PropertyBadValue, "OFPBPC_BAD_VALUE", [nx(V10, V11, 13, 4), ext(V12, V12, NICIRA, 27), of(V13, V13, 13, 4), of(V14, V15, 14, 2)];
    PropertyTooMany, "OFPBPC_TOO_MANY", [nx(V10, V11, 14, 3), ext(V12, V12, NICIRA, 28), ext(V13, V13, ONF, 4443), of(V14, V15, 14, 3)];
    PropertyDupType, "OFPBPC_DUP_TYPE", [nx(V10, V11, 14, 4), ext(V12, V12, NICIRA, 29), ext(V13, V13, ONF, 4444), of(V14, V15, 14, 4)];
    PropertyBadExperimenter, "OFPBPC_BAD_EXPERIMENTER", [nx(V10, V11, 14, 5), ext(V12, V12, NICIRA, 30), ext(V13, V13, ONF, 4445), of(V14, V15, 14, 5)];
    PropertyBadExpType, "OFPBPC_BAD_EXP_TYPE", [nx(V10, V11, 14, 6), ext(V12, V12, NICIRA, 31), ext(V13, V13, ONF, 4446), of(V14, V15, 14, 6)];
    PropertyBadExpValue, "OFPBPC_BAD_EXP_VALUE", [nx(V10, V11, 14, 7), ext(V12, V12, NICIRA, 32), ext(V13, V13, ONF, 4447), of(V14, V15, 14, 7)];
    PropertyEperm, "OFPBPC_EPERM", [nx(V10, V11, 14, 8), ext(V12, V12, NICIRA, 33), ext(V13, V13, ONF, 4448), of(V14, V15, 14, 8)];
    AsyncInvalid, "OFPACFC_INVALID", [ext(V13, V13, ONF, 2370), of(V14, V15, 15, 0)];
    AsyncUnsupported, "OFPACFC_UNSUPPORTED", [ext(V13, V13, ONF, 2371), of(V14, V15, 15, 1)];
    AsyncEperm, "OFPACFC_EPERM", [ext(V13, V13, ONF, 2372), of(V14, V15, 15, 2)];
    BundleUnknown, "OFPBFC_UNKNOWN", [ext(V13, V13, ONF, 2300), of(V14, V15, 17, 0)];
    BundleEperm, "OFPBFC_EPERM", [ext(V13, V13, ONF, 2301), of(V14, V15, 17, 1)];
    BundleBadId, "OFPBFC_BAD_ID", [ext(V13, V13, ONF, 2302), of(V14, V15, 17, 2)];
    BundleBundleExist, "OFPBFC_BUNDLE_EXIST", [ext(V13, V13, ONF, 2303), of(V14, V15, 17, 3)];
    BundleBundleClosed, "OFPBFC_BUNDLE_CLOSED", [ext(V13, V13, ONF, 2304), of(V14, V15, 17, 4)];
    BundleOutOfBundles, "OFPBFC_OUT_OF_BUNDLES", [ext(V13, V13, ONF, 2305), of(V14, V15, 17, 5)];
    BundleBadType, "OFPBFC_BAD_TYPE", [ext(V13, V13, ONF, 2306), of(V14, V15, 17, 6)];
    BundleBadFlags, "OFPBFC_BAD_FLAGS", [ext(V13, V13, ONF, 2307), of(V14, V15, 17, 7)];
    BundleMsgBadLen, "OFPBFC_MSG_BAD_LEN", [ext(V13, V13, ONF, 2308), of(V14, V15, 17, 8)];
    BundleMsgBadXid, "OFPBFC_MSG_BAD_XID", [ext(V13, V13, ONF, 2309), of(V14, V15, 17, 9)];
    BundleMsgUnsup, "OFPBFC_MSG_UNSUP", [ext(V13, V13, ONF, 2310), of(V14, V15, 17, 10)];
    BundleMsgConflict, "OFPBFC_MSG_CONFLICT", [ext(V13, V13, ONF, 2311), of(V14, V15, 17, 11)];
    BundleMsgTooMany, "OFPBFC_MSG_TOO_MANY", [ext(V13, V13, ONF, 2312), of(V14, V15, 17, 12)];
    BundleMsgFailed, "OFPBFC_MSG_FAILED", [ext(V13, V13, ONF, 2313), of(V14, V15, 17, 13)];
    BundleTimeout, "OFPBFC_TIMEOUT", [ext(V13, V13, ONF, 2314), of(V14, V15, 17, 14)];
    BundleBundleInProgress, "OFPBFC_BUNDLE_IN_PROGRESS", [ext(V13, V13, ONF, 2315), of(V14, V15, 17, 15)];
    BundleSchedNotSupported, "OFPBFC_SCHED_NOT_SUPPORTED", [of(V15, V15, 17, 16)];
    BundleSchedFuture, "OFPBFC_SCHED_FUTURE", [of(V15, V15, 17, 17)];
    BundleSchedPast, "OFPBFC_SCHED_PAST", [of(V15, V15, 17, 18)];
    BundleBadVersion, "OFPBFC_BAD_VERSION", [ext(V14, V15, NICIRA, 22)];
    MonitorUnknown, "OFPMOFC_UNKNOWN", [of(V14, V15, 16, 0)];
    MonitorMonitorExists, "OFPMOFC_MONITOR_EXISTS", [nx(V10, V11, 1, 517), ext(V12, V13, NICIRA, 6), of(V14, V15, 16, 1)];
    MonitorInvalidMonitor, "OFPMOFC_INVALID_MONITOR", [of(V14, V15, 16, 2)];
    MonitorUnknownMonitor, "OFPMOFC_UNKNOWN_MONITOR", [nx(V10, V11, 1, 519), ext(V12, V13, NICIRA, 8), of(V14, V15, 16, 3)];
    MonitorBadCommand, "OFPMOFC_BAD_COMMAND", [of(V14, V15, 16, 4)];
    MonitorBadFlags, "OFPMOFC_BAD_FLAGS", [nx(V10, V11, 1, 518), ext(V12, V13, NICIRA, 7), of(V14, V15, 16, 5)];
    MonitorBadTableId, "OFPMOFC_BAD_TABLE_ID", [of(V14, V15, 16, 6)];
    MonitorBadOut, "OFPMOFC_BAD_OUT", [of(V14, V15, 16, 7)];
    TlvModBadCommand, "NXTTMFC_BAD_COMMAND", [nx(V10, V11, 1, 527), ext(V12, V15, NICIRA, 16)];
    TlvModBadOptLen, "NXTTMFC_BAD_OPT_LEN", [nx(V10, V11, 1, 528), ext(V12, V15, NICIRA, 17)];
    TlvModBadFieldIdx, "NXTTMFC_BAD_FIELD_IDX", [nx(V10, V11, 1, 529), ext(V12, V15, NICIRA, 18)];
    TlvModTableFull, "NXTTMFC_TABLE_FULL", [nx(V10, V11, 1, 530), ext(V12, V15, NICIRA, 19)];
    TlvModAlreadyMapped, "NXTTMFC_ALREADY_MAPPED", [nx(V10, V11, 1, 531), ext(V12, V15, NICIRA, 20)];
    TlvModDupEntry, "NXTTMFC_DUP_ENTRY", [nx(V10, V11, 1, 532), ext(V12, V15, NICIRA, 21)];
    TlvModInvalidTlvDel, "NXTTMFC_INVALID_TLV_DEL", [nx(V10, V11, 1, 537), ext(V12, V15, NICIRA, 38)];
    ResumeNotSupported, "NXR_NOT_SUPPORTED", [nx(V10, V11, 1, 533), ext(V12, V15, NICIRA, 34)];
    ResumeStale, "NXR_STALE", [nx(V10, V11, 1, 534), ext(V12, V15, NICIRA, 35)];
    StatsNotConfigured, "NXST_NOT_CONFIGURED", [nx(V10, V11, 1, 535), ext(V12, V15, NICIRA, 36)];
}
}

pub use table::Error;

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.symbol())
    }
}

impl std::error::Error for Error {}

/// An error's numbers in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ErrorCode {
    /// Whose numbers they are; 0: the standard's.
    pub vendor: u32,
    /// The error's type.
    pub class: u16,
    /// Its code.
    pub code: u16,
}

impl Error {
    /// Its numbers in a version. An error that the version lacks becomes `OFPERR_NXBRC_UNENCODABLE_ERROR`.
    pub fn code(self, version: Version) -> ErrorCode {
        let found = |error: Error| error.numbers().iter().find(|n| n.from <= version && version <= n.to);
        let numbers = found(self).or_else(|| found(Error::RequestUnencodableError));
        let Numbers { vendor, class, code, .. } = *numbers.expect("invariant: that error is in every version");
        ErrorCode { vendor, class, code }
    }

    /// The error of these numbers.
    pub fn from_code(code: ErrorCode, version: Version) -> Option<Error> {
        let same = |n: &Numbers| n.vendor == code.vendor && n.class == code.class && n.code == code.code;
        let is = |e: &&Error| e.numbers().iter().any(|n| n.from <= version && version <= n.to && same(n));
        Error::ALL.iter().find(is).copied()
    }
}

impl ErrorCode {
    /// Type, code and the data in front of the offending message.
    pub(crate) fn to_wire(self, version: Version) -> (u16, u16, Vec<u8>) {
        let ErrorCode { vendor, class, code } = self;
        match vendor {
            0 => (class, code, Vec::new()),
            _ if version >= V12 => (EXPERIMENTER_ERROR, code, vendor.to_be_bytes().to_vec()),
            _ => {
                let mut data = vendor.to_be_bytes().to_vec();
                data.extend(class.to_be_bytes());
                data.extend(code.to_be_bytes());
                (VENDOR_ERROR, 0, data)
            }
        }
    }

    /// The code of a message, and the rest of its data.
    pub(crate) fn from_wire(class: u16, code: u16, data: &[u8], version: Version) -> (ErrorCode, &[u8]) {
        match (class, data) {
            (EXPERIMENTER_ERROR, [a, b, c, d, rest @ ..]) if version >= V12 => {
                (ErrorCode { vendor: u32::from_be_bytes([*a, *b, *c, *d]), class: 0, code }, rest)
            }
            (VENDOR_ERROR, [a, b, c, d, e, f, g, h, rest @ ..]) if code == 0 && version < V12 => {
                let vendor = u32::from_be_bytes([*a, *b, *c, *d]);
                let (class, code) = (u16::from_be_bytes([*e, *f]), u16::from_be_bytes([*g, *h]));
                (ErrorCode { vendor, class, code }, rest)
            }
            _ => (ErrorCode { vendor: 0, class, code }, data),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ_by_version() {
        assert_eq!(Error::FlowModOverlap.code(V10), ErrorCode { vendor: 0, class: 3, code: 1 });
        assert_eq!(Error::FlowModOverlap.code(V13), ErrorCode { vendor: 0, class: 5, code: 3 });
        assert_eq!(Error::RequestIsSecondary.code(V10), ErrorCode { vendor: 0, class: 1, code: 5 });
        assert_eq!(Error::BundleBadId.code(V13), ErrorCode { vendor: ONF, class: 0, code: 2302 });
    }

    #[test]
    fn what_a_version_lacks_is_said_to_be_so() {
        assert_eq!(Error::MeterModUnknown.code(V10), Error::RequestUnencodableError.code(V10));
    }

    #[test]
    fn codes_lead_back() {
        for version in Version::SPOKEN {
            for error in Error::ALL {
                let code = error.code(version);
                if code == Error::RequestUnencodableError.code(version) {
                    continue;
                }
                let (class, number, mut data) = code.to_wire(version);
                data.push(9);
                assert_eq!(ErrorCode::from_wire(class, number, &data, version), (code, &[9][..]), "{error}");
                // OpenFlow 1.0 and 1.1 have one number for two of them.
                let back = Error::from_code(code, version).map(|e| e.code(version));
                assert_eq!(back, Some(code), "{error} in {version}");
            }
        }
    }
}
