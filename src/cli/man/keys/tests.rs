use super::*;

#[test]
fn every_key_is_a_term_and_the_file_itself_is_not_spoken_of() {
    let text = String::from_utf8(page().unwrap()).unwrap();
    assert!(text.contains("Each key is also an environment variable") && !text.contains("begins with #"), "{text}");
    for key in
        ["base_url", "valid_signers", "listen", "rotate_size", "filter.chain_selector", "header_files.X\\-Api\\-Key"]
    {
        assert!(text.lines().any(|line| line.starts_with(&format!("\\fB{key}\\fR"))), "{key} in\n{text}");
    }
}
