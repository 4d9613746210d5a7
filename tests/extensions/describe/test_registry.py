"""`describe --format registry`: its entry is valid by the registry's own schema, and says nothing of the rows.

In: jobs over the shop. Out: an entry and a checklist. Not covered: that a person finds the entry complete.
"""

import pathlib
import re
from collections.abc import Callable

import jsonschema
import pyarrow.parquet
import pytest
import yaml

from tests.extensions.describe.test_describe import FORMS, here  # noqa: F401 - fixture
from tests.helpers.public_schemas import public_schema
from tests.jobs.conftest import Said, Shop, purchases

Call = Callable[..., Said]

GROUPS = {
    "basic", "dp_variant", "privacy_loss", "deployment_model", "accounting", "implementation", "administrative",
}  # fmt: skip


@pytest.fixture(params=FORMS)
def entry(request: pytest.FixtureRequest, here: Shop, call: Call) -> str:  # noqa: F811
    """The entry of a job of each form."""
    here.write(**FORMS[request.param])
    params = [f"--param={name}=2025-01-06" for name in FORMS[request.param].get("params", {})]
    written = call("describe", "job.yaml", "--format", "registry", *params)
    assert written.code == 0, written.err
    return pathlib.Path("registry.yaml").read_text()


def test_the_entry_of_each_form_has_what_the_registry_asks_for(entry: str) -> None:
    content = yaml.safe_load(entry)
    assert set(content) == {"url_slug", "status", "tier", "deployment"}
    assert set(content["deployment"]) == GROUPS
    assert content["status"] == "Draft"
    loss = content["deployment"]["privacy_loss"]
    assert 0 < loss["privacy_parameters"]["epsilon"] < 10
    assert loss["privacy_unit"]
    # The registry takes plain, quoted and literal texts alone, and no backslashes but of formulas.
    assert {token.style for token in yaml.scan(entry) if hasattr(token, "style")} <= {None, "'", '"', "|"}
    assert not re.search(r"\\\\[^()]", entry)


def test_the_entry_of_each_form_is_valid_by_the_schema_of_the_registry(entry: str) -> None:
    validator = jsonschema.Draft7Validator(
        public_schema("deployments-schema.yaml"), format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER
    )
    assert [error.message for error in validator.iter_errors(yaml.safe_load(entry))] == []


def test_other_rows_give_the_same_files(here: Shop, call: Call) -> None:  # noqa: F811
    here.write()
    assert call("describe", "job.yaml", "--format", "registry", "--output", "one.yaml").code == 0
    pyarrow.parquet.write_table(purchases(77, rows=40), here.folder / "data" / "part-0.parquet")
    assert call("describe", "job.yaml", "--format", "registry", "--output", "two.yaml").code == 0
    for ending in ("yaml", "md"):
        assert pathlib.Path(f"one.{ending}").read_bytes() == pathlib.Path(f"two.{ending}").read_bytes()
    page = pathlib.Path("one.md").read_text()
    assert "NIST SP 800-226" in page
    assert all(heading in page for heading in ("Privacy parameters", "Unit of privacy", "Bias", "Trust model"))


@pytest.mark.parametrize(
    ("name", "refusal"), [("entry.html", "must end with .yaml"), ("entry.yaml", "exists, and is not replaced")]
)
def test_an_entry_is_yaml_and_never_replaces_one(name: str, refusal: str, here: Shop, call: Call) -> None:  # noqa: F811
    here.write()
    pathlib.Path("entry.yaml").write_text("mine")
    refused = call("describe", "job.yaml", "--format", "registry", "--output", name)
    assert refused.code == 2
    assert refusal in refused.err
    assert pathlib.Path("entry.yaml").read_text() == "mine"
