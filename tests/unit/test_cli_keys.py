"""`genflow keys` on an embedded database: a key is shown once, works, is listed without itself, and ends."""

from __future__ import annotations

from pathlib import Path

from tests.support.cli import Terminal


async def test_a_key_from_its_making_to_its_end(database: str, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "")

    async def keys(*words: str) -> tuple[int, str, str]:
        ended = await terminal.run("keys", *words, GENFLOW_DATABASE_URL=database, GENFLOW_DATA=str(tmp_path))
        return ended.status, ended.out, ended.err

    status, key, told = await keys("create", "app", "--tenant", "shop")
    assert status == 0, told
    assert key.startswith("gf_")
    assert "app (submit of shop)" in told
    status, out, told = await keys("create", "app")
    assert (status, out) == (1, "")
    assert "[key_exists]" in told
    status, listed, _ = await keys("list", "--json")
    assert (status, key.strip() in listed, '"prefix": "' + key[:11] in listed) == (0, False, True)
    status, new, _ = await keys("rotate", "app", "--keep-s", "0")
    assert (status, new[:3], new != key) == (0, "gf_", True)
    assert (await keys("revoke", "app"))[0] == 0
    assert (await keys("revoke", "app"))[0] == 1
    assert (await keys("create", "x", "--role", "king"))[0] == 2
