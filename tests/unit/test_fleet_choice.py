"""The choice among servers: healthy, not filled by others, fewest prompts ahead, the order given."""

from __future__ import annotations

from typing import cast
from uuid import uuid4

from genflow.comfy import ComfyServer
from genflow.fleet.breaker import Breaker
from genflow.fleet.choice import Room, choice_line, choices, lengths, room
from genflow.fleet.server import FleetServer
from genflow.queue.registry import ServerState, Standing


def server(order: int, *, others: int = 0, strangers: int = 0, ours: int = 0, healthy: bool = True) -> FleetServer:
    """A server named by its place, with two slots."""
    name = f"gpu{order}"
    made = FleetServer(order, f"here/{name}", name, cast("ComfyServer", None), 2, order, Breaker(base_s=0.0))
    made.healthy, made.others, made.strangers = healthy, others, strangers
    made.ours = {uuid4() for _ in range(ours)}
    return made


def names(servers: list[FleetServer], max_queue: int | None = None) -> list[str]:
    return [each.given for each in choices(servers, max_queue=max_queue)]


def test_fewest_prompts_ahead_come_first_then_the_order_given() -> None:
    assert names([server(0, others=2), server(1, ours=1), server(2, others=1), server(3)]) == [
        "gpu3", "gpu1", "gpu2", "gpu0",
    ]  # fmt: skip


def test_a_server_that_is_away_or_kept_out_or_has_no_free_slot_is_no_choice() -> None:
    drained = server(2)
    drained.standing = Standing(ServerState.DRAINING, "by hand")
    assert names([server(0, healthy=False), server(1, ours=2), drained, server(3, others=9)]) == ["gpu3"]


def test_a_server_that_others_filled_is_no_choice() -> None:
    filled = [server(0, strangers=3), server(1, strangers=2)]
    assert names(filled, max_queue=3) == ["gpu1"]
    assert names(filled) == ["gpu0", "gpu1"]


def test_an_open_breaker_keeps_new_work_out_and_a_half_open_one_takes_one_at_a_time() -> None:
    shaky = server(0)
    shaky.breaker.trouble(0.0)
    assert names([shaky]) == []
    shaky.breaker.answered(1.0)
    assert names([shaky]) == ["gpu0"]
    shaky.ours.add(uuid4())
    assert names([shaky]) == []
    assert shaky.takes_new, "the one that was let in is not turned away at its submit"


def test_what_stands_in_the_way_everywhere_is_known() -> None:
    away, filled = server(0, healthy=False), server(1, strangers=5)
    assert room([away], max_queue=None) is Room.NO_SERVER
    assert room([away, filled], max_queue=5) is Room.ALL_FULL
    assert room([away, filled, server(2, ours=2)], max_queue=5) is Room.SOME, "ours end by themselves"


def test_a_decision_is_told_with_the_names_given() -> None:
    seen = lengths([server(0, others=2), server(1), server(2, healthy=False)])
    assert choice_line("gpu1", seen) == "scheduler: gpu1 chosen, queue lengths gpu0 2, gpu1 0"
