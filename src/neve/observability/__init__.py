"""What the engine says about itself: metrics with unit and meaning."""
