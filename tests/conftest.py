"""The fixtures that all rooms' tests share."""

import signal
from collections.abc import Iterator

import pytest

from tests.support.forks import ForkServer, fork_server
from tests.support.postgres import (
    database,
    database_of_each_release,
    release_server,
    test_server,
)

__all__ = ["database", "database_of_each_release", "release_server", "test_server"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts its background jobs deaf to Ctrl-C, and every process that a test starts would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def forks() -> Iterator[ForkServer]:
    """The fork server of this test process."""
    with fork_server() as server:
        yield server
