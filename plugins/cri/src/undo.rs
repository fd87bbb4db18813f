//! Undoing the steps of an operation that failed, last first.

use std::future::Future;

use core_types::Result;
use futures::{FutureExt, future::BoxFuture};

/// What has to be undone, in the order in which it was done.
#[derive(Default)]
pub(crate) struct Undo(Vec<(&'static str, BoxFuture<'static, Result<()>>)>);

impl Undo {
    /// Adds a step; `what` says what undoing it does.
    pub(crate) fn push(&mut self, what: &'static str, step: impl Future<Output = Result<()>> + Send + 'static) {
        self.0.push((what, step.boxed()));
    }

    /// Undoes everything. Stops at the first step that fails: what was done before it may still be in use by what
    /// could not be undone. Answers whether all was undone.
    pub(crate) async fn run(self, id: &str) -> bool {
        for (what, step) in self.0.into_iter().rev() {
            if let Err(error) = step.await {
                tracing::error!(id, %error, "could not {what}; removing it later tries again");
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use core_types::Error;

    use super::*;

    #[tokio::test]
    async fn steps_are_undone_last_first_up_to_one_that_fails() {
        let done = Arc::new(Mutex::new(Vec::new()));
        let step = |number: u8, fails: bool| {
            let done = Arc::clone(&done);
            async move {
                done.lock().unwrap().push(number);
                if fails { Err(Error::internal("no")) } else { Ok(()) }
            }
        };
        let mut undo = Undo::default();
        undo.push("undo one", step(1, false));
        undo.push("undo two", step(2, true));
        undo.push("undo three", step(3, false));
        assert!(!undo.run("x").await);
        assert_eq!(*done.lock().unwrap(), [3, 2]);
        let mut undo = Undo::default();
        undo.push("undo four", step(4, false));
        assert!(undo.run("x").await);
    }
}
