use clap::{CommandFactory as _, error::ErrorKind};

use super::*;

fn help_of_all(command: &clap::Command, path: &[String]) -> usize {
    let mut args: Vec<String> = path.to_vec();
    args.push("--help".into());
    let error = Cli::try_parse_from(&args).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DisplayHelp, "{args:?}: {error}");
    let mut count = 1;
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        let mut below = path.to_vec();
        below.push(sub.get_name().to_owned());
        count += help_of_all(sub, &below);
        for alias in sub.get_all_aliases() {
            let aliased: Vec<String> = path.iter().cloned().chain([alias.to_owned(), "--help".to_owned()]).collect();
            assert_eq!(Cli::try_parse_from(&aliased).unwrap_err().kind(), ErrorKind::DisplayHelp, "{aliased:?}");
        }
    }
    count
}

#[test]
fn every_command_and_alias_has_help() {
    Cli::command().debug_assert();
    assert!(help_of_all(&Cli::command(), &["ctr".to_owned()]) > 60);
}

fn parses(line: &str) -> bool {
    Cli::try_parse_from(line.split_whitespace()).is_ok()
}

#[test]
fn lines_that_scripts_use() {
    for line in [
        "ctr -n k8s.io -a /run/x.sock c ls -q",
        "ctr --connect-timeout 5s --timeout 1m30s version",
        "ctr run --rm -t --net-host --env A=1 --env B=2 docker.io/library/busybox:latest id sh -c ls",
        "ctr run -d --mount type=bind,src=/a,dst=/b,options=rbind:ro --cap-add CAP_SYS_ADMIN --cgroup= ref id",
        "ctr run --rootfs --null-io /tmp/root id /bin/true",
        "ctr run --config spec.json id",
        "ctr t exec --exec-id e1 -t id ls -la --color",
        "ctr tasks kill -s SIGKILL -a id",
        "ctr task rm -f a b",
        "ctr t metrics --format json id",
        "ctr i pull --plain-http --platform linux/arm64 --platform linux/amd64 ref",
        "ctr images rm --sync a b",
        "ctr i mount --rw ref /mnt",
        "ctr image import --base-name x --no-unpack -",
        "ctr content fetch --all-platforms ref",
        "ctr snapshots --snapshotter native ls",
        "ctr snapshot prepare -t /mnt key parent",
        "ctr leases create --id x -x 1h a=b",
        "ctr leases rm --sync x",
        "ctr ns create x a=b",
        "ctr namespaces rm -c x",
        "ctr plugin ls -d",
    ] {
        assert!(parses(line), "{line}");
    }
}

#[test]
fn options_end_at_the_first_argument() {
    let cli = Cli::try_parse_from(["ctr", "run", "--rm", "ref", "id", "ls", "--rm", "-t", "-d"]).unwrap();
    let Command::Run(args) = cli.command else { panic!("run") };
    assert!(args.rm && !args.detach && !args.container.tty);
    assert_eq!(args.args, ["ref", "id", "ls", "--rm", "-t", "-d"]);
    assert!(!parses("ctr run --no-such-flag ref id"));
}
