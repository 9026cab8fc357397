-- A chore is done. Locks: its row (fence by token). Index: chores_pkey.
delete from genflow.chores
where id = %(chore)s and token = %(token)s
