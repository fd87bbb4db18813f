use std::{
    collections::{BTreeMap, HashMap},
    io::{self, IsTerminal as _, Write as _},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use containerd_sdk::{Progress, ProgressSink};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

/// Shows a transfer: bars on a terminal, a line for each change otherwise.
pub(crate) struct Display {
    state: Arc<Mutex<State>>,
}

struct State {
    started: Instant,
    events: HashMap<String, String>,
    done: BTreeMap<String, i64>,
    bars: Option<Bars>,
    to_stderr: bool,
}

struct Bars {
    all: MultiProgress,
    by_name: HashMap<String, ProgressBar>,
}

impl Display {
    /// Shows on standard output.
    pub(crate) fn new() -> Self {
        Self::on(io::stdout().is_terminal(), ProgressDrawTarget::stdout(), false)
    }

    /// Shows on standard error, when standard output is for data.
    pub(crate) fn on_stderr() -> Self {
        Self::on(io::stderr().is_terminal(), ProgressDrawTarget::stderr(), true)
    }

    fn on(terminal: bool, target: ProgressDrawTarget, to_stderr: bool) -> Self {
        let bars = terminal.then(|| Bars { all: MultiProgress::with_draw_target(target), by_name: HashMap::new() });
        let state = State { started: Instant::now(), events: HashMap::new(), done: BTreeMap::new(), bars, to_stderr };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// What takes the steps.
    pub(crate) fn sink(&self) -> ProgressSink {
        let state = Arc::clone(&self.state);
        Box::new(move |step| state.lock().unwrap_or_else(PoisonError::into_inner).step(&step))
    }

    /// Writes the last line.
    pub(crate) fn finish(self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).finish();
    }
}

impl State {
    fn step(&mut self, step: &Progress) {
        if step.progress > 0 {
            self.done.insert(step.name.clone(), step.progress);
        }
        match &mut self.bars {
            Some(bars) => bars.step(step),
            None => self.line(step),
        }
    }

    fn line(&mut self, step: &Progress) {
        if self.events.get(&step.name) == Some(&step.event) {
            return;
        }
        self.events.insert(step.name.clone(), step.event.clone());
        let text = if step.name.is_empty() {
            step.event.clone()
        } else {
            format!("{}\t{}", shown_name(&step.name), step.event)
        };
        self.write(&text);
    }

    fn finish(&mut self) {
        if let Some(bars) = &self.bars {
            for bar in bars.by_name.values() {
                bar.abandon();
            }
        }
        let total: u64 = self.done.values().filter_map(|bytes| u64::try_from(*bytes).ok()).sum();
        let elapsed = self.started.elapsed();
        let rate = rate(total, elapsed);
        self.write(&format!(
            "elapsed: {:.1}s\ttotal: {}\t({}/s)",
            elapsed.as_secs_f64(),
            output::bytes(total),
            output::bytes(rate)
        ));
    }

    fn write(&self, text: &str) {
        // Progress that nobody reads is no reason to stop a transfer.
        let _ = if self.to_stderr { writeln!(io::stderr(), "{text}") } else { writeln!(io::stdout(), "{text}") };
    }
}

impl Bars {
    fn step(&mut self, step: &Progress) {
        let bar = self.by_name.entry(step.name.clone()).or_insert_with(|| {
            let bar = self.all.add(ProgressBar::new(0));
            let template = "{prefix:40!} {msg:12!} {bar:40} {bytes:>10}/{total_bytes}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("+- "));
            }
            bar.set_prefix(shown_name(&step.name));
            bar
        });
        bar.set_message(step.event.clone());
        if step.total > 0 {
            bar.set_length(step.total.unsigned_abs());
            bar.set_position(step.progress.unsigned_abs());
        } else if matches!(step.event.as_str(), "complete" | "extracted" | "done" | "exists") {
            bar.set_position(bar.length().unwrap_or(0));
        }
    }
}

fn rate(total: u64, elapsed: Duration) -> u64 {
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    total.saturating_mul(1000) / millis
}

/// A name with its digests shortened to twelve digits.
fn shown_name(name: &str) -> String {
    let short = |part: &str| match part.strip_prefix("sha256:") {
        Some(hex) if hex.len() == 64 => format!("({})", &hex[..12]),
        _ => part.to_owned(),
    };
    name.split('-').map(short).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_shortened() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        assert_eq!(shown_name(&format!("layer-{digest}")), "layer (abababababab)");
        assert_eq!(shown_name("docker.io/library/x:1"), "docker.io/library/x:1");
    }

    #[test]
    fn rates_survive_no_time_at_all() {
        assert_eq!(rate(10, Duration::ZERO), 10_000);
    }
}
