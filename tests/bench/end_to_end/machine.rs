//! The machine and the build that are measured.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The variable with the path of another build of the daemon.
const BINARY: &str = "CHANNELD_BENCH_BIN";

pub(crate) fn binary() -> PathBuf {
    std::env::var_os(BINARY).map_or_else(|| env!("CARGO_BIN_EXE_channeld").into(), PathBuf::from)
}

/// A temporary directory on the disk of the build. The system's temporary directory may be in memory.
pub(crate) fn scratch() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().unwrap().get()
}

pub(crate) fn print() {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let value = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(|line| line.trim_start_matches([' ', '\t', ':']).trim().to_owned()).unwrap_or_default()
    };
    let memory =
        value(&read("/proc/meminfo"), "MemTotal").replace(" kB", "").parse().unwrap_or(0.0) / f64::from(1 << 20);
    let version = Command::new(binary()).arg("--version").output().unwrap().stdout;
    println!("{}", String::from_utf8_lossy(&version).trim());
    println!("processor  {}, {} cores", value(&read("/proc/cpuinfo"), "model name"), cores());
    println!("memory     {memory:.0} GiB");
    println!(
        "kernel     {} {}",
        value(&read("/proc/sys/kernel/ostype"), ""),
        value(&read("/proc/sys/kernel/osrelease"), "")
    );
    println!("disk       {}", file_system(Path::new(env!("CARGO_TARGET_TMPDIR"))));
}

/// The type of the file system that contains a path.
fn file_system(path: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let nearest = mounts.filter(|(mount, _)| path.starts_with(mount)).max_by_key(|(mount, _)| mount.len());
    nearest.map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned())
}
