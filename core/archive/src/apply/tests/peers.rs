use super::*;

/// A tree of everything, in `src`.
const MAKE_TREE: &str = r"
    mkdir src; cd src
    mkdir -p d/sub empty; chmod 1777 d; chmod 2750 d/sub
    echo hello > d/file; ln d/file d/hard; ln -s ../d/file d/sub/soft; ln -s /abs/olute abs
    echo suid > suid; chown 3000000:2500000 suid; chmod 6755 suid
    mkfifo pipe; mknod null c 1 3; mknod disk b 7 70000
    long=$(printf 'n%.0s' $(seq 1 90)); mkdir -p $long/$long; echo x > $long/$long/f; ln -s $long/$long/f $long/soft
    ln $long/$long/f $long/hard
    printf 'héllo\nworld' > 'ünï cödé'
    dd if=/dev/urandom of=random bs=1000 count=777 status=none
    truncate -s 20M sparse; for at in 0 1000000 5000001 19999990; do echo data | dd of=sparse bs=1 seek=$at conv=notrunc status=none; done
    truncate -s 3M hole
    touch -d '1969-12-31 23:59:58.25 UTC' old; touch -d '2001-02-03 04:05:06.123456789' random d/sub d
";

fn compare_with_tar(create: &str, extract: &str) {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let make = format!(
        "{MAKE_TREE}\n(setfattr -n user.k -v '0x000a3d' random; setfattr -n user.d -v dir d/sub; \
         setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 d/file) || true\n\
         cd ..; mkdir tar ours; tar {create} --numeric-owner --sort=name -C src -cf layer.tar .; \
         tar {extract} --numeric-owner -p -C tar -xf layer.tar"
    );
    if !script(&["tar", "setfattr"], dir.path(), &make) {
        return;
    }
    let layer = fs::read(dir.path().join("layer.tar")).unwrap();
    apply_plain(&dir.path().join("ours"), &layer).unwrap();
    let (theirs, ours) = (tree(&dir.path().join("tar")), tree(&dir.path().join("ours")));
    assert!(ours.len() > 20);
    assert_eq!(ours, theirs, "{create}");
    let blocks = |name: &str| std::os::unix::fs::MetadataExt::blocks(&fs::metadata(dir.path().join(name)).unwrap());
    if create.contains("sparse") {
        assert!(blocks("ours/sparse") < 400 && blocks("ours/hole") < 8);
    }
}

#[test]
fn gnu_tar_makes_the_same_of_pax_archives() {
    let xattrs = "--xattrs --xattrs-include=*";
    for version in ["0.0", "0.1", "1.0"] {
        compare_with_tar(&format!("--format=pax {xattrs} --sparse --sparse-version={version}"), xattrs);
    }
}

#[test]
fn gnu_tar_makes_the_same_of_its_own_format() {
    compare_with_tar("--format=gnu --sparse", "");
}

#[test]
fn a_tebibyte_of_holes_is_a_tebibyte_of_holes() {
    let dir = tempfile::tempdir().unwrap();
    let make = "truncate -s 1T big; echo end | dd of=big bs=1 seek=1000000000000 conv=notrunc status=none
        mkdir ours; tar --format=pax --sparse --hole-detection=seek -cf layer.tar big";
    let made = std::process::Command::new("sh").args(["-ec", make]).current_dir(dir.path()).status().unwrap();
    if !made.success() {
        eprintln!("skipped: no file of a tebibyte here");
        return;
    }
    let layer = fs::read(dir.path().join("layer.tar")).unwrap();
    apply_plain(&dir.path().join("ours"), &layer).unwrap();
    let meta = fs::metadata(dir.path().join("ours/big")).unwrap();
    assert_eq!(meta.len(), 1 << 40);
    assert!(std::os::unix::fs::MetadataExt::blocks(&meta) < 64);
    let mut found = [0; 4];
    let file = fs::File::open(dir.path().join("ours/big")).unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 1_000_000_000_000).unwrap();
    assert_eq!(&found, b"end\n");
}

#[test]
fn umoci_makes_the_same_of_two_layers() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let first = Layer::new()
        .dir("d", 0o755)
        .file("d/old", "1")
        .file("d/deep/er", "1")
        .file("gone", "1")
        .dir("tree", 0o755)
        .file("tree/a", "1")
        .file("replaced", "1")
        .dir("usr", 0o755)
        .dir("usr/lib", 0o755)
        .symlink("lib", "usr/lib")
        .done();
    let second = Layer::new()
        .dir("d", 0o711)
        .file("d/.wh..wh..opq", "")
        .file("d/new", "2")
        .file(".wh.gone", "")
        .file(".wh.tree", "")
        .symlink("replaced", "d/new")
        .file("lib/through", "2")
        .hard_link("d/hard", "d/new")
        .done();
    fs::write(dir.path().join("1.tar"), &first).unwrap();
    fs::write(dir.path().join("2.tar"), &second).unwrap();
    fs::create_dir(dir.path().join("ours")).unwrap();
    let unpack = "umoci init --layout oci; umoci new --image oci:t
        umoci raw add-layer --image oci:t 1.tar; umoci raw add-layer --image oci:t 2.tar
        umoci raw unpack --image oci:t theirs";
    if !script(&["umoci"], dir.path(), unpack) {
        return;
    }
    for layer in [first, second] {
        apply_plain(&dir.path().join("ours"), &layer).unwrap();
    }
    assert_eq!(shown_tree(&dir.path().join("ours")), shown_tree(&dir.path().join("theirs")));
}
