//! Extracts a layer onto a directory: `unpack <layer> <directory>`.

use std::{error::Error, fs::File, io::Write, path::Path};

use core_archive::{ApplyOptions, apply};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [layer, directory] = arguments.as_slice() else { return Err("usage: unpack <layer> <directory>".into()) };
    let applied = apply(Path::new(directory), File::open(layer)?, &ApplyOptions::default())?;
    writeln!(std::io::stdout(), "{} ({} bytes)", applied.diff_id, applied.size)?;
    Ok(())
}
