"""Rows in and rows out: from the elements that pipelines have to Arrow tables, and from released tables back to rows."""
