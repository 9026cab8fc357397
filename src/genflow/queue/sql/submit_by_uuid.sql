-- Whether a submit was written, after a commit whose outcome is unknown. Locks: none. Index: submits_uuid_key.
select no, attempt
from genflow.submits
where uuid = %(submit)s
