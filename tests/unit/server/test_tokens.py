"""What a scope allows, and how tokens are found."""

import hashlib
from pathlib import Path

import pytest

from neve.server.tokens import Access, Caller, Scope, Tokens

TOKEN = "0123456789abcdef"  # noqa: S105 - of this test


@pytest.mark.parametrize(
    ("scope", "access", "namespace", "is_allowed"),
    [
        (Scope("read"), "read", "shop", True),
        (Scope("read"), "read", None, True),
        (Scope("read"), "write", "shop", False),
        (Scope("write"), "write", "shop.eu", True),
        (Scope("write"), "read", "shop", True),
        (Scope("read", "shop"), "read", "shop", True),
        (Scope("read", "shop"), "read", "shop.eu", True),
        (Scope("read", "shop"), "read", "shopping", False),
        (Scope("read", "shop"), "read", None, False),
        (Scope("read", "shop.eu"), "read", "shop", False),
    ],
)
def test_a_scope_is_a_namespace_and_what_is_below_it(
    scope: Scope, access: Access, namespace: str | None, is_allowed: bool
) -> None:
    assert scope.allows(access, namespace) is is_allowed


def test_the_parents_of_a_scope_are_seen_but_not_read() -> None:
    caller = Caller(name="a", scopes=(Scope("read", "shop.eu"),))

    assert caller.sees("shop")
    assert caller.sees("shop.eu.berlin")
    assert not caller.sees("other")
    assert not caller.may("read", "shop")


def test_a_token_is_found_until_it_expires(tmp_path: Path) -> None:
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    path = tmp_path / "tokens.toml"
    path.write_text(
        f'[[token]]\nname = "a"\nsha256 = "{digest}"\nscopes = ["read"]\n'
        "expires = 1970-01-01T00:00:10Z\n"
    )
    tokens = Tokens.read(path)

    found = tokens.find(TOKEN, 9_999)
    assert found is not None
    assert found.name == "a"
    assert tokens.find(TOKEN, 10_000) is None
    assert tokens.find(TOKEN + "x", 0) is None
    assert tokens.find("\ud800", 0) is None
