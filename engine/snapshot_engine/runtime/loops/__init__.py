"""Loops at run time: the head with its queues and logs (in a slot), and the end of a loop (at the driver).

The decisions are those of `protocol.loop_log` and `protocol.loop_end`; here is what they are carried out with.
"""
