//! Reading cgroup v1 and v2 statistics and events.
