"""The command `export`: a published model in the languages of other programs, SQL and ONNX."""
