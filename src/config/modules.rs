//! `module_commands:`: commands of the datastore's modules that the command table does not know.

use super::section::section;

section! {
    /// `module_commands:`: commands by the beginnings of their names; of several the longest
    /// counts. Their key is the first argument.
    pub struct ModuleNames {
        /// Beginnings of names of commands that only read. Default: none.
        pub reads: Vec<String> = Vec::new(),
        /// Beginnings of names of commands that may write. Default: those of the modules that come
        /// with Redis 8, which are known besides these.
        pub writes: Vec<String> = Vec::new(),
    }
}
