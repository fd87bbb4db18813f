use std::time::Duration;

use anyhow::{Result, bail};
use containerd_sdk::Process;
use nix::libc;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};

use crate::context::warn;

/// Signals by name, without `SIG`.
const NAMES: [(&str, i32); 35] = [
    ("ABRT", libc::SIGABRT),
    ("ALRM", libc::SIGALRM),
    ("BUS", libc::SIGBUS),
    ("CHLD", libc::SIGCHLD),
    ("CLD", libc::SIGCHLD),
    ("CONT", libc::SIGCONT),
    ("FPE", libc::SIGFPE),
    ("HUP", libc::SIGHUP),
    ("ILL", libc::SIGILL),
    ("INT", libc::SIGINT),
    ("IO", libc::SIGIO),
    ("IOT", libc::SIGIOT),
    ("KILL", libc::SIGKILL),
    ("PIPE", libc::SIGPIPE),
    ("POLL", libc::SIGPOLL),
    ("PROF", libc::SIGPROF),
    ("PWR", libc::SIGPWR),
    ("QUIT", libc::SIGQUIT),
    ("SEGV", libc::SIGSEGV),
    ("STKFLT", libc::SIGSTKFLT),
    ("STOP", libc::SIGSTOP),
    ("SYS", libc::SIGSYS),
    ("TERM", libc::SIGTERM),
    ("TRAP", libc::SIGTRAP),
    ("TSTP", libc::SIGTSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("URG", libc::SIGURG),
    ("USR1", libc::SIGUSR1),
    ("USR2", libc::SIGUSR2),
    ("VTALRM", libc::SIGVTALRM),
    ("WINCH", libc::SIGWINCH),
    ("XCPU", libc::SIGXCPU),
    ("XFSZ", libc::SIGXFSZ),
    ("UNUSED", libc::SIGSYS),
];

/// Real-time signals, by offset from the first and last.
const RT_MIN: u32 = 34;
const RT_MAX: u32 = 64;

/// What is passed on to the process while it runs in the foreground.
const FORWARDED: [i32; 12] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGTERM,
    libc::SIGCONT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGWINCH,
];

/// A signal from its number or name, with or without `SIG`; real-time ones as `RTMIN+3`.
pub(crate) fn parse(text: &str) -> Result<u32> {
    if let Ok(number) = text.parse::<u32>() {
        if number == 0 || number > RT_MAX {
            bail!("unknown signal {text:?}");
        }
        return Ok(number);
    }
    let upper = text.to_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    if let Some((_, number)) = NAMES.iter().find(|(known, _)| *known == name) {
        return Ok(u32::try_from(*number)?);
    }
    let offset = |text: &str, sign: char| match text {
        "" => Some(0),
        text => text.strip_prefix(sign)?.parse::<u32>().ok(),
    };
    let from_min = name.strip_prefix("RTMIN").and_then(|rest| offset(rest, '+')).map(|n| RT_MIN.saturating_add(n));
    let from_max = name.strip_prefix("RTMAX").and_then(|rest| offset(rest, '-')).map(|n| RT_MAX.saturating_sub(n));
    match from_min.or(from_max) {
        Some(number) if (RT_MIN..=RT_MAX).contains(&number) => Ok(number),
        _ => bail!("unknown signal {text:?}"),
    }
}

/// Passes signals on to `process` until the value is dropped.
pub(crate) fn forward(process: &Process) -> Result<JoinSet<()>> {
    let mut forwarding = JoinSet::new();
    for number in FORWARDED {
        let mut arrivals = signal(SignalKind::from_raw(number))?;
        let send = process.signaller();
        forwarding.spawn(async move {
            while arrivals.recv().await.is_some() {
                match send(number.unsigned_abs(), false).await {
                    Ok(()) => {}
                    Err(error) if error.is_not_found() => return,
                    Err(error) => warn(format!("forward signal {number}: {error}")),
                }
            }
        });
    }
    Ok(forwarding)
}

/// Arrivals of window size changes.
pub(crate) fn window_changes() -> Result<tokio::signal::unix::Signal> {
    Ok(signal(SignalKind::window_change())?)
}

/// How long a stop at the end may take.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        for (text, number) in
            [("SIGTERM", 15), ("term", 15), ("9", 9), ("SIGRTMIN+3", 37), ("RTMAX-1", 63), ("RTMIN", 34)]
        {
            assert_eq!(parse(text).unwrap(), number, "{text}");
        }
        for bad in ["", "0", "65", "SIGNOPE", "RTMIN-1", "RTMAX+1", "RTMIN+99", "-9"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
