-- A prompt that left a worker after its lease was lost may run beside another: have its server asked, once per receipt,
-- as soon as the submit is closed; one that the next holder found and followed is no such case.
-- Locks: the receipts. Index: late_receipts_new, submits_uuid_key, chores' unique key.
with news as (
    update genflow.late_receipts as r
    set chored = true
    from genflow.submits as u
    where not r.chored and u.uuid = r.submit and u.state >= 10
    returning u.server_id, u.job_id, u.no, u.uuid, u.state, r.number
)
insert into genflow.chores (kind, server_id, job_id, submit_no, submit, payload, due_at)
select distinct on (job_id, no)
       'stop', server_id, job_id, no, uuid, json_build_object('late', true, 'number', number), genflow.clock()
from news
where state in (11, 12, 13)
order by job_id, no, number nulls last
on conflict do nothing
returning id
