"""The edit that makes an old Version the current one again.

Files that the old Version lacks leave, its own come back, and files of both get the vector they had
then. A file whose vector goes away altogether leaves and comes back in one step.
"""

from neve.model.version import Operation, Version, VersionEdit, VersionFacts


def rollback_edit(current: Version, wanted: Version) -> VersionEdit:
    """Return the edit from the current Version to the files and vectors of another."""
    changed = [
        path
        for path, file in current.files.items()
        if path not in wanted.files or wanted.files[path].vector != file.vector
    ]
    removed = tuple(changed)
    gone = set(changed)
    added = tuple(
        file for path, file in wanted.files.items() if path not in current.files or path in gone
    )
    return VersionEdit(
        base=current.number,
        facts=VersionFacts(
            operation=Operation.ROLLBACK,
            timestamp_ms=0,  # the commit sets it
            schema_id=current.facts.schema_id,
            spec_id=current.facts.spec_id,
            summary={"restored-version": str(wanted.number)},
        ),
        added=added,
        removed=removed,
    )
