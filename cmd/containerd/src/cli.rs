//! The command line: containerd's commands and flags.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::{ArgAction, Parser, Subcommand};
use plugin_services::version::{REVISION, VERSION};

use crate::{
    builtins,
    config::{self, Config, DEFAULT_ADDRESS, DEFAULT_PATH, GRPC, Remark, TTRPC},
    logging, publish, server,
};

/// A container runtime daemon with the interface of containerd.
#[derive(Debug, Parser)]
#[command(name = "containerd", disable_version_flag = true, args_conflicts_with_subcommands = false)]
pub(crate) struct Cli {
    /// Path to the configuration file
    #[arg(short, long, global = true)]
    config: Option<PathBuf>,
    /// Set the logging level [trace, debug, info, warn, error, fatal, panic]
    #[arg(short, long, global = true)]
    log_level: Option<String>,
    /// Address for the gRPC server
    #[arg(short, long, global = true)]
    address: Option<String>,
    /// Root directory
    #[arg(long, global = true)]
    root: Option<PathBuf>,
    /// State directory
    #[arg(long, global = true)]
    state: Option<PathBuf>,
    /// Print the version
    #[arg(short, long, action = ArgAction::SetTrue)]
    version: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Publish an event of a shim: standard input is an encoded `google.protobuf.Any`
    Publish {
        /// Namespace to publish to
        #[arg(long)]
        namespace: String,
        /// Topic of the event
        #[arg(long)]
        topic: String,
    },
    /// Information on the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum ConfigCommand {
    /// See the output of the default configuration
    Default,
    /// See the output of the final configuration with imported files
    Dump,
    /// Migrate the current configuration file to the latest version (does not migrate imported files)
    Migrate,
}

impl Cli {
    /// Does what was asked for.
    ///
    /// # Errors
    /// What the operator has to mend.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        if self.version {
            return print(&format!("containerd containerd-rs {VERSION} {REVISION}\n"));
        }
        match self.command {
            Some(Command::Config(command)) => self.show_config(command),
            Some(Command::Publish { namespace, topic }) => {
                let address = self.address.as_deref().filter(|address| !address.is_empty());
                publish::publish(address.unwrap_or(DEFAULT_ADDRESS), &namespace, topic)
            }
            None => self.serve(),
        }
    }

    fn show_config(&self, command: ConfigCommand) -> anyhow::Result<()> {
        let config = match command {
            ConfigCommand::Default => Config::defaults(),
            ConfigCommand::Dump | ConfigCommand::Migrate => {
                logging::start("warn", "text")?;
                let (config, remarks) = self.load()?;
                report(&remarks);
                config
            }
        };
        print(&config::render(config, &builtins::registry()?)?)
    }

    fn serve(&self) -> anyhow::Result<()> {
        let (mut config, remarks) = self.load()?;
        self.apply_flags(&mut config)?;
        let level = self.log_level.as_deref().unwrap_or(&config.debug.level);
        logging::start(level, &config.debug.format)?;
        report(&remarks);
        server::run(config)
    }

    /// The file that was named, or the default one when it is there, or the defaults.
    fn load(&self) -> anyhow::Result<(Config, Vec<Remark>)> {
        let path = self.config.as_deref().unwrap_or(Path::new(DEFAULT_PATH));
        if self.config.is_none() && !path.exists() {
            return Ok((Config::defaults(), Vec::new()));
        }
        Ok(config::load(path)?)
    }

    /// Flags count more than the file.
    fn apply_flags(&self, config: &mut Config) -> anyhow::Result<()> {
        for (flag, field) in [(&self.root, &mut config.root), (&self.state, &mut config.state)] {
            if let Some(path) = flag {
                *field = std::path::absolute(path)?.to_str().context("directories must be named in UTF-8")?.to_owned();
            }
        }
        let Some(address) = self.address.as_deref().filter(|address| !address.is_empty()) else { return Ok(()) };
        let grpc = config.section(GRPC).with_context(|| format!("[plugins.'{GRPC}'] must be a table"))?;
        grpc.insert("address".into(), address.into());
        let owner: Vec<_> = ["uid", "gid"].into_iter().filter_map(|key| Some((key, grpc.get(key)?.clone()))).collect();
        if !config.plugins.contains_key(TTRPC) {
            let ttrpc = config.section(TTRPC).with_context(|| format!("[plugins.'{TTRPC}'] must be a table"))?;
            ttrpc.insert("address".into(), format!("{address}.ttrpc").into());
            for (key, value) in owner {
                ttrpc.insert(key.into(), value);
            }
        }
        Ok(())
    }
}

fn report(remarks: &[Remark]) {
    for remark in remarks {
        match remark {
            Remark::UnknownKey { file, key } => {
                tracing::warn!(file = %file.display(), key, "Ignoring unknown key in TOML");
            }
            Remark::Migrated { file, from } => {
                tracing::warn!(
                    file = %file.display(),
                    "Configuration migrated from version {from}, use `containerd config migrate` to avoid migration"
                );
            }
        }
    }
}

/// Writes to standard output.
fn print(text: &str) -> anyhow::Result<()> {
    io::stdout().lock().write_all(text.as_bytes()).context("write to standard output")
}

/// Says on standard error why the program ends.
pub(crate) fn complain(error: &anyhow::Error) {
    // There is nobody left to tell when this fails.
    let _ = writeln!(io::stderr().lock(), "containerd: {error:#}");
}
