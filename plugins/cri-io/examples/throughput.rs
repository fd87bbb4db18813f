//! Measures how fast output goes from a FIFO to a log: `throughput <directory> [<line length> [<MiB>]]`.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::{fs::File, io::Write, path::PathBuf, time::Instant};

use plugin_cri_io::{ContainerIo, IoOptions};

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().unwrap_or_else(|| "/tmp".into()));
    let mut number = |default| arguments.next().map_or(default, |text| text.parse().unwrap());
    let (line, mib): (usize, usize) = (number(100), number(512));
    let fifos = directory.join(format!("throughput-{}", std::process::id()));
    let log = directory.join(format!("throughput-{}.log", std::process::id()));
    let io = ContainerIo::create(&fifos, "c", IoOptions::default()).await.unwrap();
    io.start_log(Some(&log)).await.unwrap();
    let mut output = File::options().write(true).open(io.streams().stdout).unwrap();
    let error = File::options().write(true).open(io.streams().stderr).unwrap();
    let text = [vec![b'x'; line.saturating_sub(1)], b"\n".to_vec()].concat().repeat((1 << 20) / line.max(1));
    let start = Instant::now();
    let writer = std::thread::spawn(move || {
        for _ in 0..mib {
            output.write_all(&text).unwrap();
        }
        drop((output, error));
    });
    io.finished().await;
    let seconds = start.elapsed().as_secs_f64();
    writer.join().unwrap();
    let size = std::fs::metadata(&log).unwrap().len();
    println!(
        "lines of {line} bytes: {:.0} MB/s of output, {:.0} MB/s of log",
        (mib << 20) as f64 / seconds / 1e6,
        size as f64 / seconds / 1e6
    );
    io.close().await;
    std::fs::remove_file(log).unwrap();
}
