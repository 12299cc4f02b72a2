"""Checks of the API contract that a server of OpenCode 1.1.34 fails, and why. `docs/explanation/compatibility.md` has the same list."""

NO_ROUTE = "it has no route for that"
NOT_KEPT: dict[str, str] = {
    "a_listener_can_go_on_after_a_cursor": "its events have no ids: after a gap what is there is read again",
    "a_child_has_the_rules_it_was_given_and_the_denials_of_its_parent": "it forgets the denials of the parent",
    "a_session_can_be_given_its_id_and_directory_once": NO_ROUTE,
    "a_list_shows_what_is_asked_for": "it knows no tags, and no directory but the one that is asked",
    "children_are_those_right_below_and_a_tree_is_all": f"{NO_ROUTE} (trees)",
    "a_change_is_stored_told_and_no_use_of_the_session": "it pins and tags nothing, and brings nothing back from the archive",
    "a_change_that_cannot_be_meant_changes_nothing": "it takes any title",
    "a_change_to_what_has_changed_meanwhile_is_refused": "the last writer wins",
    "a_fork_has_the_messages_before_one_and_its_own_names": "a fork has a title of its own, and no rules",
    "a_removal_takes_all_below_and_comes_back_as_it_was": "it has no trash: removed is gone",
    "what_is_removed_past_the_trash_is_gone": f"{NO_ROUTE} (the trash)",
    "what_is_asked_of_no_session_is_not_found": f"{NO_ROUTE} (trees)",
    "a_command_is_a_prompt_and_what_is_typed_behind_it_stands_in_it": "it carries out what is typed behind a command",
    "words_that_were_said_are_found": f"{NO_ROUTE} (searching)",
    "whatever_is_typed_is_a_search": f"{NO_ROUTE} (searching)",
    "what_was_spent_is_what_the_answers_say": f"{NO_ROUTE} (spending)",
    "figures_count_sessions_messages_and_tokens": f"{NO_ROUTE} (figures)",
    "there_is_somebody_to_answer_and_something_to_answer_with": "it lists tools for a model alone",
    "no_path_leads_out_of_the_project": "it fails with 500, and a NUL is not refused",
    "a_terminal_that_is_not_there_is_not_found": "it removes what is not there",
    "what_is_here_already_is_left_alone": f"{NO_ROUTE} (importing)",
    "a_session_that_is_not_here_is_new": f"{NO_ROUTE} (importing)",
    "what_was_said_since_is_not_taken_back": f"{NO_ROUTE} (importing)",
    "when_both_have_gone_on_both_are_kept_and_only_once": f"{NO_ROUTE} (importing)",
    "messages_come_page_by_page_and_backwards": f"{NO_ROUTE} (putting messages)",
    "messages_and_parts_are_put_and_taken_away_and_told": f"{NO_ROUTE} (putting messages)",
    "a_message_needs_its_session_and_a_part_its_message": f"{NO_ROUTE} (putting messages)",
    "what_is_taken_back_stays_until_the_session_goes_on": "its mark holds a snapshot of the whole worktree, too",
    "an_answer_is_taken_back_with_its_prompt": "likewise",
    "a_part_with_words_before_it_is_taken_back_alone": "it takes the whole message back",
    "a_look_ahead_changes_nothing": f"{NO_ROUTE} (looking ahead)",
    "nothing_is_asked_and_nothing_granted_before_an_agent_works": f"{NO_ROUTE} (grants)",
    "an_answer_to_what_is_not_open_is_not_found": f"{NO_ROUTE} (grants)",
}
# Whether these hold depends on when one looks; `test_client.py` waits for what differs.
A_MATTER_OF_TIME: dict[str, str] = {
    "a_prompt_that_is_not_waited_for_is_stored_and_answered": "it changes a prompt some time after it has taken it",
}
