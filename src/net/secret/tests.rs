//! A secret stays one, however it is printed.

use super::*;

#[test]
fn a_secret_says_nothing() {
    let secret = Secret::new("hunter2");
    let json = serde_json::to_string(&secret).expect("a text is JSON");
    for shown in [format!("{secret:?} {secret:#?}"), format!("{secret}"), json] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    assert_eq!(secret.expose(), "hunter2");
}
