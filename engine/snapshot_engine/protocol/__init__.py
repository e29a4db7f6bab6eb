"""The protocols of the engine, pure: events and the time go in, actions come out.

Nothing here may start a thread, open a socket or a file, look at a clock or draw a random number: the runtime
is the shell that does these things, and the simulator runs the very same classes under random schedules.
"""
