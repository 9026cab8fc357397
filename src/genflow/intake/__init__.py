"""The ways in: what a job must be to be accepted, whatever way it comes, and the ways beside HTTP."""
