"""An answer with a type. The model is a script, so that this runs without a key.

python examples/embed/value.py
"""

from dataclasses import dataclass
from typing import Literal

import weft
from weft.testing import Script


@dataclass
class Review:
    verdict: Literal["merge", "wait"]
    remarks: list[str]


script = Script().answers({"verdict": "wait", "remarks": ["There is no test."]})
with weft.open(".", model=script, store="memory:", schema=Review) as agent:
    review = agent.ask("Review the last commit.").value
    print(review.verdict, review.remarks)
