//! A configuration: mistakes are named before anything starts, and another one takes effect as a whole or not at all.

mod check;
mod mistakes;
mod reload;
