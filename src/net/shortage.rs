//! Recognizes errors of the operating system that mean that this machine has run out of something. Such an error may end
//! without an operator, and concerns neither an event nor the other side of a connection.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, ErrorKind};

/// `EMFILE` and `ENFILE`, which have the same numbers on all Unix systems. [`ErrorKind`] does not distinguish them.
const TOO_MANY_FILES: [i32; 2] = [24, 23];

/// A resource that this process or the machine lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// Descriptors: this process, or the machine, has too many open files and connections.
    Descriptors,
    /// Memory or threads.
    Memory,
    /// Space for files: the disk or the quota is full, or a file has reached `ulimit -f`.
    Space,
}

impl Shortage {
    /// Finds the first shortage among an error and its causes.
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            let system_error = error.downcast_ref::<io::Error>();
            if let Some(shortage) = system_error.and_then(Self::of_system_error) {
                return Some(shortage);
            }
            // The source of an I/O error that wraps another error is the source of the wrapped error.
            let wrapped = system_error.and_then(io::Error::get_ref).map(|wrapped| wrapped as &(dyn Error + 'static));
            next = wrapped.or_else(|| error.source());
        }
        None
    }

    /// Whether no descriptor is free at the moment, for the errors of libraries that do not contain the system's error.
    pub fn of_descriptors_now() -> Option<Self> {
        File::open("/").err().and_then(|error| Self::of(&error))
    }

    fn of_system_error(error: &io::Error) -> Option<Self> {
        let number = error.raw_os_error();
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => Some(Self::Space),
            ErrorKind::OutOfMemory => Some(Self::Memory),
            // The system reports `EAGAIN` if no thread can be started. A lock that is taken has the same kind, but no number.
            ErrorKind::WouldBlock if number.is_some() => Some(Self::Memory),
            _ if number.is_some_and(|number| TOO_MANY_FILES.contains(&number)) => Some(Self::Descriptors),
            _ => None,
        }
    }

    /// The advice for an operator, for the end of a message.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Descriptors => "; too many files and connections are open: raise the limit (LimitNOFILE, ulimit -n)",
            Self::Memory => "; the machine has no free memory or threads",
            Self::Space => "; make room on the disk, or raise the quota or ulimit -f",
        }
    }
}

/// How many descriptors this process can have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorLimits {
    /// The limit in force.
    pub soft: u64,
    /// The highest limit that the process can set. The daemon sets it at its start.
    pub hard: u64,
}

impl DescriptorLimits {
    /// The limits of this process. `None` if the system does not have them in `/proc`.
    pub fn now() -> Option<Self> {
        Self::read(&fs::read_to_string("/proc/self/limits").ok()?)
    }

    fn read(limits: &str) -> Option<Self> {
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        let mut numbers = line.split_whitespace().map(|number| number.parse().unwrap_or(u64::MAX));
        Some(Self { soft: numbers.next()?, hard: numbers.next()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_read() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax processes  1  2  processes\nMax open files            1024      524288  files\n";
        assert_eq!(DescriptorLimits::read(limits), Some(DescriptorLimits { soft: 1_024, hard: 524_288 }));
        assert_eq!(DescriptorLimits::read("Max open files  unlimited  unlimited  files").unwrap().hard, u64::MAX);
        assert_eq!(DescriptorLimits::read("Max processes  1  2  processes"), None);
        assert!(DescriptorLimits::now().is_some_and(|now| 3 < now.soft && now.soft <= now.hard));
    }

    #[test]
    fn a_shortage_is_found_among_the_causes_of_an_error() {
        let system_error = io::Error::from_raw_os_error;
        for (error, expected) in [
            (system_error(24), Some(Shortage::Descriptors)),
            (system_error(23), Some(Shortage::Descriptors)),
            (system_error(12), Some(Shortage::Memory)),
            (system_error(11), Some(Shortage::Memory)),
            (system_error(28), Some(Shortage::Space)),
            (system_error(122), Some(Shortage::Space)),
            (system_error(27), Some(Shortage::Space)),
            (io::Error::other(io::Error::other(system_error(24))), Some(Shortage::Descriptors)),
            (system_error(5), None),
            (ErrorKind::WouldBlock.into(), None),
            (io::Error::other("Too many open files"), None),
        ] {
            assert_eq!(Shortage::of(&error), expected, "{error}");
        }
    }
}
