"""One epoll for all sockets of a slot, with a callback for each direction."""

from __future__ import annotations

import select
from collections.abc import Callable
from dataclasses import dataclass

READ = select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR
WRITE = select.EPOLLOUT


@dataclass(slots=True)
class _Registration:
    on_read: Callable[[], None] | None
    on_write: Callable[[], None] | None
    events: int


class Poller:
    """Callbacks run inside `poll`, in the caller's thread.

    A hang-up is told even to who asks for nothing, again and again. So the kernel knows nothing of who wants neither to
    read nor to write for now.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._registrations: dict[int, _Registration] = {}

    def register(
        self, fd: int, on_read: Callable[[], None] | None = None, on_write: Callable[[], None] | None = None
    ) -> None:
        """Watch `fd` for reading, if `on_read` is given; for writing only after `want_write`."""
        self._registrations[fd] = _Registration(on_read, on_write, 0)
        self.want_read(fd, on_read is not None)

    def want_read(self, fd: int, wanted: bool) -> None:
        self._want(fd, select.EPOLLIN, wanted)

    def want_write(self, fd: int, wanted: bool) -> None:
        self._want(fd, select.EPOLLOUT, wanted)

    def unregister(self, fd: int) -> None:
        registration = self._registrations.pop(fd, None)
        if registration is not None and registration.events:
            self._epoll.unregister(fd)

    def poll(self, timeout: float) -> bool:
        """Run the callbacks of what is ready; whether there was anything."""
        ready = self._epoll.poll(timeout)
        for fd, events in ready:
            registration = self._registrations.get(fd)
            if registration is None:
                continue
            if events & WRITE and registration.on_write:
                registration.on_write()
            if events & READ and registration.on_read and fd in self._registrations:
                registration.on_read()
        return bool(ready)

    def close(self) -> None:
        self._epoll.close()

    def _want(self, fd: int, bit: int, wanted: bool) -> None:
        registration = self._registrations.get(fd)
        if registration is None:
            return
        events = registration.events | bit if wanted else registration.events & ~bit
        if events == registration.events:
            return
        if not events:
            self._epoll.unregister(fd)
        elif registration.events:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        registration.events = events
