"""The fixtures that all rooms' tests share."""

from tests.support.postgres import (
    database,
    database_of_each_release,
    release_server,
    test_server,
)

__all__ = ["database", "database_of_each_release", "release_server", "test_server"]
