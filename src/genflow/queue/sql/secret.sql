-- The secret of this name, made by whoever comes first. Locks: its row. Index: secrets_pkey.
with made as (
    insert into genflow.secrets (name, value)
    values (%(name)s, %(value)s)
    on conflict (name) do nothing
    returning value
)
select value from made
union all
select value from genflow.secrets where name = %(name)s
limit 1
