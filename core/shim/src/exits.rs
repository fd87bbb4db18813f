use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use core_cgroups::Cgroup;
use tokio::sync::oneshot;

use crate::{Container, Event, Exit, ExitRecord, Process, exec::Busy, spec};

/// How long execs may take to end once init has.
const EXECS: Duration = Duration::from_secs(10);

impl Container {
    /// Waits for init, and announces its exit after those of all execs and after an out-of-memory kill.
    pub(crate) async fn init_exit(self: Arc<Self>, exit: oneshot::Receiver<Exit>) {
        let Ok(exit) = exit.await else { return };
        self.init_exited.store(true, Ordering::SeqCst);
        if spec::outlived_by_others(&self.bundle) {
            // That there was nobody left to kill is no fault.
            let _ = self.runtime.kill(&self.id, 9, true).await;
        }
        let mut busy = self.busy.subscribe();
        let quiet = async { while *busy.borrow_and_update() > 0 && busy.changed().await.is_ok() {} };
        // One that does not end, because it hangs in the kernel, must not hide that init did.
        let _ = tokio::time::timeout(EXECS, quiet).await;
        // A start that is under way is announced first.
        let _operation = self.init.operation.lock().await;
        self.check_oom();
        let oom_killed = self.oom_kills.load(Ordering::SeqCst) > 0;
        // Without a record the exit is still known to this shim; only its own death would lose it.
        let _ = ExitRecord::new(&exit, oom_killed).write(&self.bundle);
        self.init.set_exited(exit);
        self.announce(&self.init, exit);
        if let Some(task) = self.oom_task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }

    /// Waits for an exec and announces its exit.
    pub(crate) async fn exec_exit(self: Arc<Self>, process: Arc<Process>, exit: oneshot::Receiver<Exit>, busy: Busy) {
        let Ok(exit) = exit.await else { return };
        let operation = process.operation.lock().await;
        process.set_exited(exit);
        self.announce(&process, exit);
        drop(operation);
        drop(busy);
    }

    fn announce(&self, process: &Process, exit: Exit) {
        self.host.emit(Event::Exit { id: self.id.clone(), process: process.id().to_owned(), exit });
    }

    /// Reports out-of-memory kills as they happen, where the kernel tells.
    pub(crate) fn watch_oom(self: &Arc<Self>) {
        let watch = self.cgroup.as_ref().and_then(|cgroup| cgroup.watch_oom().ok());
        let Some(watch) = watch.and_then(|watch| crate::poll::watched(watch).ok()) else { return };
        let container = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            while let Ok(mut ready) = watch.readable().await {
                let more = watch.get_ref().drain();
                ready.clear_ready();
                let Some(container) = container.upgrade() else { return };
                container.check_oom();
                if !more {
                    return;
                }
            }
        });
        *self.oom_task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    fn check_oom(&self) {
        let Some(count) = self.cgroup.as_ref().and_then(Cgroup::oom_kills) else { return };
        if self.oom_kills.fetch_max(count, Ordering::SeqCst) < count {
            self.host.emit(Event::Oom { id: self.id.clone() });
        }
    }
}
