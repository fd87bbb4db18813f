use std::fs;

use containerd_api_cri::v1::{NetworkInterfaceUsage, NetworkUsage, UInt64Value};

use crate::store::now;

/// The device whose counters are the pod's.
const DEFAULT: &str = "eth0";

/// Counters of one network device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) rx_bytes: u64,
    pub(super) rx_packets: u64,
    pub(super) rx_errors: u64,
    pub(super) rx_dropped: u64,
    pub(super) tx_bytes: u64,
    pub(super) tx_packets: u64,
    pub(super) tx_errors: u64,
    pub(super) tx_dropped: u64,
}

/// Counters of the devices of a process's network, but for the loopback; None when it is gone.
pub(super) fn devices(pid: u32) -> Option<Vec<Device>> {
    if pid == 0 {
        return None;
    }
    let text = fs::read_to_string(format!("/proc/{pid}/net/dev")).ok()?;
    Some(parse(&text))
}

/// The same as the CRI has it.
pub(super) fn usage(pid: u32) -> Option<NetworkUsage> {
    let mut interfaces: Vec<NetworkInterfaceUsage> = devices(pid)?.iter().map(interface).collect();
    let default = interfaces.iter().position(|device| device.name == DEFAULT);
    let default_interface = default.map(|at| interfaces.remove(at));
    Some(NetworkUsage { timestamp: now(), default_interface, interfaces })
}

fn interface(device: &Device) -> NetworkInterfaceUsage {
    let number = |value: u64| Some(UInt64Value { value });
    NetworkInterfaceUsage {
        name: device.name.clone(),
        rx_bytes: number(device.rx_bytes),
        rx_errors: number(device.rx_errors),
        tx_bytes: number(device.tx_bytes),
        tx_errors: number(device.tx_errors),
    }
}

fn parse(text: &str) -> Vec<Device> {
    let device = |line: &str| {
        let (name, counters) = line.split_once(':')?;
        let counters: Vec<u64> = counters.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let &[rx_bytes, rx_packets, rx_errors, rx_dropped, _, _, _, _, tx_bytes, tx_packets, tx_errors, tx_dropped, ..] =
            &counters[..]
        else {
            return None;
        };
        Some(Device {
            name: name.trim().to_owned(),
            rx_bytes,
            rx_packets,
            rx_errors,
            rx_dropped,
            tx_bytes,
            tx_packets,
            tx_errors,
            tx_dropped,
        })
    };
    text.lines().filter_map(device).filter(|device| device.name != "lo").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_device() {
        let text = "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0\n  eth0: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n bad: 1 2\n";
        let found = parse(text);
        assert_eq!(found.len(), 1);
        let eth0 = &found[0];
        assert_eq!((eth0.name.as_str(), eth0.rx_bytes, eth0.rx_dropped), ("eth0", 1, 4));
        assert_eq!((eth0.tx_bytes, eth0.tx_errors, eth0.tx_dropped), (5, 7, 8));
    }
}
