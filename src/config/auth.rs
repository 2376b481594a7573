//! `auth:`: who may connect, and how the node presents itself to its store.

use super::section::section;
use super::texts::Secret;

section! {
    /// `auth:`: passwords towards clients and the store.
    pub struct Auth {
        /// The password clients must give with AUTH (user `default`). Default: none is asked.
        pub requirepass: Option<Secret> = None,
        /// The user name this node gives its store with AUTH. Default: the store's default user.
        pub store_user: Option<String> = None,
        /// The password this node gives its store with AUTH. Default: no AUTH is sent.
        pub store_password: Option<Secret> = None,
    }
}
