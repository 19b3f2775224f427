"""neve[testing]: the test kit, with its model of a table and an S3 server on loopback."""

from neve.testing import store_contract, strategies
from neve.testing.s3_servers import locked_moto
from neve.testing.simulated_clock import SimulatedClock


def main() -> None:
    """Start what tests of users start."""
    assert store_contract.__doc__
    assert strategies.__doc__
    assert SimulatedClock().monotonic() >= 0
    with locked_moto() as server:
        assert server.at.endpoint.startswith("http://127.0.0.1:")


if __name__ == "__main__":
    main()
