//! The codecs: how weights become codes and scales, and back (FORMAT.md). The scalar functions here are the definition.
#![forbid(unsafe_code)]
