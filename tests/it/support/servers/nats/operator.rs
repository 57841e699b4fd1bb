//! An operator of NATS: its servers accept users whose tokens (JWT) it has signed. The tokens have the format of NATS,
//! version 2.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde_json::{Value, json};

/// An operator with one account that may use JetStream.
pub(crate) struct Operator {
    operator: KeyPair,
    account: KeyPair,
}

impl Operator {
    pub(crate) fn new() -> Self {
        Self { operator: KeyPair::new_operator(), account: KeyPair::new_account() }
    }

    /// The configuration lines of its servers. Without a system account, the servers have no JetStream.
    pub(crate) fn lines(&self) -> String {
        let system = KeyPair::new_account();
        let any = json!({"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1,
            "leaf": -1});
        let mut with_streams = any.clone();
        let streams = json!({"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1});
        with_streams.as_object_mut().unwrap().extend(streams.as_object().unwrap().clone());
        let account = |account: &KeyPair, limits: Value| {
            let name = account.public_key();
            let token = token(&self.operator, &name, &json!({"type": "account", "version": 2, "limits": limits}));
            format!("{name}: {token}")
        };
        let operator = token(&self.operator, &self.operator.public_key(), &json!({"type": "operator", "version": 2}));
        format!(
            "operator: {operator}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload {{\n{}\n{}\n}}",
            system.public_key(),
            account(&system, any),
            account(&self.account, with_streams),
        )
    }

    /// The contents of a credentials file for a new user.
    pub(crate) fn credentials(&self) -> String {
        let user = KeyPair::new_user();
        let (token, seed) = (self.user(&user, false), user.seed().unwrap());
        format!(
            "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
    }

    /// The login of the tests' client: a user that does not have to sign a challenge.
    pub(crate) fn login(&self) -> Value {
        json!({"jwt": self.user(&KeyPair::new_user(), true)})
    }

    fn user(&self, user: &KeyPair, is_bearer: bool) -> String {
        let claims = json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1, "pub": {}, "sub": {},
            "bearer_token": is_bearer});
        token(&self.account, &user.public_key(), &claims)
    }
}

/// A token in which `issuer` makes these claims about the owner of this public key.
fn token(issuer: &KeyPair, subject: &str, claims: &Value) -> String {
    let part = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let head = part(json!({"typ": "JWT", "alg": "ed25519-nkey"}));
    let said =
        json!({"iss": issuer.public_key(), "sub": subject, "name": "tests", "iat": 1_700_000_000, "nats": claims});
    let signed = format!("{head}.{}", part(said));
    let signature = URL_SAFE_NO_PAD.encode(issuer.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}
