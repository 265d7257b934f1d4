//! What memory this process may use: the machine's and the control group's limits.

use std::fs;
use std::path::Path;

/// The lesser of the memory that is available and what the control group leaves; `None` where the system does not say.
#[must_use]
pub fn machine_memory() -> Option<u64> {
    let available = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    let limit = fs::read_to_string("/proc/self/cgroup")
        .ok()
        .and_then(|text| text.lines().filter_map(|line| group_limit(line, |path| fs::read_to_string(path).ok())).min());
    match (available, limit) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// `MemAvailable` of /proc/meminfo.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The least limit on the way from the group of a line of /proc/self/cgroup up to the root.
fn group_limit(line: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|c| c == "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return None,
    };
    let mut limit: Option<u64> = None;
    for at in Path::new(group).ancestors() {
        let path = Path::new(root).join(at.strip_prefix("/").unwrap_or(at)).join(file);
        // "max", or version 1's number beyond any memory, is no limit.
        let here = read(&path).and_then(|text| text.trim().parse::<u64>().ok()).filter(|&n| n < 1 << 60);
        limit = match (limit, here) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    limit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_up_the_tree_counts() {
        let read = |path: &Path| match path.to_str()? {
            "/sys/fs/cgroup/a/b/memory.max" => Some("max\n".to_owned()),
            "/sys/fs/cgroup/a/memory.max" => Some("1000\n".to_owned()),
            "/sys/fs/cgroup/memory/j/memory.limit_in_bytes" => Some("512\n".to_owned()),
            "/sys/fs/cgroup/memory/memory.limit_in_bytes" => Some("9223372036854771712\n".to_owned()),
            _ => None,
        };
        assert_eq!(group_limit("0::/a/b", read), Some(1000));
        assert_eq!(group_limit("4:memory:/j", read), Some(512));
        assert_eq!(group_limit("5:cpu,cpuacct:/j", read), None);
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:    2 kB\n"), Some(2048));
    }
}
