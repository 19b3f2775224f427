"""The catalog: names of tables, their definitions, their snapshots; the door to a lake."""
