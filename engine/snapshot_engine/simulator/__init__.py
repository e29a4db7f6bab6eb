"""Whole jobs on the pure protocol parts, under random schedules and faults drawn from a seed.

Nothing here is a model of the protocols: coordinator, alignment, watermarks, logs, failover and lineage are
the very classes that the runtime uses. What is simulated is the world around them: processes that crash or go
on as zombies, messages that are lost, late or doubled, a store that does not say whether it wrote, drivers
that are stopped and resumed.
"""
