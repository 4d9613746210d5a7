"""The JSON schema of job files, made once for all tests that read it."""

from dp_pipelines.jobs.spec import job_schemas

SCHEMA = job_schemas.schema()
