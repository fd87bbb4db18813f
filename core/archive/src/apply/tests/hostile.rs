use super::*;

/// A root in a directory with something outside that must not change.
struct Jail(tempfile::TempDir);

impl Jail {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        fs::create_dir(dir.path().join("outside")).unwrap();
        fs::write(dir.path().join("outside/secret"), "untouched").unwrap();
        Self(dir)
    }

    fn root(&self) -> std::path::PathBuf {
        self.0.path().join("root")
    }

    fn outside(&self) -> String {
        self.0.path().join("outside").to_str().unwrap().to_owned()
    }

    /// Applies in both ways and checks what is outside.
    fn apply(&self, layer: &[u8]) -> Result<Applied> {
        let before = tree(&self.0.path().join("outside"));
        if is_root() {
            let root = self.0.path().join("overlay");
            fs::create_dir(&root).unwrap();
            let _ = apply_overlay(&root, layer);
            assert_eq!(before, tree(&self.0.path().join("outside")));
        }
        let result = apply_plain(&self.root(), layer);
        assert_eq!(before, tree(&self.0.path().join("outside")));
        assert_eq!(fs::read_dir(self.0.path()).unwrap().count(), if is_root() { 3 } else { 2 });
        result
    }
}

fn refused(layer: &[u8]) {
    let error = core_types::Error::from(Jail::new().apply(layer).unwrap_err());
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

#[test]
fn names_that_lead_out_are_refused() {
    refused(&Layer::new().file("../outside/new", "x").done());
    refused(&Layer::new().file("a/../../outside/secret", "x").done());
    refused(&Layer::new().dir("..", 0o777).done());
    refused(&Layer::new().file("../outside/.wh.secret", "").done());
    refused(&Layer::new().file(".wh...", "").done());
    refused(&Layer::new().file(".wh..", "").done());
    refused(&Layer::new().hard_link("h", "../outside/secret").done());
    refused(&Layer::new().hard_link("h", "missing").done());
    refused(&Layer::new().dir("d", 0o755).hard_link("h", "d").done());
    refused(&Layer::new().hard_link("h", "/").done());
    refused(&Layer::new().file("f", "x").file("f/below", "x").done());
    refused(&Layer::new().file(&"d/".repeat(2100), "x").done());
}

#[test]
fn absolute_names_stay_inside() {
    let jail = Jail::new();
    let name = format!("{}/secret", jail.outside());
    jail.apply(&Layer::new().file(&name, "new").done()).unwrap();
    assert_eq!(fs::read_to_string(jail.root().join(&name[1..])).unwrap(), "new");
}

#[test]
fn links_on_the_way_are_followed_inside() {
    let jail = Jail::new();
    let up = "../".repeat(20);
    let layer = Layer::new()
        .symlink("abs", &jail.outside())
        .symlink("rel", &format!("{up}{}", jail.outside()))
        .symlink("up", &up)
        .file("abs/secret", "a")
        .file("rel/other", "r")
        .file("abs/.wh.nothing", "")
        .file("up/top", "t")
        .file("up/.wh..wh..opq", "")
        .done();
    jail.apply(&layer).unwrap();
    let inside = jail.root().join(&jail.outside()[1..]);
    assert_eq!(fs::read_to_string(inside.join("secret")).unwrap(), "a");
    assert_eq!(fs::read_to_string(inside.join("other")).unwrap(), "r");
    assert_eq!(fs::read_to_string(jail.root().join("top")).unwrap(), "t");
}

#[test]
fn hard_links_through_links_reach_nothing_outside() {
    let jail = Jail::new();
    let layer = Layer::new().symlink("out", &jail.outside()).hard_link("h", "out/secret").done();
    assert!(jail.apply(&layer).is_err());
    let jail = Jail::new();
    let secret = format!("{}/secret", jail.outside());
    let layer = Layer::new().symlink("s", &secret).hard_link("h", "s").file("h", "overwritten").file("s", "too").done();
    jail.apply(&layer).unwrap();
    assert_eq!(fs::read_to_string(jail.root().join("h")).unwrap(), "overwritten");
}

#[test]
fn nothing_is_written_through_a_link_that_replaced_a_directory() {
    let jail = Jail::new();
    // The directory is open and known when the link takes its place.
    let layer = Layer::new()
        .dir("a", 0o755)
        .dir("a/b", 0o755)
        .file("a/b/first", "x")
        .symlink("a/b", &jail.outside())
        .file("a/b/secret", "second")
        .symlink("a", &jail.outside())
        .file("a/b/secret", "third")
        .file("a/secret", "fourth")
        .done();
    jail.apply(&layer).unwrap();
    let inside = jail.root().join(&jail.outside()[1..]);
    assert_eq!(fs::read_to_string(inside.join("secret")).unwrap(), "fourth");
    assert_eq!(fs::read_to_string(inside.join("b/secret")).unwrap(), "third");
}

#[test]
fn times_of_a_replaced_directory_go_nowhere() {
    let jail = Jail::new();
    let layer = Layer::new().dir("d/e", 0o755).symlink("d", &jail.outside()).done();
    jail.apply(&layer).unwrap();
}

#[test]
fn loops_and_depths_end() {
    let jail = Jail::new();
    let error = jail.apply(&Layer::new().symlink("a", "b").symlink("b", "a").file("a/x", "x").done()).unwrap_err();
    assert!(error.to_string().contains("a/x"), "{error}");
    // Each link is followed by a deeper one, to leave the limit of a path's length.
    let deep = "d/".repeat(900);
    let layer = Layer::new().dir(&deep, 0o755).symlink("s", &deep).file(&format!("s/{deep}f"), "x").done();
    refused(&layer);
}

#[test]
fn attributes_of_overlay_are_not_for_layers() {
    if !is_root() {
        return;
    }
    let jail = Jail::new();
    let xattrs = vec![
        (b"trusted.overlay.redirect".to_vec(), b"/etc".to_vec()),
        (b"user.overlay.opaque".to_vec(), b"y".to_vec()),
    ];
    let layer = Layer::new().add(&Entry { xattrs, ..entry("d", Kind::Directory) }, b"").done();
    jail.apply(&layer).unwrap();
    assert!(!tree(&jail.root())[Path::new("d")].contains("overlay"));
}

#[test]
fn a_truncated_layer_is_data_loss() {
    let layer = Layer::new().file("f", &"x".repeat(100_000)).done();
    let error = Jail::new().apply(&layer[..50_000]).unwrap_err();
    assert_eq!(core_types::Error::from(error).kind(), ErrorKind::DataLoss);
    let error = Jail::new().apply(&[0x1f, 0x8b, 8, 0, 1, 2, 3]).unwrap_err();
    assert_eq!(core_types::Error::from(error).kind(), ErrorKind::DataLoss);
    let error = Jail::new().apply(b"this is not an archive at all").unwrap_err();
    assert_eq!(core_types::Error::from(error).kind(), ErrorKind::DataLoss);
}
