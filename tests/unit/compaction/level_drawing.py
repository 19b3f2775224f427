"""Reads drawings of levels, so that a case of the policy can be seen.

# what the case shows
options   level0_files=2 file_bytes=64          byte options in MiB
L0        aaaa......                            one file a: its keys are the columns it covers
L1        .xx.yyy...                            two files; lines of level 0 are oldest first
L1/2      ....zz....                            the same in partition 2
bytes     a=64 x=3                              in MiB; 10 unless said
marked    x=40                                  of 100 rows; 0 unless said
busy      y
pick      level0 a x -> L1 dual                 or: pick none; `all` and `full`: one plan a line
"""

from dataclasses import dataclass, field
from pathlib import Path

from neve.compaction.plan import CompactionPlan, LevelOptions
from neve.model.data_file import DataFile
from neve.model.version import Version
from tests.unit.compaction.builders import MIB, data_file, version_of

CASES = Path(__file__).parents[2] / "cases" / "compaction"


@dataclass(slots=True)
class Case:
    title: str
    options: dict[str, float] = field(default_factory=dict)
    strips: list[tuple[int, int | None, str]] = field(default_factory=list)
    file_bytes: dict[str, int] = field(default_factory=dict)
    marked: dict[str, int] = field(default_factory=dict)
    busy: list[str] = field(default_factory=list)
    question: str = ""
    plans: list[str] = field(default_factory=list)

    def level_options(self) -> LevelOptions:
        given = {
            name: int(value * MIB) if "bytes" in name else value
            for name, value in self.options.items()
        }
        return LevelOptions(**given)  # type: ignore[arg-type]

    def version(self) -> Version:
        files: list[DataFile] = []
        for level, partition, strip in self.strips:
            names = dict.fromkeys(strip.replace(".", ""))
            files.extend(
                data_file(
                    name,
                    level=level,
                    partition=partition,
                    keys=(_key(strip.index(name)), _key(strip.rindex(name))),
                    file_bytes=self.file_bytes.get(name, 10) * MIB,
                    marked=self.marked.get(name, 0),
                )
                for name in names
            )
        return version_of(files)

    def busy_paths(self) -> frozenset[str]:
        return frozenset(f"data/{name}.parquet" for name in self.busy)


def _key(column: int) -> bytes:
    return bytes([ord("A") + column])


def read_cases(name: str) -> list[Case]:
    return [_read(block) for block in (CASES / name).read_text().strip().split("\n\n")]


def _read(block: str) -> Case:
    case = Case("")
    for line in block.splitlines():
        word, _, rest = line.partition(" ")
        match word:
            case "#":
                case.title = rest.strip()
            case "options":
                case.options = {
                    key: float(value) if "." in value else int(value)
                    for key, value in (pair.split("=") for pair in rest.split())
                }
            case "bytes":
                case.file_bytes = _numbers(rest)
            case "marked":
                case.marked = _numbers(rest)
            case "busy":
                case.busy = rest.split()
            case "pick" | "all" | "full":
                assert case.question in {"", word}
                case.question = word
                case.plans.append(" ".join(rest.split()))
            case _:
                level, _, partition = word.removeprefix("L").partition("/")
                case.strips.append(
                    (int(level), int(partition) if partition else None, rest.strip())
                )
    return case


def _numbers(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in (pair.split("=") for pair in text.split())}


def drawn(plan: CompactionPlan | None) -> str:
    """Say a plan as the drawings do; inputs level by level, as they were named."""
    if plan is None:
        return "none"
    by_level = sorted(plan.inputs, key=lambda file: (file.level, file.path))
    names = " ".join(file.path.removeprefix("data/").removesuffix(".parquet") for file in by_level)
    return f"{plan.reason} {names} -> L{plan.target_level} {plan.format.name.lower()}"
