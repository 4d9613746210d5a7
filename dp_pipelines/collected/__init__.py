"""What a server makes of reports that devices have randomised: counts, then unbiased estimates with their deviations.

In: a question (`dp_pipelines.collect`) and arrays of reports. Out: sums of whole numbers that add up over parts of the reports,
and estimates from them. Holds: p and q are exactly the chances by which devices answer. Not covered: who sent a report, and how
often: one report a person is kept where ids are.
"""
