//! Clients that wait for a key of the embedded store, woken by whatever worker makes it.

use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;

use super::core::Core;

impl Core {
    /// Lets clients try again that wait for a key of the embedded store, when it appeared.
    pub(super) async fn retry_woken(self: Rc<Core>) {
        let Some(line) = self.setup.embedded.as_ref().and_then(|store| store.line()) else {
            return;
        };
        let woken = Arc::new(Notify::new());
        let notify = Arc::clone(&woken);
        line.wake_by(self.number as u64, Box::new(move || notify.notify_one()));
        loop {
            woken.notified().await;
            let now = self.setup.clock.now();
            self.enter().on_woken(now);
            self.after_input();
        }
    }
}
