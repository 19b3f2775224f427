"""CommitPublishing: tells other engines of every commit, beside the writer and never in its way.

    commit ──► shown ──► acknowledged               a write never waits for what follows
                     └──► published                 by a thread of the table, or by the call that
                                                    committed when the table has no threads

What publishing means is decided above: here it is a step that says whether there was anything to
do. One that fails is told, counted, and tried again; the rows are safe and readable all the while.
"""

import logging
from collections.abc import Callable

from neve.engine.table_parts import TableParts
from neve.errors import NeveError, Unavailable
from neve.observability.metrics import PUBLISH_FAILURES, PUBLISH_SECONDS, PUBLISHES

logger = logging.getLogger(__name__)

Publish = Callable[[], bool]
"""Publishes the current Version; False when that was done already."""


class CommitPublishing:
    """Publishes the commits of one table; safe for many threads when the step is."""

    def __init__(self, parts: TableParts, publish: Publish) -> None:
        self._parts = parts
        self._publish = publish

    def publish_once(self) -> bool:
        """Publish the current Version; False when that was done already. Raises NeveError."""
        began = self._parts.clock.monotonic()
        try:
            is_done = self._publish()
        except NeveError:
            self._parts.recorder.add(PUBLISH_FAILURES, 1)
            raise
        except Exception as error:
            # A library's error must not end the thread that would try again.
            self._parts.recorder.add(PUBLISH_FAILURES, 1)
            raise Unavailable(
                f"the table could not be published: {error!r}",
                path=self._parts.paths.metadata,
                hint="Its rows are safe; publishing is tried again",
            ) from error
        if is_done:
            self._parts.recorder.add(PUBLISHES, 1)
            self._parts.recorder.add(PUBLISH_SECONDS, self._parts.clock.monotonic() - began)
        return is_done

    def try_publish(self) -> None:
        """Publish the current Version; a failure is told, and left to the next time."""
        try:
            self.publish_once()
        except NeveError as error:
            self._parts.failed("publish", error)
            logger.warning("could not publish table=%s cause=%s", self._parts.paths.table_id, error)
