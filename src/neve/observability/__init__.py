"""What the engine reports about itself: metrics and events."""
