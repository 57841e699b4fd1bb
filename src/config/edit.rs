//! Writes into the operator's configuration files. The comments and the order of the keys are preserved.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, Value};

use super::{Config, ConfigError, ConfigText};
use ::channel::{Expect, SignedField};

/// Why a file was not changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EditError {
    #[error("the file could not be written")]
    Io(#[from] io::Error),
    #[error("the file is not TOML")]
    Toml(#[from] toml_edit::TomlError),
    #[error("no file has a table [channels.{0}]; set the `expect` table where the channel is configured")]
    Elsewhere(String),
    #[error("nothing was written: the configuration would be invalid with the lists: {0}")]
    Wrong(ConfigError),
}

/// Writes the `expect` lists of a channel into the file that configures the channel, `main` or a file in `conf.d` beside it, and
/// changes nothing else. The file is replaced only after the new texts were loaded as a configuration without a mistake. After an
/// error, the file is unchanged.
pub(crate) fn write_expect(
    main: &Path,
    channel: &str,
    expect: &Expect,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<(), EditError> {
    let mut texts = ConfigText::read(Some(main)).map_err(EditError::Wrong)?;
    let edited = texts.0.iter_mut().find_map(|(file, text)| match with_expect(text, channel, expect) {
        Err(EditError::Elsewhere(_)) => None,
        edited => Some(edited.map(|edited| {
            text.clone_from(&edited);
            (file.clone(), edited)
        })),
    });
    let (file, text) = edited.unwrap_or_else(|| Err(EditError::Elsewhere(channel.to_owned())))?;
    // Replace the file itself, not a link to it.
    let file = fs::canonicalize(file)?;
    let mut written = tempfile::NamedTempFile::new_in(file.parent().unwrap_or(Path::new("/")))?;
    written.write_all(text.as_bytes())?;
    let (before, now) = (fs::metadata(&file)?, written.as_file().metadata()?);
    written.as_file().set_permissions(before.permissions())?;
    // The owner stays the same: root can edit a file that belongs to another user.
    if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
        fchown(written.as_file(), Some(before.uid()), Some(before.gid()))?;
    }
    Config::of(texts, environment).map_err(EditError::Wrong)?;
    written.as_file().sync_all()?;
    written.persist(&file).map_err(|error| error.error)?;
    Ok(())
}

fn with_expect(text: &str, channel: &str, expect: &Expect) -> Result<String, EditError> {
    let mut document: DocumentMut = text.parse()?;
    let table = document.get_mut("channels").and_then(Item::as_table_like_mut);
    let table = table.and_then(|channels| channels.get_mut(channel)).filter(|item| item.is_table_like());
    let table = table.ok_or_else(|| EditError::Elsewhere(channel.to_owned()))?;
    if table.get("expect").is_none_or(|item| !item.is_table_like()) {
        table["expect"] = if table.is_inline_table() {
            Item::Value(Value::InlineTable(InlineTable::new()))
        } else {
            let mut new = Table::new();
            new.set_dotted(table.as_table().is_some_and(Table::is_dotted));
            Item::Table(new)
        };
    }
    let lists: &mut dyn TableLike = table["expect"].as_table_like_mut().expect("it was made one");
    for (what, values) in expect.lists() {
        let key = <&str>::from(what);
        match lists.get_mut(key) {
            Some(Item::Value(Value::Array(list))) => add(list, what, values),
            Some(other) => *other = toml_edit::value(values.iter().collect::<Array>()),
            None => drop(lists.insert(key, toml_edit::value(values.iter().collect::<Array>()))),
        }
    }
    Ok(document.to_string())
}

/// Adds the values that are not on a list yet. The rest of the list does not change.
fn add(list: &mut Array, what: SignedField, values: &[String]) {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let known: Vec<_> = list.iter().filter_map(|value| what.canonical(text(value).trim()).ok()).collect();
    values.iter().filter(|value| !known.contains(value)).for_each(|value| list.push(value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edited_lists_keep_the_style_and_the_rest_of_the_file() {
        let expect = Expect::of([(SignedField::Name, vec!["Mint".to_owned(), "Burn".to_owned()])]);
        let list = r#"["Mint", "Burn"]"#;
        for (before, after) in [
            (
                "[channels.a] # first\nid = 1\n\n[sinks]\n",
                format!("[channels.a] # first\nid = 1\n\n[channels.a.expect]\nname = {list}\n\n[sinks]\n"),
            ),
            (
                "channels.a.id = 1\nlog.level = \"info\" # why\n",
                format!("channels.a.id = 1\nchannels.a.expect.name = {list}\nlog.level = \"info\" # why\n"),
            ),
            (
                "channels = { a = { id = 1 } }\n",
                format!("channels = {{ a = {{ id = 1, expect = {{ name = {list} }} }} }}\n"),
            ),
            (
                "[channels.a.expect]\n# by hand\nname = [\"Mint\"]\nservice = [\"s\"]\n",
                format!("[channels.a.expect]\n# by hand\nname = {list}\nservice = [\"s\"]\n"),
            ),
        ] {
            assert_eq!(with_expect(before, "a", &expect).unwrap().replace("id = 1 ,", "id = 1,"), after);
        }
        for elsewhere in ["", "[channels.b]\n", "channels = 7\n"] {
            assert!(matches!(with_expect(elsewhere, "a", &expect), Err(EditError::Elsewhere(_))), "{elsewhere}");
        }
    }

    #[test]
    fn the_lists_are_written_into_the_file_of_the_channel() {
        let directory = tempfile::TempDir::new().unwrap();
        let (main, fragment) = (directory.path().join("channeld.toml"), directory.path().join("conf.d/10.toml"));
        let channel = "[channels.a]\nid = \"7c9e6679-7425-40de-944b-e07fc1f90ae7\"\nsinks = [\"out\"]\n";
        let text = "[api]\napi_key = \"k\"\n[verification]\norg_id = \"org_1\"\n[sinks.out]\ntype = \"stdout\"\n";
        fs::create_dir(directory.path().join("conf.d")).unwrap();
        fs::write(&main, text).unwrap();
        fs::write(&fragment, channel).unwrap();
        let expect = Expect::of([(SignedField::Name, vec!["Mint".to_owned()])]);
        write_expect(&main, "a", &expect, []).unwrap();
        assert_eq!(fs::read_to_string(&main).unwrap(), text);
        assert_eq!(
            fs::read_to_string(&fragment).unwrap(),
            format!("{channel}\n[channels.a.expect]\nname = [\"Mint\"]\n")
        );
        assert!(matches!(write_expect(&main, "b", &expect, []), Err(EditError::Elsewhere(_))));
    }
}
