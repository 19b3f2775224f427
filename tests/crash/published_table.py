"""What a reader finds of a published table on a disk, before anybody opens the table itself."""

from neve.storage.disk import Disk
from neve.storage.local_store import LocalStore
from neve.testing.model_table import Key
from neve.testing.simulated_clock import SeededIds
from tests.crash.engine_rows import Violation
from tests.crash.engine_world import ROOT, World
from tests.interop.iceberg_walk import read_metadata, walk

_HINT = "/version-hint.text"


def check_published(world: World, disk: Disk) -> None:
    """The document that the hint names is there, and so is all that it lists; keys are known."""
    store = LocalStore(ROOT, disk=disk, clock=world.clock, ids=SeededIds(world.seed))

    def fetch(location: str) -> bytes:
        return store.get(location.removeprefix(f"file://{ROOT}/")).payload

    names = [info.path for info in store.list("tables/")]
    for hint in (name for name in names if name.endswith(_HINT)):
        folder, number = hint.removesuffix(_HINT), int(store.get(hint).payload)
        metadata = read_metadata(f"file://{ROOT}/{folder}/v{number}.metadata.json", fetch)
        walked = {each["snapshot-id"]: walk(metadata, each["snapshot-id"], fetch)
                  for each in metadata["snapshots"]}  # fmt: skip
        current = metadata.get("current-snapshot-id")
        known = None if current is None else world.model.versions.get(current)
        if known is None:
            continue
        # By id: key columns may have other names since the newest snapshot was made.
        schema = next(each for each in metadata["schemas"] if each["schema-id"] == 0)
        key_ids = {field["name"]: field["id"] for field in schema["fields"]}
        names_then = world.shape.primary_key
        wanted = {key_ids[name]: name for name in names_then}
        rows = walked[current].rows(wanted).to_pylist()
        found: set[Key] = {tuple(row[name] for name in names_then) for row in rows}
        if len(rows) != len(found) or found != known.keys():
            raise Violation(f"version {current} is published with keys {sorted(found)}")
