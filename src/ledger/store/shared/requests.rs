//! What instances ask each other, through the store: an operator's command is carried out by the owner of its channel.
//!
//! # Invariants
//!
//! * **At most once.** A request is taken once, by the instance that it is for.
//! * **Withdrawn is not carried out.** What was withdrawn before it was taken is never taken.

use std::fmt;

use async_trait::async_trait;

use super::InstanceId;
use crate::StateError;

/// Names a request while it is waited for.
pub type RequestId = i64;

/// A request, in HTTP's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its method.
    pub method: String,
    /// Its path, with the query.
    pub path: String,
    /// Its body.
    pub body: Vec<u8>,
}

/// An answer, in HTTP's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: Vec<u8>,
}

/// How a request stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is no answer yet.
    Waiting,
    /// There is one. The request is removed.
    Answered(Answer),
    /// There will be none: the instance has died, or the request was withdrawn. It is removed.
    Ended {
        /// Whether it may have been carried out.
        taken: bool,
    },
}

/// The requests of a store.
#[async_trait]
pub trait Requests: Send + Sync + fmt::Debug {
    /// Asks an instance.
    ///
    /// # Errors
    /// If the store cannot be reached. Then it may be carried out all the same.
    async fn ask(&self, instance: InstanceId, request: &Asked) -> Result<RequestId, StateError>;

    /// Looks for the answer. With `withdraw`, the request ends in any case.
    ///
    /// # Errors
    /// If the store cannot be reached.
    async fn look(&self, request: RequestId, withdraw: bool) -> Result<Standing, StateError>;

    /// Takes what this instance is asked.
    ///
    /// # Errors
    /// If the store cannot be reached.
    async fn take(&self) -> Result<Vec<(RequestId, Asked)>, StateError>;

    /// Answers what was taken. Nothing changes where it is not waited for any more.
    ///
    /// # Errors
    /// If the store cannot be reached.
    async fn answer(&self, request: RequestId, answer: &Answer) -> Result<(), StateError>;
}
