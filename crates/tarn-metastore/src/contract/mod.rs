//! What must hold of every backend? One suite of functions over `&dyn Metastore`, run on each of them, and the samples
//! that tests of this crate share. Backends in crates of their own reach it by the feature `contract`.

use std::any::Any;
use std::sync::Arc;

use crate::Metastore;

mod block_metadata;
mod catalog;
mod commits;
mod copies;
mod documents;
pub mod proxy;
mod samples;
mod script;

pub use block_metadata::*;
pub use catalog::*;
pub use commits::*;
pub use copies::*;
pub use documents::*;
pub use samples::*;
pub use script::*;

/// What a suite runs on: a backend, and something to keep alive. `None`: there is no such server here, the test passes.
pub trait SuiteTarget {
    /// Called once for each test; the second part is dropped when the test ends.
    fn made(self) -> Option<(Backend, Box<dyn Any>)>;
}

impl<M: Metastore + 'static, K: Any> SuiteTarget for (M, K) {
    fn made(self) -> Option<(Backend, Box<dyn Any>)> {
        Some((Arc::new(self.0), Box::new(self.1)))
    }
}

impl<T: SuiteTarget> SuiteTarget for Option<T> {
    fn made(self) -> Option<(Backend, Box<dyn Any>)> {
        self?.made()
    }
}

/// Runs the suite, or the named parts of it, on what the expression makes anew for each: see [`SuiteTarget`]. Its clock
/// says 1,000 ms.
#[macro_export]
macro_rules! contract_suite {
    ($make:expr) => {
        $crate::contract_suite!(
            $make;
            tables_get_ids_and_keep_them,
            a_name_is_taken_once,
            commits_make_versions,
            the_expected_version_must_be_the_latest,
            a_lost_answer_is_found_by_id,
            one_id_is_one_commit_however_many_send_it,
            writers_side_by_side_lose_and_duplicate_nothing,
            unlawful_commits_change_nothing,
            old_versions_are_as_they_were,
            expiring_forgets_and_names_the_files,
            file_ids_are_unique,
            appends_are_rebased,
            only_appends_are,
            disjoint_commits_are_rebased,
            thirty_two_writers_a_thousand_commits,
            time_travel_under_writers,
            alter_adds_and_widens_only,
            columns_come_with_a_value_and_go_for_good,
            what_is_said_of_columns_changes,
            names_change_together_or_not_at_all,
            an_archive_is_a_table_without_a_key,
            a_view_is_a_query_in_the_place_of_rows,
            a_document_is_replaced_by_whoever_saw_it_last,
            documents_come_along_with_a_copy,
            notes_stay_with_their_files,
            block_metadata_come_back_bit_for_bit,
            block_metadata_of_unknown_blocks_are_missing_not_wrong,
            unlawful_block_metadata_change_nothing,
            a_probe_never_drops_a_block_that_has_the_keys,
            maintenance_changes_no_answer,
            a_wide_block,
            expire_frees_block_metadata,
            restore_equals_the_source,
            a_copy_equals_its_source,
            a_stopped_copy_goes_on,
        );
    };
    ($make:expr; $($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            let Some((metastore, _keep)) = $crate::contract::SuiteTarget::made($make()) else { return };
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
            runtime.block_on($crate::contract::$name(metastore));
        })*
    };
}
pub use contract_suite as suite;
