-- A prompt that left a worker after its lease was lost may run beside another: have its server asked, once per receipt.
-- Locks: the receipts. Index: submits_uuid_key, chores' unique key.
with news as (
    update genflow.late_receipts
    set chored = true
    where not chored
    returning submit, number
)
insert into genflow.chores (kind, server_id, job_id, submit_no, submit, payload, due_at)
select 'stop', u.server_id, u.job_id, u.no, u.uuid, json_build_object('late', true, 'number', news.number),
       genflow.clock()
from news
join genflow.submits as u on u.uuid = news.submit and u.state in (11, 12, 13)
on conflict do nothing
returning id
