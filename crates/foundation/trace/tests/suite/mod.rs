//! The behaviours, each a function of the place where the store is.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use formwork_protocols::{
    AgentName, Append, AttemptId, Blob, BlobHash, Body, Budget, CallId, Clock, Ending, Event,
    EventBody, EventStore as _, Live, NewEvent, OutcomeCode, PermissionMode, Position, Principal,
    Rng as _, RunId, RunOutcome, RunState, Scrub, SeededRng, SessionId, Span, StoreError,
    SystemRng, TaskId, TaskSignal, TaskSpec, TaskState, Timestamp, Usage, Usd, Views as _,
    check::{Evidence, Phase, Verdict},
    event::{
        AttemptEnded, AttemptStarted, CheckFinished, Delta, DeltaKind, FileChange, ModelCompleted,
        NoteAdded, RunCreated, RunFinished, RunStarted, SessionMessage, TaskCreated, TaskMoved,
    },
    message::Role,
    model::{ServedBy, StopReason},
    store::{AuditFault, Selection},
};
use formwork_testkit::postgres::{Database, Postgres};
use formwork_trace::{LapseBy, Options, Trace};
use futures::StreamExt as _;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, Row as _};

mod audits; // What an audit finds.
mod commits; // What is taken for granted between commits.
mod keep; // Out and in, archived and pruned.
mod leases; // Who may write.
mod log; // What is appended and read.
mod opening; // Opened, and closed.
mod origin; // What came from elsewhere.
mod posts; // What is handed over without waiting for the disk.
mod seal; // Signed, compared, measured.
mod support; // Where a store is, and what is put into it.
mod views; // What the views show.
mod watch; // What those who watch receive.

pub(crate) use {
    audits::{
        an_audit_finds_each_blob_that_is_needed_and_gone, an_audit_finds_each_edited_column,
        an_audit_finds_missing_and_altered_blobs, an_audit_finds_what_was_removed_moved_or_cut,
    },
    commits::{
        a_cursor_never_skips_a_late_commit,
        an_owner_whose_lease_another_process_took_is_refused_at_once,
        appends_of_every_size_are_whole, two_processes_that_write_in_turn_agree,
    },
    keep::{
        a_bundle_that_was_cut_or_altered_in_its_compressed_form_is_refused,
        a_checkpoint_in_the_middle_of_an_archived_run_still_holds,
        a_forged_bundle_is_refused_with_what_is_wrong, a_run_goes_out_and_comes_in_whole,
        a_run_that_is_here_and_is_another_is_refused,
        a_run_that_is_not_sound_or_holds_a_secret_does_not_leave,
        a_run_with_a_blob_that_no_line_holds_leaves_and_comes_back,
        ended_runs_leave_into_an_archive_and_come_back,
        nothing_leaves_or_is_pruned_that_somebody_works_on, others_write_while_the_log_is_kept,
        what_comes_in_is_seen_by_those_who_watch,
    },
    leases::{
        a_clock_that_is_set_takes_no_run_from_its_owner, a_lease_is_renewed_and_given_back,
        a_lease_is_taken_over_from_the_named_owner_alone,
        an_owner_writes_on_until_another_takes_the_run,
        behaviour_19_only_one_of_many_gets_the_lease,
    },
    log::{
        a_cursor_goes_on_past_what_it_does_not_look_for,
        a_selection_reads_a_run_a_task_and_kinds_by_prefix,
        an_amount_below_nothing_is_not_recorded,
        behaviour_15_an_append_is_recorded_whole_or_not_at_all,
        behaviour_16_the_log_refuses_to_be_changed,
        behaviour_16_transcripts_and_the_notepad_are_append_only,
        behaviour_18_a_second_write_with_a_key_returns_the_first_event,
        behaviour_23_secrets_reach_neither_events_nor_keys_nor_blobs,
        data_of_a_known_kind_that_does_not_fit_is_refused,
        many_producers_leave_a_gapless_sound_log, text_of_every_kind_survives,
        what_is_appended_is_read_in_order,
    },
    opening::{
        a_store_of_a_later_version_is_refused,
        a_store_that_was_closed_says_so_and_keeps_what_it_acknowledged,
        opening_twice_changes_nothing,
    },
    origin::{
        a_run_that_came_from_a_file_is_known_for_it, a_store_has_a_name_that_stays,
        what_is_no_run_does_not_come_in,
    },
    posts::{
        a_store_that_is_closed_keeps_what_was_posted,
        an_acknowledged_append_covers_what_was_posted_before,
        an_append_of_nothing_waits_for_what_was_posted,
        many_who_post_and_append_leave_each_their_own_order,
        what_a_post_failed_of_is_told_by_the_next_append_of_its_run,
        what_is_posted_is_written_although_nothing_follows,
    },
    seal::{
        a_checkpoint_that_was_changed_is_found, a_history_that_was_written_anew_is_found,
        a_run_that_was_removed_whole_is_found,
        a_store_of_the_first_version_is_migrated_and_its_blobs_are_read,
        a_store_tells_what_it_holds_and_gives_space_back,
        a_view_that_is_not_what_the_log_says_is_found_and_mended,
        an_audit_holds_while_others_write, the_views_made_again_are_the_same_bytes_on_both_engines,
        what_is_not_sound_is_not_signed,
    },
    support::Place,
    views::{
        a_run_says_where_more_files_changed_than_were_told,
        runs_are_listed_newest_first_page_by_page, sums_stop_at_the_largest_number,
        the_views_are_the_same_when_made_anew, the_views_tell_the_story_of_a_run,
    },
    watch::{
        a_slow_watcher_is_told_where_to_read_on,
        behaviour_33_words_reach_watchers_and_are_not_stored,
        two_processes_share_one_log_and_each_watcher_sees_every_event_once_in_order,
    },
};

use support::{
    Hands, Hide, Story, all, by_hand, bytes, event, note, of, run_at, sound, story, task_at,
};
