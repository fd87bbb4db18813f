//! What every snapshotter must do, as tests with real mounts: `snapshotter_suite!(make)` in a test module, where
//! `make` takes an empty directory and returns a snapshotter in it, or none after printing why it cannot be
//! tested here.
//!
//! Each test has a mount namespace and a directory of its own and needs root; without it, it is skipped.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test library fails by panic")]

/// The bench of a test, and comparing trees.
mod bench;
/// Keys, parents, labels, listings.
mod records;
/// Whole trees, layer upon layer.
mod trees;

pub use bench::{Bench, Make, entries, run};
pub use records::*;
pub use trees::*;

/// Makes a test of each case of the suite.
#[macro_export]
macro_rules! snapshotter_suite {
    ($make:path) => {
        $crate::snapshotter_suite!(@ $make:
            goes_from_prepared_to_committed, uses_a_key_once, demands_committed_parents, refuses_what_is_not_there,
            updates_labels, lists_by_filter, removes_in_order, gives_a_contested_key_to_one, cleans_up_only_garbage,
            shows_updated_files, hides_removed_files, keeps_owners_and_modes, moves_files_of_lower_layers,
            renames_files, replaces_one_kind_by_another, keeps_hard_links, keeps_special_files_and_attributes,
            has_read_only_views, makes_roots_like_their_parents, stacks_twenty_layers, rebases_or_refuses,
            measures_usage, starts_anew_after_removal
        );
    };
    (@ $make:path: $($case:ident),*) => {
        $(
            #[test]
            fn $case() {
                $crate::testsuite::run($make, $crate::testsuite::$case);
            }
        )*
    };
}
