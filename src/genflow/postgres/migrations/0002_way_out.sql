-- What goes along with a job or a file that is deleted. docs/design/tables.md, “The way out”, has the whole of it.

-- A record that goes may have been the last of its bytes: clean-up is to look. A trigger, because several statements, and
-- other triggers, delete records. The blobs are locked in hash order, as finish.sql does.
create function genflow.loosen_blobs() returns trigger
    language plpgsql as
$$
begin
    update genflow.blobs as b
    set touched_at = genflow.clock()
    from (
        select k.hash
        from genflow.blobs as k
        where k.hash in (select gone.blob_hash from gone) and k.state = 1
        order by k.hash
        for update
    ) as loose
    where b.hash = loose.hash;
    return null;
end
$$;
create trigger assets_loosen_blobs after delete on genflow.assets
    referencing old table as gone for each statement execute function genflow.loosen_blobs();

-- The files that a history entry names, and nothing else of it: texts may be a person's. Null where it can't be read; the
-- server's own entry then still names them.
create function genflow.files_of(entry json) returns json
    language plpgsql immutable as
$$
begin
    return json_build_object('outputs', json_build_object('0', json_build_object('files', (
        select json_agg(jsonb_strip_nulls(jsonb_build_object(
                   'filename', item -> 'filename', 'subfolder', item -> 'subfolder', 'type', item -> 'type',
                   'workflow', item -> 'workflow')))
        from jsonb_path_query((entry -> 'outputs')::jsonb, '$.*.*[*] ? (exists (@.filename))') as item))));
exception
    when data_exception then
        return null;
end
$$;

-- The way out of every job, past its time, purged or erased: its outputs go with it, and what is still to be taken away on
-- servers is written down where it outlives the job. A trigger, because several statements delete jobs. Where its erasure
-- was asked for, so do the uploads that no other job uses and what its file said of it, its bytes need not wait, and the
-- copies on servers go whatever its policy says. Each statement here sees what was committed before it, so that an upload
-- which a new job refers to, behind the lock, is left.
create function genflow.leave_nothing() returns trigger
    language plpgsql as
$$
declare
    freed bytea[];
begin
    if old.erase then
        if not (select coalesce((s.policy ->> 'scrub')::boolean, true) from genflow.job_specs as s where s.job_id = old.id) then
            perform genflow.add_scrubs(old.id);
        end if;
        update genflow.batch_rows set "set" = '{}' where job_id = old.id;
        perform 1
        from genflow.assets as a
        where a.id in (select r.asset_id from genflow.job_assets as r where r.job_id = old.id)
        order by a.id
        for update;
        with gone as (
            delete from genflow.assets as a
            where a.kind = 'upload'
              and a.id in (select r.asset_id from genflow.job_assets as r where r.job_id = old.id)
              and not exists (
                  select 1 from genflow.job_assets as r where r.asset_id = a.id and r.job_id <> old.id)
            returning a.blob_hash
        )
        select array_agg(blob_hash) into freed from gone;
    end if;
    update genflow.chores as c
    set payload = genflow.files_of(u.entry), due_at = case when old.erase then genflow.clock() else c.due_at end
    from genflow.submits as u
    where c.kind = 'scrub' and c.job_id = old.id and u.job_id = old.id and u.no = c.submit_no and u.entry is not null;
    with freed_names as (
        delete from genflow.server_file_refs as r
        using genflow.server_files as f
        where r.job_id = old.id and f.server_id = r.server_id and f.name = r.name
          and (f.state = 3 or not exists (
              select 1 from genflow.chores as c
              where c.kind = 'scrub' and c.job_id = old.id and c.submit_no = -r.server_id))
        returning r.server_id, r.name
    )
    delete from genflow.server_files as f
    using freed_names
    where f.server_id = freed_names.server_id and f.name = freed_names.name
      and not exists (
          select 1 from genflow.server_file_refs as other
          where other.server_id = f.server_id and other.name = f.name and other.job_id <> old.id);
    with gone as (
        delete from genflow.assets as a where a.job_id = old.id and a.kind = 'output' returning a.blob_hash
    )
    select freed || array_agg(blob_hash) into freed from gone;
    if old.erase then
        update genflow.blobs set touched_at = '-infinity' where hash = any(freed) and state = 1;
    end if;
    delete from genflow.job_live where job_id = old.id;
    return old;
end
$$;
create trigger jobs_leave_nothing before delete on genflow.jobs
    for each row execute function genflow.leave_nothing();
