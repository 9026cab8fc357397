-- Which job a submit's idempotency key belongs to. Locks: none. Index: job_keys_pkey.
select job_id
from genflow.job_keys
where tenant_id = %(tenant)s and scope = 'submit' and key = %(key)s
