"""Boosted additive models of `interpret` on given rows: with differential privacy for a row, or without.

In: a folder with rows.npz, then epsilon and delta, or nothing for no privacy. Out: scores.npy beside it, log odds of the
held-out rows. Runs in .venv-interpret. Holds: everything but the declared ranges is the library's default, and interactions are
off, so that all models see one feature at a time. Not covered: its arithmetic, which is that of floats.
"""

import pathlib
import sys

import numpy as np
from interpret.glassbox import ExplainableBoostingClassifier
from interpret.privacy import DPExplainableBoostingClassifier


def main() -> None:
    """Fit, and write the scores."""
    folder = pathlib.Path(sys.argv[1])
    given = np.load(folder / "rows.npz")
    kinds = ["nominal" if nominal else "continuous" for nominal in given["nominal"]]
    if len(sys.argv) > 2:
        bounds = {
            place: (given["low"][place], given["high"][place])
            for place, kind in enumerate(kinds)
            if kind == "continuous"
        }
        model = DPExplainableBoostingClassifier(
            feature_types=kinds, privacy_bounds=bounds, epsilon=float(sys.argv[2]), delta=float(sys.argv[3]), n_jobs=1
        )
    else:
        model = ExplainableBoostingClassifier(
            feature_types=kinds, interactions=0, outer_bags=2, n_jobs=1, random_state=0
        )
    model.fit(given["rows"], given["labels"])
    chances = np.clip(model.predict_proba(given["held_out"])[:, 1], 1e-12, 1 - 1e-12)
    np.save(folder / "scores.npy", np.log(chances / (1 - chances)))


main()
