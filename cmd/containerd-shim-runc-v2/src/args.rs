use std::path::PathBuf;

/// What is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Action {
    /// Be the server.
    #[default]
    Serve,
    /// Start a server, or find the one of the pod.
    Start,
    /// Clean up after a server that died.
    Delete,
    /// Say which version this is.
    Version,
    /// Describe the runtime.
    Info,
}

/// The flags; names and form (one dash, `-name value` or `-name=value`) are the contract with the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Args {
    pub(crate) action: Action,
    pub(crate) namespace: String,
    pub(crate) id: String,
    /// The daemon's gRPC socket.
    pub(crate) address: String,
    /// Where the bundle is, when it is not the working directory.
    pub(crate) bundle: PathBuf,
    /// A socket to serve, instead of one that was passed on.
    pub(crate) socket: PathBuf,
    pub(crate) debug: bool,
}

impl Args {
    /// Parses like Go's flag package: flags end at the first word that is none.
    pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut args = Self::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix('-').filter(|flag| !flag.is_empty()) else {
                args.action = action(&word)?;
                break;
            };
            let flag = flag.strip_prefix('-').unwrap_or(flag);
            let (name, inline) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            if let "debug" | "v" | "version" | "info" = name {
                let set = match inline.as_deref() {
                    None | Some("true" | "1" | "t" | "T" | "TRUE" | "True") => true,
                    Some("false" | "0" | "f" | "F" | "FALSE" | "False") => false,
                    Some(value) => return Err(format!("invalid boolean value {value:?} for -{name}")),
                };
                match name {
                    "debug" => args.debug = set,
                    "info" if set => args.action = Action::Info,
                    _ if set => args.action = Action::Version,
                    _ => {}
                }
                continue;
            }
            let value = inline.or_else(|| words.next()).ok_or_else(|| format!("flag needs an argument: -{name}"))?;
            match name {
                "namespace" => args.namespace = value,
                "id" => args.id = value,
                "address" => args.address = value,
                "bundle" => args.bundle = value.into(),
                "socket" => args.socket = value.into(),
                // Known, but of no use here: events go by ttrpc, and there is no debug socket.
                "publish-binary" | "debug-socket" => {}
                _ => return Err(format!("flag provided but not defined: -{name}")),
            }
        }
        Ok(args)
    }
}

fn action(word: &str) -> Result<Action, String> {
    match word {
        "" => Ok(Action::Serve),
        "start" => Ok(Action::Start),
        "delete" => Ok(Action::Delete),
        _ => Err(format!("unknown action {word:?}: start and delete are known")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        Args::parse(line.split(' ').map(str::to_owned))
    }

    #[test]
    fn flags_are_gos() {
        let args = parse("-namespace k8s.io -id=c1 --address /run/c.sock -publish-binary x -debug start -id other");
        let args = args.unwrap();
        assert_eq!((args.namespace.as_str(), args.id.as_str()), ("k8s.io", "c1"));
        assert_eq!((args.address.as_str(), args.debug, args.action), ("/run/c.sock", true, Action::Start));
        assert_eq!(parse("-v").unwrap().action, Action::Version);
        assert_eq!(parse("-debug=false -info").unwrap().action, Action::Info);
        assert!(parse("-nope x").is_err());
        assert!(parse("-id").is_err());
        assert!(parse("run").is_err());
    }
}
