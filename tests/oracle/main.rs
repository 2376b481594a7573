//! torc's protocol code against the programs that define it: redis-server and memcached.
//!
//! Each test starts its own server on loopback, and says that it was skipped when the program is
//! not there. `REDIS_BIN` and `MEMCACHED_BIN` name other programs than those of the PATH.

mod lift;
mod memcache;
mod rewrite;
mod server;
mod steps;
mod table;
