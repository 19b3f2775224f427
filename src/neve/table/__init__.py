"""What all readers and writers of a table share: its definitions, its files and its views."""
