"""The documents: what they show runs, what they name exists, the site builds without a warning."""

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
from contextlib import suppress
from html import unescape
from importlib.util import module_from_spec, spec_from_file_location
from itertools import chain
from pathlib import Path
from types import ModuleType

import click
import pytest
from google.protobuf.descriptor import Descriptor

import neve
from neve.catalog.known_properties import RETENTION_MILLISECONDS, RETENTION_VERSIONS
from neve.catalog.system_tables import SYSTEM_TABLES
from neve.cli.commands import leaf_commands
from neve.cli.exit_codes import EXIT_CODE_WORDS
from neve.cli.main import cli
from neve.manifest import mrub_pb2
from neve.observability.metrics import ALL_METRICS, Metric

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
DECISIONS = sorted((DOCS / "adr").glob("0*.md"))
LEAVES = leaf_commands(cli, below="neve")
SOURCES = sorted((ROOT / "src" / "neve").rglob("*.py"))

# Pages to look things up in whose blocks stand by themselves.
WITH_BLOCKS = [
    str(page.relative_to(DOCS))
    for page in [DOCS / "operations.md", *sorted((DOCS / "reference").glob("*.md"))]
    if "```python\n" in page.read_text()
]

EXAMPLE_LINES = 60
README_EXAMPLE_LINES = 12
DECISION_LINES = 60

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
RENDERED = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
BYTES_OWNER = re.compile(r"# on disk: never change", re.IGNORECASE)
MESSAGE_TABLE = re.compile(r"^\| message \| .+\n\|---.+\n((?:\|.+\n)+)", re.MULTILINE)
CODE_CELL = re.compile(r"^\| `([^`]+)` \| ", re.MULTILINE)
NUMBERED_FIELD = re.compile(r"^\| (\d+) \| `(\w+)` \| ", re.MULTILINE)
RULE_CITED = re.compile(r"\*\*([A-Z]+-[A-Z]?\d{1,2})\*\*")
RULE_STATED = re.compile(r"^(?:\"\"\")? *([A-Z]+-[A-Z]?\d{1,2}) {2,}\S", re.MULTILINE)
BARE_RULE_CITED = re.compile(r"\*\*([A-Z]{1,2}\d{1,2})\*\*")
BARE_RULE_STATED = re.compile(r"^(?:\"\"\")? *([A-Z]{1,2}\d{1,2}) {2,}\S", re.MULTILINE)

# Fields of neve's own begin here; those below are merutable's.
OWN_FIELDS_FROM = {"DataFileRef": 21, "DeleteFileRef": 11, "Manifest": 25}


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def run(script: Path, *, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(script)], cwd=directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def rendered_modules(folder: Path) -> set[str]:
    return {name for page in folder.rglob("*.md") for name in RENDERED.findall(page.read_text())}


def without_code(text: str) -> str:
    return CODE_BLOCK.sub("", text)


def anchor_of(heading: str) -> str:
    """Anchor that both the site and repository hosts give a heading."""
    words = re.sub(r"[^\w\s-]", "", heading.replace("`", "").lower())
    return re.sub(r"\s+", "-", words.strip())


def read_script(name: str) -> ModuleType:
    """Load what the site is built with."""
    spec = spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made_pages() -> dict[Path, str]:
    """Return the pages that exist only on the site, by the paths they would have."""
    script = read_script("command_pages")
    pages = {"index": script.index_page(), **script.command_pages()}
    return {DOCS / script.FOLDER / f"{name}.md": text for name, text in pages.items()}


MADE_PAGES = made_pages()


# What is shown runs


def test_the_examples_of_the_readme_print_what_they_say(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    script = tmp_path / "example.py"
    examples = list(zip(blocks(readme, "python"), blocks(readme, "text"), strict=True))

    assert examples
    for example, promised in examples:
        script.write_text(example)
        assert run(script, directory=tmp_path) == promised
        assert run(script, directory=tmp_path) == promised, "the second run differs"
        assert len(example.splitlines()) <= README_EXAMPLE_LINES


@pytest.mark.parametrize("path", EXAMPLES, ids=page_id)
def test_an_example_is_short_and_prints_what_its_docstring_says(path: Path, tmp_path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    promised = docstring.partition("It prints:\n\n")[2]

    printed = run(path, directory=tmp_path)

    assert printed.splitlines() == [line[4:] for line in promised.splitlines()]
    assert len(path.read_text().splitlines()) < EXAMPLE_LINES


@pytest.mark.parametrize("name", WITH_BLOCKS)
def test_each_block_of_a_page_to_look_things_up_in_runs_by_itself(
    name: str, tmp_path: Path
) -> None:
    shown = blocks((DOCS / name).read_text(), "python")

    assert shown
    for number, block in enumerate(shown):
        directory = tmp_path / str(number)
        directory.mkdir()
        script = directory / "block.py"
        script.write_text(block)
        run(script, directory=directory)


def test_examples_are_numbered_and_the_readme_links_each() -> None:
    readme = (ROOT / "README.md").read_text()

    assert [path.name[:3] for path in EXAMPLES] == [
        f"{number:02}_" for number in range(1, len(EXAMPLES) + 1)
    ]
    assert not [path.name for path in EXAMPLES if f"(examples/{path.name})" not in readme]


# What is named exists


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for target in LINK.findall(without_code(page.read_text())):
        if target.startswith(("https://", "http://")):
            continue
        name, _, anchor = target.partition("#")
        place = (page.parent / name).resolve() if name else page
        made = MADE_PAGES.get(place)
        if made is None and not place.exists():
            lost.append(target)
        elif anchor:
            text = place.read_text() if made is None else made
            if anchor not in map(anchor_of, HEADING.findall(text)):
                lost.append(target)

    assert not lost


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_files_and_tests_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    kept_tests = {
        name
        for folder in (ROOT / "tests", ROOT / "src" / "neve" / "testing")
        for path in folder.rglob("*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    named_files = re.findall(r"`((?:src|tests|docs|examples|benchmarks)/[\w./-]*)`", text)

    assert not set(re.findall(r"`(test_\w+)`", text)) - kept_tests
    assert not [name for name in named_files if not (ROOT / name).exists()]


def exists(dotted_name: str) -> bool:
    """Whether a dotted name is a module of neve, or something inside of one."""
    found: object = neve
    for name in dotted_name.split(".")[1:]:
        if isinstance(found, ModuleType) and not hasattr(found, name):
            with suppress(ModuleNotFoundError):
                importlib.import_module(f"{found.__name__}.{name}")
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return True


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_modules_and_classes_that_a_page_names_exist(page: Path) -> None:
    text = without_code(page.read_text())
    metrics = {metric.name for metric in ALL_METRICS}
    properties = {RETENTION_VERSIONS, RETENTION_MILLISECONDS}
    names = {*re.findall(r"`(neve\.[\w.]+\w)`", text), *RENDERED.findall(text)}

    assert not [name for name in sorted(names - metrics - properties) if not exists(name)]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_rules_that_a_page_cites_are_stated_by_a_module(page: Path) -> None:
    stated = {rule for path in SOURCES for rule in RULE_STATED.findall(path.read_text())}
    text = page.read_text()

    assert stated
    assert not set(RULE_CITED.findall(text)) - stated
    assert not BARE_RULE_CITED.findall(text), "a rule without the prefix of its package"


def test_a_rule_that_a_module_states_has_the_prefix_of_a_package() -> None:
    assert not [
        f"{page_id(path)}: {rule}"
        for path in SOURCES
        for rule in BARE_RULE_STATED.findall(path.read_text())
    ]


def test_a_rule_has_a_code_of_its_own() -> None:
    # A module states a rule once, and may open another line with the code of a rule.
    stated = [
        rule for path in SOURCES for rule in sorted(set(RULE_STATED.findall(path.read_text())))
    ]

    assert sorted(stated) == sorted(set(stated))


@pytest.mark.parametrize("metric", ALL_METRICS, ids=lambda metric: metric.name)
def test_a_metric_is_explained_to_operators_and_in_the_reference(metric: Metric) -> None:
    operations = (DOCS / "operations.md").read_text()
    reference = (DOCS / "reference" / "metrics.md").read_text()

    assert f"| `{metric.name}` | {metric.unit} | " in operations
    assert f"| `{metric.name}` | {metric.unit} | {metric.meaning} |" in reference


def test_messages_that_operations_explain_are_messages_of_the_source() -> None:
    operations = (DOCS / "operations.md").read_text()
    explained = [CODE_CELL.findall(table) for table in MESSAGE_TABLE.findall(operations)]
    source = "\n".join(path.read_text() for path in SOURCES)

    assert len(explained) > 1
    for message in chain.from_iterable(explained):
        assert all(part.strip() in source for part in message.split("…")), message


def test_every_log_line_is_explained_to_operators() -> None:
    operations = (DOCS / "operations.md").read_text()
    calls = re.findall(
        r"logger\.(\w+)\(\s*\"([^\"]+)\"", "\n".join(path.read_text() for path in SOURCES)
    )

    assert calls
    for level, line in calls:
        shown = re.sub(r"%[\w.]+", "…", line)
        assert f"| {level.upper()} | `{shown}` | " in operations, line


@pytest.mark.parametrize(
    ("words", "command", "context"),
    LEAVES,
    ids=[words for words, _, _ in LEAVES],
)
def test_every_command_has_a_page_with_its_arguments_options_and_examples(
    words: str, command: click.Command, context: click.Context
) -> None:
    page = MADE_PAGES[DOCS / "commands" / f"{words.split()[1]}.md"]
    index = MADE_PAGES[DOCS / "commands" / "index.md"]
    below = page.partition(f"# {words}\n")[2]
    assert below
    assert f"| [`{words}" in index
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option):
            assert f"| `{', '.join(parameter.opts)}" in below
        else:
            assert f"| `{parameter.make_metavar(context)}` | " in below
    examples = getattr(command, "examples", ())
    assert all(f"\n{example}\n" in below for example in examples)


def test_operators_read_of_every_exit_code_what_it_means() -> None:
    operations = (DOCS / "operations.md").read_text()
    below = operations.partition("\n### Exit codes\n")[2].partition("\n### ")[0]
    told = re.findall(r"^\| (\d+) \| (.+) \|$", below, re.MULTILINE)

    assert {int(code): meaning for code, meaning in told} == EXIT_CODE_WORDS


def test_every_module_that_owns_bytes_is_on_a_format_page() -> None:
    owners = {
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        for path in SOURCES
        if BYTES_OWNER.search(path.read_text())
    }

    assert owners
    assert not owners - rendered_modules(DOCS / "formats")


@pytest.mark.parametrize("message", OWN_FIELDS_FROM)
def test_every_field_of_merutables_messages_is_on_the_page_of_the_seeds(message: str) -> None:
    found = seed_table(message)
    descriptor: Descriptor = mrub_pb2.DESCRIPTOR.message_types_by_name[message]
    fields = {
        field.number: field.name
        for field in descriptor.fields
        if field.number < OWN_FIELDS_FROM[message]
    }

    assert {int(number): name for number, name in NUMBERED_FIELD.findall(found)} == fields


@pytest.mark.parametrize("table", SYSTEM_TABLES)
def test_every_column_of_a_system_table_is_on_the_page_of_the_seeds(table: str) -> None:
    found = seed_table(f"`{table}`")

    assert CODE_CELL.findall(found) == SYSTEM_TABLES[table]([]).column_names


def seed_table(heading: str) -> str:
    """Return what stands below a heading of the page that lists the fields of the seeds."""
    seeds = (DOCS / "formats" / "seeds.md").read_text()
    return seeds.partition(f"\n### {heading}\n")[2].partition("\n### ")[0].partition("\n## ")[0]


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    reasons = (DOCS / "adr" / "0011-dependencies.md").read_text()
    first_cells = " ".join(re.findall(r"^\| ([^|]+) \|", reasons, re.MULTILINE))
    packages = {re.split(r"[<>=]", requirement)[0] for requirement in project["dependencies"]}

    assert packages
    assert not packages - set(re.findall(r"[\w-]+", first_cells))


# The form of documents


@pytest.mark.parametrize("path", DECISIONS, ids=page_id)
def test_a_decision_has_four_parts_and_fits_on_a_page(path: Path) -> None:
    text = path.read_text()

    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == [
        "Status",
        "Context",
        "Decision",
        "Consequences",
    ]
    assert text.startswith(f"# {path.name[:4]}: ")
    assert len(text.splitlines()) <= DECISION_LINES
    assert f"({path.name})" in (DOCS / "adr" / "index.md").read_text()


def test_decisions_are_numbered_without_gaps() -> None:
    assert [path.name[:4] for path in DECISIONS] == [
        f"{number:04}" for number in range(1, len(DECISIONS) + 1)
    ]


def test_a_noun_is_in_the_glossary_once_and_in_order() -> None:
    nouns = re.findall(r"^\| \*\*(.+?)\*\*", (DOCS / "glossary.md").read_text(), re.MULTILINE)

    assert nouns == sorted(set(nouns), key=str.lower)


def test_the_changelog_has_a_place_for_changes_of_bytes() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()

    assert "\n## Unreleased\n\n### On-disk formats\n" in changelog


# The site


def test_numbered_rules_and_inner_lists_become_markdown_lists() -> None:
    docstring = (
        "Steps:\n\n1. Judge:\n   - one way\n   - the other\n\n"
        "    a drawing\n    KEYS-9  in it\n\n"
        "KEYS-1   A rule,\n         of two lines.\nMANIFEST-V1  Another."
    )

    shown = read_script("docstring_lists").to_markdown(docstring)

    assert shown == (
        "Steps:\n\n1. Judge:\n    - one way\n    - the other\n\n"
        "    a drawing\n    KEYS-9  in it\n\n\n"
        "- **KEYS-1** A rule,\n         of two lines.\n- **MANIFEST-V1** Another."
    )


def shown_text(page: str) -> str:
    """Return what a built page shows, without blocks of code."""
    article = re.search(r"<article.*?</article>", page, re.DOTALL)
    without_blocks = re.sub(r"<pre.*?</pre>", "", article[0] if article else "", flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", "", without_blocks))


def test_the_site_builds_without_a_warning_and_is_read_from_files(tmp_path: Path) -> None:
    # Not --quiet: mkdocs would then not see its own warnings either, and --strict would do nothing.
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert built.returncode == 0, built.stderr
    fetched = {
        address
        for page in tmp_path.rglob("*.html")
        for address in re.findall(
            r"<(?:script|img|link|iframe)\b[^>]*?(?:src|href)=\"((?:https?:)?//[^\"]+)",
            page.read_text(),
        )
    }
    assert not fetched
    # Without a server a page cannot fetch the search index: it is a script, and so is the worker.
    assert (tmp_path / "search" / "search_index.js").read_text().startswith("var __index = {")
    pages = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*.html")}
    assert all("javascripts/iframe-worker.js" in page for page in pages.values())
    # `\%` and `\_` are how a pattern writes these signs; any other backslash is one of Markdown's.
    stray = [name for name, page in pages.items() if re.search(r"\\(?![%_])", shown_text(page))]
    assert not stray
