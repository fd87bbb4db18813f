use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

/// Times of what succeeded, and how much failed.
#[derive(Debug, Default)]
pub(crate) struct Report {
    containers: Vec<Duration>,
    execs: Vec<Duration>,
    failures: usize,
    pub(crate) elapsed: Duration,
}

impl Report {
    /// A container came and went.
    pub(crate) fn container(&mut self, took: Duration) {
        self.containers.push(took);
    }

    /// A process beside the first ran.
    pub(crate) fn exec(&mut self, took: Duration) {
        self.execs.push(took);
    }

    /// Something failed.
    pub(crate) fn failure(&mut self) {
        self.failures += 1;
    }

    /// Adds what another loop measured.
    pub(crate) fn merge(&mut self, other: Self) {
        self.containers.extend(other.containers);
        self.execs.extend(other.execs);
        self.failures += other.failures;
    }

    /// How much failed.
    pub(crate) fn failures(&self) -> usize {
        self.failures
    }

    pub(crate) fn print(&self) {
        println!("ending test run in {:.3} seconds", self.elapsed.as_secs_f64());
        println!(
            "create/start/delete {} containers in {:.3} seconds ({:.3} c/sec), median {:.3} s, slowest {:.3} s, {} failures",
            self.containers.len(),
            self.elapsed.as_secs_f64(),
            self.per_second(),
            median(&self.containers),
            slowest(&self.containers),
            self.failures,
        );
        if !self.execs.is_empty() {
            println!("{} execs, median {:.3} s", self.execs.len(), median(&self.execs));
        }
    }

    pub(crate) fn print_json(&self) -> Result<()> {
        println!("{}", serde_json::to_string(&self.to_json())?);
        Ok(())
    }

    fn to_json(&self) -> Value {
        json!({
            "total": self.containers.len(),
            "seconds": self.elapsed.as_secs_f64(),
            "containersPerSecond": self.per_second(),
            "secondsPerContainer": if self.containers.is_empty() { 0.0 } else { 1.0 / self.per_second() },
            "median": median(&self.containers),
            "slowest": slowest(&self.containers),
            "execTotal": self.execs.len(),
            "execMedian": median(&self.execs),
            "failures": self.failures,
        })
    }

    fn per_second(&self) -> f64 {
        let count = u32::try_from(self.containers.len()).unwrap_or(u32::MAX);
        f64::from(count) / self.elapsed.as_secs_f64().max(0.001)
    }
}

/// Seconds of the middle one; 0 for none.
fn median(times: &[Duration]) -> f64 {
    let mut times = times.to_vec();
    times.sort();
    times.get(times.len() / 2).map_or(0.0, Duration::as_secs_f64)
}

/// Seconds of the slowest one; 0 for none.
fn slowest(times: &[Duration]) -> f64 {
    times.iter().max().map_or(0.0, Duration::as_secs_f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_add_up() {
        let mut all = Report { elapsed: Duration::from_secs(2), ..Report::default() };
        let mut one = Report::default();
        one.container(Duration::from_millis(100));
        one.container(Duration::from_millis(300));
        one.failure();
        all.merge(one);
        all.container(Duration::from_millis(200));
        let json = all.to_json();
        assert_eq!(json["total"], 3);
        assert_eq!(json["failures"], 1);
        assert_eq!(json["median"], 0.2);
        assert_eq!(json["containersPerSecond"], 1.5);
    }

    #[test]
    fn nothing_done_divides_nothing() {
        let json = Report::default().to_json();
        assert_eq!(json["secondsPerContainer"], 0.0);
        assert_eq!(json["median"], 0.0);
    }
}
