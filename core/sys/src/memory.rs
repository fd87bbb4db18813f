#![allow(unsafe_code)]

/// Gives freed heap memory back to the kernel; for after a burst. Does nothing where the C library cannot.
pub fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes the allocator's own locks and moves no live allocation.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Lets the allocator make at most `count` arenas, so that threads do not each keep memory of their own.
/// Takes effect for arenas not yet made: call it first thing in `main`.
pub fn limit_arenas(count: u16) {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt sets a number in the allocator.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, i32::from(count));
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = count;
}

/// Gives the memory of program pages that were only read back to the kernel: code that ran once at the start need not stay
/// resident. What is used again is found in the page cache. Returns how many bytes were resident in what was given back.
///
/// # Errors
/// What reading `/proc/self/smaps` says.
pub fn release_program_pages() -> std::io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps")?;
    let mut released = 0;
    for mapping in clean_file_mappings(&text) {
        // SAFETY: the range is one whole mapping of a file, private, never writable and without a page of its own (no
        // anonymous and no dirty memory), so the kernel reads the same bytes from the file at the next access. Such
        // mappings of program and libraries are neither moved nor unmapped while the program runs.
        let done = unsafe { libc::madvise(mapping.start as *mut libc::c_void, mapping.length, libc::MADV_DONTNEED) };
        if done == 0 {
            released += mapping.resident;
        }
    }
    Ok(released)
}

/// A mapping of a file that has nothing of its own.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    start: usize,
    length: usize,
    resident: u64,
}

/// The read-only private mappings of program files in the text of `smaps` that have no page of their own.
fn clean_file_mappings(text: &str) -> Vec<Mapping> {
    let mut found = Vec::new();
    let mut current: Option<Mapping> = None;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(first), second) = (words.next(), words.next()) else { continue };
        match first.strip_suffix(':') {
            // A field of the mapping above.
            Some(field) => {
                let kib: u64 = second.and_then(|number| number.parse().ok()).unwrap_or(0);
                match field {
                    "Rss" => {
                        if let Some(mapping) = &mut current {
                            mapping.resident = kib * 1024;
                        }
                    }
                    "Private_Dirty" | "Shared_Dirty" | "Anonymous" | "Swap" | "Locked" if kib > 0 => current = None,
                    _ => {}
                }
            }
            // The head of the next: range, permissions, offset, device, inode, path.
            None => {
                found.extend(current.take());
                let path = words.nth(3).unwrap_or_default();
                let program = path.starts_with('/') && !path.starts_with("/dev/");
                if program && matches!(second, Some("r-xp" | "r--p")) {
                    current = range(first).map(|(start, length)| Mapping { start, length, resident: 0 });
                }
            }
        }
    }
    found.extend(current);
    found
}

fn range(text: &str) -> Option<(usize, usize)> {
    let (start, end) = text.split_once('-')?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    Some((start, end.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clean_read_only_mappings_of_files_are_given_back() {
        let text = "\
5500-5600 r--p 00000000 fd:00 17 /usr/bin/program
Rss:                   4 kB
Private_Dirty:         0 kB
Anonymous:             0 kB
5600-5800 r-xp 00001000 fd:00 17 /usr/bin/program
Rss:                   8 kB
Anonymous:             0 kB
5800-5900 r--p 00002000 fd:00 17 /usr/bin/program
Rss:                   4 kB
Private_Dirty:         4 kB
Anonymous:             4 kB
5900-5a00 rw-p 00003000 fd:00 17 /usr/bin/program
Rss:                   4 kB
6000-7000 r--p 00000000 00:00 0
Rss:                   4 kB
7000-8000 r-xp 00000000 00:00 0 [vdso]
Rss:                   4 kB
8000-9000 r--s 00000000 fd:00 18 /var/lib/data.mdb
Rss:                   4 kB
";
        let found = clean_file_mappings(text);
        let ranges: Vec<_> = found.iter().map(|mapping| (mapping.start, mapping.length, mapping.resident)).collect();
        assert_eq!(ranges, [(0x5500, 0x100, 4096), (0x5600, 0x200, 8192)]);
    }

    #[test]
    fn the_program_goes_on_with_less_memory() {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
            let line = text.lines().find(|line| line.starts_with("Rss:")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
        };
        let before = resident();
        let released = release_program_pages().unwrap();
        assert!(released > 0 && resident() < before, "{released} of {before}");
    }
}
