//! The code map at the head of `src/lib.rs` is true: each module is in it, imports no more than it says, and no modules
//! import each other in a circle.
//!
//! A row of the map is `| [`module`] | what it is | what it depends on |`. The last cell lists modules of the map,
//! separated by commas, or says `all above`. Code for tests alone may import anything.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

/// The rows of the map: each module, with what it may import.
type Map = BTreeMap<String, BTreeSet<String>>;

/// A path from the crate's root that one module names, and so an import of another.
#[derive(Debug)]
struct Import {
    from: String,
    to: String,
    file: PathBuf,
    line: usize,
}

#[test]
fn modules_import_what_the_code_map_says_and_nothing_else() {
    let problems = problems(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(problems.is_empty(), "the code map in src/lib.rs, or the code, is wrong:\n{}", problems.join("\n"));
}

#[test]
fn what_the_code_map_does_not_say_is_found() {
    let package = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(package.path().join("src/top")).unwrap();
    for (file, text) in [
        (
            "lib.rs",
            "//! | module | what it is | depends on |\n//! |---|---|---|\n//! | [`low`] | x | |\n//! | [`mid`] | x | low |\n\
             //! | [`top`] | x | all above |\n//! | [`gone`] | x | [`low`], nowhere |\n\
             pub mod low;\nmod mid;\nmod top;\nmod unlisted;\n#[cfg(test)]\nmod fakes;\n",
        ),
        (
            "low.rs",
            "// crate::unlisted in a comment\nuse super::mid::It;\n\n#[cfg(test)]\nmod tests {\n    use crate::top;\n}\n",
        ),
        ("mid.rs", "use crate::{\n    low::{self, unlisted},\n    top,\n};\n"),
        ("top.rs", "mod part;\n#[cfg(test)]\nmod tests;\nuse crate::low;\n"),
        ("top/part.rs", "fn part() {\n    super::super::mid::call();\n    super::own();\n    crate::top::own();\n}\n"),
        ("unlisted.rs", ""),
    ] {
        std::fs::write(package.path().join("src").join(file), text).unwrap();
    }
    assert_eq!(
        problems(package.path()),
        [
            "the map says that `gone` depends on `nowhere`, which it does not list",
            "the map lists `gone`, and there is no such module",
            "the map does not list the module `unlisted`",
            "src/low.rs:2: `low` imports `mid`, and the map does not say so",
            "src/mid.rs:3: `mid` imports `top`, and the map does not say so",
            "a circle: `low` imports `mid` (src/low.rs:2), `mid` imports `low` (src/mid.rs:2)",
            "a circle: `mid` imports `top` (src/mid.rs:3), `top` imports `mid` (src/top/part.rs:2)",
            "a circle: `top` imports `low` (src/top.rs:4), `low` imports `mid` (src/low.rs:2), `mid` imports `top` (src/mid.rs:3)",
        ]
    );
}

/// What is wrong with a package, a line each.
fn problems(package: &Path) -> Vec<String> {
    let root = std::fs::read_to_string(package.join("src/lib.rs")).unwrap();
    let (map, mut problems) = code_map(&root);
    let (mut modules, mut imports) = (BTreeSet::new(), Vec::new());
    for module in submodules(&code(&root)) {
        read(package, &Path::new("src").join(format!("{module}.rs")), std::slice::from_ref(&module), &mut imports);
        modules.insert(module);
    }
    // Other members of the workspace are imported as modules, and the compiler holds their direction.
    imports.retain(|import| modules.contains(&import.to));
    let there_is_not = map.keys().filter(|module| !modules.contains(*module));
    problems.extend(there_is_not.map(|module| format!("the map lists `{module}`, and there is no such module")));
    let unlisted = modules.iter().filter(|module| !map.contains_key(*module));
    problems.extend(unlisted.map(|module| format!("the map does not list the module `{module}`")));
    let mut said = BTreeSet::new();
    for Import { from, to, file, line } in &imports {
        if map.get(from).is_some_and(|may| !may.contains(to)) && said.insert((from, to)) {
            problems.push(format!("{}:{line}: `{from}` imports `{to}`, and the map does not say so", file.display()));
        }
    }
    problems.extend(circles(&imports));
    problems
}

/// The rows of the map, and what is wrong with them.
fn code_map(root: &str) -> (Map, Vec<String>) {
    let (mut map, mut named) = (Map::new(), Vec::new());
    for row in root.lines().filter_map(|line| line.strip_prefix("//! | ")) {
        let cells: Vec<_> = row.trim_end_matches('|').split('|').map(str::trim).collect();
        let Some(module) = cells[0].strip_prefix("[`").and_then(|cell| cell.strip_suffix("`]")) else { continue };
        let listed = cells.last().unwrap().split(',').map(|name| name.trim_matches([' ', '[', ']', '`']));
        let mut may = BTreeSet::new();
        for name in listed.filter(|name| !name.is_empty()) {
            if name == "all above" {
                may.extend(map.keys().cloned());
            } else {
                may.insert(name.to_owned());
                named.push((module.to_owned(), name.to_owned()));
            }
        }
        map.insert(module.to_owned(), may);
    }
    named.retain(|(_, name)| !map.contains_key(name));
    let unknown = named
        .into_iter()
        .map(|(module, name)| format!("the map says that `{module}` depends on `{name}`, which it does not list"));
    let unknown = unknown.collect();
    (map, unknown)
}

/// Collects what a file and the files of its submodules import from other modules of the crate.
fn read(package: &Path, file: &Path, module: &[String], imports: &mut Vec<Import>) {
    let text = code(&std::fs::read_to_string(package.join(file)).unwrap());
    for (at, to) in paths_from_root(&text, module.len()) {
        if to != module[0] {
            let line = text[..at].matches('\n').count() + 1;
            imports.push(Import { from: module[0].clone(), to, file: file.to_owned(), line });
        }
    }
    for submodule in submodules(&text) {
        let below = file.with_extension("").join(format!("{submodule}.rs"));
        read(package, &below, &[module, &[submodule]].concat(), imports);
    }
}

/// A file without comments and without items for tests. Lines stay where they are.
fn code(text: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start().len();
    // Where an item for tests begins, until it ends.
    let mut skipped = None;
    let mut code = String::new();
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(begins) = skipped {
            let ends = trimmed.ends_with([';', ',']) || trimmed.starts_with('}');
            skipped = Some(begins).filter(|begins| indent(line) != *begins || !ends);
        } else if trimmed == "#[cfg(test)]" {
            skipped = Some(indent(line));
        } else if !trimmed.starts_with("//") {
            code.push_str(line);
        }
        code.push('\n');
    }
    code
}

/// The modules that a file declares in files of their own.
fn submodules(code: &str) -> Vec<String> {
    let declared = |line: &str| {
        let (before, name) = line.trim().strip_suffix(';')?.rsplit_once(' ')?;
        (before == "mod" || before.starts_with("pub") && before.ends_with(" mod")).then(|| name.to_owned())
    };
    code.lines().filter_map(declared).collect()
}

/// The first names of the paths that begin at the crate's root, in a module so deep below it, and where they are.
fn paths_from_root(code: &str, depth: usize) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let climbs = "super::".repeat(depth);
    for prefix in ["crate::", &climbs] {
        for (at, _) in code.match_indices(prefix) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|before| before.is_alphanumeric() || "_:".contains(before)) {
                continue;
            }
            let rest = at + prefix.len();
            found.extend(first_names(&code[rest..]).into_iter().map(|(offset, name)| (rest + offset, name)));
        }
    }
    found.sort_unstable();
    found
}

/// The name that a path goes on with, or each of the names in braces, and where they are.
fn first_names(rest: &str) -> Vec<(usize, String)> {
    let name_at = |at: usize| {
        let end = rest[at..].find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or_default();
        (at, rest[at..at + end].to_owned())
    };
    if !rest.starts_with('{') {
        return vec![name_at(0)];
    }
    let (mut names, mut open, mut begins) = (Vec::new(), 0, false);
    for (at, letter) in rest.char_indices() {
        match letter {
            '{' => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            break;
        }
        if open == 1 && (letter == '{' || letter == ',') {
            begins = true;
        } else if begins && !letter.is_whitespace() {
            names.push(name_at(at));
            begins = false;
        }
    }
    names
}

/// The shortest circle through each import that is part of one, each circle once.
fn circles(imports: &[Import]) -> Vec<String> {
    let (mut seen, mut circles) = (BTreeSet::new(), Vec::new());
    for first in imports {
        let Some(back) = way(imports, &first.to, &first.from) else { continue };
        let circle: Vec<_> = [first].into_iter().chain(back).collect();
        let modules: BTreeSet<_> = circle.iter().map(|import| &import.from).collect();
        if seen.insert(modules) {
            let steps = circle
                .into_iter()
                .map(|Import { from, to, file, line }| format!("`{from}` imports `{to}` ({}:{line})", file.display()));
            circles.push(format!("a circle: {}", steps.collect::<Vec<_>>().join(", ")));
        }
    }
    circles
}

/// The shortest way of imports from one module to another.
fn way<'a>(imports: &'a [Import], from: &str, to: &str) -> Option<Vec<&'a Import>> {
    let mut reached_by: BTreeMap<&str, &Import> = BTreeMap::new();
    let mut next = VecDeque::from([from]);
    while let Some(module) = next.pop_front() {
        if module == to {
            let step = |step: &&'a Import| reached_by.get(&*step.from).copied().filter(|_| step.from != from);
            let mut way: Vec<_> = std::iter::successors(reached_by.get(to).copied(), step).collect();
            way.reverse();
            return Some(way);
        }
        for import in imports.iter().filter(|import| import.from == module) {
            if import.to != from && !reached_by.contains_key(&*import.to) {
                reached_by.insert(&import.to, import);
                next.push_back(&import.to);
            }
        }
    }
    None
}
