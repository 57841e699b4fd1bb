use super::*;

#[test]
fn every_exit_status_is_documented() {
    let section = ABOUT.split(".SH ").find(|section| section.starts_with("\"EXIT STATUS\"")).expect("it is there");
    let documented: Vec<_> =
        section.lines().filter_map(|line| line.strip_prefix("\\fB")?.strip_suffix("\\fR")).collect();
    let all = [Exit::Done, Exit::Failed, Exit::Usage, Exit::Unavailable, Exit::Config];
    assert_eq!(documented, all.map(|exit| (exit as u8).to_string()));
}
