"""The API with two routes beside it that do the least there is to do: one select by key, one plain insert.

A process of its own: `python -m bench.app CONNINFO FOLDER` prints the port that it listens on.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from uuid import UUID, uuid4

import uvicorn
import uvloop
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from genflow.accounts import Accounts
from genflow.api import create_app
from genflow.postgres.pool import Pool, open_pool
from genflow.queue import Queue
from genflow.settings import Settings
from genflow.storage.local import LocalStore

CONNECTIONS = 8
QUEUE_LIMIT = 100_000


def add_floor(app: FastAPI, pool: Pool) -> None:
    """The two bare routes."""

    @app.get("/bench/jobs/{job_id}")
    async def look(job_id: UUID) -> JSONResponse:
        async with pool.connection() as connection:
            cursor = await connection.execute("select id, state from genflow.jobs where id = %s", [job_id])
            row = await cursor.fetchone()
        return JSONResponse({"id": str(row["id"]), "state": row["state"]} if row else None)

    @app.post("/bench/rows", status_code=201)
    async def insert(request: Request) -> JSONResponse:
        made, body = uuid4(), await request.json()
        async with pool.connection() as connection:
            await connection.execute(
                "insert into bench_rows (id, body) values (%s, %s)", [made, json.dumps(body["workflow"])]
            )
        return JSONResponse({"id": str(made)}, status_code=201)


async def serve(conninfo: str, folder: Path) -> None:
    """Serve until the process is ended."""
    async with await open_pool(conninfo, 2, CONNECTIONS) as pool:
        async with pool.connection() as connection:
            await connection.execute("create table if not exists bench_rows (id uuid primary key, body text not null)")
        settings = Settings.model_validate({"queue_limit": QUEUE_LIMIT})
        queue = Queue(pool, queue_limit=settings.queue_limit, retention_s=settings.retention_s)
        app = create_app(
            queue, LocalStore(folder), settings, pool, link_secret=b"bench", accounts=Accounts(queue.writer)
        )
        add_floor(app, pool)
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        await server.serve(sockets=[listener])


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], Path(sys.argv[2])))
