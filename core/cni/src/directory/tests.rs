use super::*;

fn conf(name: &str) -> String {
    format!(r#"{{"name":"{name}","cniVersion":"1.0.0","type":"t"}}"#)
}

fn names(directory: &Directory) -> Vec<String> {
    directory.networks().unwrap().iter().map(|network| network.name.clone()).collect()
}

#[test]
fn files_are_used_in_the_order_of_their_names_up_to_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("20-b.json"), conf("b")).unwrap();
    fs::write(dir.path().join("10-a.conflist"), r#"{"name":"a","plugins":[{"type":"t"}]}"#).unwrap();
    fs::write(dir.path().join("30-c.conf"), conf("c")).unwrap();
    fs::write(dir.path().join("00-other.txt"), "no configuration").unwrap();
    fs::write(dir.path().join("05-half.conflist.tmp"), "{").unwrap();
    assert_eq!(names(&Directory::new(dir.path().into(), 0)), ["a", "b", "c"]);
    assert_eq!(names(&Directory::new(dir.path().into(), 1)), ["a"]);
    assert_eq!(names(&Directory::new(dir.path().into(), 2)), ["a", "b"]);
}

#[test]
fn every_change_is_seen_with_the_next_use() {
    let base = tempfile::tempdir().unwrap();
    let dir = base.path().join("net.d");
    let directory = Directory::new(dir.clone(), 0);
    let error = directory.networks().unwrap_err();
    assert!(matches!(&error, Error::NoConfig { dir: searched } if *searched == dir), "{error}");
    fs::create_dir(&dir).unwrap();
    assert!(matches!(directory.networks(), Err(Error::NoConfig { .. })));
    fs::write(dir.join("10.conf"), conf("a")).unwrap();
    // Twice within one tick of the file system's clock, and of the same size.
    for name in ["b", "c", "d", "e"] {
        fs::write(dir.join("10.conf"), conf(name)).unwrap();
        assert_eq!(names(&directory), [name]);
    }
    fs::write(dir.join("10.conf"), conf("other")).unwrap();
    assert_eq!(names(&directory), ["other"]);
    // Half written, then whole.
    fs::write(dir.join("10.conf"), "{").unwrap();
    let error = directory.networks().unwrap_err();
    assert!(error.to_string().contains("10.conf"), "{error}");
    fs::write(dir.join("10.conf"), conf("whole")).unwrap();
    assert_eq!(names(&directory), ["whole"]);
    // The directory itself is replaced.
    fs::rename(&dir, base.path().join("old")).unwrap();
    assert!(directory.networks().is_err());
    fs::create_dir(&dir).unwrap();
    fs::write(base.path().join("target"), conf("linked")).unwrap();
    std::os::unix::fs::symlink("../target", dir.join("10.conf")).unwrap();
    std::os::unix::fs::symlink("nowhere", dir.join("00.conf")).unwrap();
    assert_eq!(names(&directory), ["linked"]);
}

#[test]
fn plugins_in_files_of_their_own_follow_those_of_the_list() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("a.conflist");
    fs::write(&list, r#"{"name":"a","cniVersion":"1.1.0","plugins":[{"type":"first"}]}"#).unwrap();
    let directory = Directory::new(dir.path().into(), 1);
    assert_eq!(directory.networks().unwrap()[0].plugins.len(), 1);
    fs::create_dir(dir.path().join("a")).unwrap();
    fs::write(dir.path().join("a/10.conf"), r#"{"type":"second"}"#).unwrap();
    let kinds: Vec<_> = directory.networks().unwrap()[0].plugins.iter().map(|plugin| plugin.kind.clone()).collect();
    assert_eq!(kinds, ["first", "second"]);
    fs::write(&list, r#"{"name":"a","loadOnlyInlinedPlugins":true,"plugins":[{"type":"first"}]}"#).unwrap();
    assert_eq!(directory.networks().unwrap()[0].plugins.len(), 1);
}

#[test]
fn hostile_files_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.conf");
    let directory = Directory::new(dir.path().into(), 0);
    fs::write(&path, vec![b' '; FILE as usize + 1]).unwrap();
    assert!(directory.networks().unwrap_err().to_string().contains("larger than"));
    fs::remove_file(&path).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    assert!(directory.networks().unwrap_err().to_string().contains("not a regular file"));
    fs::remove_file(&path).unwrap();
    fs::write(&path, conf("same")).unwrap();
    fs::write(dir.path().join("b.conf"), conf("same")).unwrap();
    assert!(directory.networks().unwrap_err().to_string().contains("another file"));
}

#[test]
fn what_does_not_change_is_not_read_again() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("10.conf"), conf("a")).unwrap();
    let directory = Directory::new(dir.path().into(), 0);
    let begun = std::time::Instant::now();
    while !Arc::ptr_eq(&directory.networks().unwrap(), &directory.networks().unwrap()) {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is read again and again");
        std::thread::sleep(Duration::from_millis(100));
    }
}
