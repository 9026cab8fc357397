-- What jobs of these classes need. Locks: none. Index: classes_pkey.
select id, needs from genflow.classes where id = any(%(classes)s)
