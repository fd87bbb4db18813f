use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use containerd_sdk::api::{
    any,
    cgroups::{v1, v2},
};
use prost_types::Any;
use serde_json::{Map, Value};

use crate::{
    context::Context,
    output::{self, Table},
};

/// Names of the messages with metrics.
const V1: &str = "io.containerd.cgroups.v1.Metrics";
const V2: &str = "io.containerd.cgroups.v2.Metrics";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// Get a single data point of metrics for a task.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// "table" or "json"
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// Id of the container
    container: Option<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let id = super::required(args.container)?;
    let metric = super::task(&context.client().await?, &id).await?.metrics().await?;
    let rows = rows(metric.data.as_ref().context("the metrics are empty")?)?;
    if args.format == Format::Json {
        let values: Map<String, Value> = rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        return output::json(&Value::Object(values));
    }
    let mut table = Table::new(1, 4);
    table.row(["ID", "TIMESTAMP"]);
    table.row([metric.id, metric.timestamp.map(|time| time.to_string()).unwrap_or_default()]);
    table.open_row([""]);
    table.row(["METRIC", "VALUE"]);
    for (name, value) in rows {
        table.row([name.to_owned(), value.to_string()]);
    }
    table.print()
}

fn rows(data: &Any) -> Result<Vec<(&'static str, Value)>> {
    if any::is(data, V2) {
        return Ok(rows_v2(&any::unpack(V2, data)?));
    }
    if any::is(data, V1) {
        return Ok(rows_v1(&any::unpack(V1, data)?));
    }
    bail!("cannot show metrics of type {}", data.type_url)
}

fn rows_v2(metrics: &v2::Metrics) -> Vec<(&'static str, Value)> {
    let mut rows: Vec<(&'static str, Value)> = Vec::new();
    if let Some(pids) = &metrics.pids {
        rows.push(("pids.current", pids.current.into()));
        rows.push(("pids.limit", pids.limit.into()));
    }
    if let Some(cpu) = &metrics.cpu {
        rows.push(("cpu.usage_usec", cpu.usage_usec.into()));
        rows.push(("cpu.user_usec", cpu.user_usec.into()));
        rows.push(("cpu.system_usec", cpu.system_usec.into()));
        rows.push(("cpu.nr_periods", cpu.nr_periods.into()));
        rows.push(("cpu.nr_throttled", cpu.nr_throttled.into()));
        rows.push(("cpu.throttled_usec", cpu.throttled_usec.into()));
    }
    if let Some(memory) = &metrics.memory {
        rows.push(("memory.usage", memory.usage.into()));
        rows.push(("memory.usage_limit", memory.usage_limit.into()));
        rows.push(("memory.swap_usage", memory.swap_usage.into()));
        rows.push(("memory.swap_limit", memory.swap_limit.into()));
    }
    rows
}

fn rows_v1(metrics: &v1::Metrics) -> Vec<(&'static str, Value)> {
    let mut rows: Vec<(&'static str, Value)> = Vec::new();
    if let Some(memory) = &metrics.memory {
        if let Some(usage) = &memory.usage {
            rows.push(("memory.usage_in_bytes", usage.usage.into()));
            rows.push(("memory.limit_in_bytes", usage.limit.into()));
        }
        rows.push(("memory.stat.cache", memory.total_cache.into()));
    }
    if let Some(usage) = metrics.cpu.as_ref().and_then(|cpu| cpu.usage.as_ref()) {
        rows.push(("cpuacct.usage", usage.total.into()));
        rows.push(("cpuacct.usage_percpu", usage.per_cpu.clone().into()));
    }
    if let Some(pids) = &metrics.pids {
        rows.push(("pids.current", pids.current.into()));
        rows.push(("pids.limit", pids.limit.into()));
    }
    rows
}
