"""Checks of the API contract that a server of OpenCode 1.1.34 fails, and why. `docs/explanation/compatibility.md` has the same list."""

NO_ROUTE = "it has no route for that"
FAILED_CHECKS: dict[str, str] = {
    "a_listener_can_resume_after_a_cursor": "its events have no ids: after a gap the client reads the state again",
    "a_child_has_the_rules_it_was_given_and_the_denials_of_its_parent": "it does not inherit what the parent denies",
    "a_session_can_be_created_with_an_id_and_a_directory_once": NO_ROUTE,
    "a_query_selects_the_listed_sessions": "it has no tags, and lists only the directory of the request",
    "children_are_one_level_and_a_tree_is_all_levels": f"{NO_ROUTE} (trees)",
    "a_change_is_stored_and_published_and_does_not_count_as_use": "it cannot pin, tag or unarchive a session",
    "an_invalid_change_changes_nothing": "it accepts any title",
    "a_change_of_an_outdated_session_is_refused": "the last writer wins",
    "a_fork_has_the_earlier_messages_with_new_ids": "a fork has a title of its own, and no rules",
    "a_removal_includes_descendants_and_can_be_restored": "it has no trash",
    "a_session_removed_without_the_trash_cannot_be_restored": f"{NO_ROUTE} (the trash)",
    "operations_on_a_missing_session_are_not_found": f"{NO_ROUTE} (trees)",
    "a_command_becomes_a_prompt_with_its_arguments": "it runs shell insertions in the arguments of a command",
    "a_search_finds_words_of_a_prompt": f"{NO_ROUTE} (searching)",
    "any_text_can_be_searched_for": f"{NO_ROUTE} (searching)",
    "the_spending_of_a_session_is_the_sum_of_its_answers": f"{NO_ROUTE} (spending)",
    "figures_count_sessions_messages_and_tokens": f"{NO_ROUTE} (figures)",
    "a_move_that_cannot_be_accepted_is_refused_before_anything_is_sent": f"{NO_ROUTE} (moving)",
    "verifying_a_session_after_normal_use_finds_no_fault": f"{NO_ROUTE} (verifying)",
    "there_is_a_primary_agent_and_a_connected_provider": "it lists tools only for a model",
    "no_path_leads_out_of_the_project": "it fails with 500, and a NUL is not refused",
    "a_missing_terminal_is_not_found": "removing a missing terminal succeeds",
    "importing_an_equal_session_changes_nothing": f"{NO_ROUTE} (importing)",
    "a_missing_session_is_imported_as_new": f"{NO_ROUTE} (importing)",
    "importing_an_older_session_changes_nothing": f"{NO_ROUTE} (importing)",
    "a_diverged_session_is_imported_as_a_fork_once": f"{NO_ROUTE} (importing)",
    "messages_can_be_read_in_pages_and_backwards": f"{NO_ROUTE} (storing messages)",
    "changes_of_messages_and_parts_are_stored_and_published": f"{NO_ROUTE} (storing messages)",
    "a_message_needs_its_session_and_a_part_its_message": f"{NO_ROUTE} (storing messages)",
    "undone_messages_stay_until_the_session_continues": "its mark also names a snapshot of the whole worktree",
    "undoing_an_answer_undoes_its_prompt": "likewise",
    "a_part_after_text_is_undone_alone": "it undoes the whole message",
    "a_dry_run_changes_nothing": f"{NO_ROUTE} (dry runs)",
    "there_are_no_requests_and_no_grants_before_an_agent_works": f"{NO_ROUTE} (grants)",
    "a_reply_to_a_missing_request_is_not_found": f"{NO_ROUTE} (grants)",
}
# Whether these pass depends on timing; `test_client.py` waits for what differs.
TIMING_DEPENDENT: dict[str, str] = {
    "a_prompt_that_is_not_waited_for_is_stored_and_answered": "it changes a prompt some time after it has accepted it",
}
