"""What a server says of itself: its memory, its model folders, its nodes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.comfyui import Wire, recorded


@pytest.mark.parametrize("row", recorded("describes"), ids=lambda row: row["path"])
async def test_a_server_describes_itself_as_recorded(wire: Wire, row: dict[str, Any]) -> None:
    """F8.4; a newer release may say more."""
    status, body = await wire.ask("GET", row["path"])
    assert status == row["status"]
    if row["path"] == "/system_stats":
        assert set(row["system"]) <= set(body["system"])
        assert set(row["device"]) <= set(body["devices"][0])
    elif "input" in row:
        (node,) = body.values()
        assert (node["output"], node["output_node"]) == (row["output"], row["output_node"])
        declared = node["input"].items()
        kinds = {group: {name: kind_of(given) for name, given in inputs.items()} for group, inputs in declared}
        assert kinds == row["input"]
    elif "body" in row:
        assert set(row["body"]) <= set(body)


def kind_of(declared: Any) -> str:
    """The kind of a declared input: its name, or `list` for a choice in the old style."""
    if isinstance(declared, str):
        return declared
    return "list" if isinstance(declared[0], list) else str(declared[0])
