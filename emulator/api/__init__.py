"""A running scenario from outside: its HTTP API, the client, and `/metrics`."""
