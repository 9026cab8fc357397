-- One job's own story: its attempts and submits, and why it waits. Locks: none. Index: jobs_pkey, assets_output,
-- attempts_pkey, job_specs_pkey, submits_pkey.
select j.id, j.state, j.step, j.token, j.worker_id, j.attempt, j.takeovers, j.resubmits, j.collects, j.moved, j.doubled,
       nullif(j.run_at, 'infinity') as run_at, j.start_by, j.lease_until, j.executing_at, j.cancel_at, j.created_at, j.ended_at, j.error,
       j.requeued_as, s.requeued_from, coalesce(s.root_id, j.id) as root_id, s.params, s.set_values, s.metadata,
       bound.name as server, class.needs, bound.state as server_state, bound.reason as server_reason,
       bound.last_seen_at as server_seen_at,
       exists (
           select 1 from genflow.worker_servers as ws
           where ws.server_id = bound.id and ws.healthy and ws.seen_at > genflow.clock() - %(lately_s)s * interval '1 s'
       ) as server_seen,
       coalesce((
           select json_agg(json_build_object(
                      'no', a.no, 'server', v.name, 'worker', a.worker_id, 'started_at', a.started_at,
                      'ended_at', a.ended_at, 'outcome', a.outcome, 'class', a.class, 'code', a.code,
                      'reason', a.reason, 'node_id', a.node_id, 'node_class', a.node_class, 'gpu_ms', a.gpu_ms)
                  order by a.no)
           from genflow.attempts as a
           join genflow.servers as v on v.id = a.server_id
           where a.job_id = j.id
       ), '[]') as attempts,
       coalesce((
           select json_agg(json_build_object(
                      'no', u.no, 'uuid', u.uuid, 'attempt', u.attempt, 'server', v.name, 'slot', u.slot,
                      'state', u.state, 'number', u.number, 'created_at', u.created_at,
                      'accepted_at', u.accepted_at, 'ended_at', u.ended_at, 'executed', u.executed,
                      'stop_reason', u.stop_reason, 'gpu_ms', u.exec_end_ms - u.exec_start_ms)
                  order by u.no)
           from genflow.submits as u
           join genflow.servers as v on v.id = u.server_id
           where u.job_id = j.id
       ), '[]') as submits,
       coalesce((
           select json_agg(json_build_object('id', o.id, 'node_id', o.node_id, 'name', o.name, 'type', o.type,
                                             'content_type', o.content_type, 'size_bytes', o.size, 'partial', true)
                           order by o.node_id, o.key, o.idx)
           from genflow.assets as o
           where o.job_id = j.id and o.kind = 'output' and o.partial
       ), '[]') as partial_outputs
from genflow.jobs as j
join genflow.job_specs as s on s.job_id = j.id
left join genflow.servers as bound on bound.id = j.server_id
left join genflow.classes as class on class.id = j.class_id
where j.id = %(job)s and j.tenant_id = %(tenant)s and (j.state < 10 or j.expires_at > genflow.clock())
