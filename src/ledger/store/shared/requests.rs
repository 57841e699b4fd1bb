//! Requests between instances, sent through the store. The owner of a channel executes an operator's command for it.
//!
//! # Invariants
//!
//! * **At most once.** A request is taken once, by the instance that it is addressed to.
//! * **A withdrawn request is not executed.** A request that was withdrawn before it was taken is never taken.

use std::fmt;

use async_trait::async_trait;

use super::InstanceId;
use crate::StateError;

/// Identifies a request while its sender waits for the answer.
pub type RequestId = i64;

/// A request with the parts of an HTTP request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The method.
    pub method: String,
    /// The path with the query.
    pub path: String,
    /// The body.
    pub body: Vec<u8>,
}

/// An answer with the parts of an HTTP response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// The state of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The answer has not arrived.
    Waiting,
    /// The answer has arrived. The request is removed.
    Answered(Answer),
    /// No answer will arrive, because the instance has died or the request was withdrawn. The request is removed.
    Ended {
        /// Whether the request may have been executed.
        taken: bool,
    },
}

/// The requests of a store.
#[async_trait]
pub trait Requests: Send + Sync + fmt::Debug {
    /// Sends a request to an instance.
    ///
    /// # Errors
    /// If the store cannot be reached. The request may be executed anyway.
    async fn ask(&self, instance: InstanceId, request: &Asked) -> Result<RequestId, StateError>;

    /// Checks for the answer. If `withdraw` is set, the request ends in any case.
    ///
    /// # Errors
    /// If the store cannot be reached.
    async fn look(&self, request: RequestId, withdraw: bool) -> Result<Standing, StateError>;

    /// Takes the requests that are addressed to this instance.
    ///
    /// # Errors
    /// If the store cannot be reached.
    async fn take(&self) -> Result<Vec<(RequestId, Asked)>, StateError>;

    /// Answers a request that was taken. Does nothing if the sender no longer waits for it.
    ///
    /// # Errors
    /// If the store cannot be reached.
    async fn answer(&self, request: RequestId, answer: &Answer) -> Result<(), StateError>;
}
