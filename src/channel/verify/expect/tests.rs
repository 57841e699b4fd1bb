use super::*;
use crate::verify::reason::RejectionReason;
use proof::verify::keccak256;

const CHANNEL: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
const EVENT: &str = r#"{"name":"Transfer","service":"dvp","chain_selector":"0016015286601757825753",
    "chain_event":{"address":"0xABcdef0000000000000000000000000000000001"},"data":{"channel_id":"mine"}}"#;
const RESULT: &str = r#"{"name":"ChainQuery","service":"_crec","chain_selector":5009297550715157269,
    "data":{"channel_id":"7C9E6679-7425-40de-944b-e07fc1f90ae7","target":{"contract_address":"0x02"}}}"#;

fn proof() -> Proof {
    let hash = keccak256([]);
    Proof {
        digest: hash,
        signers: Vec::new(),
        required: 4,
        strangers: 0,
        event_hash: hash,
        workflow_owner: Address([1; 20]),
        workflow_id: Hash([0xAB; 32]),
        execution_id: hash,
    }
}

fn expecting(what: SignedField, value: &str) -> Expect {
    Expect::of([(what, vec!["other".to_owned(), what.canonical(value).unwrap()])])
}

fn check(expect: &Expect, signed: &str) -> Result<(), &'static str> {
    let channel = CHANNEL.parse().unwrap();
    expect.check(channel, &proof(), Some(signed.as_bytes())).map_err(|not| RejectionReason::from(&not).name())
}

#[test]
fn expected_values_are_compared_as_values() {
    for (what, values) in [
        (SignedField::WorkflowId, [format!("0x{}", "ab".repeat(32)), "AB".repeat(32)]),
        (
            SignedField::Address,
            [format!("0X{}01", "ABCDEF".to_owned() + &"0".repeat(32)), "abcdef".to_owned() + &"0".repeat(33) + "1"],
        ),
        (SignedField::ChainSelector, ["16015286601757825753".to_owned(), "00016015286601757825753".to_owned()]),
        (SignedField::Service, ["dvp".to_owned(), "dvp".to_owned()]),
        (SignedField::Name, ["Transfer".to_owned(), "Transfer".to_owned()]),
    ] {
        for value in values {
            assert_eq!(check(&expecting(what, &value), EVENT), Ok(()), "{value}");
        }
    }
    assert_eq!(check(&expecting(SignedField::ChainSelector, "5009297550715157269"), RESULT), Ok(()), "a number");
}

#[test]
fn a_wrong_or_missing_value_is_rejected_with_found_and_expected() {
    let other = |what, value: &str| check(&expecting(what, value), EVENT);
    assert_eq!(other(SignedField::WorkflowId, &"cd".repeat(32)), Err("unexpected-workflow"));
    assert_eq!(other(SignedField::Address, &"00".repeat(20)), Err("unexpected-address"));
    assert_eq!(other(SignedField::ChainSelector, "1"), Err("unexpected-chain"));
    assert_eq!(other(SignedField::Service, "DVP"), Err("unexpected-service"));
    assert_eq!(other(SignedField::Name, "transfer"), Err("unexpected-name"));
    for signed in ["{}", "7", r#"{"name":null}"#, r#"{"name":"Transfer","name":"Transfer"}"#] {
        assert_eq!(check(&expecting(SignedField::Name, "Transfer"), signed), Err("unexpected-name"), "{signed}");
    }
    let expect = Expect::of([(SignedField::Service, (1..=6).map(|number| format!("s{number}")).collect())]);
    let not = expect.check(CHANNEL.parse().unwrap(), &proof(), Some(EVENT.as_bytes())).unwrap_err();
    assert_eq!(
        not.to_string(),
        "the signed data names the service dvp, but `expect.service` has s1, s2, s3, s4 and 2 more"
    );
    let not = expect.check(CHANNEL.parse().unwrap(), &proof(), None).unwrap_err();
    assert!(not.to_string().starts_with("the signed data names no service, but"), "{not}");
}

#[test]
fn a_query_result_belongs_to_the_channel_that_it_names() {
    let expect = Expect::default();
    assert_eq!(check(&expect, RESULT), Ok(()));
    assert_eq!(check(&expect, EVENT), Ok(()), "a contract's own data is not the service's");
    for other in ["00000000-0000-0000-0000-000000000000", "none"] {
        let moved = RESULT.replace("7C9E6679-7425-40de-944b-e07fc1f90ae7", other);
        assert_eq!(check(&expect, &moved), Err("other-channel"));
    }
    assert_eq!(check(&expecting(SignedField::Service, "_crec"), RESULT), Ok(()));
    assert_eq!(Names::of(&proof(), Some(RESULT.as_bytes())).get(SignedField::Address).as_deref(), Some("0x02"));
}

#[test]
fn impossible_expected_values_are_refused() {
    for (what, values) in [
        (SignedField::WorkflowId, ["", "0x12", "xyz"]),
        (SignedField::Address, ["", "0x12", "vitalik.eth"]),
        (SignedField::ChainSelector, ["", "-1", "0x12"]),
    ] {
        for value in values {
            assert!(what.canonical(value).is_err(), "{value}");
        }
    }
}

#[test]
fn a_channel_that_expects_a_proof_takes_precedence() {
    let expectation = |expect: &Expect| expect.expectation(CHANNEL.parse().unwrap(), &proof(), Some(EVENT.as_bytes()));
    let (refused, open) = (expectation(&expecting(SignedField::Name, "Burn")), expectation(&Expect::default()));
    assert!(refused < open && open < expectation(&expecting(SignedField::Name, "Transfer")));
}
