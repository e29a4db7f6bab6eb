"""Benchmarks of the snapshot engine beside its peers: same events, same machine, one run.

Nothing here is imported by the engine or the operator. Peers run in processes and virtual environments of
their own; what they share with the harness is `worker.py`, which needs only the standard library.
"""
