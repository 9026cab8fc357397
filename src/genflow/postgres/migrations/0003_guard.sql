-- Whether genflow's guard stood at the server when it was last probed; null where no probe has told yet. A column without a
-- default rewrites no table, and a program that does not know it goes on.
alter table genflow.servers add column guard boolean;
