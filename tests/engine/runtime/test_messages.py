"""What slots and the JobMaster say to each other survives the wire, and nothing else is taken for it."""

from __future__ import annotations

import pytest

from snapshot_engine.runtime import messages as m


@pytest.mark.parametrize(
    "message",
    [
        m.Hello(0, 1, 2, 3, "7", None, "10.0.0.1", 42, ["ns", "\0name", "10.0.0.1", 9], b"proof"),
        m.Trigger(5, 1.5, ["a#0", "b#1"], False),
        m.Acknowledged(5, "a#0", {"operators": [], "channels": {}}, {"sync": 0.1}),
        m.Stop("the end"),
    ],
)
def test_messages_survive_the_wire(message: m.Message) -> None:
    packed = m.pack(message)
    (length,) = m.LENGTH.unpack_from(packed)
    assert length == len(packed) - m.LENGTH.size
    assert m.unpack(packed[m.LENGTH.size :]) == message


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x92\xa5Hello\x80", b"\x92\xa4Evil\x80", b"GET / HTTP/1.1"])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(m.BadMessage):
        m.unpack(data)


def test_a_proof_is_for_one_slot_of_one_attempt() -> None:
    proofs = {
        m.proof_of(b"secret", *who) for who in ((0, 1, 1, 0), (0, 1, 1, 1), (0, 1, 2, 0), (1, 1, 1, 0), (0, 2, 1, 0))
    }
    assert len(proofs) == 5
    assert m.proof_of(b"other", 0, 1, 1, 0) not in proofs
