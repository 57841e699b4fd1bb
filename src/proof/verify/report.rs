//! The OCR report, which the network signs, and the workflow owner that it names.

use super::hash::{Address, Hash, keccak256};

/// The length of the shortest report: a header of 109 bytes and a hash.
pub const OCR_REPORT_LENGTH: usize = 109 + 32;

/// The fields of a report, in the order of its bytes. A verdict depends only on the owner and the payload.
#[derive(Debug, PartialEq, Eq)]
pub struct Report<'a> {
    /// The version of this layout.
    pub version: u8,
    /// The run of the workflow that emitted the report.
    pub execution_id: Hash,
    /// When the network made the report, in Unix seconds.
    pub timestamp: u32,
    /// The id of the oracle network.
    pub don_id: u32,
    /// The version of the oracle network's configuration.
    pub don_config_version: u32,
    /// The workflow.
    pub workflow_id: Hash,
    /// The workflow's name, as the network shortens it to ten bytes.
    pub workflow_name: &'a [u8],
    /// The owner of the workflow.
    pub workflow_owner: Address,
    /// The id of the report within the workflow, two bytes.
    pub report_id: &'a [u8],
    /// The subject of the report: an event hash.
    pub payload: &'a [u8],
}

impl<'a> Report<'a> {
    /// Returns `None` if the report is shorter than [`OCR_REPORT_LENGTH`].
    pub fn parse(mut report: &'a [u8]) -> Option<Self> {
        if report.len() < OCR_REPORT_LENGTH {
            return None;
        }
        let rest = &mut report;
        // Each field begins where the previous one ends.
        Some(Self {
            version: u8::from_be_bytes(*field(rest)?),
            execution_id: Hash(*field(rest)?),
            timestamp: u32::from_be_bytes(*field(rest)?),
            don_id: u32::from_be_bytes(*field(rest)?),
            don_config_version: u32::from_be_bytes(*field(rest)?),
            workflow_id: Hash(*field(rest)?),
            workflow_name: field::<10>(rest)?,
            workflow_owner: Address(*field(rest)?),
            report_id: field::<2>(rest)?,
            payload: report,
        })
    }
}

/// Removes the next field from the rest of a report.
fn field<'a, const LENGTH: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; LENGTH]> {
    let (field, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(field)
}

/// The hash that a report about this text contains. It covers the text itself and not the base64-decoded content.
pub fn event_hash(signed: &str) -> Hash {
    keccak256([signed.as_bytes()])
}

/// The hash that each signature of a proof signs.
pub fn signed_digest(report: &[u8], context: &[u8]) -> Hash {
    let report_hash = keccak256([report]);
    keccak256([&report_hash.0[..], context])
}

const DOMAIN: &[u8] = b"Chainlink Runtime Environment GenerateWorkflowOwnerAddress\0";
const PADDING: [u8; 84] = [0; 84];

/// The tenant if the tenant id is empty.
const DEFAULT_TENANT: &str = "1";

/// Derives the owner of an organization's workflows, as the reports contain it (spec/wire.md, "Workflow owner").
pub fn workflow_owner(org_id: &str, tenant_id: &str) -> Address {
    let prefix = if tenant_id.is_empty() { DEFAULT_TENANT } else { tenant_id };
    let Hash(hash) = keccak256([
        &[0xff][..],
        &PADDING,
        DOMAIN,
        &length(prefix),
        prefix.as_bytes(),
        &length(org_id),
        org_id.as_bytes(),
    ]);
    Address(std::array::from_fn(|at| hash[at]))
}

fn length(text: &str) -> [u8; 8] {
    (text.len() as u64).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_of_a_report_is_at_its_place() {
        let fields = [
            &[1][..],
            &[2; 32],
            &1_750_000_000_u32.to_be_bytes(),
            &3_u32.to_be_bytes(),
            &4_u32.to_be_bytes(),
            &[5; 32],
            b"0123456789",
            &[6; 20],
            &[0, 7],
            &[8; 32],
        ];
        let report = fields.concat();
        let expected = Report {
            version: 1,
            execution_id: Hash([2; 32]),
            timestamp: 1_750_000_000,
            don_id: 3,
            don_config_version: 4,
            workflow_id: Hash([5; 32]),
            workflow_name: b"0123456789",
            workflow_owner: Address([6; 20]),
            report_id: &[0, 7],
            payload: &[8; 32],
        };
        assert_eq!(Report::parse(&report), Some(expected));
        assert_eq!(report.len(), OCR_REPORT_LENGTH);
        assert_eq!(Report::parse(&report[1..]), None);
    }
}
