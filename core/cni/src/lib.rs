//! CNI: network configurations, and their plugins run in order.

#![forbid(unsafe_code)]
