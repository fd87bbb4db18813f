use std::{
    collections::HashMap,
    io,
    process::Command,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use rustix::process::{WaitOptions, WaitStatus};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Which process.
    pub pid: u32,
    /// Exit code, or 128 and the number of the signal that ended it.
    pub status: u32,
    /// When it was collected.
    pub at: SystemTime,
}

/// Collects every child of this process, also the orphans that it inherits as a subreaper, so that no exit
/// is lost: one that comes before anybody asks is kept while a window for it is open.
#[derive(Debug, Default)]
pub struct Reaper {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<u32, oneshot::Sender<Exit>>,
    early: HashMap<u32, Exit>,
    windows: usize,
}

/// While one exists, exits of processes that nobody waits for yet are kept.
#[derive(Debug)]
pub(crate) struct Window<'a>(&'a Reaper);

impl Drop for Window<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.windows -= 1;
        if state.windows == 0 {
            // Memory for a burst of exits is not kept.
            state.early = HashMap::new();
        }
    }
}

impl Reaper {
    /// Makes this process the reaper of its descendants and starts to collect. To be called once, within a
    /// tokio runtime, by a process that uses no other means to wait for children.
    ///
    /// # Errors
    /// When the kernel refuses to make this process a subreaper, or signals cannot be caught.
    pub fn start() -> io::Result<Arc<Self>> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let reaper = Arc::new(Self::default());
        let signals = signal(SignalKind::child())?;
        // The task ends with the runtime: children are to be collected as long as the process lives.
        tokio::spawn(reaper.clone().run(signals));
        Ok(reaper)
    }

    async fn run(self: Arc<Self>, mut signals: Signal) {
        loop {
            self.collect();
            if signals.recv().await.is_none() {
                return;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn collect(&self) {
        let mut state = self.state();
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    let Some(status) = code(status) else { continue };
                    let pid = pid.as_raw_nonzero().get().unsigned_abs();
                    let exit = Exit { pid, status, at: SystemTime::now() };
                    match state.waiting.remove(&pid) {
                        Some(waiter) => drop(waiter.send(exit)),
                        None if state.windows > 0 => drop(state.early.insert(pid, exit)),
                        None => {}
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Starts a child. The receiver gets its exit.
    ///
    /// # Errors
    /// What starting it fails with.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<(u32, oneshot::Receiver<Exit>)> {
        // Nothing is collected while the lock is held, so the exit cannot come before its waiter.
        let mut state = self.state();
        let pid = command.spawn()?.id();
        let (sender, receiver) = oneshot::channel();
        state.waiting.insert(pid, sender);
        Ok((pid, receiver))
    }

    /// Opens a window; to be done before the runtime is asked for a process.
    pub(crate) fn window(&self) -> Window<'_> {
        self.state().windows += 1;
        Window(self)
    }

    /// Waits for a process that becomes a child of this one without having been started by it. Its exit may
    /// have come already if a window was open.
    pub(crate) fn watch(&self, pid: u32) -> oneshot::Receiver<Exit> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        match state.early.remove(&pid) {
            Some(exit) => drop(sender.send(exit)),
            None => drop(state.waiting.insert(pid, sender)),
        }
        receiver
    }
}

fn code(status: WaitStatus) -> Option<u32> {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.map(i32::unsigned_abs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn statuses_of_many_children_arrive() {
        let reaper = Reaper::start().unwrap();
        let mut waits = Vec::new();
        for code in 0..50 {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("exit {code}")]);
            waits.push((code, reaper.spawn(&mut command).unwrap().1));
        }
        for (code, wait) in waits {
            assert_eq!(wait.await.unwrap().status, code);
        }
        let (_, killed) = reaper.spawn(Command::new("sh").args(["-c", "kill -9 $$"])).unwrap();
        assert_eq!(killed.await.unwrap().status, 137);
    }

    #[tokio::test]
    async fn an_orphan_that_ends_early_is_remembered_in_a_window() {
        let reaper = Reaper::start().unwrap();
        let window = reaper.window();
        let dir = std::env::temp_dir().join(format!("reaper-{}", std::process::id()));
        // The orphan ends only once its parent was collected, so that the parent cannot collect it.
        let orphan = "while [ -d /proc/$0 ]; do :; done; exit 7";
        let script = format!("sh -c '{orphan}' $$ & echo $! > {}; exit 0", dir.display());
        let (_, parent) = reaper.spawn(Command::new("sh").args(["-c", &script])).unwrap();
        parent.await.unwrap();
        let pid = std::fs::read_to_string(&dir).unwrap().trim().parse().unwrap();
        std::fs::remove_file(&dir).unwrap();
        let end = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
        while !reaper.state().early.contains_key(&pid) {
            assert!(tokio::time::Instant::now() < end, "the orphan was not collected");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(reaper.watch(pid).await.unwrap().status, 7);
        drop(window);
        assert!(reaper.state().early.is_empty());
    }
}
