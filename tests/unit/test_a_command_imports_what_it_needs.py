"""`genflow --help` answers before anything heavy is imported, and a client's command without the service's parts."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"aiohttp", "fastapi", "psycopg", "PIL", "obstore", "aio_pika", "uvicorn", "prometheus_client"}
SHOWN = """
import sys
from genflow.cli import main
sys.argv = ["genflow", *sys.argv[1:]]
try:
    main()
finally:
    sys.stderr.write(" ".join({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.mark.parametrize("words", [["--help"], ["worker", "--help"], ["jobs", "list", "--help"]], ids=" ".join)
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    ran = subprocess.run([sys.executable, "-c", SHOWN, *words], capture_output=True, text=True, check=True)
    assert "Usage" in ran.stdout
    imported = set(ran.stderr.split())
    assert "genflow" in imported
    assert imported & HEAVY == set()
