use rcgen::{CertificateParams, KeyPair};

use super::*;

fn certificate(name: &str) -> (String, KeyPair) {
    let key = KeyPair::generate().unwrap();
    (CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap().pem(), key)
}

#[test]
fn a_certificate_needs_its_own_key() {
    let ((certificate, key), (_, other)) = (certificate("a"), certificate("b"));
    let chain = || certificates(&certificate).unwrap();
    assert!(Identity::new(chain(), private_key(&key.serialize_pem()).unwrap()).is_ok());
    let error = Identity::new(chain(), private_key(&other.serialize_pem()).unwrap()).unwrap_err();
    assert!(error.to_string().starts_with("cannot be used: keys may not be consistent"), "{error}");
}

#[test]
fn invalid_pem_is_refused_and_not_quoted() {
    let (certificate, key) = certificate("a");
    let key = key.serialize_pem();
    let torn = certificate.replace("-----END CERTIFICATE-----", "");
    let empty = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    for (text, expected) in [("", PemError::NoCertificate), (&key, PemError::NoCertificate)] {
        assert_eq!(certificates(text), Err(expected.clone()));
        assert_eq!(Authorities::from_pem(text), Err(expected));
    }
    assert_eq!(certificates(&torn), Err(PemError::Damaged));
    assert!(matches!(Authorities::from_pem(empty), Err(PemError::Unusable(_))));
    assert_eq!(private_key(&certificate).unwrap_err(), PemError::NoKey);
    let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    assert_eq!(private_key(&encrypted).unwrap_err(), PemError::NoKey);
}

#[test]
fn pem_round_trips() {
    let (certificate, key) = certificate("a");
    let text = key.serialize_pem();
    let identity = Identity::new(certificates(&certificate).unwrap(), private_key(&text).unwrap()).unwrap();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&identity.chain_to_pem()), lines(&certificate));
    assert_eq!(lines(identity.key_to_pem().expose()), lines(&text));
    assert_eq!(lines(&Authorities::from_pem(&certificate).unwrap().to_pem()), lines(&certificate));
}

#[test]
fn debug_output_hides_certificate_and_key() {
    let (certificate, key) = certificate("secretive.internal");
    let identity =
        Identity::new(certificates(&certificate).unwrap(), private_key(&key.serialize_pem()).unwrap()).unwrap();
    assert_eq!(format!("{identity:?}"), "Identity(certificates: 1)");
    assert_eq!(format!("{:?}", Authorities::from_pem(&certificate).unwrap()), "Authorities(1)");
}
