"""CommitPublishing: publishes every commit to other engines.

    put, upsert, delete      acknowledged when logged; never wait for publishing
    commit in the background ──► published by a thread of the table, soon
    flush, compact, evolve, … ──► published before the call returns

A layer above defines what publishing means: here it is a step that returns whether there was
anything to do. A failure is counted, reported and tried again; meanwhile the rows are safe and
readable. A call that committed but could not publish raises NotPublished.
"""

import logging

from neve.errors import NeveError, NotPublished, Phrase, Unavailable, Wording
from neve.observability.metrics import PUBLISH_FAILURES, PUBLISH_SECONDS, PUBLISHES
from neve.table.table_context import TableParts

logger = logging.getLogger(__name__)


class CommitPublishing:
    """Publishes the commits of one table; safe for many threads when that is."""

    def __init__(self, parts: TableParts) -> None:
        self._parts = parts

    def publish_once(self) -> bool:
        """Publish the current Version; raises NeveError.

        False when it was published already, and for a table that is not published.
        """
        published = self._parts.published
        if published is None:
            return False
        began = self._parts.clock.monotonic()
        try:
            is_done = published.publish_once()
        except NeveError:
            self._parts.recorder.add(PUBLISH_FAILURES, 1)
            raise
        except Exception as error:
            # A library's error must not end the thread that tries again.
            self._parts.recorder.add(PUBLISH_FAILURES, 1)
            raise Unavailable(
                f"the table could not be published: {error!r}",
                path=self._parts.paths.metadata,
                hint="Wait: the rows are safe, and publishing is tried again",
            ) from error
        if is_done:
            self._parts.recorder.add(PUBLISHES, 1)
            self._parts.recorder.add(PUBLISH_SECONDS, self._parts.clock.monotonic() - began)
        return is_done

    def publish_committed(self, version: int) -> None:
        """Publish a Version that was just committed; raises NotPublished when that fails."""
        try:
            self.publish_once()
        except NeveError as error:
            self._report(error)
            raise NotPublished(
                f"version {version:,} is committed, and other engines do not see it yet: "
                f"{error.what_and_where}",
                version=version,
                path=self._parts.paths.metadata,
                hint=Wording(Phrase.NEXT_COMMIT_PUBLISHES),
            ) from error

    def try_publish(self) -> None:
        """Publish the current Version; report a failure, and leave it to the next try."""
        try:
            self.publish_once()
        except NeveError as error:
            self._report(error)

    def _report(self, error: NeveError) -> None:
        self._parts.failed("publish", error)
        logger.warning("could not publish table=%s cause=%s", self._parts.paths.table_id, error)
