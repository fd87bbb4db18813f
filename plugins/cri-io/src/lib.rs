//! Standard streams of CRI containers: FIFOs, log files, attach.
//!
//! The shim gets paths of FIFOs and keeps both ends of each open, so output waits in them while the daemon
//! restarts. The daemon reads the other ends, writes the log file in the format of the CRI and gives copies to
//! clients that have attached:
//!
//! ```text
//! container ── FIFO ── pump ─┬─ log file (whole lines, one write for many)
//!                            └─ bounded queue for each attached client
//! client ── Stdin ── FIFO ── container
//! ```
//!
//! # Threads
//! An idle stream is a descriptor in the runtime's poll set and a small task: no thread, no buffer. When output
//! comes, the task borrows a thread of the blocking pool and a buffer from a pool, moves everything there is, and
//! gives both back. So a worker of the runtime never waits for a disk, a fast container has a thread for as long
//! as it writes, and a hundred containers on a disk that hangs occupy a bounded number of threads.
//!
//! # What may be lost
//! What was read is written before anything else is done. Only a daemon that is killed between the two loses
//! what it has read, and an unterminated line whose rest had not come; one that ends in order writes that line as
//! partial.

#![forbid(unsafe_code)]

mod attach;
mod container;
mod exec;
mod fifo;
mod format;
mod hub;
mod log;
mod pump;

pub use attach::{ATTACH_BACKLOG, AttachStreams};
pub use container::{ContainerIo, DEFAULT_MAX_LINE, IoOptions};
pub use exec::{Collected, ExecIo};
