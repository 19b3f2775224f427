"""What every way of touching a table shares: its definitions, its files and its views."""
