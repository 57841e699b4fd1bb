//! The Helm chart makes the same objects as the Kubernetes files.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::container::tools;
use super::{read, shipped};
use crate::support::{run, skip};

const IMAGE: &str = "registry.internal/channeld";

/// Prints the documents of a file as JSON.
const AS_JSON: &str =
    "import json, sys, yaml; print(json.dumps([one for one in yaml.safe_load_all(sys.stdin) if one]))";

/// Whether Helm and a reader of YAML are installed. Otherwise the test is skipped.
fn has_helm() -> bool {
    let missing: Vec<_> = ["helm", "python"].into_iter().filter(|name| !tools().join(name).exists()).collect();
    if !missing.is_empty() {
        skip(&format!("programs that .ci/run puts into target/tools: {}", missing.join(", ")));
    }
    missing.is_empty()
}

fn helm(arguments: &[&str]) -> Command {
    let mut helm = Command::new(tools().join("helm"));
    // Helm stores its caches in the directory of the user.
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("helm");
    // A Helm that Go installs assumes an old version of Kubernetes.
    helm.args(arguments).args(["--kube-version", "1.29.0"]).env_clear().env("HOME", home).current_dir(shipped(""));
    helm
}

/// Renders the chart with these values. Returns its text.
fn rendered(values: &[&str]) -> String {
    let mut template = helm(&["template", "channeld", "helm", "--set", &format!("image.repository={IMAGE}")]);
    String::from_utf8(run(template.args(values))).unwrap()
}

/// The objects in a YAML text, by kind and name.
fn objects(yaml: &str) -> BTreeMap<String, Value> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), yaml).unwrap();
    let mut python = Command::new(tools().join("python"));
    let json = run(python.args(["-c", AS_JSON]).stdin(file.reopen().unwrap()));
    let objects: Vec<Value> = serde_json::from_slice(&json).unwrap();
    let name = |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]).replace('"', "");
    objects.into_iter().map(|object| (name(&object), without_helm(object))).collect()
}

/// An object without the labels and annotations that only Helm adds.
fn without_helm(mut value: Value) -> Value {
    if let Some(object) = value.as_object_mut() {
        object.remove("annotations");
        object.retain(|key, _| !key.starts_with("helm.sh/"));
        for added in ["instance", "version", "managed-by"] {
            object.remove(&format!("app.kubernetes.io/{added}"));
        }
        for member in object.values_mut() {
            *member = without_helm(member.take());
        }
    } else if let Some(list) = value.as_array_mut() {
        for item in list {
            *item = without_helm(item.take());
        }
    }
    value
}

/// The objects of a folder with Kubernetes files, as `kustomization.yaml` changes them.
fn expected(folder: &str, manifests: &[&str]) -> BTreeMap<String, Value> {
    let texts: Vec<_> = manifests.iter().map(|manifest| read(manifest)).collect();
    let version = env!("CARGO_PKG_VERSION");
    let image = format!("image: {IMAGE}:{version}\n");
    let mut objects = objects(&texts.join("\n---\n").replace("image: channeld\n", &image));
    let configuration = read(&format!("{folder}/channeld.toml"));
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "channeld"},
                        "data": {"channeld.toml": configuration}});
    objects.insert("ConfigMap channeld".to_owned(), config);
    objects
}

/// Labels are not part of the comparison of metadata, because the files give them only to some objects.
fn unlabeled(mut objects: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    for object in objects.values_mut() {
        object["metadata"].as_object_mut().unwrap().remove("labels");
    }
    objects
}

fn assert_same(chart: BTreeMap<String, Value>, files: BTreeMap<String, Value>) {
    let (chart, files) = (unlabeled(chart), unlabeled(files));
    assert_eq!(chart.keys().collect::<Vec<_>>(), files.keys().collect::<Vec<_>>());
    for (name, object) in &files {
        let (chart, files) = [&chart[name], object].map(|one| serde_json::to_string_pretty(one).unwrap()).into();
        assert!(chart == files, "{name} of the chart:\n{chart}\nof the files:\n{files}");
    }
}

#[test]
fn the_chart_makes_the_objects_of_the_kubernetes_files() {
    if !has_helm() {
        return;
    }
    let [service, budget, policy] =
        ["service", "poddisruptionbudget", "networkpolicy"].map(|name| format!("kubernetes/{name}.yaml"));
    let files = [&*service, &*budget, &*policy, "kubernetes/statefulset.yaml"];
    let configuration = ["--set-file", "configuration=kubernetes/channeld.toml"];
    assert_same(objects(&rendered(&configuration)), expected("kubernetes", &files));

    let files = [&*service, &*budget, &*policy, "kubernetes-instances/deployment.yaml"];
    let mut shared = expected("kubernetes-instances", &files);
    let database = json!({"ports": [{"protocol": "TCP", "port": 5432}]});
    let policy = shared.get_mut("NetworkPolicy channeld").unwrap();
    policy["spec"]["egress"].as_array_mut().unwrap().push(database);
    let several = "instances=3,networkPolicy.egressPorts={443,5432}";
    let configuration = ["--set-file", "configuration=kubernetes-instances/channeld.toml", "--set", several];
    assert_same(objects(&rendered(&configuration)), shared);
}

#[test]
fn the_chart_is_valid_with_a_feed_and_secrets_and_names_missing_values() {
    if !has_helm() {
        return;
    }
    let chart = read("helm/Chart.yaml");
    let version = env!("CARGO_PKG_VERSION");
    assert!(chart.contains(&format!("\nversion: {version}\nappVersion: {version}\n")), "{chart}");
    let values = [
        "--set=feed.enabled=true,secret.files.api-key=a-key,persistence.storageClass=fast,image.tag=9",
        "--set-file=configuration=kubernetes/channeld.toml",
        "--set-json=env=[{\"name\":\"CHANNELD_LOG__LEVEL\",\"value\":\"debug\"}]",
    ];
    run(helm(&["lint", "--strict", "helm", "--set=image.repository=channeld"]).args(values));
    let text = rendered(&values);
    let objects = objects(&text);
    let feed = json!([{"name": "feed", "port": 9465, "targetPort": "feed"}]);
    assert_eq!(objects["Service channeld-feed"]["spec"]["ports"], feed);
    assert_eq!(objects["Secret channeld"]["stringData"]["api-key"], "a-key");
    let set = &objects["StatefulSet channeld"]["spec"];
    assert_eq!(set["volumeClaimTemplates"][0]["spec"]["storageClassName"], "fast");
    let container = &set["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], format!("{IMAGE}:9"));
    assert_eq!(container["ports"][1], json!({"name": "feed", "containerPort": 9465}));
    assert_eq!(container["env"][0]["name"], "CHANNELD_LOG__LEVEL");
    assert_eq!(objects["NetworkPolicy channeld"]["spec"]["ingress"][1]["ports"][0]["port"], "feed");

    let validator = tools().join("kubernetes-validate");
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    for text in [text, rendered(&["--set=instances=2,configuration=x"])] {
        std::fs::write(file.path(), text).unwrap();
        run(Command::new(&validator).arg("--strict").arg(file.path()));
    }

    for (values, missing) in
        [("image.repository=channeld", "set configuration to the content"), ("configuration=x", "set image.repository")]
    {
        let refused = helm(&["template", "channeld", "helm", "--set", values]).output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && said.contains(missing), "{said}");
    }
}
