"""Workflows in ComfyUI's API format: read from exact text, checked for structure, their assets found and replaced.

Pure. A workflow is kept as the very text that a client sent, so that a seed of 2^64 − 1 or a float like 6.5 arrives at
the server as it was written; this module finds that text in a request and says what is wrong with it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from genflow.errors import GenflowError
from genflow.filenames import ASSET_TYPE, leads_away

DEPTH_LIMIT = 64
"""Levels of lists and objects in a workflow. Real graphs stay under ten; what goes on recurses over all of them."""

_SPACE = re.compile(r"[ \t\n\r]*")
_UNFIT = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class AssetRef:
    """A typed asset reference, standing in a workflow where a file name would go.

    The id decides. Hash (`blake3:` and 64 hex digits) and file path are the client's hints and never rescue a wrong id.
    """

    id: UUID
    hash: str | None = None
    file_path: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The reference as it is written into a workflow."""
        info: dict[str, Any] = {"id": str(self.id)}
        if self.hash is not None:
            info["hash"] = self.hash
        if self.file_path is not None:
            info["file_path"] = self.file_path
        return {"__type": ASSET_TYPE, "info": info}


class NotStrictJson(ValueError):
    """Text that Python's reader would take and JSON does not allow, or that can't be written down again."""


def _no_constant(name: str) -> Any:
    raise NotStrictJson(f"{name} is not JSON; write a finite number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise NotStrictJson(f"the number {text[:40]} is too large for a float")
    return number


def _exact_int(text: str) -> int:
    if len(text) > 100:
        raise NotStrictJson(f"the number {text[:20]}… has {len(text)} digits; at most 100 are read")
    return int(text)


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise NotStrictJson(f"the key {key[:80]!r} stands twice in one object")
            seen.add(key)
    return found


_DECODER = json.JSONDecoder(
    parse_constant=_no_constant, parse_float=_finite, parse_int=_exact_int, object_pairs_hook=_each_key_once
)


def _decode(text: str, at: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except RecursionError:
        raise NotStrictJson(f"it is nested too deep; at most {DEPTH_LIMIT} levels are read") from None


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _as_text(raw: bytes | str) -> str:
    if isinstance(raw, str):
        return raw
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotStrictJson(f"it is not UTF-8 (byte {error.start})") from None


def read_json(raw: bytes | str) -> Any:
    """The value of a whole JSON text.

    Raises ValueError (of which NotStrictJson is one) for anything but strict JSON: a NaN, a number past every float,
    a key that stands twice, text after the value.
    """
    text = _as_text(raw)
    value, end = _decode(text, _skip(text, 0))
    if _skip(text, end) != len(text):
        raise NotStrictJson(f"there is more text after its end (character {end})")
    return value


def split_object(raw: bytes | str) -> dict[str, tuple[Any, str]]:
    """Each key of a JSON object with its value and the exact text of that value, as the client wrote it.

    Raises ValueError as `read_json` does; when it was the value of a key, the error's `key` attribute names it.
    """
    text = _as_text(raw)
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        read_json(text)
        raise NotStrictJson("it is not an object")
    fields: dict[str, tuple[Any, str]] = {}
    at = _skip(text, at + 1)
    while text[at : at + 1] != "}":
        if fields:
            at = _skip(text, _expect(text, at, ","))
        key, at = _key(text, at)
        at = _skip(text, _expect(text, _skip(text, at), ":"))
        try:
            value, end = _decode(text, at)
        except ValueError as error:
            error.key = key  # type: ignore[attr-defined]
            raise
        if key in fields:
            raise NotStrictJson(f"the key {key[:80]!r} stands twice in one object")
        fields[key] = (value, text[at:end])
        at = _skip(text, end)
    if _skip(text, at + 1) != len(text):
        raise NotStrictJson(f"there is more text after its end (character {at + 1})")
    return fields


def _expect(text: str, at: int, mark: str) -> int:
    if text[at : at + 1] != mark:
        raise json.JSONDecodeError(f"Expecting {mark!r}", text, at)
    return at + 1


def _key(text: str, at: int) -> tuple[str, int]:
    if text[at : at + 1] != '"':
        raise json.JSONDecodeError("Expecting a key in double quotes", text, at)
    key, end = _decode(text, at)
    return str(key), end


def _refused(message: str, **details: Any) -> GenflowError:
    return GenflowError("invalid_workflow", message, details=details or None)


def _node_refused(node: str, class_type: str | None, field: str, reason: str, message: str) -> GenflowError:
    error: dict[str, Any] = {"field": field, "reason": reason, "message": message}
    if class_type is not None:
        error["class_type"] = class_type
    return _refused(f"Node {node[:80]}: {message}", node_errors={node: [error]})


def workflow_not_json(error: ValueError) -> GenflowError:
    """The refusal of a workflow whose text is no strict JSON."""
    return _refused(f"The workflow is not valid JSON: {error}", field="workflow", reason="not_json")


def parse_workflow(raw: bytes | str) -> dict[str, Any]:
    """A workflow from its exact text, as ComfyUI's API format wants it.

    Raises GenflowError `workflow_format_ui` for an export of the editor and `invalid_workflow` for everything else:
    not JSON, not an object, empty, a node without `class_type` or `inputs`, NaN, text that no server can hold,
    a `filename_prefix` that climbs out of the output folder, a text that leads to files of others.
    """
    try:
        value = read_json(raw)
    except ValueError as error:
        raise workflow_not_json(error) from None
    return check_structure(value)


def check_structure(value: Any) -> dict[str, Any]:
    """The same checks as `parse_workflow`, on a value that is read already."""
    if not isinstance(value, dict):
        raise _refused(
            f"The workflow must be an object of nodes by id, not {_kind(value)}.", field="workflow", got=_kind(value)
        )
    if isinstance(value.get("nodes"), list) and isinstance(value.get("links"), list):
        raise GenflowError(
            "workflow_format_ui",
            "This is the editor's own format. Export the workflow with “Export (API)” and send that file.",
            details={"field": "workflow", "reason": "ui_export"},
        )
    if not value:
        raise _refused("The workflow has no nodes.", field="workflow", reason="empty")
    _check_values(value)
    for node, content in value.items():
        _check_node(node, content)
    return value


def _check_node(node: str, content: Any) -> None:
    # Each of these makes ComfyUI answer 500 with a traceback instead of a 400 that names the node.
    if not isinstance(content, dict):
        message = f"a node must be an object with class_type and inputs, not {_kind(content)}"
        raise _node_refused(node, None, "", "not_an_object", message)
    class_type = content.get("class_type")
    if not isinstance(class_type, str) or not class_type:
        raise _node_refused(
            node, None, "class_type", "missing_class_type", "class_type must be the name of a node class"
        )
    inputs = content.get("inputs")
    if not isinstance(inputs, dict):
        message = "inputs must be an object (an empty one where the node needs none)"
        raise _node_refused(node, class_type, "inputs", "missing_inputs", message)
    prefix = inputs.get("filename_prefix")
    if isinstance(prefix, str) and ".." in re.split(r"[/\\]", prefix):
        message = f"filename_prefix must stay inside the output folder; {prefix[:80]!r} climbs out with “..”"
        raise _node_refused(node, class_type, "filename_prefix", "outside_output_folder", message)
    for field, value in inputs.items():
        if why := leads_away(value, prefix=field == "filename_prefix"):
            message = (
                f"the input {field[:80]} may not name a file on a server: {why}. Name a file of yours by its asset"
            )
            raise _node_refused(node, class_type, field, "not_your_file", message)


def _check_values(graph: dict[str, Any]) -> None:
    level: list[Any] = [graph]
    for _ in range(DEPTH_LIMIT):
        if not level:
            return
        level = [child for value in level for child in _fit_children(value)]
    raise _refused(f"The workflow is nested deeper than {DEPTH_LIMIT} levels.", field="workflow", limit=DEPTH_LIMIT)


def _fit_children(value: Any) -> Iterator[Any]:
    children: list[Any] = list(value.values()) if isinstance(value, dict) else value
    texts = [*value, *children] if isinstance(value, dict) else children
    for text in texts:
        if isinstance(text, str) and (unfit := _UNFIT.search(text)):
            raise _refused(
                f"A text in the workflow holds {_character(unfit.group())}, which no server can keep: "
                f"{text[:80].encode('ascii', 'backslashreplace').decode()!r}",
                field="workflow",
                reason="unfit_text",
            )
    return (child for child in children if isinstance(child, dict | list))


def _character(character: str) -> str:
    return "a NUL character" if character == "\x00" else f"half of a surrogate pair (U+{ord(character):04X})"


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def unfit_character(text: str) -> str | None:
    """What in `text` neither Postgres nor a server can hold, in words: a NUL or half of a surrogate pair."""
    found = _UNFIT.search(text)
    return _character(found.group()) if found else None


def asset_refs(graph: Mapping[str, Any]) -> list[AssetRef]:
    """Every asset reference in the workflow, in the order in which it is written; each asset once.

    Raises GenflowError `missing_asset` for a malformed one, naming where it stands.
    """
    found: dict[UUID, AssetRef] = {}

    def note(ref: AssetRef) -> Any:
        found.setdefault(ref.id, ref)
        return None

    _replaced(graph, note, "workflow")
    return list(found.values())


def substitute(graph: Mapping[str, Any], names: Mapping[UUID, Any]) -> dict[str, Any]:
    """A new workflow with each asset reference replaced by what `names` has for it: the file name that a node expects.

    Raises KeyError for an asset without a name: whoever uploads must have uploaded all of `asset_refs`.
    """
    replaced: dict[str, Any] = _replaced(graph, lambda ref: names[ref.id], "workflow")
    return replaced


def _replaced(value: Any, name: Callable[[AssetRef], Any], path: str) -> Any:
    if isinstance(value, Mapping):
        if value.get("__type") == ASSET_TYPE:
            return name(read_asset_ref(value, path))
        return {key: _replaced(child, name, f"{path}.{key}") for key, child in value.items()}
    if isinstance(value, list):
        return [_replaced(child, name, f"{path}[{index}]") for index, child in enumerate(value)]
    return value


def read_asset_ref(value: Mapping[str, Any], path: str) -> AssetRef:
    """The asset that a `core/ASSET` object names. GenflowError `missing_asset` for a malformed one, at `path`."""
    info = value.get("info")
    if not isinstance(info, Mapping):
        raise missing_asset(path, "malformed", f"info must be an object with the asset's id, not {_kind(info)}")
    given, hint, file_path = info.get("id"), info.get("hash"), info.get("file_path")
    if not isinstance(given, str):
        raise missing_asset(path, "malformed", f"info.id must be the asset's id, not {_kind(given)}")
    for field, text in (("hash", hint), ("file_path", file_path)):
        if text is not None and not isinstance(text, str):
            raise missing_asset(path, "malformed", f"info.{field} must be a text or absent, not {_kind(text)}")
    try:
        asset = UUID(given)
    except ValueError:
        raise missing_asset(path, "unknown", f"there is no asset {given[:80]!r}", got=given[:80]) from None
    return AssetRef(asset, hint, file_path)


def missing_asset(field: str, reason: str, message: str, got: str | None = None) -> GenflowError:
    """The refusal of an asset reference that is malformed or unknown; `field` is its place in the request."""
    details: dict[str, Any] = {"field": field, "reason": reason}
    if got is not None:
        details["got"] = got
    return GenflowError("missing_asset", f"The asset at {field} can't be used: {message}.", details=details)


def needed_by(graph: Mapping[str, Any], outputs: Iterable[str]) -> set[str]:
    """These nodes and all that they are linked to, over any number of links: what ComfyUI runs for them."""
    ahead = [node for node in outputs if node in graph]
    seen = set(ahead)
    while ahead:
        for value in graph[ahead.pop()]["inputs"].values():
            if is_link(value) and value[0] in graph and value[0] not in seen:
                seen.add(value[0])
                ahead.append(value[0])
    return seen


def is_link(value: Any) -> bool:
    """ComfyUI's own rule (`comfy_execution/graph_utils.py`): a list of a node id and an output number."""
    return (
        isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], int | float)
    )
