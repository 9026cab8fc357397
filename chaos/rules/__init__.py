"""The promises as rules: each looks through a snapshot and tells what breaks it."""
