"""Bytes with a few random mutations: flipped bits, extreme values, cuts and insertions."""

from random import Random


def mutated(payload: bytes, rng: Random) -> bytes:
    content = bytearray(payload)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(content))
        match rng.randrange(4):
            case 0:
                content[at] ^= 1 << rng.randrange(8)
            case 1:
                content[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del content[at : at + rng.randint(1, 8)]
            case _:
                content[at:at] = rng.randbytes(rng.randint(1, 8))
        if not content:
            return b""
    return bytes(content)
