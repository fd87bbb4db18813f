use std::{fs::File, io, path::Path};

use nix::{
    sched::{CloneFlags, setns},
    sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket, sockopt},
    sys::time::TimeVal,
};
use std::os::fd::AsRawFd;

/// `RTM_NEWLINK` of rtnetlink(7): changes an interface.
const RTM_NEWLINK: u16 = 16;
/// `NLM_F_REQUEST | NLM_F_ACK` of netlink(7).
const REQUEST_WITH_ANSWER: u16 = 0x1 | 0x4;
/// `NLMSG_ERROR`: the answer to a request, also to one that went well.
const NLMSG_ERROR: u16 = 2;
/// `IFF_UP` of netdevice(7).
const IFF_UP: u32 = 1;
/// The loopback interface is the first of every network namespace.
const LOOPBACK: i32 = 1;
/// Longest wait for the kernel's answer, in seconds.
const ANSWER: i64 = 10;

/// Brings the loopback interface of a network namespace up; the kernel then gives it its addresses.
///
/// The namespace is entered by a thread that ends with the call.
pub(crate) fn bring_up(netns: &Path) -> io::Result<()> {
    let netns = File::open(netns)?;
    std::thread::Builder::new()
        .name("loopback".into())
        .spawn(move || {
            setns(&netns, CloneFlags::CLONE_NEWNET)?;
            set_up()
        })?
        .join()
        .map_err(|_| io::Error::other("the thread that brings it up has failed"))?
}

fn set_up() -> io::Result<()> {
    let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(ANSWER, 0))?;
    send(socket.as_raw_fd(), &request(), MsgFlags::empty())?;
    let mut answer = [0_u8; 4096];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    match outcome(answer.get(..length).unwrap_or_default()) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer cannot be read")),
    }
}

/// A netlink header and an `ifinfomsg`, 16 bytes each.
fn request() -> Vec<u8> {
    let mut message = Vec::with_capacity(32);
    message.extend(32_u32.to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend(REQUEST_WITH_ANSWER.to_ne_bytes());
    message.extend(1_u32.to_ne_bytes()); // sequence number
    message.extend(0_u32.to_ne_bytes()); // sender: the kernel fills it in
    message.extend([0; 4]); // family, padding, type of device
    message.extend(LOOPBACK.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes()); // the flags
    message.extend(IFF_UP.to_ne_bytes()); // which of them change
    message
}

/// The error number in the kernel's answer, 0 or negative.
fn outcome(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let error = i32::from_ne_bytes(answer.get(16..20)?.try_into().ok()?);
    (kind == NLMSG_ERROR).then_some(error)
}
