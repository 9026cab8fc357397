"""A database as it stands after 50,000 jobs, idle or busy, and values for the parameters of the queue's statements."""

# ruff: noqa: E501, S324 (tables are easier to read in long lines; MD5 makes names here, no secret)

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import md5
from typing import Any
from uuid import UUID

from genflow.queue.ledger import OF_MANY_ROWS
from genflow.queue.writer import columns


def job_id(n: int) -> UUID:
    """The id of job `n`, as the SQL below makes it."""
    return UUID(md5(str(n).encode()).hexdigest())


FINISHED, LIVE, FEW = 50_000, 3_000, 5
WORKER = job_id(-1)

_LIVE = """
set session_replication_role = replica;
insert into genflow.jobs (id, state, class_id, created_at, expires_at, batch_id, worker_id, token, lease_until, run_at,
                          server_id, submit_no, step, attempt, cancel_at, start_by)
select md5(n::text)::uuid, state, n %% 8, genflow.clock() - interval '1 m', genflow.clock() + interval '1 d',
       md5('b' || n %% 5000)::uuid, case when state = 3 then md5((-1 - n %% 32)::text)::uuid end, 3,
       case when state = 3 then genflow.clock() + interval '30 s' end,
       case when state = 1 then genflow.clock() + interval '1 m' end,
       case when state = 3 or n %% 10 = 5 then 1 + n %% 8 end, 1, 1, 1,
       case when n %% 97 = 0 then genflow.clock() end, case when n %% 11 = 0 then genflow.clock() + interval '1 h' end
from (select n, case n %% 10 when 0 then 1 when 1 then 3 when 2 then 3 when 3 then 3 else 2 end as state
      from generate_series({first}, {last}) as n) as live;
insert into genflow.job_specs (job_id, workflow, body_hash, metadata, policy)
select md5(n::text)::uuid, '{{}}', '', '{{}}', '{{}}' from generate_series({first}, {last}) as n;
insert into genflow.submits (job_id, no, uuid, attempt, server_id, slot, token, state, created_at)
select md5(n::text)::uuid, 1, md5('s' || n)::uuid, 1, 1 + n %% 8, n - 40000, 3, 2, genflow.clock()
from generate_series({first}, {last}) as n where n %% 10 in (1, 2, 3);
insert into genflow.attempts (job_id, no, server_id, worker_id, started_at)
select md5(n::text)::uuid, 1, 1 + n %% 8, md5((-1 - n %% 32)::text)::uuid, genflow.clock()
from generate_series({first}, {last}) as n where n %% 10 in (1, 2, 3);
insert into genflow.job_live (job_id, watched_until)
select md5(n::text)::uuid, genflow.clock() from generate_series({first}, {last}) as n;
set session_replication_role = origin;
""".replace("%%", "%")

FEW_LIVE = _LIVE.format(first=FINISHED + 1, last=FINISHED + FEW)
MANY_LIVE = _LIVE.format(first=FINISHED + FEW + 1, last=FINISHED + LIVE)

FINISHED_JOBS = """
set session_replication_role = replica;
insert into genflow.servers (name, last_seen_at) select 'gpu' || n, genflow.clock() from generate_series(1, 8) as n;
insert into genflow.workers (id, name, host, version, seen_at)
select md5((-n)::text)::uuid, 'w' || n, 'h', '0', genflow.clock() from generate_series(1, 32) as n;
insert into genflow.worker_servers
select w.id, s.id, 'http://' || s.name, true, genflow.clock() from genflow.workers as w, genflow.servers as s;
insert into genflow.classes (id, needs_hash, needs)
select n, n::text::bytea, '{}' from generate_series(1, 100) as n;
insert into genflow.jobs (id, state, class_id, created_at, ended_at, expires_at, batch_id, server_id, submit_no, attempt, token, error)
select md5(n::text)::uuid, case n % 100 when 0 then 11 when 1 then 12 when 2 then 13 else 10 end, n % 8,
       genflow.clock() - n * interval '2 s', genflow.clock() - n * interval '1 s', genflow.clock() + n * interval '1 s',
       md5('b' || n % 5000)::uuid, null, 1, 1, 5, case when n % 100 = 0 then '{"class": "gone"}'::json end
from generate_series(1, 50000) as n;
insert into genflow.job_specs (job_id, workflow, body_hash, metadata, policy, root_id)
select md5(n::text)::uuid, '{}', '', case when n % 50 = 0 then jsonb_build_object('label', n::text) else '{}' end, '{}',
       case when n % 200 = 0 then md5((n + 100)::text)::uuid end
from generate_series(1, 50000) as n;
insert into genflow.job_secrets select md5(n::text)::uuid, '' from generate_series(1, 50000) as n;
insert into genflow.job_keys
select 1, 'submit', md5(n::text)::uuid::text, md5(n::text)::uuid, '', genflow.clock() + n * interval '1 s'
from generate_series(1, 50000) as n;
insert into genflow.submits (job_id, no, uuid, attempt, server_id, slot, token, state, created_at, ended_at, executed)
select md5(n::text)::uuid, 1, md5('s' || n)::uuid, 1, 1 + n % 8, 1, 3, 10, genflow.clock(), genflow.clock(), true
from generate_series(1, 50000) as n;
insert into genflow.attempts (job_id, no, server_id, worker_id, started_at, ended_at, outcome)
select md5(n::text)::uuid, 1, 1 + n % 8, md5('-1')::uuid, genflow.clock(), genflow.clock(), 'succeeded'
from generate_series(1, 50000) as n;
insert into genflow.blobs (hash, sha256, size, touched_at)
select decode(lpad(to_hex(n), 64, '0'), 'hex'), '', 1, case when n % 2 = 0 then genflow.clock() end
from generate_series(1, 50000) as n;
insert into genflow.assets (id, blob_hash, kind, job_id, node_id, key, idx, name, type, content_type, size, created_at, expires_at)
select md5('a' || n)::uuid, decode(lpad(to_hex(n), 64, '0'), 'hex'), case when n % 2 = 0 then 'upload' else 'output' end,
       case when n % 2 = 1 then md5(n::text)::uuid end, '3', 'images', 0, 'a', 'image', 'image/png', 1, genflow.clock(),
       genflow.clock() + n * interval '1 s'
from generate_series(1, 50000) as n;
insert into genflow.job_assets select md5('a' || n)::uuid, md5((n - 1)::text)::uuid from generate_series(2, 50000, 2) as n;
insert into genflow.server_files (server_id, name, hash)
select 1 + n % 8, 'f' || n, '' from generate_series(1, 50000) as n;
insert into genflow.server_file_refs
select 1 + n % 8, 'f' || n, md5(n::text)::uuid from generate_series(1, 50000) as n;
insert into genflow.chores (kind, server_id, job_id, submit_no, submit, payload, due_at)
select case n % 10 when 0 then 'rabbit_dead' when 1 then 'stop' else 'scrub' end, case when n % 10 > 0 then 1 + n % 8 end,
       md5(n::text)::uuid, 1, md5('s' || n)::uuid, case when n % 10 = 0 then '{"queue": "q"}'::json end,
       genflow.clock() + n * interval '1 s'
from generate_series(1, 50000) as n;
insert into genflow.late_receipts
select md5('s' || n)::uuid, n, genflow.clock(), true from generate_series(1, 50000) as n;
insert into genflow.batches
select md5('b' || n)::uuid, 1, 'b', 1, genflow.clock() - n * interval '1 s', genflow.clock() + n * interval '1 s'
from generate_series(0, 4999) as n;
insert into genflow.batch_rows select md5('b' || n % 5000)::uuid, n, md5(n::text)::uuid, '{}' from generate_series(1, 50000) as n;
set session_replication_role = origin;
"""

JOB = job_id(FINISHED + 1)
_DEAD, _ENDED = job_id(100), job_id(7)
_HASH = (7).to_bytes(32, "big")
_NOW = datetime(2026, 1, 1, tzinfo=UTC)

VALUES: dict[str, Any] = {
    "absolute": True, "after": 0, "again": False, "alive_s": 60.0, "asset": UUID(md5(b"a8").hexdigest()),
    "assets": [UUID(md5(b"a8").hexdigest())], "attempt": 1, "avoid": False, "batch": UUID(md5(b"b7").hexdigest()),
    "before": None, "before_id": None, "began": _NOW, "bigger": [None] * 3, "body": "{}", "body_hash": b"", "body_hashes": [b""] * 3,
    "boot": None, "by": "class", "capabilities_hash": b"", "chore": 7, "class": 1, "classes": [1, 2, 3], "client_id": "c",
    "code": None, "collect_failed": False, "content_type": "image/png", "content_types": ["image/png"], "count": True,
    "deadline_s": 60.0, "delay_s": 0.0, "doubtful": False, "draining": False, "elsewhere": [False] * 3, "entry": "{}",
    "error": "{}", "exec_end_ms": 2, "exec_start_ms": 1, "executed": True, "first": _ENDED, "forgotten": False,
    "fresh_s": 60.0, "grace_s": 86_400.0, "guard": "1", "handed_over": False, "has_jobs_route": True, "hash": _HASH, "hashes": [_HASH],
    "healthy": True, "host": "h", "ids": [job_id(-9)], "idxs": [0], "job": JOB, "jobs": [JOB, _ENDED, job_id(8)],
    "keep_s": 60.0, "key": str(_ENDED), "key_ttl": 60.0, "keys": ["images"], "known": [JOB], "labels": None,
    "last": _ENDED, "lately_s": 60.0, "lease_s": 30.0, "limit": 100, "live": None, "marker": WORKER, "metadata": "{}",
    "min_vram": None, "moved": False, "name": "gpu1", "names": ["f7"], "needs": ["{}"], "needs_run": True,
    "new": job_id(-9), "no": 1, "node_class": None, "node_id": None, "nodes": ["3"], "number": 1.0, "outcome": "failed",
    "params": "{}", "place": "/", "policies": ["{}"] * 3, "policy": "{}", "prefix": "p", "preview_nodes": ["3"] * 3,
    "previews": [b"x"] * 3, "priorities": [0] * 3, "priority": 0, "progress": ["{}"] * 3, "queue": "q",
    "queue_limit": 100_000, "rabbit_queue": None, "reason": "r", "ref_assets": [], "ref_jobs": [], "requeued": False,
    "resubmit": True, "retention_s": 60.0, "role": "submit", "rows": [1, 2, 3], "says": None, "scope": "submit",
    "sealed": None, "seconds": 1.0, "seen": False, "server": 1, "servers": [1, 2], "set_values": "{}", "sets": ["{}"] * 3,
    "settle_s": 3600.0, "sha256": b"", "sha256s": [b""], "since": None, "size": 1, "sizes": [1], "slots": 2,
    "spend": True, "start_by_s": None, "state": 1, "states": None, "submit": UUID(md5(b"s7").hexdigest()),
    "submit_state": 10, "tags": ["t"], "taken_at": _NOW, "tenant": 1, "texts": [None], "token": 3,
    "tokens": [3, 3, 3], "trial_s": 60.0, "type": "image", "types": ["image"], "unseen_s": 60.0, "until": None,
    "url": "http://gpu1", "value": b"v", "version": "0", "vram": None, "watched_s": 60.0, "window_s": 60.0,
    "worker": WORKER, "workflow": "{}", "workflows": ["{}"] * 3,
}  # fmt: skip
"""By the parameter's name, which means the same thing in every statement but those below."""

OWN_VALUES: dict[str, list[dict[str, Any]]] = {
    "create_key": [{"tenant": "house"}],
    "dead_by_prefix": [{"last": UUID(int=_ENDED.int + 1)}],
    "dead_letter": [{"job": _DEAD}],
    "enqueue": [{"job": job_id(-9), "place": place} for place in (True, False)],
    "enqueue_many": [{"params": ["{}"] * 3, "metadata": ["{}"] * 3}],
    "end_attempt": [{"class": "gone", "code": "c"}],
    "job_list": [{}, {"labels": '{"label": "50"}'}, {"states": [1, 2, 3], "live": ["running"]}],
    "job_view": [{"jobs": [JOB]}],
    "let_go": [{"jobs": [_ENDED]}],
    "requeue": [{"job": _DEAD}],
    "uncollected": [{"class": "gone", "code": "c"}],
    "dead_groups": [{"server": None, "batch": None, "class": None}],
    "dead_list": [{"server": None, "batch": None, "class": None}],
}
"""Where a statement means another thing by it, or takes another way: one set of values for each way."""


COMMON = {"worker", "lease_s", "retention_s"}
"""What holds for all rows of a statement of many."""


def values_of(name: str, parameters: set[str]) -> list[dict[str, Any]]:
    """Values for these parameters of a statement, a set for each of its ways. KeyError where one is not known."""
    ways = [{key: (VALUES | own)[key] for key in parameters - {"of"}} for own in OWN_VALUES.get(name, [{}])]
    return [_as_rows(way) for way in ways] if name in OF_MANY_ROWS else ways


def _as_rows(values: dict[str, Any]) -> dict[str, Any]:
    row = {key: value for key, value in values.items() if key not in COMMON}
    return {key: values[key] for key in COMMON & values.keys()} | columns([row])
