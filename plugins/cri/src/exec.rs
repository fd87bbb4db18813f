//! Commands in containers.

use std::{future::Future, sync::Arc, time::Duration};

use containerd_api_cri::v1::{ContainerState, ExecSyncRequest, ExecSyncResponse};
use core_events::Any;
use core_oci::Spec;
use core_runtime_v2::{ExecRequest, ExitStatus, Task};
use core_types::{Error, Result};
use plugin_cri_io::ExecIo;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::{cri::Cri, names, sandbox::run::ignore_missing, store::Container};

/// Type of a process's specification.
const PROCESS: &str = "types.containerd.io/opencontainers/runtime-spec/1/Process";
/// Most output of each kind that ExecSync answers.
const OUTPUT: usize = 16 << 20;
/// How long a killed command may take to go.
const KILL: Duration = Duration::from_secs(10);

/// A process in a container, made and not started.
pub(crate) struct Execution {
    pub(crate) task: Task,
    pub(crate) id: String,
    pub(crate) io: ExecIo,
}

/// The container of a request, which must run.
///
/// # Errors
/// NotFound; FailedPrecondition.
pub(crate) fn running(cri: &Cri, id: &str) -> Result<Arc<Container>> {
    let container = cri.containers.get(id)?;
    match container.state() {
        ContainerState::ContainerRunning => Ok(container),
        state => Err(Error::failed_precondition(format!(
            "container {} is in state {}, not running",
            container.id(),
            state.as_str_name()
        ))),
    }
}

impl Execution {
    /// Makes a process.
    ///
    /// # Errors
    /// InvalidArgument for an empty command; what the shim says.
    pub(crate) async fn new(
        cri: &Cri,
        container: &Container,
        command: Vec<String>,
        stdin: bool,
        tty: bool,
    ) -> Result<Self> {
        if command.is_empty() {
            return Err(Error::invalid_argument("cmd must not be empty"));
        }
        if command.iter().any(|word| word.contains('\0')) {
            return Err(Error::invalid_argument("cmd has a zero byte"));
        }
        let task = cri.tasks.get(&cri.namespace, container.id())?;
        let record = cri.container_records().get(container.id()).await?;
        let spec = record.spec.ok_or_else(|| Error::data_loss("the container has no specification"))?;
        let process = process(&Spec::from_slice(&spec.value)?, command, tty)?;
        let id = names::new_id()?;
        let directory = cri.layout.container_state(container.id()).join("exec");
        let io = ExecIo::create(&directory, &id, stdin, tty).await?;
        let spec = Some(Any { type_url: PROCESS.into(), value: process.into() });
        task.exec(ExecRequest { exec_id: id.clone(), io: io.streams(), spec, ..ExecRequest::default() }).await?;
        Ok(Self { task, id, io })
    }
}

/// The process of a container with another command.
fn process(spec: &Spec, command: Vec<String>, tty: bool) -> Result<Vec<u8>> {
    let mut process = spec.process();
    process.insert("args".into(), command.into());
    process.insert("terminal".into(), tty.into());
    process.shift_remove("commandLine");
    process.shift_remove("consoleSize");
    if tty {
        let env = process.entry("env").or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(env) = env
            && !env.iter().any(|variable| variable.as_str().is_some_and(|text| text.starts_with("TERM=")))
        {
            env.push("TERM=xterm".into());
        }
    }
    serde_json::to_vec(&process).map_err(|error| Error::internal(error.to_string()))
}

/// Runs `work` to its end even when the caller gives up; then the future that it is given is ready, and it should end
/// soon.
pub(crate) async fn guarded<T, F>(work: impl FnOnce(oneshot::Receiver<()>) -> F) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    // Dropped with this future.
    let (_alive, gone) = oneshot::channel();
    let done = tokio::spawn(work(gone)).await;
    done.unwrap_or_else(|_| Err(Error::internal("the command broke off, see the log")))
}

/// Waits for the end of a process that was started; kills it when `give_up` is ready first, which is answered as None.
///
/// # Errors
/// What the shim says.
pub(crate) async fn end(task: &Task, id: &str, give_up: impl Future<Output = ()>) -> Result<Option<ExitStatus>> {
    let waited = task.wait(id);
    tokio::pin!(waited);
    tokio::select! {
        exit = &mut waited => exit.map(Some),
        () = give_up => {
            ignore_missing(task.kill(id, 9, true).await)?;
            if tokio::time::timeout(KILL, waited).await.is_err() {
                tracing::warn!(id = task.id(), exec = id, "a killed command does not end");
            }
            Ok(None)
        }
    }
}

/// Forgets a process.
pub(crate) async fn forget(task: &Task, id: &str) {
    if let Err(error) = ignore_missing(task.delete_process(id).await.map(drop)) {
        tracing::warn!(id = task.id(), exec = id, %error, "a command that ended");
    }
}

/// How long output may be held by processes that a command left behind.
pub(crate) fn drain(cri: &Cri) -> Option<Duration> {
    Some(cri.config.drain_exec_sync_io_timeout).filter(|bound| !bound.is_zero())
}

/// ExecSync.
///
/// # Errors
/// NotFound, FailedPrecondition for a container that does not run, InvalidArgument, DeadlineExceeded, else what the
/// runtime says.
pub(crate) async fn sync(cri: &Arc<Cri>, request: ExecSyncRequest) -> Result<ExecSyncResponse> {
    let timeout = u64::try_from(request.timeout)
        .map_err(|_| Error::invalid_argument(format!("timeout: {} is negative", request.timeout)))?;
    let container = running(cri, &request.container_id)?;
    let cri = Arc::clone(cri);
    guarded(move |gone| async move { collect(&cri, &container, request.cmd, timeout, gone).await }).await
}

async fn collect(
    cri: &Cri,
    container: &Container,
    command: Vec<String>,
    timeout: u64,
    gone: oneshot::Receiver<()>,
) -> Result<ExecSyncResponse> {
    let Execution { task, id, io } = Execution::new(cri, container, command, false, false).await?;
    let outcome = async {
        let give_up = async {
            let limit = async {
                match timeout {
                    0 => std::future::pending().await,
                    seconds => tokio::time::sleep(Duration::from_secs(seconds)).await,
                }
            };
            tokio::select! {
                () = limit => {}
                _ = gone => {}
            }
        };
        // A runtime that cannot start the command writes why to the command's output, and waits until that is read.
        let (not_started, mut failure) = oneshot::channel();
        let run = async {
            match task.start(&id).await {
                Ok(_) => end(&task, &id, give_up).await,
                Err(error) => {
                    let _ = not_started.send(error);
                    std::future::pending().await
                }
            }
        };
        let (exit, collected) = tokio::select! {
            done = io.collect(OUTPUT, run, drain(cri)) => done,
            Ok(error) = &mut failure => return Err(error),
        };
        if collected.held {
            tracing::warn!(id = task.id(), "processes that a command left behind hold its output");
        }
        let exit =
            exit?.ok_or_else(|| Error::deadline_exceeded(format!("timeout: the command ran over {timeout} s")))?;
        Ok(ExecSyncResponse {
            stdout: collected.stdout,
            stderr: collected.stderr,
            exit_code: i32::try_from(exit.status).unwrap_or(i32::MAX),
        })
    };
    let outcome = outcome.await;
    forget(&task, &id).await;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_runs_as_the_container_does() {
        let spec =
            br#"{"process":{"args":["old"],"cwd":"/x","user":{"uid":7},"env":["A=1"],"commandLine":"no","new":1}}"#;
        let spec = Spec::from_slice(spec).unwrap();
        let read = |bytes: Vec<u8>| serde_json::from_slice::<Value>(&bytes).unwrap();
        let plain = read(process(&spec, vec!["ls".into(), "-l".into()], false).unwrap());
        assert_eq!(plain["args"], serde_json::json!(["ls", "-l"]));
        assert_eq!((&plain["cwd"], &plain["user"]["uid"], &plain["new"]), (&"/x".into(), &7.into(), &1.into()));
        assert_eq!((&plain["terminal"], &plain["env"]), (&false.into(), &serde_json::json!(["A=1"])));
        assert!(plain.get("commandLine").is_none());
        let tty = read(process(&spec, vec!["sh".into()], true).unwrap());
        assert_eq!(tty["env"], serde_json::json!(["A=1", "TERM=xterm"]));
    }

    #[tokio::test]
    async fn work_goes_on_and_is_told_when_its_caller_gives_up() {
        let (ended, end) = oneshot::channel();
        let caller = tokio::spawn(guarded(move |gone| async move {
            let _ = gone.await;
            let _ = ended.send(());
            Ok(())
        }));
        tokio::task::yield_now().await;
        caller.abort();
        end.await.unwrap();
    }
}
