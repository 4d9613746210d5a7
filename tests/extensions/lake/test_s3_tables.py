"""Tables in a store that speaks S3: what is public is refused unpaid, and no message has a key.

In: the shop's files, in moto's server on this machine. Out: exit codes, messages, the ledger. Not covered: the integers of each
format (`tests/engines/test_object_stores.py`); tables that are written (`test_s3_delta_outputs`).
"""

import pytest

from tests.helpers.object_stores import SECRET, Store
from tests.jobs.conftest import Shop
from tests.jobs.stores.test_s3_sources import PUBLIC, Call


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_store_that_does_not_answer_is_refused_unpaid(
    shop: Shop, rows: str, store: Store, call: Call, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:password@127.0.0.1:9")
    job = shop.write(source={form: {"path": rows}}, stages=PUBLIC)
    said = call("run", job, "--output", shop.folder / "out")
    assert (said.code, shop.charged()) == (2, 0)
    assert f"names {rows!r}, but the store does not answer; check AWS_ENDPOINT_URL" in said.err
    assert SECRET not in said.err
    assert "password" not in said.err


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_credentials_in_a_url_are_refused_and_not_shown(shop: Shop, store: Store, call: Call, form: str) -> None:
    url = "s3://some-key:some-secret@bucket/data"
    job = shop.write(source={form: {"path": url}}, stages=PUBLIC)
    for command in ("plan", "run", "check", "describe"):
        said = call(command, job, *(() if command == "plan" else ("--output", shop.folder / "out")))
        assert said.code == 2
        assert "s3://...@bucket/data" in said.err
        assert "some-" not in said.err + said.out
    assert shop.charged() == 0
