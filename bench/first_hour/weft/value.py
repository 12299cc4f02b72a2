from dataclasses import dataclass

import weft
from weft.testing import Script


@dataclass
class Review:
    verdict: str
    remarks: list[str]


script = Script().answers({"verdict": "wait", "remarks": ["There is no test."]})
with weft.open(".", model=script, store="memory:") as agent:
    review = agent.ask("Review the last commit.", schema=Review).value
    print(review.verdict, review.remarks)
