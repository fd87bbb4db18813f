//! Log lines as containerd writes them, in text (`time="…" level=info msg="…" key=value`) or JSON.

use std::{fmt, io};

use anyhow::bail;
use serde_json::{Map, Value};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

/// Crates whose own chatter helps only those who debug them.
const QUIET: [&str; 5] = ["h2", "hyper", "hyper_util", "tower", "tonic"];

/// Starts logging to standard error. Empty words mean `info` and `text`.
///
/// # Errors
/// When a word is not known.
pub(crate) fn start(level: &str, format: &str) -> anyhow::Result<()> {
    let level = match level {
        "" | "info" => LevelFilter::INFO,
        "trace" => LevelFilter::TRACE,
        "debug" => LevelFilter::DEBUG,
        "warn" | "warning" => LevelFilter::WARN,
        "error" | "fatal" | "panic" => LevelFilter::ERROR,
        other => bail!("unknown log level {other:?}: use trace, debug, info, warn, error, fatal or panic"),
    };
    let json = match format {
        "" | "text" => false,
        "json" => true,
        other => bail!("unknown log format {other:?}: use text or json"),
    };
    let quiet = QUIET.map(|target| (target, level.min(LevelFilter::WARN)));
    let layer = tracing_subscriber::fmt::layer().with_writer(io::stderr).event_format(Lines { json });
    tracing_subscriber::registry()
        .with(Targets::new().with_default(level).with_targets(quiet))
        .with(layer)
        .try_init()?;
    Ok(())
}

struct Lines {
    json: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let time = OffsetDateTime::now_utc().format(&Rfc3339).map_err(|_| fmt::Error)?;
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        };
        let mut fields = Fields::default();
        event.record(&mut fields);
        if self.json { fields.json(writer, &time, level) } else { fields.text(writer, &time, level) }
    }
}

/// The fields of one event.
#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => {
                self.others.insert(name.strip_prefix("r#").unwrap_or(name).to_owned(), value);
            }
        }
    }

    fn text(self, mut writer: Writer<'_>, time: &str, level: &str) -> fmt::Result {
        write!(writer, "time={time:?} level={level} msg={:?}", self.message)?;
        for (key, value) in &self.others {
            match value {
                Value::String(text) if plain(text) => write!(writer, " {key}={text}")?,
                Value::String(text) => write!(writer, " {key}={text:?}")?,
                other => write!(writer, " {key}={other}")?,
            }
        }
        writeln!(writer)
    }

    fn json(mut self, mut writer: Writer<'_>, time: &str, level: &str) -> fmt::Result {
        for (key, value) in [("level", level), ("msg", self.message.as_str()), ("time", time)] {
            self.others.insert(key.to_owned(), value.into());
        }
        writeln!(writer, "{}", Value::Object(self.others))
    }
}

/// Whether a value can stand without quotes.
fn plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._/@^+:".contains(&byte))
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(data);
            Ok(data.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Sink {
        type Writer = Sink;
        fn make_writer(&self) -> Sink {
            self.clone()
        }
    }

    fn line(json: bool) -> String {
        let sink = Sink::default();
        let layer = tracing_subscriber::fmt::layer().with_writer(sink.clone()).event_format(Lines { json });
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::warn!(id = "io.x", r#type = %"a b", count = 3, "it \"broke\"");
        });
        String::from_utf8(sink.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn text_has_containerds_fields() {
        let line = line(false);
        let (time, rest) = line.split_once(" level=").unwrap();
        assert!(time.starts_with("time=\"20") && time.ends_with("Z\""), "{time}");
        assert_eq!(rest, "warning msg=\"it \\\"broke\\\"\" id=io.x type=\"a b\" count=3\n");
    }

    #[test]
    fn json_is_one_object_a_line() {
        let value: Value = serde_json::from_str(&line(true)).unwrap();
        assert_eq!(value["level"], "warning");
        assert_eq!(value["msg"], "it \"broke\"");
        assert_eq!(value["count"], 3);
        assert!(value["time"].as_str().unwrap().ends_with('Z'));
    }
}
