//! What this machine and this process have and use: name, memory, processor time. It also checks that there is memory for
//! a plan, before the database is touched.

use std::fs;
use std::path::{Path, PathBuf};

use crate::plan::FIXED_MEMORY;
use crate::{Error, Result};

use crate::units::show_bytes;

/// Refuses a pool that does not fit into free memory or the limit of a control group. `beside` are the bytes of codecs
/// and upload parts outside of the pool.
///
/// # Errors
/// One line: asked, available, what to lower.
pub fn check_memory(pool_bytes: u64, buffer_count: usize, transfer_size: u32, beside: u64) -> Result<()> {
    let asked = pool_bytes.saturating_add(beside).saturating_add(FIXED_MEMORY);
    let Some((available, whose)) = available_memory() else { return Ok(()) };
    if asked <= available {
        return Ok(());
    }
    Err(Error::usage(
        "memory",
        format!(
            "{} asked (--buffer-count {buffer_count} × --max-transfer-size {} + {} for codecs and upload parts + {} \
             for the rest), {} available ({whose})",
            show_bytes(asked),
            show_bytes(u64::from(transfer_size)),
            show_bytes(beside),
            show_bytes(FIXED_MEMORY),
            show_bytes(available),
        ),
        if beside > pool_bytes {
            "lower --workers, use a lighter --compression, or use fewer --stripes in a store"
        } else {
            "lower --buffer-count or --max-transfer-size"
        },
    ))
}

/// The smallest of free memory and the room in each control group of this process.
pub fn available_memory() -> Option<(u64, &'static str)> {
    let free = meminfo(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:");
    let free = free.map(|bytes| (bytes, "free memory of the machine"));
    let group = group_rooms().into_iter().min().map(|bytes| (bytes, "limit of the control group"));
    free.into_iter().chain(group).min_by_key(|(bytes, _)| *bytes)
}

/// All memory of the machine in bytes, if the kernel says.
pub fn machine_memory() -> Option<u64> {
    meminfo(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

fn meminfo(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// Room in every control group above this process, for both versions of the interface.
fn group_rooms() -> Vec<u64> {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut rooms = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (root, limit, usage) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
            c if c.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => continue,
        };
        let mut directory = PathBuf::from(root).join(group.trim_start_matches('/'));
        while directory.starts_with(root) {
            rooms.extend(room(&directory, limit, usage));
            if !directory.pop() {
                break;
            }
        }
    }
    rooms
}

fn room(directory: &Path, limit: &str, usage: &str) -> Option<u64> {
    let number = |name: &str| fs::read_to_string(directory.join(name)).ok()?.trim().parse::<u64>().ok();
    let limit = number(limit)?;
    // The kernel can take back the page cache of the group, so only the rest of its use counts.
    let cache = fs::read_to_string(directory.join("memory.stat")).ok().and_then(|text| reclaimable(&text)).unwrap_or(0);
    Some(limit.saturating_sub(number(usage)?.saturating_sub(cache)))
}

fn reclaimable(stat: &str) -> Option<u64> {
    let value =
        |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok());
    value("total_inactive_file").or_else(|| value("inactive_file"))
}

/// The name of this machine.
pub fn host() -> String {
    let said = std::env::var("FULLBORE_HOST").ok().filter(|name| !name.is_empty());
    said.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
}

/// The resources that this process has used.
pub struct Usage {
    /// Greatest resident set.
    pub peak_rss_bytes: u64,
    /// User and system time.
    pub cpu_s: f64,
}

/// The resources that this process has used so far; zeros if /proc does not say.
pub fn process_usage() -> Usage {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).and_then(|rest| rest.trim().strip_suffix("kB"));
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // utime and stime are fields 14 and 15; the name in field 2 may contain anything, so count after its parenthesis.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Usage {
        peak_rss_bytes: peak.and_then(|kib| kib.trim().parse::<u64>().ok()).unwrap_or(0) << 10,
        cpu_s: ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
    }
}

/// Resident bytes of the process now; 0 if the system does not say.
pub fn resident_bytes() -> u64 {
    let said = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = said.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_is_read_in_bytes() {
        let text = "MemTotal: 9 kB\nMemAvailable:    1024 kB\n";
        assert_eq!(
            ["MemTotal:", "MemAvailable:", "None:"].map(|key| meminfo(text, key)),
            [Some(9 << 10), Some(1 << 20), None]
        );
    }

    #[test]
    fn too_large_a_pool_is_refused_with_what_to_lower() {
        let text = check_memory(1 << 20, 1, 1 << 20, 1 << 60).unwrap_err().to_string();
        assert!(text.contains("for codecs") && text.contains("lower --workers"), "the sum counts: {text}");
        let text = check_memory(1 << 60, 1 << 40, 1 << 20, 0).unwrap_err().to_string();
        assert!(
            text.contains("asked") && text.contains("available") && text.contains("lower --buffer-count"),
            "{text}"
        );
    }
}
