"""Channels between subtasks: ordered elements, bounded queues, back pressure. Nothing here ever blocks.

A channel inside one slot is a queue. A channel between two slots is a socket: abstract Unix where both slots share a
network namespace, TCP otherwise. The consumer dials the producer, so that a consumer that comes back after a failure
can say from where it wants to read on.
"""
