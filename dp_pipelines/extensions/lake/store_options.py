"""What the libraries of table formats are told of a store of objects, so that they wait and retry as our own reads do.

In: the path or URL of a table. Out: options of deltalake and of PyIceberg. Not covered: credentials, which they read themselves.
"""

from dp_pipelines.engine import object_store


def for_delta(path: str) -> dict[str, str] | None:
    """Return what deltalake is told of the store of a table, beside what it reads of the environment; None if local."""
    if not object_store.is_object(path):
        return None
    found = {"max_retries": str(object_store.ATTEMPTS), "retry_timeout": f"{object_store.ANSWER_SECONDS}s"}
    if at := object_store.endpoint():
        found["aws_endpoint"] = at
    if not object_store.is_encrypted():
        found["aws_allow_http"] = "true"
    return found


def for_iceberg(path: str) -> dict[str, str]:
    """Return the same for PyIceberg; nothing if local."""
    if not object_store.is_object(path):
        return {}
    found = {"s3.connect-timeout": str(object_store.CONNECT_SECONDS)}
    found |= {"s3.request-timeout": str(object_store.ANSWER_SECONDS)}
    if at := object_store.endpoint():
        found["s3.endpoint"] = at
    if of := object_store.region() or ("us-east-1" if object_store.endpoint() else None):
        found["s3.region"] = of  # else PyIceberg asks Amazon for the region of the bucket
    return found
