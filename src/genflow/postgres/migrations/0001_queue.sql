-- The durable queue: jobs and what belongs to their transactions. docs/design/tables.md explains each table.
-- Needs PostgreSQL 15 and no extension.

-- The one clock of every lease and deadline. Tests move it with `set genflow.clock_offset = '30 s'`.
create function genflow.clock() returns timestamptz
    language sql stable parallel safe
    return now() + coalesce(nullif(current_setting('genflow.clock_offset', true), ''), '0')::interval;

create table genflow.servers (
    id                int generated always as identity primary key,
    name              text not null unique,
    state             smallint not null default 1,      -- 1 ready, 2 quarantined, 3 draining
    reason            text,
    quarantined_until timestamptz,
    boot              uuid,
    has_jobs_route    boolean,
    slots             smallint not null default 2,
    vram              bigint,
    tags              text[] not null default '{}',
    capabilities_hash bytea,
    warm_model_key    bigint,
    last_seen_at      timestamptz
);

create table genflow.workers (
    id         uuid primary key,
    name       text not null,
    host       text not null,
    version    text not null,
    draining   boolean not null default false,
    started_at timestamptz not null default genflow.clock(),
    seen_at    timestamptz not null
);

create table genflow.worker_servers (
    worker_id uuid not null references genflow.workers on delete cascade,
    server_id int not null references genflow.servers on delete cascade,
    url       text not null,
    healthy   boolean not null,
    seen_at   timestamptz not null,
    primary key (worker_id, server_id)
);

create table genflow.jobs (
    id           uuid primary key,
    seq          bigint generated always as identity,
    tenant_id    int not null default 1,
    state        smallint not null,
    priority     smallint not null default 0,
    vtime        bigint not null default 0,
    class_id     int not null default 0,
    model_key    bigint,
    run_at       timestamptz,
    start_by     timestamptz,
    deadline_at  timestamptz,
    worker_id    uuid,
    token        bigint not null default 0,
    lease_until  timestamptz,                            -- in no index: a renewal stays a heap-only update;
                                                         -- after it no POST of the last holder is in the air
    server_id    int references genflow.servers,         -- binding
    submit_no    int not null default 0,
    step         smallint not null default 0,
    attempt      smallint not null default 0,            -- attempts spent
    takeovers    smallint not null default 0,
    resubmits    smallint not null default 0,
    collects     smallint not null default 0,            -- failed downloads of the current run
    moved        smallint not null default 0,            -- hand-overs and take-backs
    doubled      smallint not null default 0,            -- runs beyond the one, detected
    cancel_at    timestamptz,
    executing_at timestamptz,
    created_at   timestamptz not null,
    ended_at     timestamptz,
    expires_at   timestamptz not null,
    batch_id     uuid,
    error        json
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);

create index jobs_claim on genflow.jobs (class_id, priority, vtime, seq) where state = 2 and server_id is null;
create index jobs_bound on genflow.jobs (server_id, seq) where state = 2 and server_id is not null;
create index jobs_due on genflow.jobs (run_at) where state = 1;
create index jobs_held on genflow.jobs (server_id) where state = 3;
create index jobs_start_by on genflow.jobs (start_by) where state in (1, 2) and start_by is not null;
create index jobs_canceling on genflow.jobs (cancel_at) where state in (1, 2) and cancel_at is not null;
create index jobs_list on genflow.jobs (tenant_id, seq desc);
create index jobs_batch on genflow.jobs (batch_id, seq) where batch_id is not null;
create index jobs_prune on genflow.jobs (expires_at) where state >= 10;
create index jobs_ended on genflow.jobs (ended_at) where state >= 10;
create index jobs_live on genflow.jobs (id) where state < 10;

create table genflow.job_specs (
    job_id        uuid primary key references genflow.jobs on delete cascade,
    workflow      text not null,                         -- as the client sent it: numbers above 2^53 survive
    body_hash     bytea not null,
    params        json,
    metadata      jsonb not null default '{}',
    extra_data    json,
    policy        json not null,
    needs         json,
    trace_parent  text,
    key_id        int,
    requeued_from uuid,
    root_id       uuid
);
create index job_specs_root on genflow.job_specs (root_id) where root_id is not null;

create table genflow.job_keys (
    tenant_id  int not null,
    scope      text not null,                            -- submit | upload | file | rabbit
    key        text not null,
    job_id     uuid not null,                            -- outlives the job: a known key runs nothing
    body_hash  bytea not null,
    expires_at timestamptz,
    primary key (tenant_id, scope, key)
);
create index job_keys_expire on genflow.job_keys (expires_at) where expires_at is not null;

create table genflow.submits (
    job_id        uuid not null references genflow.jobs on delete cascade,
    no            int not null,
    uuid          uuid not null unique,
    attempt       smallint not null,
    server_id     int not null references genflow.servers,
    boot          uuid,
    slot          smallint not null,
    token         bigint not null,
    state         smallint not null,
    doubtful      boolean not null default false,        -- closed while its POST might still have arrived
    client_id     text,
    number        double precision,
    created_at    timestamptz not null,
    accepted_at   timestamptz,
    running_at    timestamptz,                           -- first seen running: the run timeout counts from here
    ended_at      timestamptz,
    exec_start_ms bigint,
    exec_end_ms   bigint,
    executed      boolean not null default false,
    stop_reason   text,
    entry         json,                                  -- what ComfyUI's history said at the end
    primary key (job_id, no)
);
create unique index submits_one_open on genflow.submits (job_id) where state < 10;
create unique index submits_slot on genflow.submits (server_id, slot) where state < 10;

create table genflow.late_receipts (
    submit  uuid not null,
    number  double precision,
    seen_at timestamptz not null,
    chored  boolean not null default false               -- its server is being asked
);
create index late_receipts_new on genflow.late_receipts (seen_at) where not chored;

create table genflow.attempts (
    job_id     uuid not null references genflow.jobs on delete cascade,
    no         smallint not null,
    server_id  int not null references genflow.servers,
    worker_id  uuid not null,
    started_at timestamptz not null,
    ended_at   timestamptz,
    outcome    text,                                     -- succeeded | failed | canceled | given_back
    class      text,
    code       text,
    reason     text,
    node_id    text,
    node_class text,
    gpu_ms     bigint,
    primary key (job_id, no)
);
create index attempts_failed on genflow.attempts (class, ended_at) where outcome = 'failed';

create table genflow.object_info (
    hash    bytea primary key,
    body    text not null,
    seen_at timestamptz not null
);

create table genflow.server_files (
    server_id int not null references genflow.servers on delete cascade,
    name      text not null,
    hash      bytea not null,
    state     smallint not null default 1,               -- 1 present, 2 emptying, 3 emptied
    boot      uuid,
    primary key (server_id, name)
);

create table genflow.server_file_refs (
    server_id int not null,
    name      text not null,
    job_id    uuid not null references genflow.jobs on delete cascade,
    primary key (server_id, name, job_id),
    foreign key (server_id, name) references genflow.server_files on delete cascade
);
create index server_file_refs_job on genflow.server_file_refs (job_id);

create table genflow.chores (
    id          bigint generated always as identity primary key,
    kind        text not null,                           -- stop | scrub | rabbit_dead
    server_id   int not null references genflow.servers on delete cascade,
    job_id      uuid not null,
    submit_no   int not null,
    submit      uuid not null,
    payload     json,
    due_at      timestamptz not null,
    tries       int not null default 0,
    token       bigint not null default 0,
    lease_until timestamptz,
    unique (kind, job_id, submit_no)
);
create index chores_due on genflow.chores (server_id, due_at);
create index chores_job on genflow.chores (job_id);

create table genflow.blobs (
    hash       bytea primary key,                        -- BLAKE3
    sha256     bytea not null,
    size       bigint not null,
    location   text not null default 'local',
    state      smallint not null default 1,              -- 1 present, 2 deleting
    touched_at timestamptz not null
);
create index blobs_touched on genflow.blobs (touched_at);

create table genflow.assets (
    id           uuid primary key,
    tenant_id    int not null default 1,
    blob_hash    bytea references genflow.blobs,
    kind         text not null,                          -- upload | output
    job_id       uuid,
    submit_no    int,
    node_id      text,
    key          text,
    idx          int,
    name         text not null,
    type         text not null,                          -- image | video | audio | text | file | latent
    content_type text not null,
    size         bigint not null,
    partial      boolean not null default false,
    created_at   timestamptz not null,
    expires_at   timestamptz
);
create unique index assets_output on genflow.assets (job_id, node_id, key, idx) where kind = 'output';
create index assets_expire on genflow.assets (expires_at) where expires_at is not null;
create index assets_blob on genflow.assets (tenant_id, blob_hash);

-- The one store that all processes on this database share.
create table genflow.stores (
    id     int primary key default 1 check (id = 1),
    marker uuid not null,
    place  text not null
);

create table genflow.job_assets (
    asset_id uuid not null references genflow.assets on delete cascade,
    job_id   uuid not null references genflow.jobs on delete cascade,
    primary key (asset_id, job_id)
);
create index job_assets_job on genflow.job_assets (job_id);

-- Live progress, written only while somebody watches; lost with a crash of Postgres, which harms nothing.
create unlogged table genflow.job_live (
    job_id        uuid primary key,
    progress      json,
    watched_until timestamptz not null,
    updated_at    timestamptz
);
