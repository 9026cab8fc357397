"""What a finished prompt gave out: files to be fetched, and texts. Pure.

The facts about ComfyUI behind it stand in docs/design/comfyui.md, section 6.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from genflow.errors import clean_text

FOLDER_TYPES = ("output", "temp", "input")

TEXTS_PER_KEY = 100
"""So many values under one key are an output each; of more, such as the points of a curve, one text holds them all."""

_FLAG = "animated"
"""Says of the files beside it that they move; ComfyUI itself counts it as no output."""


@dataclass(frozen=True, slots=True)
class Output:
    """One thing a node gave out: a file on the server, or (with `text`) a piece of text."""

    node_id: str
    key: str
    index: int
    filename: str = ""
    subfolder: str = ""
    folder_type: str = "output"
    text: str | None = None


def walk_outputs(outputs: Mapping[str, Any]) -> list[Output]:
    """Everything in a history entry's `outputs`, whatever key it stands under: files, texts, and other values as JSON.

    Videos stand under "images" and custom nodes bring keys of their own, so all keys are walked. An index is the place
    among what is not null, for `/api/jobs/ID` leaves nulls out and `/history/ID` does not.
    """
    found: list[Output] = []
    for node_id, by_key in outputs.items():
        for key, items in by_key.items() if isinstance(by_key, dict) else ():
            if key != _FLAG and isinstance(items, list):
                found += _of_key(clean_text(node_id, 200), clean_text(key, 200), items)
    return found


def files_beside(outputs: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Folder and name of files that nodes wrote beside those they list: VHS_VideoCombine's PNG of the first frame."""
    items = [
        item
        for by_key in outputs.values()
        for listed in (by_key.values() if isinstance(by_key, dict) else ())
        for item in (listed if isinstance(listed, list) else ())
        if isinstance(item, dict)
    ]
    return {
        (str(item.get("subfolder") or ""), item["workflow"])
        for item in items
        if isinstance(item.get("workflow"), str) and item.get("type", "output") == "output"
    }


def _of_key(node_id: str, key: str, items: list[Any]) -> list[Output]:
    found: list[Output] = []
    values: list[tuple[int, Any]] = []
    for index, item in enumerate(item for item in items if item is not None):
        file = _file(item)
        if isinstance(file, tuple):
            found.append(Output(node_id, key, index, *file))
        else:
            values.append((index, file))
    if len(values) > TEXTS_PER_KEY:
        values = [(values[0][0], [value for _, value in values])]
    for index, value in values:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        found.append(Output(node_id, key, index, text=clean_text(text, len(text))))
    return sorted(found, key=lambda output: output.index)


def _file(item: Any) -> Any:
    """Name, folder and type of the file that an item names; one that names none `/view` would give, as it is."""
    if not isinstance(item, dict):
        return item
    name, folder, kind = item.get("filename"), item.get("subfolder") or "", item.get("type", "output")
    if not isinstance(name, str) or not isinstance(folder, str) or kind not in FOLDER_TYPES:
        return item
    if item == {"filename": name, "type": "output", "subfolder": "", "mediaType": "3d"}:
        return name  # so `/api/jobs/ID` shows a text that ends as a 3D file is named; there need not be such a file
    path = f"{folder}/{name}" if folder else name
    folder, _, name = path.rpartition("/")  # `/view` looks at the last part of a name only
    if not name or ".." in path or path.startswith("/"):
        return item
    return clean_text(name, 1_000), clean_text(folder), kind


def output_id(job_id: UUID, node_id: str, key: str, index: int) -> UUID:
    """The id of an output's asset: the same for every collector of the same job."""
    return uuid5(job_id, json.dumps([node_id, key, index]))
