//! The printed schemas describe the configuration, the delivered records and the feed. An independent validator checks them
//! against the shipped configurations and against records.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use simulator::{Options, Simulator};

use crate::support::{Setup, deliverable, run, skip};

/// Validates each file against the schema. A file is TOML, or has a JSON value on each line. Prints one error per line.
const VALIDATE: &str = r#"
import json, sys, tomllib
from jsonschema import Draft202012Validator as Validator
schema = json.load(open(sys.argv[1]))
Validator.check_schema(schema)
for name in sys.argv[2:]:
    with open(name, "rb") as file:
        instances = [tomllib.load(file)] if name.endswith(".toml") else [json.loads(line) for line in file]
    assert instances, name
    for instance in instances:
        for error in Validator(schema).iter_errors(instance):
            print(name, error.json_path, error.message[:200])
"#;

/// Validates a description of an API. Prints one error per line.
const VALIDATE_OPENAPI: &str = r"
import json, sys
from openapi_spec_validator import OpenAPIV31SpecValidator as Validator
try:
    for error in Validator(json.load(open(sys.argv[1]))).iter_errors():
        print(list(error.absolute_path), error.message[:200])
except Exception as error:  # the type of the error for a reference is internal to the validator
    print(type(error), str(error)[:200])
";

/// A Python with a validator, for example the Python that `.ci/run` installs into target/tools.
fn python(validator: &str) -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/bin/python3");
    let import = format!("import {validator}, tomllib");
    let has =
        |python: &PathBuf| Command::new(python).args(["-c", &import]).output().is_ok_and(|it| it.status.success());
    let found = [own, "python3".into()].into_iter().find(has);
    if found.is_none() {
        skip(&format!("the Python package {validator}"));
    }
    found
}

fn schema(what: &str) -> Vec<u8> {
    run(Command::new(env!("CARGO_BIN_EXE_channeld")).args(["schema", what]).env_clear())
}

/// The errors that the validator reports. A file is its name and its text.
fn problems(python: &Path, what: &str, files: &[(String, String)]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::write(at.join("schema.json"), schema(what)).unwrap();
    let mut validating = Command::new(python);
    validating.current_dir(at).args(["-W", "ignore", "-c", VALIDATE, "schema.json"]);
    for (name, text) in files {
        std::fs::write(at.join(name), text).unwrap();
        validating.arg(name);
    }
    String::from_utf8(run(&mut validating)).unwrap()
}

fn shipped(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// `config/default.toml` with its commented keys uncommented.
fn documented() -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(key) if !key.starts_with(' ') => key.to_owned(),
        _ => line.to_owned(),
    };
    shipped("config/default.toml").lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Records with proofs from a file sink, followed by the output of `search`, which also shows rejected events.
async fn delivered() -> String {
    let options = Options { events: 40, unsigned: 0.2, forged: 0.2, ..Options::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let setup = Setup::reading(&simulator).with("sinks.file.include_proof", true);
    setup.run_until_lines(deliverable(&simulator, 0).len()).await;
    let found = setup.tell(&["search", "c0", "--limit", "40", "--json"]).await;
    std::fs::read_to_string(setup.path("events.jsonl")).unwrap() + std::str::from_utf8(&found.out).unwrap()
}

#[test]
fn the_configuration_schema_accepts_every_shipped_file_and_documented_key() {
    let Some(python) = python("jsonschema") else { return };
    let mut files = vec![("documented.toml".to_owned(), documented())];
    let own = "[sinks.a]\ntype = \"nats\"\nformat = \"template\"\ntemplate = \"slack\"\n[sinks.b]\ntype = \"file\"\nper_instance = true\n";
    files.push(("own.toml".to_owned(), own.to_owned()));
    for directory in ["config", "config/examples", "deploy", "deploy/kubernetes", "deploy/kubernetes-instances"] {
        for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(directory)).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                files.push((format!("{}.toml", files.len()), std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    assert!(files.len() > 8, "{files:?}");
    assert_eq!(problems(&python, "config", &files), "");
}

#[test]
fn the_configuration_schema_finds_each_kind_of_mistake() {
    let Some(python) = python("jsonschema") else { return };
    for (text, place) in [
        ("[api]\nidle_wiat = \"5s\"", "idle_wiat"),
        ("[log]\nformat = \"xml\"", "$.log.format"),
        ("[channels.a]\nsinks = 3", "$.channels.a.sinks"),
        ("[channels.a__b]\nsinks = [\"x\"]", "a__b"),
        ("[sinks.a]\ntype = \"fiel\"", "$.sinks.a"),
        ("[sinks.a]\ntype = \"file\"\nurl = \"x\"", "$.sinks.a"),
        ("[sinks.a]\ntype = \"sqlite\"\nformat = \"text\"", "$.sinks.a"),
        ("[sinks.a]\ntype = \"stdout\"\nfilter = { colour = [\"red\"] }", "$.sinks.a"),
        ("[sinks.a]\ntype = \"webhook\"\ninclude_proof = \"perhaps\"", "$.sinks.a"),
    ] {
        let found = problems(&python, "config", &[("wrong.toml".to_owned(), text.to_owned())]);
        assert!(found.contains(place), "{text}: {found}");
    }
}

#[tokio::test]
async fn the_record_schema_accepts_records_and_rejects_everything_else() {
    let Some(python) = python("jsonschema") else { return };
    let record: Value = serde_json::from_str(record::EXAMPLE).unwrap();
    let records = [("example.jsonl".to_owned(), record.to_string()), ("delivered.jsonl".to_owned(), delivered().await)];
    assert_eq!(problems(&python, "record", &records), "");
    for (path, wrong) in [
        ("/offset", Value::from("15520")),
        ("/verification/digest", Value::from("0x12")),
        ("/verification/status", Value::from("perhaps")),
        ("/verification/signers", Value::from("0x12")),
        ("/event", Value::Null),
    ] {
        let mut changed = record.clone();
        *changed.pointer_mut(path).unwrap() = wrong;
        let found = problems(&python, "record", &[("record.jsonl".to_owned(), changed.to_string())]);
        assert!(found.contains(&path.replace('/', ".")), "{path}: {found}");
    }
}

#[test]
fn the_description_of_the_feed_is_openapi_3_1() {
    let description: Value = serde_json::from_slice(&schema("feed")).unwrap();
    assert_eq!(description["openapi"], "3.1.0");
    let paths = description["paths"].as_object().unwrap();
    assert!(paths.contains_key("/v1/channels/{name}/events") && paths.len() == 5, "{paths:?}");
    let Some(python) = python("openapi_spec_validator") else { return };
    let directory = tempfile::tempdir().unwrap();
    let problems = |description: &Value| {
        let file = directory.path().join("description.json");
        std::fs::write(&file, description.to_string()).unwrap();
        String::from_utf8(run(Command::new(&python).args(["-W", "ignore", "-c", VALIDATE_OPENAPI]).arg(file))).unwrap()
    };
    assert_eq!(problems(&description), "");
    for (path, wrong) in [
        ("/components/parameters/limit/in", Value::from("nowhere")),
        ("/components/parameters/name/required", Value::from(false)),
        ("/paths/~1v1~1channels/get/responses/200/$ref", Value::from("#/components/responses/Missing")),
        ("/paths/~1v1~1channels~1{name}~1stream/get/operationId", Value::from("readEvents")),
    ] {
        let mut changed = description.clone();
        let (parent, member) = path.rsplit_once('/').unwrap();
        changed.pointer_mut(parent).unwrap()[member] = wrong;
        assert_ne!(problems(&changed), "", "{path}");
    }
}
