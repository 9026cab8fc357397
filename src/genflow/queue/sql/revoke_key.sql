-- End the keys of this name, after a while or now. Locks: their rows. Index: api_keys_name.
update genflow.api_keys
set ends_at = least(ends_at, genflow.clock() + %(keep_s)s * interval '1 s')
where name = %(name)s and (ends_at is null or ends_at > genflow.clock())
returning id
