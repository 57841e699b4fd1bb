//! The documentation site contains every document, and each link in a document leads somewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use super::container::tools;
use super::{read, shipped};
use crate::support::{run, skip};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The documents of the site, as paths in the repository.
fn documents() -> Vec<PathBuf> {
    let summary = read("site/SUMMARY.md");
    summary.lines().filter_map(|line| Some(line.split_once("](")?.1.strip_suffix(')')?.into())).collect()
}

/// The lines of a document that are not in a code block.
fn prose(text: &str) -> String {
    text.split("\n```").step_by(2).collect()
}

/// The targets of the links in a text.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link)
}

/// The anchors of the headings. The second heading with the same text has the suffix -1.
fn anchors(text: &str) -> BTreeSet<String> {
    let (mut found, mut count) = (BTreeSet::new(), BTreeMap::new());
    let prose = format!("\n{}", prose(text));
    for heading in prose.lines().filter(|line| line.starts_with('#')) {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let number = count.entry(anchor.clone()).and_modify(|number| *number += 1).or_insert(0);
        found.insert(if *number == 0 { anchor } else { format!("{anchor}-{number}") });
    }
    found
}

/// A path without `..`. `None` if it leads out of the repository, as links to the releases do.
fn within(path: &Path) -> Option<PathBuf> {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => resolved.pop().then_some(())?,
            part => resolved.push(part),
        }
    }
    Some(resolved)
}

/// The links of a document that lead nowhere.
fn dead(document: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(document)).unwrap();
    let is_alive = |link: &&str| {
        if link.starts_with("https://") || link.starts_with("http://") {
            return true;
        }
        let (file, anchor) = link.split_once('#').map_or((*link, None), |(file, anchor)| (file, Some(anchor)));
        let path = if file.is_empty() { Some(document.to_owned()) } else { within(&document.with_file_name(file)) };
        let Some(path) = path else { return true };
        // The site shows files, but no folders.
        let Ok(text) = std::fs::read_to_string(root().join(&path)) else { return root().join(&path).is_file() };
        anchor.is_none_or(|anchor| anchors(&text).contains(anchor))
    };
    let prose = prose(&text);
    links(&prose).filter(|link| !is_alive(link)).map(|link| format!("{}: {link}", document.display())).collect()
}

#[test]
fn every_link_of_every_document_works() {
    let documents = documents();
    assert!(documents.len() >= 11, "{documents:?}");
    let all: usize =
        documents.iter().map(|name| links(&std::fs::read_to_string(root().join(name)).unwrap()).count()).sum();
    assert!(all > 100, "{all} links");
    let dead: Vec<_> = documents.iter().flat_map(|document| dead(document)).collect();
    assert!(dead.is_empty(), "{dead:#?}");
}

#[test]
fn the_site_has_every_document_of_the_repository() {
    let documents = documents();
    for folder in ["", "deploy", "deploy/clients"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let name = Path::new(folder).join(entry.unwrap().file_name());
            let is_document = name.extension().is_some_and(|kind| kind == "md");
            assert!(!is_document || documents.contains(&name), "{} is not in SUMMARY.md", name.display());
        }
    }
}

#[test]
fn the_site_is_built_and_its_links_work() {
    let is_installed = |mdbook: &str| Command::new(mdbook).arg("--version").output().is_ok();
    if !is_installed("mdbook") && !is_installed(tools().join("mdbook").to_str().unwrap()) {
        return skip("mdbook");
    }
    let directory = tempfile::tempdir().unwrap();
    let site = directory.path().join("site");
    let repository = "https://git.example/channeld";
    run(Command::new(shipped("site/build")).arg(&site).env("CHANNELD_REPOSITORY", repository));
    let first = std::fs::read_to_string(site.join("index.html")).unwrap();
    assert!(first.contains(&format!("href=\"{repository}/releases\"")), "the first page links to the releases");
    for document in documents() {
        let page = if document.ends_with("README.md") {
            document.with_file_name("index.html")
        } else {
            document.with_extension("html")
        };
        let text =
            std::fs::read_to_string(site.join(&page)).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        let targets = ["href=\"", "src=\""].into_iter().flat_map(|name| text.split(name).skip(1));
        for target in targets.filter_map(|rest| rest.split('"').next()) {
            let file = target.split('#').next().unwrap();
            if !file.is_empty() && !file.contains(':') {
                let path = within(&page.with_file_name(file)).unwrap();
                assert!(site.join(&path).is_file(), "{} links to {target}", page.display());
            }
        }
    }
}
