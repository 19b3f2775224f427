"""The live table: owns threads, locks and the order of things."""
