"""Who is let in to `emulate ui`: each check alone, and the kernel's word on who has connected."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import replace

import pytest

from emulator.ui.gate import ENTRY, HEADER, Asked, Refusal, Secrets, decide
from emulator.ui.peer import is_owner, owner

KNOWN = Secrets("the-token", "the-session", "emulate-ui-1234")
HERE = "http://127.0.0.1:1234"
COOKIE = {"host": "127.0.0.1:1234", "cookie": "other=1; emulate-ui-1234=the-session"}
READ = Asked("GET", "/", "", COOKIE)
CHANGE = Asked(
    "POST",
    "/start",
    "",
    {**COOKIE, "origin": HERE, "sec-fetch-site": "same-origin", HEADER: "1"},
)
ENTER = Asked("GET", ENTRY, "the-token", {"host": "127.0.0.1:1234"})


def status(asked: Asked) -> int | str:
    verdict = decide(asked, KNOWN)
    return verdict.status if isinstance(verdict, Refusal) else verdict


def with_headers(asked: Asked, **changed: str | None) -> Asked:
    headers = dict(asked.headers)
    for key, value in changed.items():
        headers.pop(key.replace("_", "-"), None)
        if value is not None:
            headers[key.replace("_", "-")] = value
    return replace(asked, headers=headers)


def test_the_users_own_page_may_read_and_change() -> None:
    assert (status(ENTER), status(READ), status(CHANGE)) == ("enter", "pass", "pass")
    typed = with_headers(READ, sec_fetch_site="none")
    forwarded = with_headers(CHANGE, host="localhost:8000", origin="http://localhost:8000")
    assert (status(typed), status(forwarded)) == ("pass", "pass")


@pytest.mark.parametrize("asked", [READ, CHANGE, ENTER], ids=["read", "change", "enter"])
def test_other_users_and_other_hosts_get_nothing_even_with_all_secrets(asked: Asked) -> None:
    assert status(replace(asked, is_owner=False)) == 403
    assert status(replace(asked, is_owner=None)) == status(asked)  # no kernel tells
    for host in ("evil.example", "evil.example:1234", "127.0.0.1.evil.example:1234", "", "[::1]"):
        assert status(with_headers(asked, host=host)) == 421
    for host in ("127.0.0.1:x", "localhost:", "a@127.0.0.1:1234", "localhost, evil.example"):
        assert status(with_headers(asked, host=host)) == 421


@pytest.mark.parametrize("cookie", [None, "", "emulate-ui-1234=", "emulate-ui-9=the-session", "="])
def test_without_the_cookie_nothing_is_answered(cookie: str | None) -> None:
    assert status(with_headers(READ, cookie=cookie)) == 401
    assert status(with_headers(CHANGE, cookie=cookie)) == 401
    assert status(replace(READ, token="the-token")) == "pass"  # only the entry reads it
    assert status(replace(with_headers(READ, cookie=None), token="the-token")) == 401


def test_the_token_is_exchanged_in_one_place_only() -> None:
    assert status(replace(ENTER, token="")) == 401
    assert status(replace(ENTER, token="the-tokem")) == 401
    assert status(replace(ENTER, token="\N{SNOWMAN}")) == 401
    assert status(replace(ENTER, method="POST")) == 403
    assert status(with_headers(ENTER, sec_fetch_site="cross-site")) == "enter"  # a link


@pytest.mark.parametrize(
    "origin",
    [None, "null", "http://127.0.0.1:1235", "http://localhost:1234", "https://127.0.0.1:1234", ""],
)
def test_another_page_can_change_nothing(origin: str | None) -> None:
    assert status(with_headers(CHANGE, origin=origin)) == 403
    assert status(replace(with_headers(CHANGE, origin=origin), method="DELETE")) == 403


@pytest.mark.parametrize("site", ["same-site", "cross-site", "none"])
def test_nor_where_only_the_site_says_it(site: str) -> None:
    assert status(with_headers(CHANGE, sec_fetch_site=site)) == 403
    assert status(with_headers(READ, sec_fetch_site=site)) == ("pass" if site == "none" else 403)


def test_another_page_can_read_nothing_and_a_form_can_change_nothing() -> None:
    assert status(with_headers(READ, origin="http://127.0.0.1:1235")) == 403
    assert status(with_headers(CHANGE, **{HEADER: None})) == 403


def test_secrets_are_new_and_long() -> None:
    one, other = Secrets.new(1), Secrets.new(1)
    assert len({one.token, one.session, other.token, other.session}) == 4
    assert min(map(len, (one.token, one.session))) >= 32
    assert one.cookie != Secrets.new(2).cookie


TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:04D2 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1
   1: 0100007F:04D2 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 2
   2: 0100007F:C350 0100007F:04D2 01 00000000:00000000 00:00000000 00000000  1001        0 3
   3: 0100007F:C351 0100007F:04D2 04 00000000:00000000 00:00000000 00000000     0        0 0
"""


@pytest.mark.skipif(sys.byteorder != "little", reason="the table is of such a machine")
def test_the_kernel_says_whose_end_it_is() -> None:
    server = ("127.0.0.1", 1234)
    assert owner(TABLE.splitlines(), ("127.0.0.1", 50000), server) == 1001
    assert owner(TABLE.splitlines(), ("127.0.0.1", 50001), server) is None  # closed by its owner
    assert owner(TABLE.splitlines(), ("127.0.0.1", 50002), server) is None
    assert owner(TABLE.splitlines(), ("::1", 50000), server) is None


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="only Linux has this table")
def test_a_connection_of_this_process_is_this_users() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = listening.getsockname()
        with socket.create_connection(server) as client:
            name = client.getsockname()
            assert is_owner(name, server) is True
        accepted, _ = listening.accept()
        with accepted:
            assert is_owner(name, server) is False  # nobody's any more
        assert is_owner(None, server) is False
