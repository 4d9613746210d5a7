"""`dp-pipelines init`: a first job file from public facts."""
