"""The test kit that users get too: simulated disk, faults, contract suites."""
