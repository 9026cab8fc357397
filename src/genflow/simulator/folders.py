"""The three folders of a simulated server, and ComfyUI's rules for names in them (docs/design/comfyui.md, 6)."""

from __future__ import annotations

import os
import random
import shutil
import string
import time
from pathlib import Path

KINDS = ("input", "output", "temp")


class OutsideOutputError(Exception):
    """A filename_prefix that leads out of the output folder."""


class Folders:
    """`input`, `output` and `temp` under one root, or an output folder that servers share.

    `temp` is wiped whenever the server starts.
    """

    def __init__(self, root: Path, rng: random.Random, output: Path | None = None) -> None:
        self.paths = {kind: root.resolve() / kind for kind in KINDS}
        if output is not None:
            self.paths["output"] = output.resolve()
        self._rng = rng
        self.temp_mark = ""
        for kind in KINDS:
            self.paths[kind].mkdir(parents=True, exist_ok=True)
        self.wipe_temp()

    def wipe_temp(self) -> None:
        """Empty `temp` and choose the new boot's mark for temporary names."""
        shutil.rmtree(self.paths["temp"], ignore_errors=True)
        self.paths["temp"].mkdir()
        self.temp_mark = "".join(self._rng.choice(string.ascii_lowercase) for _ in range(5))

    def input_files(self) -> list[str]:
        """The input files of the top level, as object_info lists them."""
        return sorted(entry.name for entry in os.scandir(self.paths["input"]) if entry.is_file())

    def inside(self, kind: str, subfolder: str, name: str = "") -> Path | None:
        """The path of a name in a subfolder; None if it leads out of the folder."""
        root = self.paths[kind]
        folder = Path(os.path.normpath(root / subfolder))
        path = Path(os.path.normpath(folder / name))
        return path if folder.is_relative_to(root) and path.is_relative_to(root) else None

    def annotated(self, name: str) -> Path | None:
        """The file behind `sub/name.png`, `name.png [temp]` and so on; None when there is none inside the folder."""
        kind = "input"
        for known in KINDS:
            if name.endswith(f"[{known}]"):
                kind, name = known, name[: -len(known) - 3]
                break
        path = self.inside(kind, "", name)
        return path if path is not None and path.is_file() else None

    def next_name(self, prefix: str, kind: str, size: tuple[int, int]) -> tuple[str, str, int]:
        """Subfolder, first part and number of the next file: the number is the highest on disk plus one.

        Raises OutsideOutputError for a prefix that leads out of the folder.
        """
        filled = prefix.replace("%width%", str(size[0])).replace("%height%", str(size[1]))
        now = time.localtime()
        for token, value in (("year", now.tm_year), ("month", now.tm_mon), ("day", now.tm_mday)):
            filled = filled.replace(f"%{token}%", str(value).zfill(2))
        for token, value in (("hour", now.tm_hour), ("minute", now.tm_min), ("second", now.tm_sec)):
            filled = filled.replace(f"%{token}%", str(value).zfill(2))
        normal = os.path.normpath(filled)
        subfolder, base = os.path.dirname(normal), os.path.basename(normal)
        root = self.paths[kind]
        folder = Path(os.path.normpath(root / subfolder))
        if not folder.is_relative_to(root):
            raise OutsideOutputError(
                "**** ERROR: Saving image outside the output folder is not allowed.\n"
                f" full_output_folder: {folder}\n         output_dir: {root}"
            )
        folder.mkdir(parents=True, exist_ok=True)
        return subfolder, base, 1 + max((self._counter(entry, base) for entry in os.listdir(folder)), default=0)

    @staticmethod
    def _counter(name: str, base: str) -> int:
        if not name.startswith(f"{base}_"):
            return 0
        digits = name[len(base) + 1 :].split("_")[0]
        return int(digits) if digits.isdecimal() else 0
