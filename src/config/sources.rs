//! The sources of values: the compiled-in defaults, the operator's file and the files that it names, and the environment.

pub(super) mod environment;
pub(super) mod files;
pub(super) mod layer;
pub(super) mod text;
