use containerd_api_cri::v1::LinuxContainerResources;
use core_oci::Spec;
use serde_json::{Value, json};

use crate::{Host, Options, ResourceUpdate, Result, SpecError};

/// Longest value that a limit's text may have.
const MAX_TEXT: usize = 4096;

/// Path of a container's cgroup below its pod's: `<parent>/<id>`, and for a slice, which systemd manages,
/// `<slice>:cri-containerd:<id>`.
///
/// # Errors
/// Invalid for a parent with `..` or a zero byte.
pub fn cgroups_path(parent: &str, id: &str) -> Result<String> {
    let bad = parent.contains('\0') || parent.split('/').any(|part| part == "..");
    if bad {
        return Err(SpecError::invalid("sandbox_config.linux.cgroup_parent", format!("{parent:?} is no cgroup path")));
    }
    let parts: Vec<&str> = parent.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    match parts.last() {
        Some(slice) if slice.ends_with(".slice") => Ok(format!("{slice}:cri-containerd:{id}")),
        _ => {
            let root = if parent.starts_with('/') { "/" } else { "" };
            let parts: Vec<&str> = parts.into_iter().chain([id]).collect();
            Ok(format!("{root}{}", parts.join("/")))
        }
    }
}

/// Changes the limits of a container's specification. What the request leaves at zero stays as it is.
///
/// # Errors
/// Invalid or Unsupported with the field in `linux` of the request.
pub fn update_resources(
    spec: &Spec,
    resources: &LinuxContainerResources,
    options: &Options,
    host: &Host,
) -> Result<ResourceUpdate> {
    let mut spec = spec.clone();
    apply(&mut spec, "linux", resources, options, host)?;
    let resources = Value::Object(spec.object(&["linux", "resources"]).clone());
    Ok(ResourceUpdate { spec, resources })
}

/// Sets the limits of a request in a specification; `field` is where the request has them.
pub(crate) fn apply(
    spec: &mut Spec,
    field: &str,
    resources: &LinuxContainerResources,
    options: &Options,
    host: &Host,
) -> Result<()> {
    apply_cpu(spec, field, resources)?;
    apply_memory(spec, field, resources, host)?;
    apply_huge_pages(spec, field, resources, options, host)?;
    for (key, value) in &resources.unified {
        let name = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if !name || key.starts_with('.') || value.len() > MAX_TEXT || value.contains('\0') {
            return Err(SpecError::invalid(
                format!("{field}.unified[{key:?}]"),
                "is no file of a cgroup and its value",
            ));
        }
        spec.object(&["linux", "resources", "unified"]).insert(key.clone(), json!(value));
    }
    Ok(())
}

fn apply_cpu(spec: &mut Spec, field: &str, resources: &LinuxContainerResources) -> Result<()> {
    let at_least_zero = |name: &str, value: i64| match value {
        0.. => Ok(value),
        _ => Err(SpecError::invalid(format!("{field}.{name}"), format!("{value} is negative"))),
    };
    let period = at_least_zero("cpu_period", resources.cpu_period)?;
    let shares = at_least_zero("cpu_shares", resources.cpu_shares)?;
    let sets = [("cpus", "cpuset_cpus", &resources.cpuset_cpus), ("mems", "cpuset_mems", &resources.cpuset_mems)];
    for (_, name, set) in sets {
        if !is_id_list(set) {
            return Err(SpecError::invalid(format!("{field}.{name}"), format!("{set:?} is no list such as `0-2,7`")));
        }
    }
    let cpu = spec.object(&["linux", "resources", "cpu"]);
    for (key, value) in [("period", period), ("quota", resources.cpu_quota), ("shares", shares)] {
        if value != 0 {
            cpu.insert(key.into(), json!(value));
        }
    }
    for (key, _, set) in sets {
        if !set.is_empty() {
            cpu.insert(key.into(), json!(set));
        }
    }
    Ok(())
}

/// Without a limit of its own for swap, the sum of both is the memory limit, so that nothing is swapped.
fn apply_memory(spec: &mut Spec, field: &str, resources: &LinuxContainerResources, host: &Host) -> Result<()> {
    let (limit, swap) = (resources.memory_limit_in_bytes, resources.memory_swap_limit_in_bytes);
    for (name, value) in [("memory_limit_in_bytes", limit), ("memory_swap_limit_in_bytes", swap)] {
        if value < -1 {
            return Err(SpecError::invalid(format!("{field}.{name}"), format!("{value} is below -1 (no limit)")));
        }
    }
    if swap > 0 && (limit < 0 || swap < limit) {
        return Err(SpecError::invalid(
            format!("{field}.memory_swap_limit_in_bytes"),
            format!("{swap} is the sum of memory and swap and cannot be below the memory limit, {limit}"),
        ));
    }
    let memory = spec.object(&["linux", "resources", "memory"]);
    if limit != 0 {
        memory.insert("limit".into(), json!(limit));
    }
    let both = if swap == 0 { limit } else { swap };
    if both != 0 && host.swap_controller {
        memory.insert("swap".into(), json!(both));
    }
    Ok(())
}

fn apply_huge_pages(
    spec: &mut Spec,
    field: &str,
    resources: &LinuxContainerResources,
    options: &Options,
    host: &Host,
) -> Result<()> {
    for (index, limit) in resources.hugepage_limits.iter().enumerate() {
        if !is_page_size(&limit.page_size) {
            let reason = format!("{:?} is no page size such as 2MB", limit.page_size);
            return Err(SpecError::invalid(format!("{field}.hugepage_limits[{index}].page_size"), reason));
        }
    }
    if options.disable_hugetlb_controller || resources.hugepage_limits.is_empty() {
        return Ok(());
    }
    if !host.hugetlb_controller {
        return match options.tolerate_missing_hugetlb_controller {
            true => Ok(()),
            false => Err(SpecError::unsupported(
                format!("{field}.hugepage_limits"),
                "this host has no cgroup controller for huge pages; set tolerate_missing_hugetlb_controller to run \
                 without the limits",
            )),
        };
    }
    let list = spec.list(&["linux", "resources"], "hugepageLimits");
    for limit in &resources.hugepage_limits {
        list.retain(|have| have["pageSize"].as_str() != Some(&limit.page_size));
        list.push(json!({"pageSize": limit.page_size, "limit": limit.limit}));
    }
    Ok(())
}

/// Whether a text is a number and one of the units that the kernel names page sizes with.
fn is_page_size(text: &str) -> bool {
    let number = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = &text[number.len()..];
    !number.is_empty()
        && number.len() < 20
        && number.bytes().all(|byte| byte.is_ascii_digit())
        && matches!(unit, "B" | "KB" | "MB" | "GB" | "TB" | "PB")
}

/// Whether a text is a list of numbers and ranges, or empty.
fn is_id_list(text: &str) -> bool {
    let number = |part: &str| !part.is_empty() && part.len() < 10 && part.bytes().all(|byte| byte.is_ascii_digit());
    text.is_empty()
        || (text.len() <= MAX_TEXT
            && text.trim().split(',').all(|range| range.trim().splitn(2, '-').all(|end| number(end.trim()))))
}

/// Sets the OOM score adjustment; with `restrict`, one below the daemon's own is raised to it.
pub(crate) fn set_oom_score(spec: &mut Spec, field: &str, score: i64, restrict: bool, host: &Host) -> Result<()> {
    let score = i32::try_from(score)
        .ok()
        .filter(|score| (-1000..=1000).contains(score))
        .ok_or_else(|| SpecError::invalid(field, format!("{score} is not between -1000 and 1000")))?;
    spec.set_oom_score_adj(if restrict { score.max(host.oom_score_adj) } else { score });
    Ok(())
}

#[cfg(test)]
mod tests;
