//! Standard streams of CRI containers: FIFOs, log files, attach.

#![forbid(unsafe_code)]
