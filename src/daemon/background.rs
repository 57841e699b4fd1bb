//! Tasks beside the channels. No delivery depends on them.
//!
//! | task | purpose |
//! |---|---|
//! | `discovery` | finds new channels of the organization |
//! | `keys` | logs which API keys the service refuses |
//! | `names` | requests the names of networks and watchers |
//! | `progress` | logs the progress of channels that catch up |

pub(super) mod discovery;
pub(super) mod keys;
pub(crate) mod names;
pub(super) mod progress;
