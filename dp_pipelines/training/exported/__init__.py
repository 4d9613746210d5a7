"""A published model in the languages of other programs: SQL and ONNX."""
