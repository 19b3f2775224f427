"""The executor of the engine itself keeps the contract of all executors."""

from neve.compaction.rewrite_job import PlanExecutor
from neve.jobs.run import JobBase
from neve.testing.executor_contract import PlanExecutorContract, local_executor


class TestLocalExecutor(PlanExecutorContract):
    def executor(self, base: JobBase) -> PlanExecutor:
        return local_executor(base)
