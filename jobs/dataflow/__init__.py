"""What Dataflow needs: its rules, its job graph, staging in a bucket, uploads."""
