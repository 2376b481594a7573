//! The memcache text protocol: requests and replies without a socket.
//!
//! In reading order: [`table`] has one row a command, [`decode`] finds one request in a receive
//! buffer and refuses what memcached would refuse, in its words; [`forward`] writes the form in
//! which a request goes to a store or peer; [`reply`] finds the end of one reply and tells which
//! replies a client does not want; [`values`] splits a get over owners and joins the answers;
//! [`ids`] tells the cas ids of one store from those of others.
//!
//! memcached 1.6 is the reference (`proto_text.c`, `doc/protocol.txt`), not the C node: that one
//! dies of a get, and waits for replies to noreply requests. Towards stores and peers **every
//! request is sent in its replying form**: what a client asked not to be told is left out at the
//! client's end, so that an upstream's replies can be counted.
//!
//! The binary protocol is refused.

pub mod decode;
pub mod forward;
pub mod ids;
mod number;
pub mod reply;
pub mod table;
pub mod values;
