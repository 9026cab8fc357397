-- A chore could not be done now. Locks: its row (fence by token). Index: chores_pkey.
update genflow.chores
set due_at = genflow.clock() + %(delay_s)s * interval '1 s', lease_until = null
where id = %(chore)s and token = %(token)s
