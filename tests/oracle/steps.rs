//! The steps of `memcache.txt`: what clients send to a memcached, one piece after the other.

const SCRIPT: &str = include_str!("memcache.txt");

/// Lines up to `--` are sent as one piece. `\n` is written for a line end without CR, `\0` for a
/// NUL.
pub(crate) fn steps() -> impl Iterator<Item = Vec<u8>> {
    SCRIPT.split("\n--\n").map(|step| {
        let lines = step.lines().filter(|line| !line.starts_with('#'));
        let mut bytes = Vec::new();
        for line in lines {
            let line = line.replace("\\0", "\0");
            match line.strip_suffix("\\n") {
                Some(line) => bytes.extend_from_slice(format!("{line}\n").as_bytes()),
                None => bytes.extend_from_slice(format!("{line}\r\n").as_bytes()),
            }
        }
        bytes
    })
}
