//! Naive twins: linear classifier, map caches, byte-by-byte parser.
#![forbid(unsafe_code)]
