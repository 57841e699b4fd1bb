//! The files in `conf.d` beside the main file. Together with the main file they are one configuration, so that each team can keep
//! its channels and sinks in a file of its own.
//!
//! # Invariants
//!
//! * **One table, one file.** No file overrides another file: a table whose keys are set in two files is a mistake. The order of the
//!   files therefore has no influence on the configuration.
//! * **No file is skipped silently.** A file that cannot be read is a mistake. Only hidden files do not count, because editors and
//!   package managers create them for a short time.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use figment::value::Dict;

use crate::config::key::Key;
use crate::config::problem::ConfigError;

/// The directory beside the main file.
const DIRECTORY: &str = "conf.d";

/// The largest number of files in the directory.
const FILES_LIMIT: usize = 256;

/// Returns the files in `conf.d` beside the main file, in the order of their names. Empty if the directory does not exist.
pub(super) fn paths(main: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let directory = main.with_file_name(DIRECTORY);
    let failed = |error: io::Error| {
        let message = format!("the directory cannot be read: {error}; let channeld's user read it, or remove it");
        ConfigError::of_file(&directory, message)
    };
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if is_fragment(&path) {
            paths.push(path);
        }
    }
    if paths.len() > FILES_LIMIT {
        let message = format!("the directory contains {} files, and {FILES_LIMIT} are allowed; join some", paths.len());
        return Err(ConfigError::of_file(&directory, message));
    }
    paths.sort_unstable();
    Ok(paths)
}

fn is_fragment(path: &Path) -> bool {
    let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    !is_hidden && path.extension().is_some_and(|extension| extension == "toml")
}

/// Returns the tables and keys that two files set, each with the positions of two files that set it.
pub(crate) fn conflicts(files: &[&Dict]) -> BTreeMap<Key, [usize; 2]> {
    let mut found = BTreeMap::new();
    for (later, values) in files.iter().enumerate() {
        for (earlier, others) in files[..later].iter().enumerate() {
            for key in set_twice(&Key::default(), others, values) {
                found.entry(key).or_insert([earlier, later]);
            }
        }
    }
    found
}

/// The tables and keys in this table that two files set. At the top level, two files must not set the same key. In any other table,
/// two files must not both set keys.
fn set_twice(table: &Key, one: &Dict, other: &Dict) -> Vec<Key> {
    let sets_keys = |table: &Dict| table.values().any(|value| value.as_dict().is_none());
    if !table.0.is_empty() && sets_keys(one) && sets_keys(other) {
        return vec![table.clone()];
    }
    let both = one.iter().filter_map(|(name, value)| Some((table.at(name), value, other.get(name)?)));
    let twice = both.flat_map(|(key, one, other)| match (one.as_dict(), other.as_dict()) {
        (Some(one), Some(other)) => set_twice(&key, one, other),
        _ => vec![key],
    });
    twice.collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;
    use crate::config::{Config, ConfigText, Loaded};

    const MAIN: &str = "[api]\napi_key = \"k\"\n[verification]\norg_id = \"org_1\"\n[sinks.out]\ntype = \"stdout\"\n";
    const A: &str = "[channels.a]\nid = \"7c9e6679-7425-40de-944b-e07fc1f90ae7\"\nsinks = [\"out\"]\n";
    const B: &str = "[channels.b]\nid = \"7c9e6679-7425-40de-944b-e07fc1f90ae8\"\nsinks = [\"out\"]\n";

    /// The main file with `MAIN`, and these files in `conf.d`.
    fn written(files: &[(&str, &str)]) -> (TempDir, PathBuf) {
        let directory = TempDir::new().expect("a temporary directory");
        let main = directory.path().join("channeld.toml");
        let fragments = directory.path().join(DIRECTORY);
        fs::create_dir(&fragments).expect("a directory");
        for (path, text) in files.iter().map(|(name, text)| (fragments.join(name), *text)).chain([(main.clone(), MAIN)])
        {
            fs::write(&path, text).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its own");
        }
        (directory, main)
    }

    fn load(main: &Path, variables: &[(&str, &str)]) -> Result<Loaded, ConfigError> {
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        Config::of(ConfigText::read(Some(main))?, variables)
    }

    #[test]
    fn the_files_and_the_environment_are_one_configuration() {
        let files = [
            ("20-b.toml", B),
            ("10-a.toml", A),
            ("30-filter.toml", "[channels.a.filters]\nout = \"failures\"\n[admin]\nlisten = \"\"\n"),
            (".hidden.toml", "not TOML"),
            ("README", "not TOML"),
            ("old.toml.bak", "not TOML"),
        ];
        let (directory, main) = written(&files);
        let loaded = load(&main, &[("CHANNELD_CHANNELS__B__START", "7")]).unwrap_or_else(|error| panic!("{error}"));
        let names: Vec<_> = loaded.config.channels.iter().map(|channel| channel.channel.name.to_string()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!((loaded.config.channels[0].filters.len(), loaded.config.listen), (1, None));
        let order: Vec<_> = loaded.text.0.iter().map(|(path, _)| path.clone()).collect();
        let fragments = ["10-a.toml", "20-b.toml", "30-filter.toml"];
        let expected: Vec<_> = fragments.iter().map(|name| directory.path().join(DIRECTORY).join(name)).collect();
        assert_eq!((&order[0], &order[1..]), (&main, &expected[..]));
    }

    #[test]
    fn a_table_or_key_that_two_files_set_is_a_mistake_that_names_both() {
        for (first, second, key, lines) in [
            (A, "\n[channels.a]\nstart = 7\n", "channels.a", (1, 2)),
            (A, "channels.a.start = 7\n", "channels.a", (1, 1)),
            (A, "[verification]\norg_id = \"org_1\"\n", "verification", (0, 1)),
            ("shutdown_grace = \"5s\"\n", "\n\nshutdown_grace = \"5s\"\n", "shutdown_grace", (1, 3)),
            (A, "channels = 7\n", "channels", (1, 1)),
            (A, "channels = { a = 7 }\n", "channels.a", (1, 1)),
        ] {
            let (directory, main) = written(&[("10.toml", first), ("20.toml", second)]);
            let error = load(&main, &[]).err().unwrap_or_else(|| panic!("{second} was accepted"));
            let named =
                |name: &str, line: usize| format!("file {}, line {line}", directory.path().join(name).display());
            let other = if lines.0 == 0 { named("channeld.toml", 3) } else { named("conf.d/10.toml", lines.0) };
            let problem = error.problems.iter().find(|problem| problem.message.contains(&other));
            let problem = problem.unwrap_or_else(|| panic!("{other} is not in\n{error}"));
            assert_eq!(
                (&*problem.key, problem.origin.clone()),
                (key, Some(named("conf.d/20.toml", lines.1))),
                "{error}"
            );
        }
    }

    #[test]
    fn a_mistake_names_its_file_and_line() {
        let (directory, main) = written(&[("10.toml", A), ("20.toml", &format!("{B}start = \"soon\"\n"))]);
        let error = load(&main, &[]).err().expect("a mistake");
        let file = directory.path().join("conf.d/20.toml");
        assert_eq!(error.problems.len(), 1, "{error}");
        assert_eq!(error.problems[0].origin, Some(format!("file {}, line 4", file.display())));

        let (directory, main) = written(&[("10.toml", "a = 1\nb =\n"), ("15.toml", A), ("20.toml", "[x")]);
        let error = load(&main, &[]).err().expect("two files are not TOML");
        let origins: Vec<_> = error.problems.iter().filter_map(|problem| problem.origin.clone()).collect();
        let expected = ["10.toml", "20.toml"].map(|name| directory.path().join(DIRECTORY).join(name));
        assert_eq!(origins, expected.map(|path| path.display().to_string()));
        assert!(error.problems[0].message.starts_with("line 2: "), "{error}");
    }

    #[test]
    fn what_cannot_be_read_is_not_skipped() {
        let (directory, main) = written(&[("10.toml", A)]);
        std::os::unix::fs::symlink("/nowhere", directory.path().join("conf.d/20.toml")).expect("a link");
        assert!(load(&main, &[]).err().expect("no file").to_string().contains("20.toml"));

        let (directory, main) = written(&[("10.toml", A)]);
        fs::create_dir(directory.path().join("conf.d/20.toml")).expect("a directory");
        assert!(load(&main, &[]).err().expect("no file").to_string().contains("is not a regular file"));

        let (directory, main) = written(&[]);
        fs::remove_dir(directory.path().join(DIRECTORY)).expect("it is empty");
        fs::write(directory.path().join(DIRECTORY), "").expect("a file");
        assert!(load(&main, &[]).err().expect("no directory").to_string().contains("the directory cannot be read"));

        let names: Vec<_> = (0..=FILES_LIMIT).map(|number| format!("{number}.toml")).collect();
        let (_directory, main) = written(&names.iter().map(|name| (&**name, "")).collect::<Vec<_>>());
        assert!(load(&main, &[]).err().expect("too many").to_string().contains("contains 257 files"));
    }
}
