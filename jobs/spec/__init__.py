"""The job file: what it may say, with the line of everything, and a query as the job that it stands for."""
