-- Whether a key was ever made: who has ended the last one has not opened the API to everybody. Locks: none. A small table.
select exists (select 1 from genflow.api_keys) as found
