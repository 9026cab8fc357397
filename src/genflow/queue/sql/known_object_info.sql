-- What these descriptions of nodes say. Locks: none. Index: object_info_pkey.
select hash, body from genflow.object_info where hash = any(%(hashes)s)
