"""The oracle: every promise of docs/design/architecture.md for every job of a run. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.rules import house, jobs, runs
from chaos.rules.broken import Broken, Rule
from chaos.snapshot import Snapshot

RULES: tuple[Rule, ...] = (
    jobs.what_was_accepted_is_not_lost,
    jobs.each_wish_is_one_job,
    runs.every_run_is_a_submit,
    runs.every_run_is_counted,
    runs.every_prompt_shows_its_token,
    runs.no_server_hears_a_stale_submit,
    runs.nothing_begins_after_the_end,
    runs.a_recorded_success_is_not_repeated,
    runs.a_good_run_is_not_lost,
    runs.nothing_is_taken_away_before_the_end,
    runs.a_guarded_fleet_doubles_nothing,
    jobs.a_success_is_what_its_run_made,
    jobs.what_was_downloaded_is_what_was_made,
    jobs.a_failure_has_a_cause,
    jobs.a_job_that_ends_otherwise_was_canceled,
    jobs.cancel_means_canceled,
    jobs.an_end_stays,
    runs.no_neighbour_is_harmed,
    jobs.nobody_sees_anothers,
    jobs.one_dead_letter_a_failed_job,
    jobs.every_message_is_done_with,
    runs.a_server_holds_no_more_than_its_slots,
    house.the_queue_is_bounded,
    house.memory_is_bounded,
    house.nothing_dies_by_itself,
    house.the_api_has_an_answer,
    house.nothing_is_left_to_do,
    house.an_ended_job_leaves_no_file,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A broken promise, by the rule that found it."""

    rule: str
    broken: Broken

    @property
    def title(self) -> str:
        """The rule as a sentence."""
        return self.rule.replace("_", " ")


def judge(run: Snapshot) -> list[Verdict]:
    """Every promise that the run broke, in the order of the rules."""
    return [Verdict(rule.__name__, broken) for rule in RULES for broken in rule(run)]
