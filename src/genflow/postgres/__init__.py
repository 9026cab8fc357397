"""Postgres: the embedded server, the choice of a database, the pool, the migrations.

Everything above this room sees a conninfo string and a pool; where the server runs, and as whom, is decided here.
"""
