"""What a person's own device does under local differential privacy: it answers a question at random, and sends only that.

In: a question, made once and public, and one person's value. Out: a report of a few whole numbers. Holds: standard library only,
so that it runs on devices; chances are whole multiples of 2^-52 whose ratios are at most e^epsilon, drawn with coins of the
operating system. Not covered: who was asked and when, which address sent it; what a server makes of reports (`collected`).
"""
