//! Registries, images and requests that are wrong: each gets a clear error of the right kind and leaves nothing
//! behind.

// Helpers of a test are tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::{io::Write, process::Command, time::Instant};

use containerd_test::{
    Daemon, Output, State, World,
    hostile::{Blob, Fault, File, Hostile, LAYER, MANIFEST, digest, tar},
    skip_without, unique,
};
use flate2::{Compression, write::GzEncoder};

const NEEDED: [&str; 1] = ["ctr"];
const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| step()).collect()
}

/// An archive with one file of the bytes.
fn big_tar(len: usize) -> Vec<u8> {
    let text: String = noise(len).iter().map(|byte| char::from(b' ' + byte % 64)).collect();
    tar(&[File::Regular("big", &text)])
}

/// A layer of these files, uncompressed.
fn layer(files: &[File<'_>]) -> (Blob, String) {
    plain(tar(files))
}

fn plain(bytes: Vec<u8>) -> (Blob, String) {
    let id = digest(&bytes);
    (Blob::new(LAYER, bytes), id)
}

/// A daemon and the state it is to come back to.
struct Scene {
    daemon: Daemon,
    before: State,
    world: World,
}

impl Scene {
    fn new() -> Self {
        let world = World::new();
        let daemon = Daemon::start(&world);
        Self::with(world, daemon)
    }

    fn with(world: World, daemon: Daemon) -> Self {
        let before = State::of(&world, &daemon);
        Self { daemon, before, world }
    }

    fn pull(&self, name: &str) -> Output {
        self.daemon.ctr(&["images", "pull", "--plain-http", name])
    }

    fn go_pull(&self, name: &str) -> Output {
        self.daemon.go_ctr(&["images", "pull", "--plain-http", name])
    }

    /// The workspace's command line is refused the image, with an error of the kind that says `why`.
    #[track_caller]
    fn refused(&self, name: &str, why: &str, kind: &str) {
        let error = self.pull(name).refused();
        let last = error.lines().rfind(|line| line.starts_with("ctr: ")).unwrap_or_else(|| panic!("{error}"));
        assert!(last.contains(why) && last.ends_with(kind), "{last}");
        self.is_clean(&format!("after {name}"));
    }

    /// So is Go's, which says it in words of its own.
    #[track_caller]
    fn both_refused(&self, name: &str, why: &str, kind: &str) {
        self.refused(name, why, kind);
        let error = self.go_pull(name).refused();
        assert!(error.contains("ctr: "), "{error}");
        // That client makes the image's record before it unpacks.
        self.daemon.go_ctr(&["images", "rm", name]);
        self.is_clean(&format!("after Go's pull of {name}"));
    }

    #[track_caller]
    fn is_clean(&self, what: &str) {
        self.before.clone().is_back(what, || State::of(&self.world, &self.daemon));
    }
}

#[test]
fn content_that_is_not_what_its_digest_says() {
    if skip_without(&NEEDED) {
        return;
    }
    let scene = Scene::new();
    let registry = Hostile::start();
    let good = layer(&[File::Regular("a", "a")]);
    let name = registry.image("wrong", std::slice::from_ref(&good));
    let mut other = good.0.bytes.clone();
    other[600] ^= 1;
    registry.fault(good.0.descriptor["digest"].as_str().unwrap(), Fault::Other(other), 1000);
    scene.both_refused(&name, "digest", "failed precondition");
    registry.heal();
    // A blob that really is shorter than its descriptor says.
    let (mut short, id) = layer(&[File::Regular("b", "b")]);
    short.bytes.truncate(700);
    let name = registry.image("short", &[(short, id)]);
    scene.refused(&name, "broke off", "unavailable");
    // The layer is as described, but not what the configuration says it unpacks to.
    let name = registry.image("other", &[(good.0.clone(), digest(b"something else"))]);
    scene.both_refused(&name, "diff id", "failed precondition");
}

#[test]
fn archives_that_break_their_format() {
    if skip_without(&NEEDED) {
        return;
    }
    let scene = Scene::new();
    let registry = Hostile::start();
    let whole = big_tar(300_000);
    let id = digest(&whole);
    let packed = gzip(&whole);
    let half = Blob::new(GZIP, &packed[..packed.len() / 2]);
    let name = registry.image("half-gzip", &[(half, id.clone())]);
    scene.both_refused(&name, "truncated", "data loss");
    let mut broken = packed.clone();
    let middle = broken.len() / 2;
    broken[middle..middle + 64].fill(0xff);
    let name = registry.image("bad-gzip", &[(Blob::new(GZIP, broken), id.clone())]);
    scene.both_refused(&name, "decompress", "invalid argument");
    let name = registry.image("no-gzip", &[(Blob::new(GZIP, noise(5000)), id)]);
    scene.both_refused(&name, "invalid", "invalid argument");
    let (cut, id) = plain(whole[..whole.len() / 2].to_vec());
    let name = registry.image("half-tar", &[(cut, id)]);
    scene.both_refused(&name, "truncated", "data loss");
}

#[test]
fn unknown_kinds_of_content() {
    if skip_without(&NEEDED) {
        return;
    }
    let scene = Scene::new();
    let registry = Hostile::start();
    let bytes = tar(&[File::Regular("a", "a")]);
    let id = digest(&bytes);
    let name = registry.image("kind", &[(Blob::new("application/vnd.example.layer", bytes), id)]);
    scene.refused(&name, "number of layers and diff ids do not match", "invalid argument");
    let name = registry.manifest("broken", MANIFEST, b"{\"schemaVersion\":2,");
    scene.refused(&name, "", "invalid argument");
}

#[test]
fn documents_beyond_the_limit() {
    if skip_without(&NEEDED) {
        return;
    }
    let scene = Scene::new();
    let registry = Hostile::start();
    let huge = format!("{{\"schemaVersion\":2,\"padding\":\"{}\"}}", "x".repeat(9 << 20));
    let name = registry.manifest("huge", MANIFEST, huge.as_bytes());
    scene.both_refused(&name, "8388608", "invalid argument");
}

#[test]
fn layers_cannot_leave_their_root() {
    if skip_without(&NEEDED) {
        return;
    }
    let scene = Scene::new();
    let registry = Hostile::start();
    let outside = scene.world.dir().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("victim"), "untouched").unwrap();
    let out = outside.display().to_string();
    let up = format!("{}{out}/made", "../".repeat(12));
    let through = [File::Symlink("link", &out), File::Regular("link/victim", "owned"), File::Regular("link/made", "")];
    let victim = format!("{out}/victim");
    let up_victim = format!("{}{out}/victim", "../".repeat(12));
    let attacks: [(&str, &[File<'_>]); 4] = [
        ("up", &[File::Regular(&up, "owned")]),
        ("through", &through),
        ("hard", &[File::HardLink("mine", &victim), File::Regular("mine", "owned")]),
        ("hard-up", &[File::HardLink("mine", &up_victim), File::Regular("mine", "owned")]),
    ];
    for (image, files) in attacks {
        let name = registry.image(image, &[layer(files)]);
        for pulled in [scene.pull(&name), scene.go_pull(&name)] {
            // What stays inside the root when it is taken literally is no error, here as in containerd.
            assert!(pulled.code == 0 || pulled.code == 1, "{pulled:?}");
            assert_eq!(std::fs::read_to_string(outside.join("victim")).unwrap(), "untouched", "{image}");
            assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1, "{image}");
            scene.daemon.go_ctr(&["images", "rm", &name]);
        }
        scene.is_clean(image);
    }
}

#[test]
fn a_full_disk() {
    if skip_without(&NEEDED) {
        return;
    }
    let world = World::new();
    let root = world.dir().join("daemon/root");
    std::fs::create_dir_all(&root).unwrap();
    let none = None::<&str>;
    nix::mount::mount(Some("tmpfs"), &root, Some("tmpfs"), nix::mount::MsFlags::empty(), Some("size=24m")).unwrap();
    let daemon = Daemon::start(&world);
    let scene = Scene::with(world, daemon);
    let registry = Hostile::start();
    let small = registry.image("small", &[layer(&[File::Regular("a", "a")])]);
    let name = registry.image("big", &[plain(big_tar(20 << 20))]);
    let is_full = |out: Output| {
        let error = out.refused();
        assert!(error.to_lowercase().contains("no space left"), "{error}");
        error
    };
    let before = scene.before.clone().without_ingests();
    let after = || State::of(&scene.world, &scene.daemon).without_ingests();
    assert!(is_full(scene.pull(&name)).trim_end().ends_with("resource exhausted"));
    before.is_back("after a pull by the daemon", after);
    // It still works, and once there is room the image comes.
    scene.pull(&small).ok();
    nix::mount::mount(none, &root, none, nix::mount::MsFlags::MS_REMOUNT, Some("size=96m")).unwrap();
    scene.pull(&name).ok();
    scene.daemon.go_ctr(&["images", "rm", "--sync", &name, &small]).ok();
    scene.is_clean("after removal");
}

#[test]
fn registries_that_refuse() {
    if skip_without(&NEEDED) {
        return;
    }
    let scene = Scene::new();
    let registry = Hostile::start();
    let name = registry.image("image", &[layer(&[File::Regular("a", "a")])]);
    let at = name.split('/').next().unwrap().to_owned();
    let cases = [
        (401, "WWW-Authenticate: Basic realm=\"test\"", "401", "unauthenticated"),
        (403, "", "403", "permission denied"),
        (404, "", "not found", "not found"),
        (429, "Retry-After: 3600", "429", "resource exhausted"),
    ];
    for (status, header, said, kind) in cases {
        for part in ["/manifests/", "/blobs/"] {
            registry.fault(part, Fault::Status(status, header), 1000);
            let out = scene.pull(&name);
            let error = out.refused();
            let last = error.lines().rfind(|line| line.starts_with("ctr: ")).unwrap();
            assert!(last.contains(said) && last.contains(&at) && last.ends_with(kind), "{status} {part}: {last}");
            registry.heal();
            scene.is_clean(&format!("{status} {part}"));
        }
    }
    // It may be that the client of another version asks again at once; what counts is that nothing stays.
    registry.fault("/blobs/", Fault::Status(403, ""), 1000);
    assert!(scene.go_pull(&name).refused().contains("403"));
    scene.is_clean("Go's ctr");
    registry.heal();
    scene.pull(&name).ok();
}

#[test]
fn registries_that_fail_for_a_while() {
    if skip_without(&NEEDED) {
        return;
    }
    let scene = Scene::new();
    let registry = Hostile::start();
    let name = registry.image("image", &[layer(&[File::Regular("a", "a")])]);
    registry.fault("/blobs/", Fault::Status(429, "Retry-After: 1"), 1);
    registry.fault("/manifests/", Fault::Status(500, ""), 1);
    let start = Instant::now();
    scene.pull(&name).ok();
    assert!(start.elapsed().as_secs() >= 1, "it waited for as long as it was told");
    scene.daemon.go_ctr(&["images", "rm", "--sync", &name]).ok();
    scene.is_clean("after removal");
    registry.fault("/blobs/", Fault::Status(500, ""), 1000);
    registry.asked();
    let error = scene.pull(&name).refused();
    assert!(error.contains("500") && error.trim_end().ends_with("unavailable"), "{error}");
    let tries = registry.asked().iter().filter(|asked| asked.path.contains("/blobs/")).count();
    assert!((2..=20).contains(&tries), "{tries} requests");
    scene.is_clean("after a fault that does not pass");
}

#[test]
fn bodies_that_break_off() {
    if skip_without(&NEEDED) {
        return;
    }
    let scene = Scene::new();
    let registry = Hostile::start();
    let (blob, id) = plain(big_tar(4 << 20));
    let path = format!("/blobs/{}", blob.descriptor["digest"].as_str().unwrap());
    let name = registry.image("image", &[(blob, id)]);
    // Twice: it goes on where it was.
    registry.fault(&path, Fault::Cut(1 << 20), 2);
    scene.pull(&name).ok();
    let starts: Vec<usize> =
        registry.asked().iter().filter(|asked| asked.path.contains(&path)).map(|a| a.from).collect();
    assert!(starts.len() == 3 && starts[0] == 0 && starts[1] > 0 && starts[2] > starts[1], "{starts:?}");
    scene.daemon.go_ctr(&["images", "rm", "--sync", &name]).ok();
    scene.is_clean("after removal");
    // For good: the pull fails, and the next one is not in the way of what is left.
    registry.fault(&path, Fault::Cut(1 << 20), 1);
    registry.fault(&path, Fault::Cut(0), 1000);
    let error = scene.pull(&name).refused();
    assert!(error.contains("broke off") && error.trim_end().ends_with("unavailable"), "{error}");
    registry.heal();
    scene.pull(&name).ok();
    scene.daemon.go_ctr(&["images", "rm", "--sync", &name]).ok();
    scene.is_clean("after everything");
}

#[test]
fn requests_that_cannot_be_right() {
    if skip_without(&NEEDED) {
        return;
    }
    let scene = Scene::new();
    let daemon = &scene.daemon;
    let long = format!("key={}", "x".repeat(4096));
    let both = |args: &[&str], why: &str, kind: &str| {
        for (out, whose) in [(daemon.ctr(args), "ours"), (daemon.go_ctr(args), "Go's")] {
            let error = out.refused();
            assert!(error.contains("ctr: ") && error.contains(why), "{whose} {args:.40?}: {error:.400}");
            assert!(error.trim_end().ends_with(kind), "{whose} {args:.40?}: {error:.400}");
        }
        scene.is_clean(&format!("{args:.60?}"));
    };
    let rootfs = scene.world.dir().join("rootfs").display().to_string();
    std::fs::create_dir(&rootfs).unwrap();
    both(&["containers", "create", "--rootfs", &rootfs, "a/b"], "a/b", "invalid argument");
    both(&["namespaces", "create", "a/b"], "a/b", "invalid argument");
    both(&["namespaces", "create", "ns", &long], "4096", "invalid argument");
    both(&["containers", "create", "--label", &long, "--rootfs", &rootfs, "c"], "4096", "invalid argument");
    both(&["leases", "ls", "id==="], "filter", "invalid argument");
    both(&["containers", "ls", "labels.\"open=="], "", "invalid argument");
    both(&["images", "ls", "name~=("], "", "invalid argument");
    both(&["containers", "info", "nothing"], "nothing", "not found");
    both(&["run", "--rootfs", &rootfs, "a/b", "/bin/true"], "a/b", "invalid argument");
}

#[test]
fn a_runtime_that_is_not_there() {
    if skip_without(&NEEDED) {
        return;
    }
    let scene = Scene::new();
    let id = unique("c");
    let rootfs = scene.world.dir().join("rootfs").display().to_string();
    std::fs::create_dir(&rootfs).unwrap();
    let run = |runtime: &str| {
        let args = ["run", "--rm", "--runtime", runtime, "--rootfs", &rootfs, &id, "/bin/true"];
        [scene.daemon.ctr(&args), scene.daemon.go_ctr(&args)]
    };
    for runtime in ["io.containerd.missing.v9", "/no/such/shim", "a/../b", "nodots"] {
        for out in run(runtime) {
            let error = out.refused();
            assert!(error.contains(runtime.rsplit('/').next().unwrap()) || error.contains("runtime"), "{error}");
            scene.daemon.go_ctr(&["containers", "rm", &id]);
        }
        scene.is_clean(runtime);
    }
}

#[test]
fn sockets_that_cannot_be_used() {
    if skip_without(&["setpriv"]) {
        return;
    }
    let scene = Scene::new();
    let fail = |command: &mut Command, why: &str| {
        let start = Instant::now();
        let error = Output::of(command).refused();
        assert!(error.contains(why), "{error}");
        assert!(start.elapsed().as_secs() < 30);
    };
    let ctr = Daemon::programs().join("ctr");
    let nowhere = scene.world.dir().join("nowhere.sock");
    fail(Command::new(&ctr).arg("--address").arg(&nowhere).arg("version"), &nowhere.display().to_string());
    // A copy, since the build's directory may be closed to others.
    use std::os::unix::fs::PermissionsExt;
    let copy = scene.world.dir().join("ctr");
    std::fs::copy(&ctr, &copy).unwrap();
    std::fs::set_permissions(scene.world.dir(), PermissionsExt::from_mode(0o755)).unwrap();
    let mut nobody = Command::new("setpriv");
    nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy);
    fail(nobody.arg("--address").arg(scene.daemon.address()).arg("version"), "ermission denied");
    scene.is_clean("after clients that did not get in");
}
