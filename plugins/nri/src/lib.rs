//! NRI: plugins that see and adjust pods and containers.

#![forbid(unsafe_code)]
