"""Limits of one client connection: bytes of frames and buffers, and requests per event-loop
iteration. Pure."""

from dataclasses import dataclass

from ottla.model.limits import (
    FRAMES_PER_TURN_MAX,
    MIB,
    REQUESTS_IN_FLIGHT_MAX,
    TURN_NS_MAX,
    WRITE_BACKLOG_BYTES_MAX,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of one client connection; the defaults are the limits of a broker."""

    frame_bytes_max: int = 100 * MIB
    """Maximum size of a request frame in bytes."""
    send_buffer_bytes: int = -1
    """Size of the kernel's send buffer in bytes (`socket.send.buffer.bytes`); -1 is the kernel's
    choice."""
    receive_buffer_bytes: int = -1
    """Size of the kernel's receive buffer in bytes (`socket.receive.buffer.bytes`); -1 is the
    kernel's choice."""
    frames_per_turn_max: int = FRAMES_PER_TURN_MAX
    turn_ns_max: int = TURN_NS_MAX
    requests_in_flight_max: int = REQUESTS_IN_FLIGHT_MAX
    write_backlog_bytes_max: int = WRITE_BACKLOG_BYTES_MAX
