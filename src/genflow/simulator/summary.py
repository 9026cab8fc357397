"""What `/api/jobs` makes of a prompt's outputs: its counts, its one preview, and its list of files.

Followed in ComfyUI's source (`comfy_execution/jobs.py`): text counts nowhere; a text that ends as a 3D file's name is
shown as such a file; nothing is kept in the place of a null.
"""

from __future__ import annotations

from typing import Any

PREVIEWABLE = frozenset({"images", "video", "audio", "3d", "text"})
ENDINGS_3D = (".obj", ".fbx", ".gltf", ".glb", ".usdz")
TEXT_LIMIT = 1024


def _as_file(item: Any) -> Any:
    """A file's object for what is one or reads like one; else the item as it is."""
    if isinstance(item, str) and item.lower().endswith(ENDINGS_3D):
        return {"filename": item, "type": "output", "subfolder": "", "mediaType": "3d"}
    return item


def normalized(outputs: dict[str, Any]) -> dict[str, Any]:
    """The outputs as `/api/jobs/ID` shows them."""
    return {
        node_id: {
            key: items if key == "animated" else [_as_file(item) for item in items if item is not None]
            for key, items in by_key.items()
        }
        for node_id, by_key in outputs.items()
    }


def summary(outputs: dict[str, Any]) -> dict[str, Any]:
    """`outputs_count`, `previewable_outputs_count` and, if there is anything to show, `preview_output`.

    Raises AttributeError for a file name that is no text: there `/api/jobs` answers 500.
    """
    count, previewable = 0, 0
    best: dict[str, Any] | None = None
    other: dict[str, Any] | None = None
    text: dict[str, Any] | None = None
    for node_id, by_key in normalized(outputs).items():
        for key, items in by_key.items():
            for item in items if key != "animated" else ():
                if not isinstance(item, dict):
                    if key == "text" and text is None:
                        text = {"content": str(item)[:TEXT_LIMIT], "nodeId": node_id, "mediaType": key}
                    continue
                count += 1
                if not _is_previewable(key, item):
                    continue
                previewable += 1
                shown = item | {"nodeId": node_id, "mediaType": item.get("mediaType", key)}
                if item.get("type") == "output":
                    best = best or shown
                else:
                    other = other or shown
    counts: dict[str, Any] = {"outputs_count": count, "previewable_outputs_count": previewable}
    preview = best or other or text
    return counts if preview is None else counts | {"preview_output": preview}


def _is_previewable(key: str, item: dict[str, Any]) -> bool:
    name: str = item.get("filename", "").lower()
    return (
        key in PREVIEWABLE
        or str(item.get("format", "")).startswith(("video/", "audio/"))
        or name.endswith((*ENDINGS_3D, ".txt", ".md", ".json"))
    )
