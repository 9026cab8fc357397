"""What each kind of output node reports, and under which key and name (docs/design/comfyui.md, section 6)."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

import pytest

from tests.support.comfyui import Wire, recorded, three_nodes


def unmarked(value: Any, mark: str) -> Any:
    """With one prefix for all runs, and without the letters that a server draws for its temporary names."""
    return json.loads(re.sub(r"temp_[a-z]{5}_", "temp_", json.dumps(value).replace(mark, "rec")))


@pytest.mark.parametrize("row", recorded("output_kinds"), ids=lambda row: row["case"])
async def test_each_kind_of_output_is_reported_as_recorded(wire: Wire, row: dict[str, Any]) -> None:
    """F6.1."""
    mark = uuid.uuid4().hex
    graph = json.loads(json.dumps(row["prompt"]).replace('"rec/', f'"{mark}/'))
    prompt_id, entry = await wire.run(graph)
    assert unmarked(entry["outputs"], mark) == unmarked(row["outputs"], mark)
    job = await wire.get(f"/api/jobs/{prompt_id}")
    assert unmarked({key: job.get(key) for key in row["job"]}, mark) == unmarked(row["job"], mark)
    assert ("preview_output" in job) == ("preview_output" in row["job"])
    for items in (items for by_key in entry["outputs"].values() for items in by_key.values()):
        for item in (item for item in items if isinstance(item, dict)):
            status, body = await wire.ask("GET", "/view", params=item)
            assert (status, len(body) > 0) == (200, True), item


async def test_a_prefix_may_name_folders_sizes_and_odd_letters(wire: Wire) -> None:
    """F6.2."""
    mark = uuid.uuid4().hex
    _, entry = await wire.run(three_nodes(f"{mark}/%width%x%height%/a b:ü*"))
    (image,) = entry["outputs"]["3"]["images"]
    assert image == {"filename": "a b:ü*_00001_.png", "subfolder": f"{mark}/64x48", "type": "output"}
    assert (await wire.ask("GET", "/view", params=image))[0] == 200
