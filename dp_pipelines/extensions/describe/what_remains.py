"""What a release under this job does not protect from, and what follows for those who are responsible.

In: a job and what its stages ask for. Out: blocks of a page. Holds: what a manifest lists as not covered, and what the settings
of this job add to it; what only people can answer stands there as a question. Not covered: law, on which it claims nothing.
"""

from collections.abc import Iterator, Mapping

from dp_pipelines.extensions.describe.assessment_page import Block, Listed, Section, ToFillIn
from dp_pipelines.extensions.describe.what_is_read import public_tables
from dp_pipelines.jobs.run import looks
from dp_pipelines.jobs.spec.job_file import Job
from dp_pipelines.query.federate_model import FederateModel
from dp_pipelines.query.models.pate_model import PateModel
from dp_pipelines.query.query import PublicPartitions, Query
from dp_pipelines.query.train_model import JaxModel, TrainModel
from dp_pipelines.release.manifest import NOT_COVERED

Stages = Mapping[str, Query | TrainModel]

ALWAYS = (
    "who runs the job, and whoever can read the rows: the library protects readers' view of the people, not the files",
    "rows without a value of the privacy unit are dropped, so those people are missing from every number",
    "units that are not people: an account shared by a family is one unit, and one person with two accounts is two",
    "people who depend on each other: what one person's rows tell of relatives, colleagues or an infection that went round",
    "what is true of people in general and also applies to someone who is not in the rows",
    "conclusions that readers draw: numbers near a threshold are too high, small ones are mostly noise",
)


def risks(job: Job, stages: Stages) -> Iterator[Block]:
    """What remains.

    Args:
        job: what it is about.
        stages: what each stage asks for.
    """
    yield "Not covered by the guarantee, in any job:"
    yield Listed(items=[*NOT_COVERED, *ALWAYS])
    own = list(_of_settings(job, stages))
    if own:
        yield "From the settings of this job:"
        yield Listed(items=own)
    yield ToFillIn(question="Which of these matter here, how likely and how grave are they, and for whom?")
    yield ToFillIn(
        question="Which measures meet them: access to rows and machines, isolation of runs, review of outputs, training?"
    )


def _of_settings(job: Job, stages: Stages) -> Iterator[str]:
    listed = [
        name for name, asked in stages.items()
        if isinstance(asked, Query) and isinstance(asked.partitions, PublicPartitions) and asked.partition_columns
    ]  # fmt: skip
    if listed:
        yield (
            f"the groups of {', '.join(listed)} are a list that is declared public: if it was made from the rows, it tells "
            "of them"
        )
    if public_tables(job):
        yield "lookup tables are declared public: whatever stands in them is not protected"
    if job.window is not None:
        yield (
            f"each {job.window.days} days have a budget of their own: somebody who is in many windows loses as much in each, "
            "and the losses add up"
        )
    elif len(job.unit) > 1:
        yield (
            f"a unit is one combination of {' and '.join(job.unit)}: a person with several loses as much for each, and the "
            "losses add up"
        )
    if job.params:
        yield "values of parameters are published: one that was chosen by looking at rows tells of them"
    if job.join is not None or job.union is not None:
        yield "tables are put together by the unit: a person who is named differently in them is two units"
    trained = [name for name, asked in stages.items() if isinstance(asked, TrainModel)]
    if trained:
        yield (
            f"the model of {', '.join(trained)} is protected, its use is not: a prediction is about the row that it is "
            "given, and a model that is right about people in general is right about people outside of the rows too"
        )
    for name, asked in stages.items():
        if isinstance(asked, FederateModel):
            yield (
                f"the rounds of {name} are computed where the rows of all clients are: an update is not hidden from whoever "
                "runs the job, only what is published is protected"
            )
            if asked.steps.sampling_rate < 1 and asked.steps.participation == "hidden":
                yield f"that nobody sees which clients take part in a round of {name}: the price counts on it"
            if asked.steps.noise == "correlated" and asked.steps.separation != 1:
                yield (
                    f"the noise of the rounds of {name} lies beside the ledger until the last of them: whoever runs the job can "
                    "read it, and from it and what was published the exact sums of the rounds; it is destroyed after the last"
                )
        if isinstance(asked, PateModel):
            yield (
                f"the public table of {name} is declared public: whatever stands in it is not protected, and its bins are "
                "published"
            )
    if any(isinstance(asked, TrainModel) and isinstance(asked.model, JaxModel) for asked in stages.values()):
        yield "a model of your own is code that runs with the permissions of the job, and that nobody has checked for leaks"
    for look in looks.marks(looks.of_job(job)):
        yield look.words


def necessity() -> Section:
    """Whether the processing is needed and proportionate."""
    return Section(
        heading="Necessity and proportionality",
        blocks=[
            ToFillIn(
                question="Why is each column of section 2 needed? Would fewer columns, people, groups or runs do?"
            ),
            ToFillIn(
                question="Would a weaker use do: published statistics of others, a sample, answers randomised by devices?"
            ),
            ToFillIn(question="How was this epsilon chosen, by whom, and when will the choice be looked at again?"),
            ToFillIn(
                question=(
                    "Are the numbers good enough for their purpose with this noise? dp-pipelines plan says from which size "
                    "of a group on."
                )
            ),
        ],
    )


def retention() -> Section:
    """How long what is kept."""
    return Section(
        heading="Retention",
        blocks=[
            "What the software keeps:",
            Listed(
                items=[
                    "of rows nothing beyond a run: rows on their way and examples of a train stage lie in a hidden folder "
                    "beside the output, mode 0700, which the run removes; that of a run that was killed stays until the "
                    "same command runs again, or somebody removes it",
                    (
                        "what is published, for good: erasing a person's rows later changes no release, and need not for "
                        "the guarantee to hold"
                    ),
                    "the ledger: plans, parameters, what was spent and when, all that was published, and what a run that has "
                    "not ended has drawn, with its noise; no row. It must outlive the rows, since it alone knows what is left "
                    "of the budget",
                    "folders of dp-pipelines check and tune: private, with no guarantee, until somebody removes them",
                ]
            ),
            ToFillIn(question="How long are the rows kept, and who removes them?"),
            ToFillIn(question="How long are releases, models and private folders of dp-pipelines check and tune kept?"),
        ],
    )


def responsible() -> Iterator[Section]:
    """Headings that only those who are responsible can fill in."""
    yield Section(
        heading="Legal bases",
        blocks=[
            "This page makes no statement of law. Whether what is published still is personal data, and on which basis rows "
            "may be read for it, is for you and your data protection officer to decide.",
            ToFillIn(
                question=(
                    "Legal basis of reading the rows for this purpose (under the GDPR: Art. 6, and Art. 9 for special "
                    "categories)"
                )
            ),
            ToFillIn(question="Is the purpose that for which the rows were collected, or compatible with it?"),
            ToFillIn(
                question="Roles: controller, joint controllers, processors and their contracts; transfers to other countries"
            ),
            ToFillIn(
                question=(
                    "How are people informed, and how do they object, get access or have their rows erased before the next "
                    "run?"
                )
            ),
        ],
    )
    yield Section(
        heading="Opinions and decision",
        blocks=[
            ToFillIn(question="Advice of the data protection officer"),
            ToFillIn(
                question="Views of the people concerned, or of those who represent them, or why they were not asked"
            ),
            ToFillIn(question="Decision, by whom and when; date of the next review, and what would bring it forward"),
        ],
    )
