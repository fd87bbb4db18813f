//! Memory that was needed for a while goes back to the kernel.

use std::time::Duration;

use plugin_services::GrpcRouter;

/// Between two looks at whether there was anything to do.
const LOOK: Duration = Duration::from_secs(10);
/// Looks between two times that a busy daemon gives freed memory back.
const BUSY: u32 = 6;

/// Gives memory back now, after the start, and then whenever requests were served: freed heap once a minute, and when none
/// came for a while also the pages of the program, most of which ran once. Ends with the daemon.
pub(crate) async fn run(router: GrpcRouter) {
    let (mut seen, mut looks, mut settled) = (router.requests(), 0, true);
    release(true).await;
    loop {
        tokio::time::sleep(LOOK).await;
        let now = router.requests();
        let quiet = now == seen;
        seen = now;
        if quiet && settled {
            continue;
        }
        looks += 1;
        if quiet || looks >= BUSY {
            release(quiet).await;
            (looks, settled) = (0, quiet);
        } else {
            settled = false;
        }
    }
}

async fn release(quiet: bool) {
    let work = move || {
        core_sys::trim_memory();
        if quiet && let Err(error) = core_sys::release_program_pages() {
            tracing::debug!(%error, "memory of the program is not given back");
        }
    };
    // Only fails when the daemon ends.
    let _ = tokio::task::spawn_blocking(work).await;
}
