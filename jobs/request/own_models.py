"""Models of a job whose code is somebody's own: tried before anything is charged, and their code as a part of what a run is.

In: train tasks. Out: digests of code files, or errors by file and line. Holds: no rows are there when this runs, so what
the code says of its own failure is public. Not covered: modules that the code imports, which the digest does not see; what
the code does once it has rows.
"""

from collections.abc import Mapping

from dp_pipelines.errors import DpError, RequestError
from dp_pipelines.jobs.spec.job_file import JobFile
from dp_pipelines.query.train_model import JaxModel, Model, TrainModel


def code_digests(tasks: Mapping[str, TrainModel]) -> dict[str, str]:
    """For each stage whose model is code of its own, the SHA-256 of the file that holds it; empty where none is.

    Raises:
        RequestError: there is no such file.
    """
    own = {name: task.model for name, task in tasks.items() if isinstance(task.model, JaxModel)}
    if not own:
        return {}
    from dp_pipelines.training.kernels import jax_model

    return {name: jax_model.code_digest(model) for name, model in own.items()}


def refuse_unnamed(model: Model) -> None:
    """Refuse a model of somebody's own whose name leads to no such object. It is imported for this.

    Raises:
        RequestError: why.
    """
    if isinstance(model, JaxModel):
        from dp_pipelines.training.kernels import jax_model

        jax_model.resolve(model)


def refuse_unfit(file: JobFile, tasks: Mapping[str, TrainModel]) -> None:
    """Refuse code that cannot train on rows of zeros, before anything is charged.

    Raises:
        RequestError: it cannot, with the line of the job file.
    """
    for name, task in tasks.items():
        if not isinstance(task.model, JaxModel):
            continue
        from dp_pipelines.training.kernels import of_task

        try:
            of_task.kernel_of(task, b"")
        except RequestError as error:
            raise file.error(("stages", name), error) from None
        except DpError:
            raise
        except Exception as error:  # whatever somebody's code may raise
            message = f"{task.model.name!r} fails on rows of zeros: {type(error).__name__}: {error}"
            raise file.error(
                ("stages", name), RequestError(field="model.name", message=message, hint="try it on such rows yourself")
            ) from None
