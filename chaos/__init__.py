"""genflow under attack: real processes, drawn faults, and an oracle that checks every promise for every job."""
