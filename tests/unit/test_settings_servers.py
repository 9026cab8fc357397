"""Servers in the settings: NAME=URL, or a table of the file, or both beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from genflow.settings import Settings

GIB = 1024**3


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings file of this test."""
    path = tmp_path / "genflow.toml"
    monkeypatch.setenv("GENFLOW_CONFIG", str(path))
    return path


def test_a_table_and_plain_addresses_stand_beside_each_other(file: Path) -> None:
    file.write_text(
        """
        [gpu]
        gpu0 = "http://127.0.0.1:8188/"

        [gpu.gpu1]
        url = "https://gpus.example:8443/one/"
        tags = ["fast", "attic"]
        vram = "24GB"
        headers = { Authorization = "Bearer secret" }
        ca_file = "ca.pem"
        slots = 1
        """
    )
    gpu = Settings().gpu
    assert [(name, server.url, server.slots) for name, server in gpu.items()] == [
        ("gpu0", "http://127.0.0.1:8188", None),
        ("gpu1", "https://gpus.example:8443/one", 1),
    ]
    assert (gpu["gpu1"].tags, gpu["gpu1"].vram, gpu["gpu1"].ca_file) == (("fast", "attic"), 24 * GIB, Path("ca.pem"))
    assert gpu["gpu1"].sent_headers() == {"Authorization": "Bearer secret"}
    shown = Settings().model_dump_json() + repr(Settings())
    assert "secret" not in shown


def test_flags_name_all_servers_and_win_over_the_file(file: Path) -> None:
    file.write_text('[gpu]\ngpu9 = "http://nine:1"\n')
    flags: Any = ["gpu0=http://zero:1", "gpu1=http://one:1"]
    assert list(Settings(gpu=flags).gpu) == ["gpu0", "gpu1"]


@pytest.mark.parametrize(
    ("given", "bytes_"),
    [("24GB", 24 * GIB), ("24 GiB", 24 * GIB), ("512MB", GIB // 2), ("1.5gb", GIB * 3 // 2), (7, 7)],
)
def test_memory_is_read_as_people_write_it(given: Any, bytes_: int) -> None:
    table: Any = {"gpu0": {"url": "http://zero:1", "vram": given}}
    assert Settings(gpu=table).gpu["gpu0"].vram == bytes_


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"url": "zero:8188"}, "an address looks like http://127.0.0.1:8188"),
        ({"url": "http://user:word@zero"}, "send it as a header"),
        ({"url": "http://token@zero"}, "send it as a header"),
        ({"url": "http://zero/?a=b"}, "no “\\?”"),
        ({"url": "http://zero", "vram": "lots"}, 'such as "24GB"'),
        ({"url": "http://zero", "vram": 0}, "greater than 0"),
        ({"url": "http://zero", "slots": 65}, "less than or equal to 64"),
        ({"url": "http://zero", "headers": {"Host": "x"}}, "genflow's own"),
        ({"url": "http://zero", "headers": {"a b": "x"}}, "no name of a header"),
        ({"url": "http://zero", "headers": {"X-Key": "a\nb"}}, "one line of printable ASCII"),
        ({"url": "http://zero", "ca_file": "ca.pem"}, "begins with https://"),
        ({"url": "http://zero", "colour": "red"}, "Extra inputs are not permitted"),
        ({}, "Field required"),
        ("zero", "an address looks like"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(table: Any, said: str) -> None:
    servers: Any = {"gpu0": table}
    with pytest.raises(ValidationError, match=said) as caught:
        Settings(gpu=servers)
    assert caught.value.errors()[0]["loc"][:1] == ("gpu",)


def test_one_address_under_two_names_is_refused_in_either_shape() -> None:
    servers: Any = {"gpu0": "http://zero:1/", "gpu1": {"url": "http://zero:1"}}
    with pytest.raises(ValidationError, match="one server under two names: 'gpu0' and 'gpu1'"):
        Settings(gpu=servers)
