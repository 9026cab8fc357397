"""Which texts in a workflow would lead a server to files that are not the client's own. Pure.

Servers keep the photos and pictures of all clients in folders below `genflow`, and ComfyUI opens whatever name it is
given: `[output]` or `[temp]` at a name's end means another folder, `..` leads out of one. A client names its own files
by their asset ids, so no text of its own has a reason to say any of this.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

FOLDER = "genflow"
"""Where genflow keeps files on a server, below its input and its output folder."""
ASSET_TYPE = "core/ASSET"

_SEPARATOR = re.compile(r"[/\\]")
_DRIVE = re.compile(r"[A-Za-z]:")
_OTHER_FOLDER = re.compile(r"\[(output|temp)\]\s*\Z", re.IGNORECASE)
_INPUT_FOLDER = re.compile(r".?\[input\]\s*\Z", re.IGNORECASE | re.DOTALL)
_SHORT_NAME = re.compile(r"genflo~\d+")  # what Windows calls the folder too


def leads_away(value: Any, *, prefix: bool = False) -> str | None:
    """Why a value of a node's input, or a text deep in it, may not go to a server; None where it may.

    `prefix`: it is the beginning of names that will be written, below a folder of the job's own.
    """
    if isinstance(value, dict):
        if value.get("__type") == ASSET_TYPE:
            return None
        return _first([*value, *value.values()])
    if isinstance(value, list):
        return _first(value)
    return _text_leads_away(value) if isinstance(value, str) and not prefix else None


def _first(values: list[Any]) -> str | None:
    return next((why for each in values if (why := leads_away(each)) is not None), None)


def _text_leads_away(text: str) -> str | None:
    if found := _OTHER_FOLDER.search(text):
        return f"it ends in [{found[1]}], which means a folder of everybody's files"
    parts = [_plain(part) for part in _SEPARATOR.split(_DRIVE.sub("", _INPUT_FOLDER.sub("", text), count=1))]
    if FOLDER in parts or any(_SHORT_NAME.fullmatch(part) for part in parts):
        return f"it points into the folder {FOLDER}, where everybody's files lie"
    if len(parts) > 1 and ".." in parts:
        return "it climbs out of its folder with “..”"
    return None


def _plain(part: str) -> str:
    """A folder's name as the most forgiving file system reads it: no case, no invisible letters, no trailing dots."""
    visible = "".join(letter for letter in part if unicodedata.category(letter) != "Cf")
    plain = unicodedata.normalize("NFKC", visible).casefold().strip()
    return plain if plain == ".." else plain.rstrip(". ")
