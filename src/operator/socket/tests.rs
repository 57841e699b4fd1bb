use super::*;

#[test]
fn a_path_that_no_address_holds_is_refused_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let long = directory.path().join("x".repeat(MAX_PATH));
    let refused = Socket::listen(&long).unwrap_err().to_string();
    assert!(refused.contains("choose a shorter state.path"), "{refused}");
}

#[tokio::test]
async fn what_an_earlier_process_left_is_replaced_and_the_mode_is_the_owners() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(NAME);
    std::fs::write(&path, "left").unwrap();
    std::fs::create_dir(directory.path().join(CLOSED)).unwrap();
    std::fs::write(directory.path().join(CLOSED).join("s"), "left").unwrap();
    let socket = Socket::listen(directory.path()).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
    drop(socket);
    assert!(!path.exists());
}
