"""The test kit, for users too: simulated disk, faults, contract suites."""
