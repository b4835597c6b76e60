"""What acting on trust costs in each iteration of learning, and a cloud of policies:

    fcritic bench update --recipes studies/training/trust/costs.py:plain studies/training/trust/costs.py:rests ...

Options of the study on `fac-small` as it ships, one at a time, and all together; measured every 200 iterations, and
as in the study every 50.
"""

import dataclasses

from fcritic.agents.cloud import Cloud
from fcritic.agents.recipes import find_recipe
from fcritic.agents.steering import Trust

plain = find_recipe("fac-small")
behaviour = dataclasses.replace(plain, trust=Trust(behaviour=True))
rests = dataclasses.replace(plain, trust=Trust(rest_above=1.2))
refresh = dataclasses.replace(plain, trust=Trust(refresh_above=2.0))
region = dataclasses.replace(plain, trust=Trust(region=1.0))
everything = dataclasses.replace(plain, trust=Trust(behaviour=True, rest_above=1.2, refresh_above=2.0, region=1.0))
often = dataclasses.replace(everything, trust=dataclasses.replace(everything.trust, every=50))
soft = find_recipe("fsac-small")
soft_without_cloud = dataclasses.replace(soft, cloud=Cloud())
