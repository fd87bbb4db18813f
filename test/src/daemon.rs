use std::{
    fs::{self, File},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use nix::{sys::signal, unistd::Pid};

use crate::{World, eventually};

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Output {
    /// Its exit code; 128 + n for signal n.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// Runs a command to its end.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn of(command: &mut Command) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let code = output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code, stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// Its standard output, if it succeeded.
    ///
    /// # Panics
    /// When it did not.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.code == 0, "exit code {}\nstdout: {}\nstderr: {}", self.code, self.stdout, self.stderr);
        self.stdout
    }

    /// Its standard error, if it failed with code 1.
    ///
    /// # Panics
    /// When it did not.
    #[track_caller]
    pub fn refused(self) -> String {
        assert!(self.code == 1, "exit code {}\nstdout: {}\nstderr: {}", self.code, self.stdout, self.stderr);
        self.stderr
    }
}

/// Whose daemon it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The workspace's.
    Ours,
    /// Debian's.
    Go,
}

/// A daemon with directories of its own in a [`World`].
pub struct Daemon {
    dir: PathBuf,
    kind: Kind,
    child: Option<Child>,
    shims: PathBuf,
}

impl Daemon {
    /// Starts the workspace's daemon with the workspace's shim.
    ///
    /// # Panics
    /// When it does not serve within a minute.
    pub fn start(world: &World) -> Self {
        Self::start_with(world, Kind::Ours, &Self::programs())
    }

    /// Starts a daemon that finds its shims in `shims`.
    ///
    /// # Panics
    /// When it does not serve within a minute.
    pub fn start_with(world: &World, kind: Kind, shims: &Path) -> Self {
        Self::start_configured(world, kind, shims, "")
    }

    /// Starts a daemon with `more` at the end of its configuration.
    ///
    /// # Panics
    /// When it does not serve within a minute.
    pub fn start_configured(world: &World, kind: Kind, shims: &Path, more: &str) -> Self {
        let dir = world.dir().join("daemon");
        fs::create_dir_all(&dir).expect("a directory");
        let mut daemon = Self { dir, kind, child: None, shims: shims.to_owned() };
        daemon.configure(more);
        daemon.restart();
        daemon
    }

    /// Where `cargo build` puts the workspace's programs.
    ///
    /// # Panics
    /// When this is no test program of cargo's.
    pub fn programs() -> PathBuf {
        let test = std::env::current_exe().expect("a program");
        test.ancestors().nth(2).expect("target/<profile>").to_owned()
    }

    /// Writes the configuration, with `more` at its end.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn configure(&self, more: &str) {
        let dir = self.dir.display();
        let cri = if self.kind == Kind::Go { "disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n" } else { "" };
        let config = format!(
            "version = 2\nroot = \"{dir}/root\"\nstate = \"{dir}/state\"\n{cri}\n[grpc]\naddress = \"{}\"\n{more}\n",
            self.address().display()
        );
        fs::write(self.dir.join("config.toml"), config).expect("the configuration");
    }

    /// The command that would start the daemon.
    pub fn command(&self) -> Command {
        let program = match self.kind {
            Kind::Ours => Self::programs().join("containerd"),
            Kind::Go => "/usr/bin/containerd".into(),
        };
        let mut command = Command::new(program);
        let path = std::env::var("PATH").unwrap_or_default();
        command.arg("--config").arg(self.dir.join("config.toml")).args(["--log-level", "debug"]);
        command.env("PATH", format!("{}:{path}", self.shims.display())).stdin(Stdio::null());
        command
    }

    /// Starts it (again) and waits until it serves.
    ///
    /// # Panics
    /// When it does not within a minute.
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "the daemon runs already");
        let log = File::options().create(true).append(true).open(self.log_path()).expect("a log");
        let mut command = self.command();
        command.stdout(log.try_clone().expect("a log")).stderr(log);
        let mut child = command.spawn().expect("the daemon starts");
        let started = eventually("the daemon serves", || {
            if let Ok(Some(status)) = child.try_wait() {
                return Some(Err(status));
            }
            let answers = UnixStream::connect(self.address()).is_ok() && self.go_ctr(&["version"]).code == 0;
            answers.then_some(Ok(()))
        });
        if let Err(status) = started {
            panic!("the daemon ended with {status}:\n{}", self.log());
        }
        self.child = Some(child);
    }

    /// Sends it a signal and waits for its end; answers its exit code.
    ///
    /// # Panics
    /// When it does not end within a minute.
    pub fn end(&mut self, with: signal::Signal) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let mut child = self.child.take().expect("the daemon runs");
        let _ = signal::kill(Pid::from_raw(child.id() as i32), with);
        let status = eventually("the daemon ends", || child.try_wait().ok().flatten());
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
    }

    /// Its pid.
    ///
    /// # Panics
    /// When it does not run.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the daemon runs").id()
    }

    /// Its gRPC socket.
    pub fn address(&self) -> PathBuf {
        self.dir.join("containerd.sock")
    }

    /// Its root directory.
    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    /// Its state directory.
    pub fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// What it logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Debian's `ctr` on its socket.
    pub fn go_ctr(&self, args: &[&str]) -> Output {
        Output::of(Command::new("/usr/bin/ctr").arg("--address").arg(self.address()).args(args))
    }

    /// The workspace's `ctr` on its socket.
    pub fn ctr(&self, args: &[&str]) -> Output {
        Output::of(&mut self.ctr_command(args))
    }

    /// The workspace's `ctr` on its socket, to be run by the caller.
    pub fn ctr_command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(Self::programs().join("ctr"));
        command.arg("--address").arg(self.address()).args(args);
        command
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(60).collect();
            eprintln!("-- the end of the daemon's log");
            tail.iter().rev().for_each(|line| eprintln!("{line}"));
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
