"""What other bounds, clips, budgets and strategies would cost and gain, told from the raw rows: NOT private.

    configuration.py   the public numbers of one configuration: bounds, clips, noise, threshold
    selected.py        how often a partition is kept, and what being kept says about it
    errors.py          what each metric would be off by in each partition, taken apart
    tally.py           errors of many partitions as sums by size, which add up over places
    goal.py            what is wanted, and which configuration comes nearest
    page.py            a page of all that

Everything here is computed from rows without privacy, and stays in a private folder.
"""
