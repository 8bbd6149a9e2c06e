"""The server's end of a worker's socket: messages both ways, and descriptors on their way out.

asyncio's own streams cannot pass descriptors, so this works on the socket itself.
"""

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

_READ_BYTES = 1 << 20


@dataclass
class _Outgoing:
    data: memoryview
    descriptors: list[int]


class Channel:
    """A connected Unix stream socket. It is used on the event loop's thread alone."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._outgoing: deque[_Outgoing] = deque()
        self._waits_for_room = False
        self._closed = False
        self._received = bytearray()

    def send(self, data: bytes, *descriptors: int) -> None:
        """Sends bytes, later where the socket is full; with the first of them the descriptors.

        These stay the caller's, who may close them at once. To a peer that is gone
        nothing is sent: it shows in `receive`. Raises OSError where this process has too many
        files open to pass another on; then nothing is sent either.
        """
        if self._closed:
            return
        self._outgoing.append(_Outgoing(memoryview(data), _copies(descriptors)))
        if not self._waits_for_room:
            self._send_on()

    def _send_on(self) -> None:
        try:
            while self._outgoing:
                self._send_some(self._outgoing[0])
        except BlockingIOError:
            if not self._waits_for_room:
                self._loop.add_writer(self._socket, self._send_on)
                self._waits_for_room = True
            return
        except OSError:
            self._forget_outgoing()
        if self._waits_for_room:
            self._loop.remove_writer(self._socket)
            self._waits_for_room = False

    def _send_some(self, message: _Outgoing) -> None:
        if not message.descriptors:
            sent = self._socket.send(message.data)
        else:
            sent = socket.send_fds(self._socket, [message.data], message.descriptors)
            _close(message.descriptors)
        message.data = message.data[sent:]
        if not message.data:
            self._outgoing.popleft()

    async def receive(self, size_bytes: int) -> bytes:
        """Exactly so many bytes. Raises EOFError once the peer is gone."""
        while len(self._received) < size_bytes:
            try:
                chunk = await self._loop.sock_recv(self._socket, _READ_BYTES)
            except OSError:
                chunk = b""
            if not chunk:
                raise EOFError
            self._received += chunk
        taken = bytes(memoryview(self._received)[:size_bytes])
        del self._received[:size_bytes]
        return taken

    def close(self) -> None:
        """Ends the connection, after what can be sent without waiting. No receive may wait."""
        if self._closed:
            return
        self._closed = True
        if self._waits_for_room:
            self._loop.remove_writer(self._socket)
        self._forget_outgoing()
        self._socket.close()

    def _forget_outgoing(self) -> None:
        for message in self._outgoing:
            _close(message.descriptors)
        self._outgoing.clear()


def _copies(descriptors: Iterable[int]) -> list[int]:
    """All of them, or none and OSError."""
    copies: list[int] = []
    try:
        for descriptor in descriptors:
            copies.append(os.dup(descriptor))
    except OSError:
        _close(copies)
        raise
    return copies


def _close(descriptors: list[int]) -> None:
    while descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptors.pop())
