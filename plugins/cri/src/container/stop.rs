//! Stopping a container: its signal, some grace, then SIGKILL.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use containerd_api_cri::v1::{ContainerConfig, ContainerState, Signal};
use core_runtime_v2::Task;
use core_types::{Error, Result, ResultExt};
use nix::sys::signal::Signal as Posix;

use super::exit;
use crate::{
    cri::Cri,
    sandbox::{pause::found, run::ignore_missing},
    store::Container,
};

/// How long a killed container may take to go.
const KILL: Duration = Duration::from_secs(60);

/// StopContainer. One that does not run, or is not there, is stopped.
///
/// # Errors
/// InvalidArgument for a negative time; DeadlineExceeded when it survives SIGKILL; else what the runtime says.
pub(crate) async fn stop(cri: &Arc<Cri>, id: &str, timeout: i64) -> Result<()> {
    let seconds =
        u64::try_from(timeout).map_err(|_| Error::invalid_argument(format!("timeout: {timeout} is negative")))?;
    let Some(container) = cri.containers.find(id)? else {
        return Ok(());
    };
    stop_now(cri, &container, Duration::from_secs(seconds)).await
}

/// Stops a container with a grace. The stop signal is sent once, however often this is called; each call waits its own
/// grace before it kills.
///
/// # Errors
/// As [`stop`].
pub(crate) async fn stop_now(cri: &Arc<Cri>, container: &Arc<Container>, grace: Duration) -> Result<()> {
    let id = container.id();
    match container.state() {
        ContainerState::ContainerRunning | ContainerState::ContainerUnknown => {}
        _ => return Ok(()),
    }
    let Some(task) = found(cri.tasks.get(&cri.namespace, id))? else {
        if !container.ended(Duration::ZERO).await {
            exit::ended(cri, container, None).await;
        }
        return Ok(());
    };
    if container.status().unknown {
        exit::watch(cri, container, task.clone());
    }
    if !grace.is_zero() {
        if !container.signalled.swap(true, Ordering::SeqCst) {
            let signal = signal(container)?;
            kill(&task, signal as u32).await.doing(format_args!("send {signal} to container {id}"))?;
        }
        if container.ended(grace).await {
            return Ok(());
        }
    }
    kill(&task, Posix::SIGKILL as u32).await.doing(format_args!("kill container {id}"))?;
    if container.ended(KILL).await {
        return Ok(());
    }
    Err(Error::deadline_exceeded(format!("container {id} still runs {} s after SIGKILL", KILL.as_secs())))
}

/// Sends a signal; a process that is gone needs none.
async fn kill(task: &Task, signal: u32) -> Result<()> {
    ignore_missing(task.kill("", signal, false).await)
}

/// The signal that stops a container: the request's, the image's, or SIGTERM.
pub(crate) fn signal(container: &Container) -> Result<Posix> {
    if let Some(signal) = requested_signal(&container.facts.config)? {
        return Ok(signal);
    }
    match container.facts.stop_signal.as_str() {
        "" => Ok(Posix::SIGTERM),
        text => parse(text)
            .ok_or_else(|| Error::invalid_argument(format!("stop signal {text:?} of the image is no signal"))),
    }
}

/// The signal that a request names; None for none.
///
/// # Errors
/// InvalidArgument for a number that stands for none.
pub(crate) fn requested_signal(config: &ContainerConfig) -> Result<Option<Posix>> {
    let signal = Signal::try_from(config.stop_signal)
        .map_err(|_| Error::invalid_argument(format!("config.stop_signal: {} is no signal", config.stop_signal)))?;
    if signal == Signal::RuntimeDefault {
        return Ok(None);
    }
    let name = signal.as_str_name();
    parse(name)
        .map(Some)
        .ok_or_else(|| Error::invalid_argument(format!("config.stop_signal: {name} is not known here")))
}

/// A signal by name, with or without `SIG`, or by number.
fn parse(text: &str) -> Option<Posix> {
    if let Ok(number) = text.parse::<i32>() {
        return Posix::try_from(number).ok();
    }
    let upper = text.to_uppercase();
    let name = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    name.parse().ok()
}

/// The CRI's name of a signal.
pub(crate) fn cri_signal(signal: Posix) -> Signal {
    Signal::from_str_name(signal.as_str()).unwrap_or(Signal::Sigterm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_known_by_name_and_number() {
        for text in ["SIGUSR1", "usr1", "USR1", "10"] {
            assert_eq!(parse(text), Some(Posix::SIGUSR1), "{text}");
        }
        assert_eq!(parse("NOPE"), None);
        let config = |stop_signal| ContainerConfig { stop_signal, ..ContainerConfig::default() };
        assert_eq!(requested_signal(&config(0)).unwrap(), None);
        assert!(requested_signal(&config(9999)).is_err());
        assert_eq!(requested_signal(&config(Signal::Sigint as i32)).unwrap(), Some(Posix::SIGINT));
        assert_eq!(cri_signal(Posix::SIGINT), Signal::Sigint);
    }
}
