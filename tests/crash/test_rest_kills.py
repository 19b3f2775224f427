"""A server that is killed between adopting a commit and answering: nothing is lost or doubled."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog

import neve
from tests.crash import rest_server
from tests.gates import Gate
from tests.integration.rest_requests import cities, make_orders, orders
from tests.integration.test_rest_writing import change_of, commit_of


@contextmanager
def serving(lake: Path, moment: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    process = subprocess.Popen(
        [sys.executable, rest_server.__file__, str(lake), moment],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_commit_that_got_no_answer_is_made_once_when_it_is_sent_again(
    tmp_path: Path, moment: str
) -> None:
    place = tmp_path / "lake"
    with neve.open(place) as lake:
        make_orders(lake).close()
    with serving(place, moment) as (url, process):
        theirs = RestCatalog("lake", uri=url).load_table("shop.orders")
        with pytest.raises(Exception, match=r"[Cc]onnection|[Rr]emote"):
            theirs.append(orders({1: "once", 100: "new"}))
        assert process.wait(60) == rest_server.EXIT_CODE

    with neve.open(place) as lake, lake.table("shop.orders") as table:
        found = cities(table)
        assert (found[1] == "once") == (100 in found) == (moment == "after")
        table.verify(independent=True)


def test_requests_that_are_repeated_after_kills_lose_and_double_nothing(
    tmp_path: Path, scoreboard: Callable[[str], None]
) -> None:
    place = tmp_path / "lake"
    with neve.open(place) as lake:
        make_orders(lake).close()
    expected = {key: f"c{key % 3}" for key in range(30)}
    gate = Gate("R32 kills of a server around foreign commits", aim=20, full=500)
    for seed in gate.seeds(at_least=4):
        random = Random(seed)
        rows = {random.randrange(60): f"{seed}.{each}" for each in range(5)}
        with neve.open(place) as lake, lake.serve() as server:
            request = commit_of(server, orders(rows))
        with serving(place, rest_server.MOMENTS[seed % 2]) as (url, process):
            assert send(url, request) in {None, HTTPStatus.OK}
            assert process.wait(60) == rest_server.EXIT_CODE
        with neve.open(place) as lake, lake.serve() as server:
            before = commits(lake)
            for _ in range(2):
                assert send(server.url, request) == HTTPStatus.OK
            expected |= rows
            with lake.table("shop.orders") as table:
                is_right = cities(table) == expected
            gate.cases += 1
            gate.violations += not is_right or commits(lake) > before + 1
    scoreboard(gate.line())

    assert not gate.violations


def test_a_commit_to_a_guest_is_made_once_when_it_got_no_answer(tmp_path: Path) -> None:
    place = tmp_path / "lake"
    path = "/v1/namespaces/shop/tables/clicks"
    with neve.open(place) as lake, lake.serve() as server:
        catalog = RestCatalog("lake", uri=server.url)
        catalog.create_namespace("shop")
        catalog.create_table("shop.clicks", orders({}).schema)
        request = commit_of(server, orders({1: "once"}), "shop.clicks")
    with serving(place, "guest") as (url, process):
        assert send(url, request, path) in {None, HTTPStatus.OK}
        assert process.wait(60) == rest_server.EXIT_CODE

    with neve.open(place) as lake, lake.serve() as server:
        assert send(server.url, request, path) == HTTPStatus.OK
        assert lake.guests.load("shop.clicks").to_arrow().num_rows == 1


def test_a_transaction_of_several_tables_is_whole_after_kills(
    tmp_path: Path, scoreboard: Callable[[str], None]
) -> None:
    place = tmp_path / "lake"
    names = ("shop.orders", "shop.more", "shop.most")
    with neve.open(place) as lake:
        for name in names:
            make_orders(lake, name).close()
    expected = {name: {key: f"c{key % 3}" for key in range(30)} for name in names}
    moments = rest_server.JOINT_MOMENTS
    gate = Gate("R33 kills of a server in a transaction of tables", aim=10, full=200)
    for seed in gate.seeds(at_least=len(moments)):
        random = Random(seed)
        rows = {
            name: {random.randrange(60): f"{seed}.{name}.{each}" for each in range(3)}
            for name in names
        }
        moment = moments[seed % len(moments)]
        is_refused = True
        while is_refused:  # when upkeep of the server has committed meanwhile
            with neve.open(place) as lake, lake.serve() as server:
                changes = [change_of(server, orders(rows[name]), name) for name in names]
            with serving(place, moment) as (url, process):
                status = send(url, {"table-changes": changes}, "/v1/transactions/commit")
                is_refused = status == HTTPStatus.CONFLICT
                assert is_refused or process.wait(60) == rest_server.EXIT_CODE
        is_decided = moments.index(moment) >= moments.index("decided")
        if is_decided:
            expected = {name: expected[name] | rows[name] for name in names}
        with neve.open(place) as lake:
            found = {name: cities(lake.table(name)) for name in names}
            gate.cases += 1
            gate.violations += found != expected
            if is_decided:
                with lake.serve() as server:
                    status = send(server.url, {"table-changes": changes}, "/v1/transactions/commit")
                    gate.violations += status != HTTPStatus.NO_CONTENT
                gate.violations += {name: cities(lake.table(name)) for name in names} != expected
    scoreboard(gate.line())

    assert not gate.violations


def commits(lake: neve.Lake) -> int:
    """Return how many retained Versions changed rows."""
    operations = lake.load_table("shop.orders").history().column("operation").to_pylist()
    return len([each for each in operations if each not in {"REPLACE", "EVOLVE"}])


def send(
    url: str, request: dict[str, Any], path: str = "/v1/namespaces/shop/tables/orders"
) -> int | None:
    """Send a commit to a server that may die; return its status, None when it died."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=60)
    body = json.dumps(request)
    try:
        connection.request("POST", path, body=body)
        return connection.getresponse().status
    except (ConnectionError, HTTPException):
        return None
    finally:
        connection.close()
