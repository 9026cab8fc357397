-- Evidence only: the server's answer reached a worker that no longer held the job. Locks: none.
insert into genflow.late_receipts (submit, number, seen_at)
values (%(submit)s, %(number)s, genflow.clock())
