//! The displayed names of signers.

use std::collections::BTreeMap;

use proof::verify::Address;

/// The displayed names of signers, as an operator has configured them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignerNames(BTreeMap<Address, String>);

impl SignerNames {
    /// Returns the name of a signer; `None` if it has no name.
    pub fn of(&self, signer: &Address) -> Option<&str> {
        self.0.get(signer).map(String::as_str)
    }
}

impl From<BTreeMap<Address, String>> for SignerNames {
    fn from(names: BTreeMap<Address, String>) -> Self {
        Self(names)
    }
}
