//! A request on the control socket, in any form: it is answered, and the daemon that reads nothing stays as it was.
//!
//! The first byte selects the route. The rest is the query of a reading request, or the body of a change.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((route, rest)) = data.split_first() else { return };
    let status = operator::testing::request(usize::from(*route), rest);
    assert!(status < 600 && status != 404 && status != 405, "{status}");
});
