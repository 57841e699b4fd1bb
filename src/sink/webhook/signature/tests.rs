use super::*;

const SPECIFIED: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn private_key(seed: u8, public_key_of: Option<u8>) -> String {
    let pair = |seed| ed25519_compact::KeyPair::from_seed(ed25519_compact::Seed::new([seed; SEED]));
    let public_key = public_key_of.map(|seed| pair(seed).pk.to_vec()).unwrap_or_default();
    format!("whsk_{}", STANDARD.encode([[seed; SEED].to_vec(), public_key].concat()))
}

#[test]
fn the_signature_matches_the_specification() {
    // This example is from the tests of the specification's reference libraries.
    let keys = SigningKeys::parse(&format!("{SPECIFIED}\n")).unwrap();
    let signature = keys.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
    assert_eq!(signature.as_deref(), Some("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
}

#[test]
fn an_asymmetric_signature_is_verified_by_another_implementation() {
    let public_key = ed25519_compact::KeyPair::from_seed(ed25519_compact::Seed::new([7; SEED])).pk;
    for secret in [private_key(7, None), private_key(7, Some(7))] {
        let signature = SigningKeys::parse(&secret).unwrap().sign("id", 1, b"body").unwrap();
        let signature = STANDARD.decode(signature.strip_prefix("v1a,").unwrap()).unwrap();
        let signature = ed25519_compact::Signature::from_slice(&signature).unwrap();
        assert!(public_key.verify(b"id.1.body", &signature).is_ok());
        assert!(public_key.verify(b"id.1.other", &signature).is_err());
    }
}

#[test]
fn each_of_several_secrets_signs_in_their_order() {
    let one = format!("whsec_{}", STANDARD.encode([1; 32]));
    let text = format!("{one}\n{}\n  {SPECIFIED}\t", private_key(7, None));
    let keys = SigningKeys::parse(&text).unwrap();
    assert_eq!((keys.counts(), format!("{keys:?}")), ((2, 1), "SigningKeys(v1: 2, v1a: 1)".to_owned()));
    let alone = |secret: &str| SigningKeys::parse(secret).unwrap().sign("id", 1, b"").unwrap();
    let expected = text.split_whitespace().map(alone).collect::<Vec<_>>().join(" ");
    assert_eq!(keys.sign("id", 1, b""), Some(expected));
    assert_eq!(SigningKeys::default().sign("id", 1, b""), None);
}

#[test]
fn an_invalid_secret_is_refused_and_not_quoted() {
    let short = format!("whsec_{}", STANDARD.encode([7; 23]));
    let long = format!("whsec_{}", STANDARD.encode([7; 65]));
    let (half, foreign) = (format!("whsk_{}", STANDARD.encode([7; 48])), private_key(7, Some(8)));
    let (twice, same) =
        (format!("{SPECIFIED} {SPECIFIED}"), format!("{} {}", private_key(7, None), private_key(7, Some(7))));
    let many: String = (0..9).map(|seed| private_key(seed, None) + "\n").collect();
    for (secrets, wrong, place) in [
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", FORM, (1, 1)),
        ("", FORM, (0, 0)),
        ("whsec_not*base64", FORM, (1, 1)),
        ("whsec_", WRONG_LENGTH, (1, 1)),
        (&short, WRONG_LENGTH, (1, 1)),
        (&long, WRONG_LENGTH, (1, 1)),
        ("whsk_", PRIVATE_KEY, (1, 1)),
        (&half, PRIVATE_KEY, (1, 1)),
        (&foreign, PRIVATE_KEY, (1, 1)),
        (&format!("{SPECIFIED} hunter2"), FORM, (2, 2)),
        (&twice, "occurs twice", (2, 2)),
        (&same, "occurs twice", (2, 2)),
        (&many, "must contain at most 8 secrets, but contains 9", (0, 9)),
    ] {
        let error = SigningKeys::parse(secrets).unwrap_err();
        let expected = match place {
            (_, 0 | 1 | 9) => wrong.to_owned(),
            (number, of) => format!("secret {number} of {of} {wrong}"),
        };
        assert_eq!(error, expected);
        assert!(secrets.len() < 7 || !error.contains(&secrets[6..]), "{error}");
    }
}

#[test]
fn padding_is_optional() {
    let encoded = STANDARD.encode([7; 25]);
    let bare = encoded.trim_end_matches('=');
    assert_ne!(bare, encoded);
    let key = |text: &str| SigningKeys::parse(&format!("whsec_{text}")).unwrap();
    assert_eq!(key(&encoded), key(bare));
}
