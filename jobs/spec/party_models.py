"""`parties:` of a job file: organisations that keep their rows to themselves and publish one report.

In: names with addresses, and what is promised of people. Out: checked models. Holds: three parties, of which at least two have
rows; each has an address of its own. Not covered: what can be released together (`query.parties`); how
(`extensions.two_organisations`).
"""

import ipaddress
import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.base_models import JobModel
from dp_pipelines.query.parties import Parties

NUMBER = 3
"""Of parties: with fewer no majority of them is honest where one is not, and more would not be asked for yet."""

PORT = re.compile(r"[0-9]{1,5}\Z")
HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}\Z")


class Member(JobModel):
    """One of the parties."""

    address: Annotated[str, Field(description="Where the others reach it, as host:port.")]
    rows: Annotated[bool, Field(description="Whether it has rows; one without only computes.")] = True

    @model_validator(mode="after")
    def _host_and_port(self) -> "Member":
        host, _, port = self.address.rpartition(":")
        if not (_is_host(host) and PORT.match(port) and 0 < int(port) < 2**16):
            hint = "write e.g. north.example.org:4433"
            raise RequestError(field="address", message="must be host:port", hint=hint)
        return self


def _is_host(text: str) -> bool:
    """Whether a text is a name of a machine or an IPv4 address."""
    if re.fullmatch(r"[0-9.]+", text):
        try:
            ipaddress.IPv4Address(text)
        except ValueError:
            return False
    return bool(HOST.match(text))


class PartiesModel(JobModel):
    """Organisations that keep their rows to themselves and publish one report: the same file for all of them."""

    people: Annotated[
        Literal["any", "disjoint"],
        Field(
            description="Whether one privacy unit may have rows at several parties (any), or all promise that none has "
            "(disjoint), which nobody can verify."
        ),
    ] = "any"
    members: Annotated[
        dict[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")], Member],
        Field(description="The three parties by name."),
    ]
    wait_seconds: Annotated[
        int,
        Field(
            ge=1, le=86400, description="How long a party waits for the others before its run ends without a release."
        ),
    ] = 600

    @model_validator(mode="after")
    def _three(self) -> "PartiesModel":
        if len(self.members) != NUMBER:
            message = f"must be {NUMBER}, of which two or three have rows"
            raise RequestError(field="members", message=message, hint="name a third one with rows: false")
        addresses = [member.address for member in self.members.values()]
        if len(set(addresses)) < len(addresses):
            message = "gives two parties one address"
            raise RequestError(field="members", message=message, hint="give each its own")
        if sum(member.rows for member in self.members.values()) < 2:
            message = "must have rows at two of the parties, at least"
            raise RequestError(field="members", message=message, hint="drop rows: false, or drop parties")
        return self

    def build(self) -> Parties:
        """What the library knows of them."""
        holders = [checks.plain(name, "parties.members") for name, member in self.members.items() if member.rows]
        helpers = [name for name, member in self.members.items() if not member.rows]
        return Parties(holders=holders, helpers=helpers, disjoint=self.people == "disjoint")
