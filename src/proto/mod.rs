//! Wire protocols, without sockets: bytes in, values out, and back.

pub mod args;
pub mod command;
pub mod dnode;
pub mod glob;
pub mod memcache;
pub mod outbuf;
pub mod resp;
